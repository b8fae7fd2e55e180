/* conv2d.c - convolutions through cuDNN's graph API, depthwise ones by conv2d_depthwise.cu. The bias is added, and its
 * gradient summed, by bias.cu.
 *
 * cuDNN's fast kernels count elements in 32 bits. Where x or y has more, the batch runs in equal parts, as PyTorch does
 * it; weight gradients of the parts are added in their order. */
#include "conv2d.h"

#include "conv2d_depthwise.h"
#include "conv2d_plan.h"
#include "kernels.h"
#include "memory.h"

/* Execution of a pass: the plan, and workspace places for aligned copies of operands. */
typedef struct conv_plan {
    fri_cuda_conv2d_pass pass;
    fri_cuda_conv2d_plan *plan;
    size_t size[3], at[3]; /* of x, w, y; size 0: no copy */
    size_t bytes;          /* of workspace in all */
    fri_conv2d_desc part;  /* computation of an execution */
    int64_t parts;
    size_t sum_at; /* in the workspace: the weight gradient of a part but the first */
} conv_plan;

enum { X, W, Y };

static bool is_usable(const fri_conv2d_desc *d, const fri_cuda_conv2d_plan *p) {
    return !p->choice.slow && (d->workspace_limit == 0 || p->choice.workspace <= d->workspace_limit);
}

static bool is_no_worse(const fri_cuda_conv2d_plan *fused, const fri_cuda_conv2d_plan *plain) {
    if (fused->choice.slow != plain->choice.slow) return plain->choice.slow;
    return fused->choice.workspace <= plain->choice.workspace;
}

/* A single kernel for product and bias, if an engine needs no more scratch than the limit, or than the product alone.
 * cuDNN's relu is not used, because NaN does not pass. */
static fr_status forward_plan(const fri_conv2d_desc *d, conv_plan *v) {
    fri_cuda_conv2d_plan *fused = NULL;
    if (d->bias && d->bias_dtype == d->dtype && !(d->unaligned & FRI_UNALIGNED_B))
        FRI_TRY(fri_cuda_conv2d_plan_get(d, FRI_CUDA_CONV2D_FORWARD_BIAS, &fused));
    if (fused == NULL || !is_usable(d, fused)) FRI_TRY(fri_cuda_conv2d_plan_get(d, FRI_CUDA_CONV2D_FORWARD, &v->plan));
    if (fused != NULL && (v->plan == NULL || is_no_worse(fused, v->plan))) {
        v->pass = FRI_CUDA_CONV2D_FORWARD_BIAS;
        v->plan = fused;
    }
    return FR_OK;
}

static fr_status find_plan(const fri_conv2d_desc *d, conv_plan *v) {
    if (v->pass == FRI_CUDA_CONV2D_FORWARD) return forward_plan(d, v);
    return fri_cuda_conv2d_plan_get(d, v->pass, &v->plan);
}

/* The fewest equal parts with small enough x and y that start at multiples of 16 bytes. */
static fr_status divide_batch(const fri_conv2d_desc *d, conv_plan *v) {
    const int64_t x = d->h * d->w * d->c, y = d->p * d->q * d->k, most = x > y ? x : y;
    const int64_t size = (int64_t)fr_dtype_size(d->dtype);
    v->part = *d;
    for (v->parts = 1; v->parts <= d->n; v->parts++) {
        const int64_t n = d->n / v->parts;
        if (d->n % v->parts != 0 || n * most > INT32_MAX) continue;
        if (v->parts > 1 && (n * x * size % 16 != 0 || n * y * size % 16 != 0)) continue;
        v->part.n = n;
        return FR_OK;
    }
    return fr_fail(FR_EUNSUPPORTED,
                   "%s: x (%lld, %lld, %lld, %lld) or y (%lld, %lld, %lld, %lld) has more than the %d elements that "
                   "cuDNN's kernels count, also in equal parts of the batch that start at multiples of 16 bytes",
                   fri_cuda_conv2d_pass_name[v->pass], (long long)d->n, (long long)d->c, (long long)d->h,
                   (long long)d->w, (long long)d->n, (long long)d->k, (long long)d->p, (long long)d->q, INT32_MAX);
}

static size_t add_scratch(conv_plan *v, size_t bytes) {
    const size_t at = (v->bytes + 511) / 512 * 512;
    v->bytes = at + bytes;
    return at;
}

static fr_status conv_plan_of(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, conv_plan *v) {
    static const uint8_t bit[3] = {FRI_UNALIGNED_X, FRI_UNALIGNED_W, FRI_UNALIGNED_Y};
    const int64_t elements[3] = {d->n * d->h * d->w * d->c, d->k * d->r * d->s * (d->c / d->groups),
                                 d->n * d->p * d->q * d->k};
    const size_t size = fr_dtype_size(d->dtype);
    *v = (conv_plan){.pass = pass};
    if (d->n == 0) return FR_OK; /* nothing runs */
    FRI_TRY(divide_batch(d, v));
    FRI_TRY(find_plan(&v->part, v));
    v->bytes = v->plan->choice.workspace;
    for (int i = 0; i < 3; i++) {
        if (!(d->unaligned & bit[i])) continue;
        v->size[i] = (size_t)elements[i] * size;
        v->at[i] = add_scratch(v, v->size[i]);
    }
    if (pass == FRI_CUDA_CONV2D_BACKWARD_WEIGHT && v->parts > 1) v->sum_at = add_scratch(v, (size_t)elements[W] * size);
    return FR_OK;
}

