/* frame.h - calls of described ops (fr_described in extend.h) and of their kernels. */
#ifndef FRI_OPS_FRAME_H
#define FRI_OPS_FRAME_H

#include "meta/calls.h"
#include "ops/op.h"
#include "ops/words.h"

/* A call of a described op: sizes and types are found by fri_frame_begin; between begin and run the op may set sizes
 * of results, and the members from `code` on. */
typedef struct fri_frame {
    const fri_reading *read;
    fri_call c;
    fr_dtype dtype;            /* of the float operands */
    fr_shape any;              /* the dimensions of * */
    int64_t size[FRI_LETTERS]; /* -1: not known */
    fr_dtype code;             /* of results of type `any` */
    uint32_t absent;           /* bits of results that the call does not make */
    uint32_t kept;             /* bits of operands that are saved though no step reads them */
    bool inplace;              /* y is the first input, by demand */
    fr_tensor *given;          /* the result, borrowed; NULL: the steps make the result */
} fri_frame;

/* Fills the frame: checks the inputs (`in` has one for each of the description) and the slot y, enters the op's scope,
 * and casts by autocast. Always pair with fri_frame_end, also after failure. */
fr_status fri_frame_begin(fri_frame *f, fr_described *op, fr_tensor *const *in, fr_tensor *const *y);
/* Makes the results, runs the forward steps, records the node. options: of the kernels. */
fr_status fri_frame_run(fri_frame *f, const void *options, size_t bytes, fr_tensor **y);
void fri_frame_end(fri_frame *f);
/* Begin, run and end, for an op whose sizes are those of the inputs; or in place over x. */
fr_status fri_frame_call(fr_described *op, fr_tensor *const *in, const void *options, size_t bytes, fr_tensor **y);
fr_status fri_frame_inplace(fr_described *op, fr_tensor *x, const void *options, size_t bytes);

#define FRI_SIZE(frame, letter) ((frame).size[(letter) - 'a'])

/* Options of a node's call. */
const void *fri_frame_options(const fr_node *node);
/* New tensor with the shape and type of an input, for the gradient. */
fr_status fri_frame_gradient(const fr_node *node, int input, const fr_tensor *dy, fr_tensor **dx);
fr_status fri_frame_backward(fr_node *node, fr_tensor **dy);
fr_status fri_frame_rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y);

/* Runs a kernel on tensors, with its workspace. On meta: reports the work of the target. */
fr_status fri_kernel_run(const fr_kernel *k, const void *options, size_t bytes, fr_dtype dtype, fr_tensor *const *t,
                         int n);

/* ---- writing kernels' entries ------------------------------------------------------------------------------------ */

enum { FRI_OPTIONS = 256 };

/* Members of a kernel for convolutions and the like. */
typedef struct fri_kernel_more {
    /* Changes the copy of the options, of the given bytes, before the workspace is asked for. */
    void (*prepare)(const fr_kernel_call *c, void *options);
    /* Work and dimensions of the call, for plans. */
    void (*cost)(const fr_kernel_call *c, fri_kernel_call *work);
} fri_kernel_more;

/* Backend that runs the call's kernels; of a plan: the target, or NULL. */
const fri_backend *fri_target_of(const fr_kernel_call *c);

static inline fri_exec fri_exec_of(const fr_kernel_call *c) {
    return (fri_exec){c->stream, c->workspace, c->workspace_bytes};
}

/* The backend's kernel in a slot, called on args; FR_EUNSUPPORTED if there is none. */
#define FRI_KERNEL_SLOT_CALL(c, slot_, args)                                                  \
    ({                                                                                        \
        const fri_backend *const target_ = fri_target_of(c);                                  \
        const fri_kernels *const k_ = fri_kernels_for(target_, (c)->dtype);                   \
        k_->slot_ == NULL ? fri_kernel_missing(#slot_, (c)->dtype, target_) : k_->slot_ args; \
    })

/* A kernel of the backends' tables as a kernel of steps. In args: e, the options d, T(i) the data and N(i) the number
 * of elements of the step's operand i, c->dtype. Further members follow. */
#define FRI_OP_KERNEL(slot, options_type, args, ...)            \
    static fr_status slot##_run(const fr_kernel_call *c) {      \
        const fri_exec exec = fri_exec_of(c), *const e = &exec; \
        const options_type *const d = c->options;               \
        (void)d;                                                \
        return FRI_KERNEL_SLOT_CALL(c, slot, args);             \
    }                                                           \
    static const fr_kernel slot##_kernel = {.name = #slot, .run = slot##_run, __VA_ARGS__};
