/* backend.c - meta: every kernel succeeds and does nothing, so the same ops, modules and allocator run without data.
 *
 * Segments are addresses from a range that no process maps: unique, never reused, never touched. */
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

static void meta_memory_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = 0;
}

static fr_status meta_copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    if (kind == FRI_COPY_DEVICE_TO_HOST && bytes > 0)
        return fri_fail(FR_EUNSUPPORTED, "copy of %zu bytes to the host: meta tensors hold no data", bytes);
    return FR_OK;
}

static fr_status meta_synchronize(const fri_exec *e) {
    return FR_OK;
}

/* ---- workspaces: the target's ---------------------------------------------------------------------------- */

static size_t meta_sum_workspace(fr_dtype dtype, int64_t n) {
    fri_sum_workspace_fn *f = target != NULL ? fri_kernels_for(target, dtype)->sum_workspace : NULL;
    return f != NULL ? f(dtype, n) : 0;
}

static size_t meta_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    fri_batchnorm2d_workspace_fn *f = target != NULL ? fri_kernels_for(target, d->dtype)->batchnorm2d_workspace : NULL;
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

static fr_status meta_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_forward", TARGET_SLOT(d->dtype, conv2d_forward_workspace), d, bytes);
}

static fr_status meta_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_backward_input", TARGET_SLOT(d->dtype, conv2d_backward_input_workspace), d, bytes);
}

static fr_status meta_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return conv2d_workspace("conv2d_backward_weight", TARGET_SLOT(d->dtype, conv2d_backward_weight_workspace), d,
                            bytes);
}

static fr_status meta_linear_forward_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_forward", TARGET_SLOT(d->dtype, linear_forward_workspace), d, bytes);
}

static fr_status meta_linear_backward_input_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_backward_input", TARGET_SLOT(d->dtype, linear_backward_input_workspace), d, bytes);
}

static fr_status meta_linear_backward_weight_workspace(const fri_linear_desc *d, size_t *bytes) {
    return linear_workspace("linear_backward_weight", TARGET_SLOT(d->dtype, linear_backward_weight_workspace), d,
                            bytes);
}

/* ---- kernels that do nothing: one per signature ---------------------------------------------------------- */

static fr_status no_fill(const fri_exec *e, fr_dtype t, int64_t n, double value, void *y) {
    return FR_OK;
}

static fr_status no_copy_rows(const fri_exec *e, int64_t rows, size_t row_bytes, const void *src, size_t src_pitch,
                              void *dst, size_t dst_pitch) {
    return FR_OK;
}

static fr_status no_cast(const fri_exec *e, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_unary(const fri_exec *e, fr_dtype t, int64_t n, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_binary(const fri_exec *e, fr_dtype t, int64_t n, const void *a, const void *b, void *y) {
    return FR_OK;
}

static fr_status no_scaled_unary(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_scaled_binary(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *a, const void *b,
                                  void *y) {
    return FR_OK;
}

static fr_status no_relu_encode(const fri_exec *e, fr_dtype t, int64_t n, bool strict, const void *y, uint8_t *bits) {
    return FR_OK;
}

static fr_status no_relu_backward_bits(const fri_exec *e, fr_dtype t, int64_t n, double slope, const uint8_t *bits,
                                       const void *dy, void *dx) {
    return FR_OK;
}

static fr_status no_random(const fri_exec *e, fr_dtype t, int64_t n, uint64_t seed, uint64_t stream, double a, double b,
                           void *y) {
    return FR_OK;
}

static fr_status no_dropout(const fri_exec *e, const fri_dropout_desc *d, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    return FR_OK;
}

static fr_status no_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask, const void *x,
                                       void *y) {
    return FR_OK;
}

static fr_status no_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                   const void *b, void *y) {
    return FR_OK;
}

static fr_status no_conv2d_backward(const fri_exec *e, const fri_conv2d_desc *d, const void *a, const void *b,
                                    void *y) {
    return FR_OK;
}

static fr_status no_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    return FR_OK;
}

static fr_status no_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                   const void *b, void *y) {
    return FR_OK;
}

static fr_status no_linear_backward(const fri_exec *e, const fri_linear_desc *d, const void *a, const void *b,
                                    void *y) {
    return FR_OK;
}

static fr_status no_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    return FR_OK;
}

static fr_status no_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, void *mean,
                                      void *invstd, void *running_mean, void *running_var) {
    return FR_OK;
}

static fr_status no_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var,
                                       void *invstd) {
    return FR_OK;
}

static fr_status no_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const void *mean,
                                      const void *invstd, const void *gamma, const void *beta, bool relu, void *y) {
    return FR_OK;
}

static fr_status no_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                         const void *mean, const void *invstd, const void *gamma, const void *dy,
                                         void *dx, void *dgamma, void *dbeta) {
    return FR_OK;
}

static fr_status no_maxpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y,
                                      fr_dtype index_dtype, void *index) {
    return FR_OK;
}

static fr_status no_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                       const void *index, const void *dy, void *dx) {
    return FR_OK;
}

static fr_status no_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y, fr_dtype index_dtype,
                                   void *index) {
    return FR_OK;
}

