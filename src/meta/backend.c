/* backend.c - meta as a backend: memory, table, and kernels with a single pass over the operands.
 *
 * Segments are addresses from a range that no process maps: unique, never reused, never touched. Kernels of described
 * ops (ops/frame.c) are not in the table. */
#include "meta/kernels.h"

#include <stdatomic.h>

const fri_backend *fri_meta_target_set(const fri_backend *t) {
    const fri_backend *was = fri_here.meta_target;
    fri_here.meta_target = t;
    return was;
}

const fri_backend *fri_meta_target(void) {
    return fri_here.meta_target;
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
    uint64_t span = (bytes / SEGMENT_ALIGNMENT + 1) * SEGMENT_ALIGNMENT; /* at least 1 byte between segments */
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
        return fr_fail(FR_EUNSUPPORTED,
                       "copy of %zu bytes to the host: meta tensors hold no data, so a loss or module that is planned "
                       "cannot read values",
                       bytes);
    return kind == FRI_COPY_DEVICE_TO_DEVICE ? FRI_META_CALL("copy", FR_U8, 0, 2.0 * (double)bytes, (int64_t)bytes)
                                             : FRI_META_CALL("transfer", FR_U8, 0, bytes, (int64_t)bytes);
}

static fr_status meta_synchronize(const fri_exec *e) {
    return FR_OK;
}

/* ---- workspaces: the target's ---------------------------------------------------------------------------- */

size_t fri_meta_norm_squared_workspace(fr_dtype dtype, int count, const fri_array *arrays) {
    return FRI_META_BYTES(dtype, norm_squared_workspace, (dtype, count, arrays));
}

/* ---- kernels: without work, but with a report of the target's work ------------------------------------------ */

fr_status fri_meta_fill(const fri_exec *e, fr_dtype t, int64_t n, double value, void *y) {
    return fri_meta_pass("fill", t, n, 0, fri_meta_size(t));
}

fr_status fri_meta_copy_rows(const fri_exec *e, int64_t rows, size_t row_bytes, const void *src, size_t src_pitch,
                             void *dst, size_t dst_pitch) {
    return FRI_META_CALL("copy_rows", FR_U8, 0, 2.0 * (double)rows * (double)row_bytes, rows, (int64_t)row_bytes);
}

fr_status fri_meta_cast(const fri_exec *e, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    return FRI_META_CALL("cast", to, 0, (fri_meta_size(from) + fri_meta_size(to)) * (double)n, n, (int64_t)from);
}

fr_status fri_meta_cast_list(const fri_exec *e, fr_dtype from, fr_dtype to, int count, const fri_cast_item *items) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += items[i].n;
    return FRI_META_CALL("cast_list", to, 0, (fri_meta_size(from) + fri_meta_size(to)) * (double)n, n, (int64_t)count);
}

fr_status fri_meta_normalize(const fri_exec *e, const fri_normalize_desc *d, const uint8_t *x, void *y) {
    return FRI_META_CALL("normalize", d->dtype, 0, (1 + fri_meta_size(d->dtype)) * (double)d->n, d->n, d->channels);
}

/* The elementwise kernels of the map cost an operation per element and each operand once. */
#define UNARY(name_, type, need)                                                                   \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, const void *x, void *y) { \
        return fri_meta_pass(#name_, t, n, 1, 2 * fri_meta_size(t));                               \
    }
#define BINARY(name_, type, need)                                                                                 \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, const void *a, const void *b, void *y) { \
        return fri_meta_pass(#name_, t, n, 1, 3 * fri_meta_size(t));                                              \
    }
#define SCALED(name_, type, need)                                                                                \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *x, void *y) { \
        return fri_meta_pass(#name_, t, n, 1, 2 * fri_meta_size(t));                                             \
    }
FRI_UNARY_KERNELS(UNARY)
FRI_BINARY_KERNELS(BINARY)
FRI_SCALED_KERNELS(SCALED)

#define RANDOM(name_)                                                                                              \
    fr_status fri_meta_##name_(const fri_exec *e, fr_dtype t, int64_t n, uint64_t seed, uint64_t stream, double a, \
                               double b, void *y) {                                                                \
        return fri_meta_pass(#name_, t, n, 20, fri_meta_size(t));                                                  \
    }
RANDOM(uniform)
RANDOM(normal)

fr_status fri_meta_leaky_relu_backward(const fri_exec *e, fr_dtype t, int64_t n, double alpha, const void *a,
                                       const void *b, void *y) {
    return fri_meta_pass("leaky_relu_backward", t, n, 1, 3 * fri_meta_size(t));
}

fr_status fri_meta_relu_encode(const fri_exec *e, fr_dtype t, int64_t n, fri_mask_rule rule, const void *y,
                               uint8_t *bits) {
    return fri_meta_pass("relu_encode", t, n, 1, fri_meta_size(t) + 0.125);
}

fr_status fri_meta_relu_backward_bits(const fri_exec *e, fr_dtype t, int64_t n, double slope, const uint8_t *bits,
                                      const void *dy, void *dx) {
    return fri_meta_pass("relu_backward_bits", t, n, 1, 2 * fri_meta_size(t) + 0.125);
}

fr_status fri_meta_add_mask(const fri_exec *e, fr_dtype t, int64_t n, const uint8_t *bits, const void *a, const void *b,
                            void *y) {
    return fri_meta_pass("add_mask", t, n, 2, 3 * fri_meta_size(t) + 0.125);
}

fr_status fri_meta_unscale(const fri_exec *e, fr_dtype t, int count, const fri_array *arrays, const float *inv_scale,
                           float *found) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += arrays[i].n;
    return fri_meta_pass("unscale", t, n, 2, (inv_scale != NULL ? 2 : 1) * fri_meta_size(t));
}

fr_status fri_meta_norm_squared(const fri_exec *e, fr_dtype t, int count, const fri_array *arrays, double *out) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += arrays[i].n;
    return fri_meta_pass("norm_squared", t, n, 2, fri_meta_size(t));
}

fr_status fri_meta_count_up(const fri_exec *e, const float *found, int count, const fri_array *arrays) {
    return FR_OK;
}

fr_status fri_meta_clip_factor(const fri_exec *e, double max_norm, const double *square, float *factor) {
    return FR_OK;
}

fr_status fri_meta_loss_scale_update(const fri_exec *e, const fri_loss_scale_desc *d, fri_loss_scale *state,
                                     float *found) {
    return FR_OK;
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
    .kernels = {FRI_META_KERNELS(SLOT)},
    .kernels_f64 = {FRI_META_KERNELS(SLOT)},
};
