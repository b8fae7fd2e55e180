/* backend.c - meta: every kernel succeeds and does nothing, so the same ops, modules and allocator run without data.
 *
 * Segments are addresses from a range that no process maps: unique, never reused, never touched. */
#include "meta/calls.h"
#include "meta/meta.h"

#include <stdatomic.h>

/* A kernel here looks at none of its arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static _Thread_local const fri_backend *target;

const fri_backend *fri_meta_target_set(const fri_backend *t) {
    const fri_backend *was = target;
    target = t;
    return was;
}

const fri_backend *fri_meta_target(void) {
    return target;
}

/* Work of one call: floating-point operations, bytes if every operand moves once, and the dimensions its time depends
 * on. Nobody listens: nothing is computed. */
#define CALL(name_, dtype_, flops_, bytes_, ...)                                                              \
    (!fri_meta_listening()                                                                                    \
         ? FR_OK                                                                                              \
         : fri_meta_call(name_, (dtype_), (double)(flops_), (double)(bytes_), (const int64_t[]){__VA_ARGS__}, \
                         (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))))

/* ---- memory ---------------------------------------------------------------------------------------------- */

enum { SEGMENT_ALIGNMENT = 2 * 1024 * 1024 };

#define FIRST_ADDRESS ((uint64_t)1 << 46)
#define LAST_ADDRESS  ((uint64_t)1 << 62)

static _Atomic uint64_t next_address = FIRST_ADDRESS;

static bool meta_available(const char **reason) {
    *reason = "";
    return true;
}

static fr_status meta_segment_alloc(size_t bytes, void **out) {
    *out = NULL;
    if (bytes > LAST_ADDRESS - FIRST_ADDRESS) return FR_ENOMEM;
    uint64_t span = (bytes / SEGMENT_ALIGNMENT + 1) * SEGMENT_ALIGNMENT; /* at least one byte between segments */
    uint64_t at = atomic_fetch_add(&next_address, span);
    if (at > LAST_ADDRESS - span) return FR_ENOMEM;
    *out = (void *)(uintptr_t)at;
    return FR_OK;
}

static void meta_segment_free(void *segment, size_t bytes) {
}

static fr_status meta_reserve(size_t granule, void **base, size_t *bytes) {
    *bytes = ((size_t)1 << 42) / granule * granule;
    return meta_segment_alloc(*bytes, base);
}

static fr_status meta_map(void *at, size_t bytes, size_t granule) {
    return FR_OK;
}

const fri_expandable fri_meta_expandable = {meta_reserve, meta_map, meta_segment_free, meta_segment_free};

static void meta_memory_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = 0;
}

static fr_status meta_copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    if (kind == FRI_COPY_DEVICE_TO_HOST && bytes > 0)
        return fri_fail(FR_EUNSUPPORTED, "copy of %zu bytes to the host: meta tensors hold no data", bytes);
    return kind == FRI_COPY_DEVICE_TO_DEVICE ? CALL("copy", FR_U8, 0, 2.0 * (double)bytes, (int64_t)bytes)
                                             : CALL("transfer", FR_U8, 0, bytes, (int64_t)bytes);
}

static fr_status meta_synchronize(const fri_exec *e) {
    return FR_OK;
}

/* ---- workspaces: the target's ---------------------------------------------------------------------------- */

size_t fri_meta_sum_workspace(fr_dtype dtype, int64_t n) {
    fri_sum_workspace_fn *f = target != NULL ? fri_kernels_for(target, dtype)->sum_workspace : NULL;
    return f != NULL ? f(dtype, n) : 0;
}

size_t fri_meta_norm_squared_workspace(fr_dtype dtype, int count, const fri_array *arrays) {
    fri_norm_squared_workspace_fn *f = target != NULL ? fri_kernels_for(target, dtype)->norm_squared_workspace : NULL;
    return f != NULL ? f(dtype, count, arrays) : 0;
}

size_t fri_meta_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    fri_batchnorm2d_workspace_fn *f = target != NULL ? fri_kernels_for(target, d->dtype)->batchnorm2d_workspace : NULL;
    return f != NULL ? f(d) : 0;
}

size_t fri_meta_bias_workspace(fr_dtype dtype, int64_t rows, int64_t k) {
    fri_bias_workspace_fn *f = target != NULL ? fri_kernels_for(target, dtype)->bias_workspace : NULL;
    return f != NULL ? f(dtype, rows, k) : 0;
}

