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

/* clang-format off */
/* Kernels that take every element type: the f64 table shares the functions. */
#define FRI_MEMORY_KERNELS(X)                                                                                          \
    X(fill, fri_fill_fn, REQUIRED) X(copy_rows, fri_copy_rows_fn, REQUIRED) X(cast, fri_cast_fn, REQUIRED)   \
    X(cast_list, fri_cast_list_fn, REQUIRED)                                                                           \
    X(normalize, fri_normalize_fn, REQUIRED) X(copy_strided, fri_copy_strided_fn, REQUIRED)

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
    X(clamp_forward, fri_clamp_forward_fn, REQUIRED) X(clamp_backward, fri_clamp_backward_fn, REQUIRED)                \
    X(sum, fri_sum_fn, REQUIRED) X(sum_workspace, fri_sum_workspace_fn, REQUIRED)                                      \
    X(broadcast, fri_broadcast_fn, REQUIRED) X(dropout, fri_dropout_fn, REQUIRED)                                      \
    X(dropout_mask, fri_dropout_mask_fn, REQUIRED) X(dropout_apply_mask, fri_dropout_apply_mask_fn, REQUIRED)          \
    X(group_norm_workspace, fri_group_norm_workspace_fn, REQUIRED)                                                     \
    X(group_norm_forward, fri_group_norm_forward_fn, REQUIRED)                                                         \
    X(group_norm_backward, fri_group_norm_backward_fn, REQUIRED)                                                       \
    X(maxpool2d_forward, fri_maxpool2d_forward_fn, REQUIRED)                                                           \
    X(maxpool2d_backward, fri_maxpool2d_backward_fn, REQUIRED) X(maxpool2d_mask, fri_maxpool2d_mask_fn, REQUIRED)      \
    X(avgpool2d_forward, fri_avgpool2d_fn, REQUIRED) X(avgpool2d_backward, fri_avgpool2d_fn, REQUIRED)                 \
    X(adaptive_avgpool2d_forward, fri_avgpool2d_fn, REQUIRED)                                                          \
    X(adaptive_avgpool2d_backward, fri_avgpool2d_fn, REQUIRED) X(upsample_forward, fri_upsample_fn, REQUIRED)          \
    X(upsample_backward, fri_upsample_fn, REQUIRED) X(embedding_forward, fri_embedding_forward_fn, REQUIRED)           \
    X(embedding_backward, fri_embedding_backward_fn, REQUIRED) X(gather, fri_gather_fn, REQUIRED)                      \
    X(scatter, fri_scatter_fn, REQUIRED)                                                                               \
    X(cross_entropy_workspace, fri_loss_workspace_fn, REQUIRED) X(cross_entropy_forward, fri_loss_forward_fn, REQUIRED)\
    X(cross_entropy_backward, fri_loss_backward_fn, REQUIRED)                                                          \
    X(bce_workspace, fri_loss_workspace_fn, REQUIRED) X(bce_forward, fri_loss_forward_fn, REQUIRED)                    \
    X(bce_backward, fri_loss_backward_fn, REQUIRED)                                                                    \
    X(dice_workspace, fri_loss_workspace_fn, REQUIRED) X(dice_forward, fri_loss_forward_fn, REQUIRED)                  \
    X(dice_backward, fri_loss_backward_fn, REQUIRED)                                                                   \
    X(softmax_forward, fri_softmax_forward_fn, REQUIRED) X(softmax_backward, fri_softmax_backward_fn, REQUIRED)        \
    X(count_correct, fri_count_correct_fn, REQUIRED) X(mse_forward, fri_mse_forward_fn, REQUIRED)                      \
    X(mse_backward, fri_mse_backward_fn, REQUIRED) X(bias_workspace, fri_bias_workspace_fn, REQUIRED)

