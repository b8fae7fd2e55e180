/* dropout, dropout2d, stochastic_depth - random zeroing of elements, of channels (Srivastava et al., 2014) or of images
 * (Huang et al., 2016).
 *   forward    y = kept ? x / (1 - p) : 0; kept(i) = uniform(seed, stream, i) >= p
 *   backward   dx = kept ? dy / (1 - p) : 0, kept computed again from (seed, stream)
 *   saves      nothing; with encode off PyTorch's mask, one byte per element
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   order      deterministic; the same elements on every device and thread count */
#include "ops/op.h"

#include "base/status.h"

static fr_status apply_dropout(const fri_dropout_desc *d, const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), d->dtype, dropout, (FRI_EXEC, d, fri_data(x), fri_data(y)));
}

static fr_status apply_mask(const fri_dropout_desc *d, const fr_tensor *mask, const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), d->dtype, dropout_apply_mask,
                      (FRI_EXEC, d, fri_data(mask), fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_dropout_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *mask = NULL;
    FRI_TRY(fr_node_saved(node, 0, &mask));
    FRI_TRY(fri_gradient_like(*dy, &dx));
    FRI_TRY(mask != NULL ? apply_mask(d, mask, *dy, dx) : apply_dropout(d, *dy, dx));
    fr_tensor_release(&mask);
    fr_node_release_saved(node, 0);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_gradient_like(in[0], &out));
    FRI_TRY(apply_dropout(fr_node_params(node), in[0], out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static const fr_op dropout = {.name = "dropout", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};
static const fr_op dropout2d = {.name = "dropout2d", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};
static const fr_op stochastic_depth = {.name = "stochastic_depth",
                                       .backward = backward,
                                       .rebuild = rebuild,
                                       .rebuild_inputs = 1};

static fr_status describe(const fr_op *op, const fr_tensor *x, double p, fri_dropout_desc *d) {
    fr_status s = fri_expect_float(op, x, "x");
    if (s < 0) return s;
    if (!(p >= 0 && p <= 1)) return fr_fail(FR_EINVAL, "%s: p is %g; it must lie in 0..1", op->name, p);
    *d = (fri_dropout_desc){.dtype = x->dtype, .n = 1, .hw = 1, .c = fri_numel(x), .p = p};
    if (op == &dropout2d) {
        if ((s = fri_expect_rank(op, x, "x", 4)) < 0) return s;
        const int64_t *dim = x->shape.dim;
        d->n = dim[0];
        d->hw = dim[1] * dim[2];
        d->c = dim[3];
        d->per_channel = true;
    }
    if (op == &stochastic_depth) { /* an image counts as one channel */
        if (x->shape.rank == 0)
            return fr_fail(FR_ESHAPE, "%s: x is a scalar; its first dimension counts images", op->name);
        d->n = x->shape.dim[0];
        d->hw = d->n > 0 ? fri_numel(x) / d->n : 0;
        d->c = 1;
        d->per_channel = true;
    }
    return FR_OK;
}

static fr_status mask_of(const fri_dropout_desc *d, const fr_tensor *x, fr_tensor **mask) {
    FRI_TRY(fri_tensor_new(&x->shape, FR_BOOL, fri_device_of(x), FR_MEM_TEMPORARY, mask));
    return FRI_KERNEL(fri_backend_of(x), d->dtype, dropout_mask, (FRI_EXEC, d, fri_data(*mask)));
}

static fr_status run_dropout(const fr_op *op, fr_tensor *x, double p, bool train, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL, *mask = NULL;
    fri_dropout_desc d;
    FRI_TRY(fri_call_begin(&c, op, 1, &x, 1));
    FRI_TRY(describe(op, x, p, &d));
    if (!train || p == 0) { /* no copy, as in PyTorch's eval mode */
        out = fr_tensor_retain(x);
        fri_tensor_put(&out, y);
        return FR_OK;
    }
    fr_rng r = fri_rng_draw();
    d.seed = r.seed;
    d.stream = r.next_stream;
    FRI_TRY(fri_result_like(x, y, &out));
    if (!fri_switches()->encode && fr_grad_enabled() && x->requires_grad) FRI_TRY(mask_of(&d, x, &mask));
    FRI_TRY(apply_dropout(&d, x, out));
    fr_save save = {mask, FR_SAVE_VALUE};
    FRI_TRY(fr_op_record(op, &d, sizeof d, &x, 1, &save, 1, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fr_dropout(fr_tensor *x, double p, bool train, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return run_dropout(&dropout, x, p, train, y);
}

fr_status fr_dropout2d(fr_tensor *x, double p, bool train, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return run_dropout(&dropout2d, x, p, train, y);
}

fr_status fr_stochastic_depth(fr_tensor *x, double p, bool train, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return run_dropout(&stochastic_depth, x, p, train, y);
}