size_t fri_meta_cross_entropy_workspace(const fri_cross_entropy_desc *d) {
    fri_cross_entropy_workspace_fn *f =
        target != NULL ? fri_kernels_for(target, d->dtype)->cross_entropy_workspace : NULL;
    return f != NULL ? f(d) : 0;
}

static fr_status conv2d_workspace(const char *kernel, fri_conv2d_workspace_fn *f, const fri_conv2d_desc *d,
                                  size_t *bytes) {
    *bytes = 0;
    if (target == NULL) return FR_OK;
    return f != NULL ? f(d, bytes) : fri_kernel_missing(kernel, d->dtype, target);
}

static fr_status linear_workspace(const char *kernel, fri_linear_workspace_fn *f, const fri_linear_desc *d,
                                  size_t *bytes) {
    *bytes = 0;
    if (target == NULL) return FR_OK;
    return f != NULL ? f(d, bytes) : fri_kernel_missing(kernel, d->dtype, target);
}

#define TARGET_SLOT(dtype, slot) (target != NULL ? fri_kernels_for(target, (dtype))->slot : NULL)

fr_status fri_meta_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_forward", TARGET_SLOT(d->dtype, conv2d_forward_workspace), d, bytes);
}

fr_status fri_meta_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_backward_input", TARGET_SLOT(d->dtype, conv2d_backward_input_workspace), d, bytes);
}

fr_status fri_meta_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_backward_weight", TARGET_SLOT(d->dtype, conv2d_backward_weight_workspace), d,
                            bytes);
}

static fr_status fused_workspace(fri_conv2d_fused_workspace_fn *f, const fri_conv2d_desc *d, bool *there,
                                 size_t *bytes) {
    *there = false;
    return f != NULL ? f(d, there, bytes) : FR_OK;
}

fr_status fri_meta_conv2d_forward_stats_workspace(const fri_conv2d_desc *d, bool *there, size_t *bytes) {
    return fused_workspace(TARGET_SLOT(d->dtype, conv2d_forward_stats_workspace), d, there, bytes);
}

fr_status fri_meta_conv2d_backward_weight_norm_workspace(const fri_conv2d_desc *d, bool *there, size_t *bytes) {
    return fused_workspace(TARGET_SLOT(d->dtype, conv2d_backward_weight_norm_workspace), d, there, bytes);
}

fr_status fri_meta_linear_forward_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_forward", TARGET_SLOT(d->dtype, linear_forward_workspace), d, bytes);
}

fr_status fri_meta_linear_backward_input_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_backward_input", TARGET_SLOT(d->dtype, linear_backward_input_workspace), d, bytes);
}

fr_status fri_meta_linear_backward_weight_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_backward_weight", TARGET_SLOT(d->dtype, linear_backward_weight_workspace), d,
                            bytes);
}

/* ---- kernels that do nothing but say what they would do ---------------------------------------------------- */

static double size(fr_dtype t) {
    return (double)fr_dtype_size(t);
}

/* One pass over n elements that moves `per` bytes each. */
static fr_status pass(const char *name, fr_dtype t, int64_t n, double flops, double per) {
    return CALL(name, t, flops * (double)n, per * (double)n, n);
}

fr_status fri_meta_fill(const fri_exec *e, fr_dtype t, int64_t n, double value, void *y) {
    return pass("fill", t, n, 0, size(t));
}

fr_status fri_meta_copy_rows(const fri_exec *e, int64_t rows, size_t row_bytes, const void *src, size_t src_pitch,
                             void *dst, size_t dst_pitch) {
    return CALL("copy_rows", FR_U8, 0, 2.0 * (double)rows * (double)row_bytes, rows, (int64_t)row_bytes);
}

fr_status fri_meta_cast(const fri_exec *e, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    return CALL("cast", to, 0, (size(from) + size(to)) * (double)n, n, (int64_t)from);
}

/* The elementwise kernels of the map cost one operation per element and each operand once. */
#define UNARY(name_, type, need)                                                                   \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, const void *x, void *y) { \
        return pass(#name_, t, n, 1, 2 * size(t));                                                 \
    }
#define BINARY(name_, type, need)                                                                                 \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, const void *a, const void *b, void *y) { \
        return pass(#name_, t, n, 1, 3 * size(t));                                                                \
    }
#define SCALED(name_, type, need)                                                                                \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *x, void *y) { \
        return pass(#name_, t, n, 1, 2 * size(t));                                                               \
    }
FRI_UNARY_KERNELS(UNARY)
FRI_BINARY_KERNELS(BINARY)
FRI_SCALED_KERNELS(SCALED)

