/* op.h - common frame of all ops: argument checks, autocast, scope, in-place permission. */
#ifndef FRI_OPS_OP_H
#define FRI_OPS_OP_H

#include "autograd/node.h"
#include "base/rng.h"

#include <frugal/ops.h>

enum { FRI_OP_INPUTS = 4 };

/* One call of an op. `in` holds the inputs to read: borrowed, or cast by autocast. */
typedef struct fri_call {
    const fr_op *op;
    const char *was_op;
    bool begun;
    int n_in;
    fr_tensor *in[FRI_OP_INPUTS];
    fr_tensor *owned[FRI_OP_INPUTS]; /* casts, released by fri_call_end */
} fri_call;

/* Enters the op's scope, checks that the first `required` inputs are not NULL and that all are on one device, and
 * applies the op's autocast class. Always pair with fri_call_end, also after failure. */
fr_status fri_call_begin(fri_call *c, const fr_op *op, int required, fr_tensor *const *in, int n_in);
void fri_call_end(fri_call *c);

/* out[i] is x[i] in the widest type of the n inputs; integer tensors are unchanged. */
fr_status fri_promote(int n, fr_tensor *const *x, fr_tensor **out);

fr_status fri_expect_float(const fr_op *op, const fr_tensor *t, const char *what);
fr_status fri_expect_rank(const fr_op *op, const fr_tensor *t, const char *what, int rank);
fr_status fri_expect_same(const fr_op *op, const fr_tensor *a, const fr_tensor *b); /* shape and type */
/* Checks that t has shape [n] and x's type or the type of statistics (f32; f64 for f64 x). */
fr_status fri_expect_vector(const fr_op *op, const fr_tensor *t, const char *what, int64_t n);

/* Checks that sizes and offsets of a window are in -1..2^31 - 1 (-1: default), so arithmetic cannot overflow. */
fr_status fri_expect_bounded(const char *op, const char *what, int64_t a, int64_t b);

/* Type of statistics and losses: f32, or f64 if x is f64. */
fr_dtype fri_real_of(const fr_tensor *x);

/* Result of an elementwise op on x. *out is x if the in-place switch is on, the caller wrote x = op(x) and nothing
 * else can see or need x; otherwise a new tensor. */
fr_status fri_result_like(fr_tensor *x, fr_tensor *const *y, fr_tensor **out);
/* Result of a costly op that does not save its result. At the end of a recomputation the result is not needed:
 * *wanted is false, and *out has a shape but no storage. */
fr_status fri_result_new(fr_tensor *const *in, int n_in, const fr_shape *shape, fr_dtype dtype, bool *wanted,
                         fr_tensor **out);

/* Refuses an explicit in-place op on a leaf that requires grad, as PyTorch does. */
fr_status fri_check_inplace(const fr_op *op, const fr_tensor *x);

/* dy if it may be overwritten, else a new tensor of its shape. Also for a rebuilt input that only this op reads. */
fr_status fri_gradient_like(fr_tensor *dy, fr_tensor **dx);
/* Gradient in the storage of dy or of x (may be NULL), which slot `index` saved and no other op reads. */
fr_status fri_gradient_over(fr_node *node, int index, fr_tensor *x, fr_tensor *dy, fr_tensor **dx);

/* y = x where x > 0, else exp(x) - 1 (saves y); y = log(1 + exp(x)) (saves x). Not exported. */
fr_status fr_elu(fr_tensor *x, fr_tensor **y);
fr_status fr_softplus(fr_tensor *x, fr_tensor **y);

fr_status fri_new_like(const fr_tensor *x, fr_category c, fr_tensor **out);

#endif