static fr_status no_pool2d(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_upsample(const fri_exec *e, const fri_upsample_desc *d, const void *x, void *y) {
    return FR_OK;
}

static fr_status no_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                      const void *w, void *y, int64_t *bad) {
    return FR_OK;
}

static fr_status no_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                       const void *dy, void *dw) {
    return FR_OK;
}

static fr_status no_cross_entropy_forward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                          const int64_t *t, void *loss, void *lse, void *count, int64_t *bad) {
    return FR_OK;
}

static fr_status no_cross_entropy_backward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                           const int64_t *t, const void *lse, const void *count, const void *dloss,
                                           void *dx) {
    return FR_OK;
}

static fr_status no_count_correct(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x, const int64_t *t,
                                  int64_t *correct) {
    return FR_OK;
}

static fr_status no_mse_backward(const fri_exec *e, fr_dtype t, int64_t n, double sign, const void *x,
                                 const void *target_, const void *dloss, void *dx) {
    return FR_OK;
}

static fr_status no_unscale(const fri_exec *e, fr_dtype t, int64_t n, const float *inv_scale, void *x, float *found) {
    return FR_OK;
}

static fr_status no_norm_squared(const fri_exec *e, fr_dtype t, int64_t n, const void *x, double *out) {
    return FR_OK;
}

static fr_status no_sgd(const fri_exec *e, const fri_sgd_desc *d, void *param, const void *grad, void *buf,
                        const float *inv_scale, const float *found) {
    return FR_OK;
}

static fr_status no_adam(const fri_exec *e, const fri_adam_desc *d, void *param, const void *grad, void *m, void *v,
                         const float *step, const float *inv_scale, const float *found) {
    return FR_OK;
}

/* ---- the table: f64 data is no different ----------------------------------------------------------------- */

#define KERNELS                                                                                                       \
    {                                                                                                                 \
        .fill = no_fill, .copy_rows = no_copy_rows, .cast = no_cast, .add = no_binary, .mul = no_binary,              \
        .scale = no_scaled_unary, .broadcast = no_scaled_unary, .sum = no_scaled_unary,                               \
        .sum_workspace = meta_sum_workspace, .relu_forward = no_unary, .relu_backward = no_binary,                    \
        .relu_encode = no_relu_encode, .relu_backward_bits = no_relu_backward_bits,                                   \
        .leaky_relu_forward = no_scaled_unary, .leaky_relu_backward = no_scaled_binary, .uniform = no_random,         \
        .normal = no_random, .dropout = no_dropout, .dropout_mask = no_dropout_mask,                                  \
        .dropout_apply_mask = no_dropout_apply_mask, .conv2d_forward = no_conv2d_forward,                             \
        .conv2d_backward_input = no_conv2d_backward, .conv2d_backward_weight = no_conv2d_backward,                    \
        .conv2d_backward_bias = no_conv2d_backward_bias, .linear_forward = no_linear_forward,                         \
        .linear_backward_input = no_linear_backward, .linear_backward_weight = no_linear_backward,                    \
        .linear_backward_bias = no_linear_backward_bias, .batchnorm2d_workspace = meta_batchnorm2d_workspace,         \
        .batchnorm2d_stats = no_batchnorm2d_stats, .batchnorm2d_invstd = no_batchnorm2d_invstd,                       \
        .batchnorm2d_apply = no_batchnorm2d_apply, .batchnorm2d_backward = no_batchnorm2d_backward,                   \
        .maxpool2d_forward = no_maxpool2d_forward, .maxpool2d_backward = no_maxpool2d_backward,                       \
        .maxpool2d_mask = no_maxpool2d_mask, .avgpool2d_forward = no_pool2d, .avgpool2d_backward = no_pool2d,         \
        .adaptive_avgpool2d_forward = no_pool2d, .adaptive_avgpool2d_backward = no_pool2d,                            \
        .upsample_forward = no_upsample, .upsample_backward = no_upsample, .embedding_forward = no_embedding_forward, \
        .embedding_backward = no_embedding_backward, .cross_entropy_forward = no_cross_entropy_forward,               \
        .cross_entropy_backward = no_cross_entropy_backward, .count_correct = no_count_correct,                       \
        .mse_forward = no_binary, .mse_backward = no_mse_backward, .unscale = no_unscale,                             \
        .norm_squared = no_norm_squared, .sgd = no_sgd, .adam = no_adam,                                              \
        .conv2d_forward_workspace = meta_conv2d_forward_workspace,                                                    \
        .conv2d_backward_input_workspace = meta_conv2d_backward_input_workspace,                                      \
        .conv2d_backward_weight_workspace = meta_conv2d_backward_weight_workspace,                                    \
        .linear_forward_workspace = meta_linear_forward_workspace,                                                    \
        .linear_backward_input_workspace = meta_linear_backward_input_workspace,                                      \
        .linear_backward_weight_workspace = meta_linear_backward_weight_workspace,                                    \
    }

const fri_backend fri_backend_meta = {
    .name = "meta",
    .device = FR_META,
    .available = meta_available,
    .segment_alloc = meta_segment_alloc,
    .segment_free = meta_segment_free,
    .memory_info = meta_memory_info,
    .copy = meta_copy,
    .synchronize = meta_synchronize,
    .kernels = KERNELS,
    .kernels_f64 = KERNELS,
};