#define RANDOM(name_)                                                                                              \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, uint64_t seed, uint64_t stream, double a, \
                               double b, void *y) {                                                                \
        return pass(#name_, t, n, 20, size(t));                                                                    \
    }
RANDOM(uniform)
RANDOM(normal)

fr_status fri_meta_sum(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *x, void *y) {
    return pass("sum", t, n, 1, size(t));
}

fr_status fri_meta_broadcast(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *s, void *y) {
    return pass("broadcast", t, n, 1, size(t));
}

fr_status fri_meta_leaky_relu_backward(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *a,
                                       const void *b, void *y) {
    return pass("leaky_relu_backward", t, n, 1, 3 * size(t));
}

fr_status fri_meta_relu_encode(const fri_exec *e, fr_dtype t, int64_t n, bool strict, const void *y, uint8_t *bits) {
    return pass("relu_encode", t, n, 1, size(t) + 0.125);
}

fr_status fri_meta_relu_backward_bits(const fri_exec *e, fr_dtype t, int64_t n, double slope, const uint8_t *bits,
                                      const void *dy, void *dx) {
    return pass("relu_backward_bits", t, n, 1, 2 * size(t) + 0.125);
}

static fr_status dropout(const char *name, const fri_dropout_desc *d, double per) {
    double n = (double)d->n * (double)d->hw * (double)d->c;
    return CALL(name, d->dtype, 10 * n, per * n, d->n, d->hw, d->c, d->per_channel);
}

fr_status fri_meta_dropout(const fri_exec *e, const fri_dropout_desc *d, const void *x, void *y) {
    return dropout("dropout", d, 2 * size(d->dtype));
}

fr_status fri_meta_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    return dropout("dropout_mask", d, 1);
}

fr_status fri_meta_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask, const void *x,
                                      void *y) {
    return dropout("dropout_apply_mask", d, 2 * size(d->dtype) + 1);
}

/* ---- convolution and linear -------------------------------------------------------------------------------- */

static fr_status conv2d(const char *name, const fri_conv2d_desc *d) {
    double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->k;
    double window = (double)d->r * (double)d->s * (double)d->c / (double)d->groups;
    return CALL(name, d->dtype, 2 * y * window, size(d->dtype) * (x + y + window * (double)d->k), d->n, d->h, d->w,
                d->c, d->k, d->r, d->s, d->stride_h, d->stride_w, d->pad_h, d->pad_w, d->dilation_h, d->dilation_w,
                d->groups, (int64_t)(d->workspace_limit < INT64_MAX ? d->workspace_limit : INT64_MAX));
}

fr_status fri_meta_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    return conv2d("conv2d_forward", d);
}

fr_status fri_meta_conv2d_forward_stats(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                        void *y, void *sums) {
    return conv2d("conv2d_forward_stats", d);
}

fr_status fri_meta_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return conv2d("conv2d_backward_input", d);
}

fr_status fri_meta_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                          void *dw) {
    return conv2d("conv2d_backward_weight", d);
}

fr_status fri_meta_conv2d_backward_weight_norm(const fri_exec *e, const fri_conv2d_desc *d, const void *x,
                                               const void *scale_shift, const void *dy, void *dw) {
    return conv2d("conv2d_backward_weight_norm", d);
}

fr_status fri_meta_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->k;
    return CALL("conv2d_backward_bias", d->dtype, y, size(d->dtype) * y, d->n, d->p, d->q, d->k);
}

static fr_status linear(const char *name, const fri_linear_desc *d) {
    double n = (double)d->n, in = (double)d->in, out = (double)d->out;
    return CALL(name, d->dtype, 2 * n * in * out, size(d->dtype) * (n * in + in * out + n * out), d->n, d->in, d->out);
}

fr_status fri_meta_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    return linear("linear_forward", d);
}

fr_status fri_meta_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return linear("linear_backward_input", d);
}

fr_status fri_meta_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                          void *dw, void *db) {
    return linear("linear_backward_weight", d);
}

fr_status fri_meta_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    double y = (double)d->n * (double)d->out;
    return CALL("linear_backward_bias", d->dtype, y, size(d->dtype) * y, d->n, d->out);
}

/* ---- batch norm -------------------------------------------------------------------------------------------- */

static fr_status batchnorm(const char *name, const fri_batchnorm2d_desc *d, double flops, double moves, int variant) {
    double n = (double)d->rows * (double)d->c;
    return CALL(name, d->dtype, flops * n, moves * size(d->dtype) * n, d->rows, d->c, variant);
}

