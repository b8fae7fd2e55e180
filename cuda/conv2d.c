/* conv2d.c - convolutions through cuDNN's graph API. The bias is added, and its gradient summed, by bias.cu.
 *
 * A plan made for a device description becomes one of the handle by way of its JSON text, as cuDNN documents for plans
 * that were made without a device. */
#include "conv2d.h"

#include "context.h"
#include "conv2d_plan.h"
#include "kernels.h"

/* cuDNN's own plan for this thread's handle. */
static fr_status bind(const fri_cudnn *dnn, cudnnHandle_t handle, const char *name, fri_cuda_conv2d_plan *p) {
    cudnnBackendDescriptor_t d = NULL;
    int64_t bytes = 0, n = 0;
    fr_status s = FR_OK;
    if (p->bound != NULL) return FR_OK;
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d), name));
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendSetAttribute(d, FRI_CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle),
                               name));
    FRI_TRY(s, fri_cudnn_check(dnn,
                               dnn->BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                        CUDNN_TYPE_CHAR, p->json_bytes, p->json),
                               name));
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendFinalize(d), name));
    FRI_TRY(s, fri_cudnn_check(dnn,
                               dnn->BackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                                        1, &n, &bytes),
                               name));
    if (bytes > 0 && (size_t)bytes > p->choice.workspace) {
        s = fri_fail(FR_EINTERNAL, "%s: the plan needs %lld bytes of workspace on this device but %zu were planned",
                     name, (long long)bytes, p->choice.workspace);
        goto done;
    }
    p->bound = d;
    d = NULL;
done:
    if (d != NULL) dnn->BackendDestroyDescriptor(d);
    return s;
}

static fr_status execute(const fri_cudnn *dnn, cudnnHandle_t handle, const char *name, const fri_cuda_conv2d_plan *p,
                         const void *x, const void *w, const void *y, void *workspace) {
    const int64_t uid[3] = {FRI_UID_X, FRI_UID_W, FRI_UID_Y};
    const void *data[3] = {x, w, y};
    cudnnBackendDescriptor_t pack = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), name));
    FRI_TRY(s, fri_cudnn_check(dnn,
                               dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3,
                                                        uid),
                               name));
    FRI_TRY(s, fri_cudnn_check(dnn,
                               dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                        CUDNN_TYPE_VOID_PTR, 3, data),
                               name));
    FRI_TRY(s, fri_cudnn_check(dnn,
                               dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                                        &workspace),
                               name));
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendFinalize(pack), name));
    FRI_TRY(s, fri_cudnn_check(dnn, dnn->BackendExecute(handle, p->bound, pack), name));
    FRI_TRY(s, fri_cuda_launched(name));
done:
    if (pack != NULL) dnn->BackendDestroyDescriptor(pack);
    return s;
}

static bool aligned(const void *p) {
    return ((uintptr_t)p & 15) == 0;
}

/* x, w and y are data or gradients; which of them is written depends on the pass. */
static fr_status run(const fri_exec *e, const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, const void *x,
                     const void *w, const void *y) {
    const char *name = fri_cuda_conv2d_pass_name[pass];
    char reason[256];
    cudnnHandle_t handle = NULL;
    fri_cuda_conv2d_plan *p = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_cuda_conv2d_plan_get(d, pass, &p));
    if (!aligned(x) || !aligned(w) || !aligned(y))
        return fri_fail(FR_EUNSUPPORTED, "%s: x, w or y does not start at a multiple of 16 bytes, which cuDNN needs",
                        name);
    if (p->choice.workspace > 0 && (e->workspace == NULL || e->workspace_bytes < p->choice.workspace))
        return fri_cuda_workspace_short(name, p->choice.workspace, e->workspace != NULL ? e->workspace_bytes : 0);
    FRI_TRY(s, fri_cudnn_handle(fri_cuda_stream_of(e), &handle));
    const fri_cudnn *dnn = fri_cudnn_open(reason, sizeof reason);
    FRI_TRY(s, bind(dnn, handle, name, p));
    FRI_TRY(s, execute(dnn, handle, name, p, x, w, y, e->workspace));
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
