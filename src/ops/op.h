/* op.h - the frame every op shares: argument checks, autocast, scope, in-place permission. */
#ifndef FRI_OPS_OP_H
#define FRI_OPS_OP_H

#include "autograd/node.h"
#include "base/rng.h"

#include <frugal/ops.h>

enum { FRI_OP_INPUTS = 4 };

/* One call of an op, from begin to end. `in` holds the inputs as the op shall read them: borrowed, or cast by
 * autocast. */
typedef struct fri_call {
    const fr_op *op;
    const char *was_op;
    bool begun;
    int n_in;
    fr_tensor *in[FRI_OP_INPUTS];
    fr_tensor *owned[FRI_OP_INPUTS]; /* the casts, released by end */
} fri_call;

/* Enters the op's scope, checks that the first `required` of the inputs are there and that all lie on one device, and
 * applies the op's autocast class. Always pair with fri_call_end, also after failure. */
fr_status fri_call_begin(fri_call *c, const fr_op *op, int required, fr_tensor *const *in, int n_in);
void fri_call_end(fri_call *c);

/* out[i] is x[i] in the widest type of the n inputs; an integer tensor stays as it is. */
fr_status fri_promote(int n, fr_tensor *const *x, fr_tensor **out);

fr_status fri_expect_float(const fr_op *op, const fr_tensor *t, const char *what);
fr_status fri_expect_rank(const fr_op *op, const fr_tensor *t, const char *what, int rank);
fr_status fri_expect_same(const fr_op *op, const fr_tensor *a, const fr_tensor *b); /* shape and type */
/* t has shape [n] and type x's or the statistics type (f32; f64 for f64 x). */
fr_status fri_expect_vector(const fr_op *op, const fr_tensor *t, const char *what, int64_t n);

/* Sizes and offsets of a window are in -1..2^31 - 1 (-1: a default), so that arithmetic with them cannot overflow. */
fr_status fri_expect_bounded(const fr_op *op, const char *what, int64_t a, int64_t b);

/* f32, or f64 where x is f64: the type of statistics and losses. */
fr_dtype fri_real_of(const fr_tensor *x);
/* Product of all dimensions but the last; x is no scalar. */
int64_t fri_rows(const fr_tensor *x);

/* The result of an elementwise op on x whose slot is y: x itself when the in-place switch is on, the caller said
 * x = op(x), and nobody else can see or need x; else a new tensor. */
fr_status fri_result_like(fr_tensor *x, fr_tensor *const *y, fr_tensor **out);
/* The result of an op that does not save it, for kernels that cost much: where a recomputation ends with this op nobody
 * reads the result, so *wanted is false and *out has a shape but no bytes. */
fr_status fri_result_new(const fri_call *c, const fr_shape *shape, fr_dtype dtype, bool *wanted, fr_tensor **out);
/* Result without bytes, for a value that a fused op leaves out. */
fr_status fri_result_none(const fri_call *c, const fr_shape *shape, fr_dtype dtype, fr_tensor **out);

/* PyTorch's rule for a demanded in-place op: a leaf that requires grad is refused. */
fr_status fri_check_inplace(const fr_op *op, const fr_tensor *x);

/* dy itself if it may be written over, else a new tensor like it. Also for a rebuilt input that only this op reads. */
fr_status fri_gradient_like(fr_tensor *dy, fr_tensor **dx);
/* Gradient over dy, or over x (or NULL), which slot `index` saved and no op reads again. */
fr_status fri_gradient_over(fr_node *node, int index, fr_tensor *x, fr_tensor *dy, fr_tensor **dx);

/* An elementwise op of one input: its result may lie over x, and is rebuilt from x. `op` comes first: a node's op leads
 * back here. */
typedef struct fri_unary {
    fr_op op;
    fr_status (*values)(const void *params, const fr_tensor *x, fr_tensor *y); /* y may be x */
    enum { FRI_SAVES_NOTHING, FRI_SAVES_Y, FRI_SAVES_X } saves;                /* slot 0 */
    unsigned flags;                                                            /* of that slot */
} fri_unary;

/* The rest of .op. */
#define FRI_UNARY .rebuild = fri_unary_rebuild, .rebuild_inputs = 1
fr_status fri_unary_rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y);
/* Does x hold the result already? LEFT: and the gradient is left to the op that wrote it, so that the slot stays empty
 * (Note [Tail]). */
typedef enum fri_there { FRI_NOT_THERE, FRI_THERE, FRI_THERE_LEFT } fri_there;
/* The op itself: params (or NULL) go to values and into the node. Where x is saved it is not written over. */
fr_status fri_unary_call(const fri_unary *u, const void *params, size_t bytes, fr_tensor *x, fri_there there,
                         fr_tensor **y);
/* Unary op in place, on demand. */
fr_status fri_unary_inplace(const fri_unary *u, const void *params, size_t bytes, fr_tensor *x);

/* Note [Tail]
 * A fused op computes what add and relu would make of its result in the pass that writes it. Then it calls these, which
 * record the nodes of the two and do not compute again what is there: every node, saved tensor and bit is that of the
 * separate calls. In half types the op rounds its own result to its type before the next one takes it, in a register.
 * An activation whose gradient needs the op's result, which is nowhere, saves nothing, nor does relu6 where the op
 * keeps its input anyway: in backward that op is asked to apply the gradient in its own passes, or to make its result
 * again (fri_tail_left).
 *
 * fri_add_tail is fr_add: `there` says that a holds the sum already; relu, that the sum is wanted rectified, whoever
 * computes it. fri_relu_tail is fr_relu: x is rectified already; fri_act_tail is the same of any activation. */
fr_status fri_add_tail(fr_tensor *a, fr_tensor *b, bool there, bool relu, fr_tensor **y);
fr_status fri_relu_tail(fr_tensor *x, bool there, fr_tensor **y);
fr_status fri_act_tail(fri_activation act, fr_tensor *x, fri_there there, fr_tensor **y);
/* Tells the backward of an activation whether the op before takes its gradient over. Else *x is that op's result, made
 * again, or NULL where the activation's own slot holds its operand. */
fr_status fri_tail_left(fr_node *node, bool *left, fr_tensor **x);
extern const fri_unary fri_relu_op, fri_relu6_op;
/* NONE: not one that a fused op computes. */
fri_activation fri_activation_of(const fr_op *op);

fr_status fri_new_like(const fr_tensor *x, fr_category c, fr_tensor **out);

#endif