fr_status fri_meta_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, void *mean,
                                     void *invstd, void *running_mean, void *running_var) {
    return batchnorm("batchnorm2d_stats", d, 4, 2, running_mean != NULL);
}

fr_status fri_meta_batchnorm2d_finalize(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *sums, void *mean,
                                        void *invstd, void *running_mean, void *running_var) {
    return CALL("batchnorm2d_finalize", d->dtype, 8 * d->c, 24 * d->c, d->c);
}

fr_status fri_meta_batchnorm2d_fold(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *mean,
                                    const void *invstd, const void *gamma, const void *beta, void *scale_shift) {
    return CALL("batchnorm2d_fold", d->dtype, 3 * d->c, 20 * d->c, d->c);
}

fr_status fri_meta_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var, void *invstd) {
    return CALL("batchnorm2d_invstd", d->dtype, 3 * d->c, 8 * d->c, d->c);
}

fr_status fri_meta_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const void *mean,
                                     const void *invstd, const void *gamma, const void *beta, const void *addend,
                                     bool relu, void *y) {
    return batchnorm("batchnorm2d_apply", d, addend != NULL ? 3 : 2, addend != NULL ? 3 : 2,
                     relu + 2 * (addend != NULL));
}

fr_status fri_meta_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                        const void *mean, const void *invstd, const void *gamma, const void *beta,
                                        bool relu, const void *dy, void *dx, void *dgamma, void *dbeta) {
    return batchnorm("batchnorm2d_backward", d, relu ? 14 : 8, 5, train + 2 * relu);
}

/* ---- pooling and resampling -------------------------------------------------------------------------------- */

/* Bytes of x and y once; flops: the windows. */
static fr_status pool(const char *name, const fri_pool2d_desc *d, double index_bytes) {
    double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->c;
    double window = d->kernel_h > 0 ? (double)d->kernel_h * (double)d->kernel_w : x / (y > 0 ? y : 1);
    return CALL(name, d->dtype, y * window, size(d->dtype) * (x + y) + index_bytes * y, d->n, d->h, d->w, d->c, d->p,
                d->q, d->kernel_h, d->kernel_w, d->stride_h, d->stride_w, d->pad_h, d->pad_w, d->dilation_h,
                d->dilation_w, (int64_t)index_bytes);
}

fr_status fri_meta_maxpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y,
                                     fr_dtype index_dtype, void *index) {
    return pool("maxpool2d_forward", d, index != NULL ? size(index_dtype) : 0);
}

fr_status fri_meta_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                      const void *index, const void *dy, void *dx) {
    return pool("maxpool2d_backward", d, size(index_dtype));
}

fr_status fri_meta_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y, fr_dtype index_dtype,
                                  void *index) {
    double n = (double)d->n * (double)d->p * (double)d->q * (double)d->c;
    return CALL("maxpool2d_mask", d->dtype, n, (size(d->dtype) + 2 * size(index_dtype)) * n, d->n, d->p, d->q, d->c,
                (int64_t)index_dtype);
}

#define POOL(name_)                                                                                   \
    fr_status fri_meta_##name_(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) { \
        return pool(#name_, d, 0);                                                                    \
    }
POOL(avgpool2d_forward)
POOL(avgpool2d_backward)
POOL(adaptive_avgpool2d_forward)
POOL(adaptive_avgpool2d_backward)

#define UPSAMPLE(name_)                                                                                         \
    fr_status fri_meta_##name_(const fri_exec *e, const fri_upsample_desc *d, const void *x, void *y) {         \
        double in = (double)d->n * (double)d->h * (double)d->w * (double)d->c;                                  \
        double out = (double)d->n * (double)d->p * (double)d->q * (double)d->c;                                 \
        return CALL(#name_, d->dtype, 4 * out, size(d->dtype) * (in + out), d->n, d->h, d->w, d->c, d->p, d->q, \
                    d->bilinear, d->align_corners);                                                             \
    }
UPSAMPLE(upsample_forward)
UPSAMPLE(upsample_backward)

/* ---- embedding, losses, optimizers ------------------------------------------------------------------------- */

fr_status fri_meta_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                     const void *w, void *y, int64_t *bad) {
    return CALL("embedding_forward", d->dtype, 0, 2 * size(d->dtype) * (double)d->n * (double)d->dim, d->n, d->dim);
}