/* Own loops that other code calls, too. */
#define FRI_CALLED_KERNELS(X)                                                                                          \
    FRI_UNARY_KERNELS(X) FRI_BINARY_KERNELS(X) FRI_SCALED_KERNELS(X)                                                   \
    X(relu_encode, fri_relu_encode_fn, REQUIRED)                                                                       \
    X(relu_backward_bits, fri_relu_backward_bits_fn, REQUIRED) X(add_mask, fri_add_mask_fn, REQUIRED)                  \
    X(binary_image, fri_binary_image_fn, REQUIRED)                                                                     \
    X(binary_image_sum, fri_binary_image_sum_fn, REQUIRED)                                                             \
    X(leaky_relu_backward, fri_leaky_relu_backward_fn, REQUIRED) X(uniform, fri_random_fn, REQUIRED)                   \
    X(normal, fri_random_fn, REQUIRED)                                                                                 \
    X(batchnorm2d_workspace, fri_batchnorm2d_workspace_fn, REQUIRED)                                                   \
    X(batchnorm2d_stats, fri_batchnorm2d_stats_fn, REQUIRED)                                                           \
    X(batchnorm2d_invstd, fri_batchnorm2d_invstd_fn, REQUIRED)                                                         \
    X(batchnorm2d_apply, fri_batchnorm2d_apply_fn, REQUIRED)                                                           \
    X(batchnorm2d_backward, fri_batchnorm2d_backward_fn, REQUIRED)                                                     \
    X(unscale, fri_unscale_fn, REQUIRED) X(norm_squared, fri_norm_squared_fn, REQUIRED)                                \
    X(norm_squared_workspace, fri_norm_squared_workspace_fn, REQUIRED) X(count_up, fri_count_up_fn, REQUIRED)          \
    X(clip_factor, fri_clip_factor_fn, REQUIRED) X(loss_scale_update, fri_loss_scale_update_fn, REQUIRED)              \
    X(sgd, fri_sgd_fn, REQUIRED) X(rmsprop, fri_rmsprop_fn, REQUIRED)                                                  \
    X(adam, fri_adam_fn, REQUIRED) X(adam8, fri_adam8_fn, REQUIRED)
#define FRI_LOOP_KERNELS(X) FRI_STEP_KERNELS(X) FRI_CALLED_KERNELS(X)
#define FRI_READS_PARTS_KERNEL(X) X(batchnorm2d_reads_parts, fri_batchnorm2d_reads_parts_fn, OPTIONAL)

/* Convolutions and products: on CUDA calls of cuDNN and cuBLASLt. */
#define FRI_LIBRARY_KERNELS(X)                                                                                         \
    X(conv2d_forward_workspace, fri_conv2d_workspace_fn, REQUIRED) X(conv2d_forward, fri_conv2d_forward_fn, REQUIRED)  \
    X(conv2d_backward_input_workspace, fri_conv2d_workspace_fn, REQUIRED)                                              \
    X(conv2d_backward_input, fri_conv2d_backward_input_fn, REQUIRED)                                                   \
    X(conv2d_backward_weight_workspace, fri_conv2d_workspace_fn, REQUIRED)                                             \
    X(conv2d_backward_weight, fri_conv2d_backward_weight_fn, REQUIRED)                                                 \
    X(conv2d_backward_bias, fri_conv2d_backward_bias_fn, REQUIRED)                                                     \
    X(linear_forward_workspace, fri_linear_workspace_fn, REQUIRED) X(linear_forward, fri_linear_forward_fn, REQUIRED)  \
    X(linear_backward_input_workspace, fri_linear_workspace_fn, REQUIRED)                                              \
    X(linear_backward_input, fri_linear_backward_input_fn, REQUIRED)                                                   \
    X(linear_backward_weight_workspace, fri_linear_workspace_fn, REQUIRED)                                             \
    X(linear_backward_weight, fri_linear_backward_weight_fn, REQUIRED)                                                 \
    X(linear_backward_bias, fri_linear_backward_bias_fn, REQUIRED)                                                     \
    X(conv2d_reads_norm, fri_conv2d_reads_norm_fn, OPTIONAL)                                                           \
    FRI_READS_PARTS_KERNEL(X)                                                                                          \
    X(conv2d_constant_plan, fri_conv2d_constant_plan_fn, OPTIONAL)                                                     \
    X(conv2d_constant_forward, fri_conv2d_forward_fn, OPTIONAL)

/* Kernels of meta. */
#define FRI_META_KERNELS(X) FRI_MEMORY_KERNELS(X) FRI_CALLED_KERNELS(X) FRI_READS_PARTS_KERNEL(X)
#define FRI_KERNEL_MAP(X) FRI_MEMORY_KERNELS(X) FRI_LOOP_KERNELS(X) FRI_LIBRARY_KERNELS(X)
/* clang-format on */

#endif
