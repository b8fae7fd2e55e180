/* upsample - resizing an image, nearest or bilinear (torch.nn.functional.interpolate with size).
 *   forward    nearest: y[p, q] = x[floor(p H / P), floor(q W / Q)];
 *              bilinear: the four neighbours of the source position, align_corners as PyTorch
 *   backward   the transposed map: each dy goes to the pixels it was made from, with the same weights
 *   saves      nothing
 *   in-place   no
 *   rebuild    from x: a concatenation with an upsampled map is then read again from the maps that are kept anyway
 *   order      deterministic */
#include "ops/op.h"

#include "base/status.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_upsample_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    fr_shape shape = FRI_SHAPE(d->n, d->h, d->w, d->c);
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), d->dtype, upsample_backward, (FRI_EXEC, d, fri_data(*dy), fri_data(dx))));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

/* A new tensor for the result of d on x. */
static fr_status resize_values(const fri_upsample_desc *d, const fr_tensor *x, fr_tensor **y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fr_shape shape = FRI_SHAPE(d->n, d->p, d->q, d->c);
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), d->dtype, upsample_forward, (FRI_EXEC, d, fri_data(x), fri_data(out))));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    return resize_values(fr_node_params(node), in[0], y);
}

static const fr_op upsample = {.name = "upsample", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};

fr_status fr_upsample(fr_tensor *x, int64_t p, int64_t q, fr_upsample_mode mode, bool align_corners, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_call_begin(&c, &upsample, 1, &x, 1));
    FRI_TRY(fri_expect_float(&upsample, x, "x"));
    FRI_TRY(fri_expect_rank(&upsample, x, "x", 4));
    const int64_t *dim = x->shape.dim;
    FRI_TRY(fri_expect_bounded(&upsample, "x's height and width", dim[1], dim[2]));
    FRI_TRY(fri_expect_bounded(&upsample, "size", p, q));
    if (p < 1 || q < 1 || dim[1] < 1 || dim[2] < 1)
        return fr_fail(FR_EINVAL, "upsample: from %lld x %lld to %lld x %lld pixels; all must be >= 1",
                       (long long)dim[1], (long long)dim[2], (long long)p, (long long)q);
    fri_upsample_desc d = {.dtype = x->dtype,
                           .n = dim[0],
                           .h = dim[1],
                           .w = dim[2],
                           .c = dim[3],
                           .p = p,
                           .q = q,
                           .bilinear = mode == FR_UPSAMPLE_BILINEAR,
                           .align_corners = align_corners};
    FRI_TRY(resize_values(&d, x, &out));
    FRI_TRY(fr_op_record(&upsample, &d, sizeof d, &x, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
