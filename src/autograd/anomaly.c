/* anomaly.c - finds the first op with inf or NaN.
 *
 * Results and gradients are examined as soon as they exist, on the host and through a small host buffer, so a search
 * takes no device memory. Recomputed values are skipped, because the originals were examined. */
#include "autograd/anomaly.h"

#include "base/env.h"
#include "base/status.h"
#include "base/tag.h"
#include "tensor/tensor.h"
#include "autograd/run.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

bool fr_detect_anomaly(bool on) {
    bool was = fri_here.autograd.detect_anomaly;
    fri_here.autograd.detect_anomaly = on;
    if (on) fri_here.autograd.anomaly = (fr_anomaly){0};
    return was;
}

fr_anomaly fri_anomaly_get(void) {
    return fri_here.autograd.anomaly;
}

bool fri_results_examined(void) {
    return fri_env_get()->check_nan || fri_anomaly_enabled();
}

bool fri_anomaly_enabled(void) {
    return fri_here.autograd.detect_anomaly;
}

/* ---- inf and NaN: all exponent bits are 1 -------------------------------------------------------------------- */

static bool finite_halves(const uint16_t *x, size_t n, uint16_t exponent) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (x[i] & exponent) == exponent;
    return !bad;
}

static bool finite_f32(const uint32_t *x, size_t n) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (x[i] & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

static bool finite_f64(const uint64_t *x, size_t n) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (x[i] & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    return !bad;
}

static bool finite_part(fr_dtype t, const void *x, size_t bytes) {
    switch (t) {
    case FR_F16: return finite_halves(x, bytes / 2, 0x7c00u);
    case FR_BF16: return finite_halves(x, bytes / 2, 0x7f80u);
    case FR_F32: return finite_f32(x, bytes / 4);
    case FR_F64: return finite_f64(x, bytes / 8);
    default: return true;
    }
}

fr_status fri_all_finite(const fr_tensor *t, bool *out) {
    size_t bytes = fri_nbytes(t);
    const char *data = fri_data(t);
    *out = true;
    if (!fr_dtype_is_float(t->dtype) || fri_device_of(t) == FR_META) return FR_OK;
    if (fri_device_of(t) == FR_CPU) {
        *out = finite_part(t->dtype, data, bytes);
        return FR_OK;
    }
    FRI_OWNED(fri_free) void *chunk = malloc(CHUNK);
    if (chunk == NULL) return fr_fail(FR_ENOMEM, "looking for inf and NaN: out of host memory");
    for (size_t at = 0; at < bytes && *out; at += CHUNK) {
        size_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        FRI_TRY(fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_HOST, data + at, chunk, part));
        *out = finite_part(t->dtype, chunk, part);
    }
    return FR_OK;
}

fr_status fri_anomaly_look(const char *op, bool backward, const fr_tensor *t) {
    bool fine = true;
    if (!fri_here.autograd.detect_anomaly || fri_here.autograd.anomaly.op != NULL || fri_recomputing()) return FR_OK;
    fr_status s = fri_all_finite(t, &fine);
    if (s < 0 || fine) return s;
    fri_here.autograd.anomaly = (fr_anomaly){.op = op, .module = fri_scope_module(), .backward = backward};
    return FR_OK;
}
