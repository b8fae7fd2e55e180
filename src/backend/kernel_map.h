/* kernel_map.h - the one list of kernels: X(name, function type, REQUIRED or OPTIONAL).
 *
 * The slots of the table, the declarations in each backend, the f64 symbols of the CPU, the stubs of meta and the
 * emulator's table derive from it. The function types are documented in kernels.h, elementwise kernels here. Every
 * backend has the REQUIRED kernels; an OPTIONAL slot is NULL unless the backend's table names it. */
#ifndef FRI_BACKEND_KERNEL_MAP_H
#define FRI_BACKEND_KERNEL_MAP_H

#include "backend/kernels.h"

/* FRI_IF_##need(tokens): the tokens where the kernel is REQUIRED. */
#define FRI_IF_REQUIRED(...) __VA_ARGS__
#define FRI_IF_OPTIONAL(...)

/* A required kernel: the type has the kernel's name, or the given one. */
#define FRI_OWN(X, word)      X(word, fri_##word##_fn, REQUIRED)
#define FRI_AS(X, word, type) X(word, fri_##type##_fn, REQUIRED)

/* clang-format off */
/* Kernels that take every element type: the f64 table shares the functions. */
#define FRI_MEMORY_KERNELS(X)                                                                                          \
    FRI_OWN(X, fill) FRI_OWN(X, copy_rows) FRI_OWN(X, cast) FRI_OWN(X, cast_list) FRI_OWN(X, normalize)                \
    FRI_OWN(X, copy_strided)

/* Activations: backward reads y or x; the layer's class, and its kind for fused calls. Kernels of every backend, ops,
 * layers and their tests are made from the list. */
#define FRI_ACTIVATIONS(A, ...) \
    A(sigmoid, Y, "Sigmoid", OTHER, __VA_ARGS__) \
    A(tanh, Y, "Tanh", OTHER, __VA_ARGS__) \
    A(silu, X, "SiLU", SILU, __VA_ARGS__) \
    A(hardsigmoid, X, "Hardsigmoid", OTHER, __VA_ARGS__) \
    A(hardswish, X, "Hardswish", HARDSWISH, __VA_ARGS__) \
    A(gelu, X, "GELU", OTHER, __VA_ARGS__) \
    A(gelu_tanh, X, "GELUTanh", OTHER, __VA_ARGS__) \
    A(elu, Y, "ELU", OTHER, __VA_ARGS__) \
    A(softplus, X, "Softplus", OTHER, __VA_ARGS__)
#define FRI_FORWARD_KERNEL(word, saves, class_name, kind, X) X(word##_forward, fri_unary_fn, REQUIRED)
#define FRI_BACKWARD_KERNEL(word, saves, class_name, kind, X) X(word##_backward, fri_binary_fn, REQUIRED)

/* Elementwise: y[i] from the inputs' element i. */
#define FRI_UNARY_KERNELS(X) \
    X(relu_forward, fri_unary_fn, REQUIRED)  /* y = max(x, 0), NaN passes */ \
    X(relu6_forward, fri_unary_fn, REQUIRED) /* y = min(max(x, 0), 6), NaN passes */ \
    X(elu_inverse, fri_unary_fn, REQUIRED)   /* y = x where x > 0, else log(x + 1), of -1 some -17 */ \
    FRI_ACTIVATIONS(FRI_FORWARD_KERNEL, X)
#define FRI_BINARY_KERNELS(X)                                                                                         \
    X(add, fri_binary_fn, REQUIRED)           /* y = a + b */                                                         \
    X(sub, fri_binary_fn, REQUIRED)           /* y = a - b */                                                         \
    X(mul, fri_binary_fn, REQUIRED)           /* y = a * b */                                                         \
    X(div, fri_binary_fn, REQUIRED)           /* y = a / b */                                                         \
    X(relu_backward, fri_binary_fn, REQUIRED) /* y = b where !(a <= 0), else 0: a is the output, b the gradient */    \
    X(relu6_backward, fri_binary_fn, REQUIRED) /* y = b where 0 < a < 6, else 0 */ \
    FRI_ACTIVATIONS(FRI_BACKWARD_KERNEL, X)
#define FRI_SCALED_KERNELS(X)                                                              \
    X(scale, fri_scaled_fn, REQUIRED)              /* y = alpha * x */                     \
    X(add_scalar, fri_scaled_fn, REQUIRED)         /* y = x + alpha */                     \
    X(leaky_relu_forward, fri_scaled_fn, REQUIRED) /* y = x where x > 0, else alpha * x */