fr_status fri_meta_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                      const void *dy, void *dw) {
    double moved = 2 * (double)d->n + (double)d->vocabulary;
    return CALL("embedding_backward", d->dtype, (double)d->n * (double)d->dim, size(d->dtype) * moved * (double)d->dim,
                d->n, d->vocabulary, d->dim);
}

static fr_status rows(const char *name, const fri_cross_entropy_desc *d, double flops, double moves) {
    double n = (double)d->rows * (double)d->classes;
    return CALL(name, d->dtype, flops * n, moves * size(d->dtype) * n, d->rows, d->classes);
}

fr_status fri_meta_cross_entropy_forward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                         const int64_t *t, void *loss, void *lse, void *count, int64_t *bad) {
    return rows("cross_entropy_forward", d, 8, 1);
}

fr_status fri_meta_cross_entropy_backward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                          const int64_t *t, const void *lse, const void *count, const void *dloss,
                                          void *dx) {
    return rows("cross_entropy_backward", d, 8, 2);
}

fr_status fri_meta_count_correct(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x, const int64_t *t,
                                 int64_t *correct) {
    return rows("count_correct", d, 1, 1);
}

fr_status fri_meta_mse_forward(const fri_exec *e, fr_dtype t, int64_t n, const void *a, const void *b, void *y) {
    return pass("mse_forward", t, n, 3, 2 * size(t));
}

fr_status fri_meta_mse_backward(const fri_exec *e, fr_dtype t, int64_t n, double sign, const void *x,
                                const void *target_, const void *dloss, void *dx) {
    return pass("mse_backward", t, n, 3, 3 * size(t));
}

fr_status fri_meta_unscale(const fri_exec *e, fr_dtype t, int count, const fri_array *arrays, const float *inv_scale,
                           float *found) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += arrays[i].n;
    return pass("unscale", t, n, 2, (inv_scale != NULL ? 2 : 1) * size(t));
}

fr_status fri_meta_norm_squared(const fri_exec *e, fr_dtype t, int count, const fri_array *arrays, double *out) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += arrays[i].n;
    return pass("norm_squared", t, n, 2, size(t));
}

fr_status fri_meta_count_up(const fri_exec *e, fr_dtype t, const float *found, int count, const fri_array *arrays) {
    return FR_OK;
}

fr_status fri_meta_clip_factor(const fri_exec *e, double max_norm, const double *square, float *factor) {
    return FR_OK;
}

fr_status fri_meta_loss_scale_update(const fri_exec *e, const fri_loss_scale_desc *d, fri_loss_scale *state,
                                     float *found) {
    return FR_OK;
}

static int64_t elements(int count, const fri_step_item *items) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += items[i].n;
    return n;
}

fr_status fri_meta_sgd(const fri_exec *e, const fri_sgd_desc *d, int count, const fri_step_item *items,
                       const float *inv_scale, const float *found) {
    bool momentum = count > 0 && items[0].state[0] != NULL;
    double per = 2 * size(d->dtype) + size(d->grad_dtype) + (momentum ? 2 * size(d->dtype) : 0);
    int64_t n = elements(count, items);
    return CALL("sgd", d->dtype, 5 * (double)n, per * (double)n, n, count, momentum, d->first);
}

fr_status fri_meta_adam(const fri_exec *e, const fri_adam_desc *d, int count, const fri_step_item *items,
                        const float *inv_scale, const float *found) {
    double per = 6 * size(d->dtype) + size(d->grad_dtype);
    int64_t n = elements(count, items);
    return CALL("adam", d->dtype, 12 * (double)n, per * (double)n, n, count);
}

fr_status fri_meta_adam8(const fri_exec *e, const fri_adam_desc *d, const float *maps, int count,
                         const fri_step_item *items, const float *inv_scale, const float *found) {
    double per = 2 * size(d->dtype) + size(d->grad_dtype) + 4;
    int64_t n = elements(count, items);
    return CALL("adam8", d->dtype, 40 * (double)n, per * (double)n, n, count);
}

/* ---- the table: f64 data is no different ----------------------------------------------------------------- */

#define SLOT(name_, type, need) .name_ = fri_meta_##name_,

const fri_backend fri_backend_meta = {
    .name = "meta",
    .device = FR_META,
    .available = meta_available,
    .segment_alloc = meta_segment_alloc,
    .segment_free = meta_segment_free,
    .memory_info = meta_memory_info,
    .copy = meta_copy,
    .synchronize = meta_synchronize,
    .kernels = {FRI_KERNEL_MAP(SLOT)},
    .kernels_f64 = {FRI_KERNEL_MAP(SLOT)},
};