/* *p becomes the planned copy. */
static fr_status align_operand(const fri_exec *e, const conv_plan *v, int i, const void **p) {
    char *copy = (char *)e->workspace + v->at[i];
    if (v->size[i] > 0) {
        fr_status s = fri_cuda_copy(e, FRI_COPY_DEVICE_TO_DEVICE, *p, copy, v->size[i]);
        *p = copy;
        return s;
    }
    if ((uintptr_t)*p % 16 == 0) return FR_OK;
    return fr_fail(FR_EINTERNAL,
                   "%s: %s starts at an address that is no multiple of 16 bytes, although its tensor is marked "
                   "aligned; please report this",
                   fri_cuda_conv2d_pass_name[v->pass],
                   i == X   ? "x"
                   : i == W ? "w"
                            : "y");
}

/* The parts, in sequence. */
static fr_status run_parts(const fri_exec *e, const conv_plan *v, fri_cuda_conv2d_data data) {
    const fri_conv2d_desc *d = &v->part;
    const int64_t weights = d->k * d->r * d->s * (d->c / d->groups), size = (int64_t)fr_dtype_size(d->dtype);
    const bool adds = v->pass == FRI_CUDA_CONV2D_BACKWARD_WEIGHT;
    void *sum = (void *)(uintptr_t)data.w;
    for (int64_t i = 0; i < v->parts; i++) {
        if (adds && i == 1) data.w = (const char *)data.workspace + v->sum_at;
        FRI_TRY(fri_cuda_conv2d_run(fri_cuda_stream_of(e), v->pass, v->plan, &data));
        if (adds && i > 0) FRI_TRY(fri_backend_get(FR_CUDA)->kernels.add(e, d->dtype, weights, sum, data.w, sum));
        data.x = (const char *)data.x + d->n * d->h * d->w * d->c * size;
        data.y = (const char *)data.y + d->n * d->p * d->q * d->k * size;
    }
    return FR_OK;
}

/* x, w and y are data or gradients; the pass decides about the written operand. */
static fr_status run(const fri_exec *e, const conv_plan *v, const void *x, const void *w, const void *y,
                     const void *b) {
    fri_cuda_conv2d_data data = {.x = x, .w = w, .y = y, .b = b, .workspace = e->workspace};
    FRI_TRY(fri_cuda_workspace(e, fri_cuda_conv2d_pass_name[v->pass], v->bytes));
    FRI_TRY(align_operand(e, v, X, &data.x));
    FRI_TRY(align_operand(e, v, W, &data.w));
    FRI_TRY(align_operand(e, v, Y, &data.y));
    return run_parts(e, v, data);
}

static fr_status workspace_of(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, size_t *bytes) {
    conv_plan v;
    fr_status s = conv_plan_of(d, pass, &v);
    if (s >= 0) *bytes = v.bytes;
    return s;
}

/* ---- the kernels ------------------------------------------------------------------------------------------- */

fr_status fri_cuda_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    if (fri_cuda_conv2d_is_depthwise(d)) return FR_OK;
    return workspace_of(d, FRI_CUDA_CONV2D_FORWARD, bytes);
}

fr_status fri_cuda_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    conv_plan v;
    if (fri_cuda_conv2d_is_depthwise(d)) return fri_cuda_conv2d_depthwise_forward(e, d, x, w, b, y);
    FRI_TRY(conv_plan_of(d, FRI_CUDA_CONV2D_FORWARD, &v));
    bool fused = v.pass == FRI_CUDA_CONV2D_FORWARD_BIAS;
    FRI_TRY(run(e, &v, x, w, y, fused ? b : NULL));
    return b != NULL && !fused ? fri_cuda_bias_add(e, d->dtype, d->bias_dtype, d->n * d->p * d->q, d->k, b, y) : FR_OK;
}

fr_status fri_cuda_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    if (fri_cuda_conv2d_is_depthwise(d)) return FR_OK;
    return workspace_of(d, FRI_CUDA_CONV2D_BACKWARD_INPUT, bytes);
}

fr_status fri_cuda_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                         void *dx) {
    conv_plan v;
    if (fri_cuda_conv2d_is_depthwise(d)) return fri_cuda_conv2d_depthwise_input(e, d, w, dy, dx);
    fr_status s = conv_plan_of(d, FRI_CUDA_CONV2D_BACKWARD_INPUT, &v);
    return s < 0 ? s : run(e, &v, dx, w, dy, NULL);
}

fr_status fri_cuda_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    if (fri_cuda_conv2d_is_depthwise(d)) {
        *bytes = fri_cuda_conv2d_depthwise_weight_workspace(d);
        return FR_OK;
    }
    return workspace_of(d, FRI_CUDA_CONV2D_BACKWARD_WEIGHT, bytes);
}

fr_status fri_cuda_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                          void *dw) {
    conv_plan v;
    if (fri_cuda_conv2d_is_depthwise(d)) return fri_cuda_conv2d_depthwise_weight(e, d, x, dy, dw);
    fr_status s = conv_plan_of(d, FRI_CUDA_CONV2D_BACKWARD_WEIGHT, &v);
    return s < 0 ? s : run(e, &v, x, dw, dy, NULL);
}

fr_status fri_cuda_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    return fri_cuda_column_sum(e, "conv2d_backward_bias", d->dtype, d->n * d->p * d->q, d->k, dy, d->bias_dtype, db);
}