/* Own loops, on every device, of the steps of described ops (ops/frame.h) alone: meta has none. */
#define FRI_STEP_KERNELS(X)                                                                                            \
    FRI_OWN(X, clamp_forward) FRI_OWN(X, clamp_backward) FRI_OWN(X, sum) FRI_OWN(X, sum_workspace)                     \
    FRI_OWN(X, broadcast) FRI_OWN(X, dropout) FRI_OWN(X, dropout_mask) FRI_OWN(X, dropout_apply_mask)                  \
    FRI_OWN(X, group_norm_workspace) FRI_OWN(X, group_norm_forward) FRI_OWN(X, group_norm_backward)                    \
    FRI_OWN(X, maxpool2d_forward) FRI_OWN(X, maxpool2d_backward) FRI_OWN(X, maxpool2d_mask)                            \
    FRI_AS(X, avgpool2d_forward, avgpool2d) FRI_AS(X, avgpool2d_backward, avgpool2d)                                   \
    FRI_AS(X, adaptive_avgpool2d_forward, avgpool2d) FRI_AS(X, adaptive_avgpool2d_backward, avgpool2d)                 \
    FRI_AS(X, upsample_forward, upsample) FRI_AS(X, upsample_backward, upsample) FRI_OWN(X, embedding_forward)         \
    FRI_OWN(X, embedding_backward) FRI_OWN(X, gather) FRI_OWN(X, scatter)                                              \
    FRI_AS(X, cross_entropy_workspace, loss_workspace) FRI_AS(X, cross_entropy_forward, loss_forward)                  \
    FRI_AS(X, cross_entropy_backward, loss_backward) FRI_AS(X, bce_workspace, loss_workspace)                          \
    FRI_AS(X, bce_forward, loss_forward) FRI_AS(X, bce_backward, loss_backward)                                        \
    FRI_AS(X, dice_workspace, loss_workspace) FRI_AS(X, dice_forward, loss_forward)                                    \
    FRI_AS(X, dice_backward, loss_backward) FRI_OWN(X, softmax_forward) FRI_OWN(X, softmax_backward)                   \
    FRI_OWN(X, count_correct) FRI_OWN(X, mse_forward) FRI_OWN(X, mse_backward) FRI_OWN(X, bias_workspace)

/* Own loops that other code calls, too. */
#define FRI_CALLED_KERNELS(X)                                                                                          \
    FRI_UNARY_KERNELS(X) FRI_BINARY_KERNELS(X) FRI_SCALED_KERNELS(X) FRI_OWN(X, relu_encode)                           \
    FRI_OWN(X, relu_backward_bits) FRI_OWN(X, add_mask) FRI_OWN(X, binary_image) FRI_OWN(X, binary_image_sum)          \
    FRI_OWN(X, leaky_relu_backward) FRI_AS(X, uniform, random) FRI_AS(X, normal, random)                               \
    FRI_OWN(X, batchnorm2d_workspace) FRI_OWN(X, batchnorm2d_stats) FRI_OWN(X, batchnorm2d_invstd)                     \
    FRI_OWN(X, batchnorm2d_apply) FRI_OWN(X, batchnorm2d_backward) FRI_OWN(X, unscale) FRI_OWN(X, norm_squared)        \
    FRI_OWN(X, norm_squared_workspace) FRI_OWN(X, count_up) FRI_OWN(X, clip_factor) FRI_OWN(X, loss_scale_update)      \
    FRI_OWN(X, sgd) FRI_OWN(X, rmsprop) FRI_OWN(X, adam) FRI_OWN(X, adam8)
#define FRI_LOOP_KERNELS(X) FRI_STEP_KERNELS(X) FRI_CALLED_KERNELS(X)
#define FRI_READS_PARTS_KERNEL(X) X(batchnorm2d_reads_parts, fri_batchnorm2d_reads_parts_fn, OPTIONAL)

/* Convolutions and products: on CUDA calls of cuDNN and cuBLASLt. */
#define FRI_LIBRARY_KERNELS(X)                                                                                         \
    FRI_AS(X, conv2d_forward_workspace, conv2d_workspace) FRI_OWN(X, conv2d_forward)                                   \
    FRI_AS(X, conv2d_backward_input_workspace, conv2d_workspace) FRI_OWN(X, conv2d_backward_input)                     \
    FRI_AS(X, conv2d_backward_weight_workspace, conv2d_workspace) FRI_OWN(X, conv2d_backward_weight)                   \
    FRI_OWN(X, conv2d_backward_bias) FRI_AS(X, linear_forward_workspace, linear_workspace) FRI_OWN(X, linear_forward)  \
    FRI_AS(X, linear_backward_input_workspace, linear_workspace) FRI_OWN(X, linear_backward_input)                     \
    FRI_AS(X, linear_backward_weight_workspace, linear_workspace) FRI_OWN(X, linear_backward_weight)                   \
    FRI_OWN(X, linear_backward_bias) X(conv2d_reads_norm, fri_conv2d_reads_norm_fn, OPTIONAL)                          \
    FRI_READS_PARTS_KERNEL(X) X(conv2d_constant_plan, fri_conv2d_constant_plan_fn, OPTIONAL)                           \
    X(conv2d_constant_forward, fri_conv2d_forward_fn, OPTIONAL)

/* Kernels of meta. */
#define FRI_META_KERNELS(X) FRI_MEMORY_KERNELS(X) FRI_CALLED_KERNELS(X) FRI_READS_PARTS_KERNEL(X)
#define FRI_KERNEL_MAP(X) FRI_MEMORY_KERNELS(X) FRI_LOOP_KERNELS(X) FRI_LIBRARY_KERNELS(X)
/* clang-format on */

#endif