#define T(i) fri_data_of(c->t[i])
#define N(i) fri_numel(c->t[i])

/* Elementwise kernels of one and two operands. */
#define FRI_UNARY_KERNEL(slot)  FRI_OP_KERNEL(slot, void, (e, c->dtype, N(0), T(0), T(1)), .flops = 1)
#define FRI_BINARY_KERNEL(slot) FRI_OP_KERNEL(slot, void, (e, c->dtype, N(0), T(0), T(1), T(2)), .flops = 1)

/* slot##_bytes: workspace function of a kernel, from a backend's function with a size as result. */
#define FRI_OP_BYTES(slot, options_type, args)                                        \
    static fr_status slot##_bytes(const fr_kernel_call *c, size_t *bytes) {           \
        const options_type *const d = c->options;                                     \
        const fri_backend *target = fri_target_of(c);                                 \
        (void)d;                                                                      \
        *bytes = target != NULL ? FRI_KERNEL_BYTES(target, c->dtype, slot, args) : 0; \
        return FR_OK;                                                                 \
    }
/* ---- parts that ops share ---------------------------------------------------------------------------------------- */

/* gather and scatter: checks dim and the shapes of the first two inputs, x and index. */
fr_status fri_gather_describe(fri_frame *f, int dim, fri_gather_desc *d);

/* Products of a linear layer; options: fri_linear_desc. */
extern const fr_kernel fri_linear_forward; /* "x w b > y": y [n, out] = x [n, in] w [out, in]^T + b; b may be absent */
extern const fr_kernel fri_linear_weight;  /* "x dy > db dw": dw = dy^T x, db = sum of dy over n; db may be absent */
extern const fr_kernel fri_linear_input;   /* "w dy > dx": dx = dy w */

extern const fr_kernel fri_add_row;  /* "b > y": each row of y += b, of y's type */
extern const fr_kernel fri_sum_rows; /* "dy > db": the sum of dy's rows */
/* Each row of y = b, of any type, or 0 if b is NULL: for calls inside of a kernel. */
fr_status fri_fill_rows(const fr_kernel_call *c, const fr_tensor *b, const fr_tensor *y);

/* Losses of classes: checks the target and fills sizes, types and kind of target; all else in *d stays. Probabilities
 * as targets are refused unless allowed. */
fr_status fri_loss_describe(const fri_frame *f, bool shares_allowed, fri_loss_desc *d);
/* d has the options; weight NULL: none; factor_per_class: two for each class are kept, else one. */
fr_status fri_loss_call(fr_described *op, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        bool factor_per_class, fri_loss_desc d, fr_tensor **loss);

/* Pooling: fills the descriptor from x's sizes, kernel size and PyTorch's options, and sets the frame's p and q: the
 * size of y follows the floor or ceiling rule. */
fr_status fri_pool2d_describe(fri_frame *f, int64_t kernel, const fr_pool2d_opts *o, fri_pool2d_desc *d);
/* Work of a pooling kernel: an operation per element of each window. */
extern const fri_kernel_more fri_pool2d_more;

/* ---- the ops ----------------------------------------------------------------------------------------------------- */

/* Described ops but the activations of FRI_ACTIVATIONS. */
/* clang-format off */
#define FRI_DESCRIBED(X)                                                                                               \
    X(relu) X(relu6) X(leaky_relu) X(clamp) X(scale) X(add_scalar) X(cast) X(sum) X(mean) X(softmax) X(log_softmax)    \
    X(dropout) X(dropout2d) X(stochastic_depth) X(conv2d) X(conv_transpose2d) X(linear) X(matmul) X(maxpool2d)         \
    X(avgpool2d) X(adaptive_avgpool2d) X(upsample) X(group_norm) X(layer_norm) X(embedding) X(gather) X(scatter)       \
    X(scatter_add) X(cross_entropy) X(count_correct) X(bce) X(dice) X(mse) X(l1) X(smooth_l1)
/* clang-format on */
#define FRI_DECLARE_DESCRIBED(word, ...) extern fr_described fri_op_##word;
FRI_DESCRIBED(FRI_DECLARE_DESCRIBED)
FRI_ACTIVATIONS(FRI_DECLARE_DESCRIBED)

#endif
