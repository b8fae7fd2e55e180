/* op.h - the frame every op shares: argument checks, autocast, scope, in-place permission. */
#ifndef FRI_OPS_OP_H
#define FRI_OPS_OP_H

#include "autograd/node.h"
#include "base/rng.h"

#include <frugal/ops.h>

enum { FRI_OP_INPUTS = 4 };

/* One call of an op, from begin to end. `in` holds the inputs as the op shall read them: borrowed, or cast by autocast.
 */
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

fr_status fri_expect_float(const fr_op *op, const fr_tensor *t, const char *what);
fr_status fri_expect_rank(const fr_op *op, const fr_tensor *t, const char *what, int rank);
fr_status fri_expect_same(const fr_op *op, const fr_tensor *a, const fr_tensor *b); /* shape and type */
/* t has shape [n] and type x's or the statistics type (f32; f64 for f64 x). */
fr_status fri_expect_vector(const fr_op *op, const fr_tensor *t, const char *what, int64_t n);

/* Sizes and offsets of a window are in -1..2^31 - 1 (-1: a default), so that arithmetic with them cannot overflow. */
fr_status fri_expect_bounded(const fr_op *op, const char *what, int64_t a, int64_t b);

/* f32, or f64 where x is f64: the type of statistics and losses. */
fr_dtype fri_real_of(const fr_tensor *x);

/* The result of an elementwise op on x whose slot is y: x itself when the in-place switch is on, the caller said
 * x = op(x), and nobody else can see or need x; else a new tensor. */
fr_status fri_result_like(fr_tensor *x, fr_tensor *const *y, fr_tensor **out);
/* The result of an op that does not save it, for kernels that cost much: where a recomputation ends with this op nobody
 * reads the result, so *wanted is false and *out has a shape but no bytes. */
fr_status fri_result_new(const fri_call *c, const fri_shape *shape, fr_dtype dtype, bool *wanted, fr_tensor **out);
/* Hands the result over: nothing to do when it is x itself and sits in the slot already. */
void fri_result_put(fr_tensor **out, fr_tensor **y);

/* PyTorch's rule for a demanded in-place op: a leaf that requires grad is refused. */
fr_status fri_check_inplace(const fr_op *op, const fr_tensor *x);

/* dy itself if it may be written over, else a new tensor like it. Also for a rebuilt input that only this op reads. */
fr_status fri_gradient_like(fr_tensor *dy, fr_tensor **dx);

/* Note [Relu in the kernel before it]: the op has rectified its result. The next relu is told, if nobody has written to
 * it since. */
static inline void fri_mark_rectified(fr_tensor *t) {
    t->storage->rectified = t->storage->version + 1;
}
static inline bool fri_take_rectified(fr_tensor *t) {
    bool rectified = t->storage->rectified == t->storage->version + 1;
    t->storage->rectified = 0;
    return rectified;
}

/* Note [Add in the kernel before it]: sum holds sum + other, rectified if relu, and other, if empty, nothing at all,
 * though their nodes do not say so. fri_take_summed: is that so, and which is it? An op that did not ask fails at
 * fri_call_begin. */
void fri_mark_summed(fr_tensor *sum, fr_tensor *other, bool empty, bool relu);
bool fri_take_summed(fr_tensor *sum, fr_tensor *other, bool *relu);

/* Note [Statistics in the kernel before it]: sums over the rows of all of t. Takes them. */
static inline void fri_put_sums(fr_tensor *t, fr_tensor **sums, int64_t rows) {
    fri_tensor_put(sums, &t->storage->channel_sums);
    t->storage->sums_version = t->storage->version;
    t->storage->sums_rows = rows;
}
/* The caller's from now on, NULL if there are none or not of what x is now: rows of c, the whole of its storage. */
static inline fr_tensor *fri_take_sums(const fr_tensor *x, int64_t rows, int64_t c) {
    fri_storage *s = x->storage;
    fr_tensor *sums = s->channel_sums;
    s->channel_sums = NULL;
    if (sums != NULL && (s->sums_version != s->version || s->sums_rows != rows || sums->shape.dim[1] != c))
        fr_tensor_release(&sums);
    return sums;
}

fr_status fri_new_like(const fr_tensor *x, fr_category c, fr_tensor **out);

#endif
