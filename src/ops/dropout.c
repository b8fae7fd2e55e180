/* dropout, dropout2d, stochastic_depth - random zeroing of elements, of channels (Srivastava et al., 2014) or of images
 * (Huang et al., 2016).
 *   forward    y = kept ? x / (1 - p) : 0; kept(i) = uniform(seed, stream, i) >= p
 *   backward   dx = kept ? dy / (1 - p) : 0, kept computed again from (seed, stream)
 *   saves      nothing; with encode off PyTorch's mask, one byte per element
 *   order      deterministic; the same elements on every device and thread count */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(dropout, fri_dropout_desc, (e, d, T(0), T(1)), .flops = 10)
FRI_OP_KERNEL(dropout_mask, fri_dropout_desc, (e, d, T(1)), .flops = 10, .moves = 1, .unit = 1)
FRI_OP_KERNEL(dropout_apply_mask, fri_dropout_desc, (e, d, T(0), T(1), T(2)), .flops = 10)

enum { MASK = 2 }; /* the operand */
#define DROPOUT(word, shape)                                                                                   \
    fr_described fri_op_##word = {.op = {.name = #word},                                                       \
                                  .operands = "x" shape " > y" shape "=x mask:any" shape "?",                  \
                                  .forward = {{"x > mask", &dropout_mask_kernel}, {"x > y", &dropout_kernel}}, \
                                  .backward = {{"mask dy > dx=dy", &dropout_apply_mask_kernel},                \
                                               {"dy > dx=dy", &dropout_kernel}},                               \
                                  .rebuilds = true};
DROPOUT(dropout, "[*]")
DROPOUT(dropout2d, "[n,h,w,c]")
DROPOUT(stochastic_depth, "[*]")

static fr_status describe(const fri_frame *f, const fr_described *op, double p, fri_dropout_desc *d) {
    const fr_tensor *x = f->c.in[0];
    const int64_t n = fri_numel(x);
    if (!(p >= 0 && p <= 1)) return fr_fail(FR_EINVAL, "%s: p is %g; it must lie in 0..1", op->op.name, p);
    *d = (fri_dropout_desc){.dtype = x->dtype, .n = 1, .hw = 1, .c = n, .p = p};
    if (op == &fri_op_dropout) return FR_OK;
    if (x->shape.rank == 0)
        return fr_fail(FR_ESHAPE, "%s: x is a scalar; its first dimension counts images", op->op.name);
    d->n = x->shape.dim[0];
    d->c = op == &fri_op_dropout2d ? FRI_SIZE(*f, 'c') : 1; /* an image counts as one channel */
    d->hw = d->n * d->c > 0 ? n / (d->n * d->c) : 0;
    d->per_channel = true;
    return FR_OK;
}

static fr_status run_dropout(fr_described *op, fr_tensor *x, double p, bool train, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_dropout_desc d;
    FRI_TRY(fri_frame_begin(&f, op, &x, y));
    FRI_TRY(describe(&f, op, p, &d));
    if (!train || p == 0) { /* no copy, as in PyTorch's eval mode */
        fr_tensor *same = fr_tensor_retain(x);
        fri_tensor_put(&same, y);
        return FR_OK;
    }
    const fr_rng r = fri_rng_draw();
    d.seed = r.seed;
    d.stream = r.next_stream;
    f.code = FR_BOOL;
    f.absent = fri_switches()->encode ? 1 << MASK : 0;
    return fri_frame_run(&f, &d, sizeof d, y);
}

fr_status fr_dropout(fr_tensor *x, double p, bool train, fr_tensor **y) {
    return run_dropout(&fri_op_dropout, x, p, train, y);
}

fr_status fr_dropout2d(fr_tensor *x, double p, bool train, fr_tensor **y) {
    return run_dropout(&fri_op_dropout2d, x, p, train, y);
}

fr_status fr_stochastic_depth(fr_tensor *x, double p, bool train, fr_tensor **y) {
    return run_dropout(&fri_op_stochastic_depth, x, p, train, y);
}
