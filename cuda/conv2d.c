/* conv2d.c - convolutions through cuDNN's graph API. The bias is added, and its gradient summed, by bias.cu. */
#include "conv2d.h"

#include "context.h"
#include "conv2d_plan.h"
#include "kernels.h"

static bool aligned(const void *p) {
    return ((uintptr_t)p & 15) == 0;
}

/* x, w and y are data or gradients; which of them is written depends on the pass. */
static fr_status run(const fri_exec *e, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, const void *x,
                     const void *w, const void *y) {
    const char *name = fri_cuda_conv2d_pass_name[pass];
    fri_cuda_conv2d_plan *p = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_cuda_conv2d_plan_get(d, pass, &p));
    if (!aligned(x) || !aligned(w) || !aligned(y))
        return fri_fail(FR_EUNSUPPORTED, "%s: x, w or y does not start at a multiple of 16 bytes, which cuDNN needs",
                        name);
    if (p->choice.workspace > 0 && (e->workspace == NULL || e->workspace_bytes < p->choice.workspace))
        return fri_cuda_workspace_short(name, p->choice.workspace, e->workspace != NULL ? e->workspace_bytes : 0);
    const fri_cuda_conv2d_data data = {.x = x, .w = w, .y = y, .workspace = e->workspace};
    FRI_TRY(s, fri_cuda_conv2d_run(fri_cuda_stream_of(e), pass, p, &data));
done:
    return s;
}

static fr_status workspace_of(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, size_t *bytes) {
    fri_cuda_conv2d_choice c;
    fr_status s = fri_cuda_conv2d_choose(d, pass, &c);
    if (s >= 0) *bytes = c.workspace;
    return s;
}

/* ---- the kernels ------------------------------------------------------------------------------------------- */

fr_status fri_cuda_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_CUDA_CONV2D_FORWARD, bytes);
}

fr_status fri_cuda_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    fr_status s = FR_OK;
    if (d->n == 0) return FR_OK;
    FRI_TRY(s, run(e, d, FRI_CUDA_CONV2D_FORWARD, x, w, y));
    if (b != NULL) FRI_TRY(s, fri_cuda_bias_add(e, d->dtype, d->bias_dtype, d->n * d->p * d->q, d->k, b, y));
done:
    return s;
}

fr_status fri_cuda_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_CUDA_CONV2D_BACKWARD_INPUT, bytes);
}

fr_status fri_cuda_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return d->n == 0 ? FR_OK : run(e, d, FRI_CUDA_CONV2D_BACKWARD_INPUT, dx, w, dy);
}

fr_status fri_cuda_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_CUDA_CONV2D_BACKWARD_WEIGHT, bytes);
}

fr_status fri_cuda_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                          void *dw) {
    if (d->n == 0) return fri_cuda_fill(e, d->dtype, d->k * d->r * d->s * (d->c / d->groups), 0, dw);
    return run(e, d, FRI_CUDA_CONV2D_BACKWARD_WEIGHT, x, dw, dy);
}

fr_status fri_cuda_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    return fri_cuda_column_sum(e, "conv2d_backward_bias", d->dtype, d->n * d->p * d->q, d->k, dy, d->bias_dtype, db);
}
