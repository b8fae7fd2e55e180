/* clip.c - clipping gradients by their global norm (torch.nn.utils.clip_grad_norm_). */
#include "optim/optimizer.h"
#include "base/status.h"

#include "backend/arith.h"
#include "tensor/readback.h"

#include <math.h>
#include <stdlib.h>

struct norm {
    fr_tensor *sum; /* f64 [2] on the device: the sum of squares; factor and unused flag, two f32 */
    double factor;
    /* gradients of a type, in the modules' order, for a call */
    fr_dtype dtype;
    int count;
    fri_array *arrays;
};

static fr_status add_squares(struct norm *n) {
    fri_workspace ws = {0};
    fr_status s = FR_OK;
    const fri_backend *be = fri_backend_of(n->sum);
    if (n->count == 0) return FR_OK;
    FR_TRY(s,
           fri_workspace_begin(n->sum,
                               FRI_KERNEL_BYTES(be, n->dtype, norm_squared_workspace, (n->dtype, n->count, n->arrays)),
                               &ws));
    FR_TRY(s, FRI_KERNEL(be, n->dtype, norm_squared, (&ws.exec, n->dtype, n->count, n->arrays, fri_data(n->sum))));
done:
    fri_workspace_end(&ws);
    n->count = 0;
    return s;
}

/* Appends the gradient. A change of type first adds up the list, so sums keep the modules' order. */
static fr_status take_square(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct norm *n = ctx;
    (void)path;
    if (is_parameter) FRI_TRY(fri_leaf_widen(t));
    fr_tensor *g = is_parameter ? fr_tensor_get_grad(t) : NULL;
    if (g == NULL) return is_parameter ? fri_gradient_kept(t, "clip_grad_norm") : FR_OK;
    if (n->count > 0 && n->dtype != g->dtype) {
        FRI_TRY(add_squares(n));
    }
    FRI_TRY(FRI_ROOM(n->arrays, n->count, "clip_grad_norm"));
    n->dtype = g->dtype;
    n->arrays[n->count++] = (fri_array){fri_numel(g), fri_data(g)};
    return FR_OK;
}

static fr_status scale_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const struct norm *n = ctx;
    fr_tensor *g = is_parameter ? fr_tensor_get_grad(t) : NULL;
    (void)path;
    if (g == NULL) return FR_OK;
    fri_bump_version(g);
    return FRI_PASS(g, scale, n->factor, fri_data(g), fri_data(g));
}

/* Multiplies a gradient by the device's factor. The loss scaler decides what a norm of inf or NaN means for the
 * step. */
static fr_status device_shrink(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const struct norm *n = ctx;
    fr_tensor *g = is_parameter ? fr_tensor_get_grad(t) : NULL;
    float *factor = (float *)((char *)fri_data(n->sum) + sizeof(double));
    (void)path;
    if (g == NULL) return FR_OK;
    fri_bump_version(g);
    fri_array array = {fri_numel(g), fri_data(g)};
    return FRI_KERNEL(fri_backend_of(g), g->dtype, unscale, (FRI_EXEC, g->dtype, 1, &array, factor, factor + 1));
}

static fr_status device_clip(fr_module *m, double max_norm, struct norm *n) {
    const fri_backend *b = fri_backend_of(n->sum);
    fr_status s =
        FRI_KERNEL(b, FR_F32, clip_factor,
                   (FRI_EXEC, max_norm, fri_data(n->sum), (float *)((char *)fri_data(n->sum) + sizeof(double))));
    return s < 0 ? s : fr_module_each_tensor(m, device_shrink, n);
}

static fr_status first_device(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    (void)is_parameter;
    *(fr_device *)ctx = fri_device_of(t);
    return FR_OK;
}

fr_status fr_clip_grad_norm(fr_module *m, double max_norm, double *norm) {
    FRI_NOT_NULL(m);
    struct norm n = {0};
    double sums[2] = {0};
    fr_device device = FR_CPU;
    fr_shape shape = FRI_SHAPE(2);
    fr_status s = FR_OK;
    if (!(max_norm > 0)) return fr_fail(FR_EINVAL, "clip_grad_norm: max_norm is %g; it must be > 0", max_norm);
    FR_TRY(s, fr_module_each_tensor(m, first_device, &device));
    FR_TRY(s, fri_tensor_new(&shape, FR_F64, device, FR_MEM_TEMPORARY, &n.sum));
    FR_TRY(s, fri_tensor_fill(n.sum, 0));
    FR_TRY(s, fr_module_each_tensor(m, take_square, &n));
    FR_TRY(s, add_squares(&n));
    if (device == FR_META) goto done;
    if (fr_device_is_asynchronous(device)) FR_TRY(s, device_clip(m, max_norm, &n));
    if (fr_device_is_asynchronous(device) && norm == NULL) goto done;
    FR_TRY(s, fr_tensor_to_host(n.sum, sums));
    if (norm != NULL) *norm = sqrt(sums[0]);
    if (fr_device_is_asynchronous(device)) goto done;
    n.factor = fri_clip_factor(max_norm, sums[0]);
    if (n.factor != 1) FR_TRY(s, fr_module_each_tensor(m, scale_gradient, &n));
done:
    fr_tensor_release(&n.sum);
    free(n.arrays);
    return s;
}
