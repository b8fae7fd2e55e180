/* cast.c - conversions between all element types.
 *
 * Float to float rounds once, to nearest even, also from f64 to half types. Float to integer truncates as in C; where
 * C leaves the result undefined, it saturates (NaN gives 0) as CUDA does. Integer to half goes through f32 as in
 * PyTorch. Pairs used in training (f32 and half types, bytes to f32) have loops of their own; all others go through a
 * block of f64 or i64. */
#include "cpu/cpu.h"

#include "base/half.h"

#include <string.h>

enum { CAST_BLOCK = 512 };

/* Rounds f64 to f32 "to odd". A later rounding to 11 bits or fewer is then correct, as if made from the f64 value. */
static float f32_round_to_odd(double v) {
    float f = (float)v;
    if ((double)f == v || v != v || f - f != 0) return f; /* exact, NaN, or infinite */
    uint32_t bits = fri_bits_from_f32(f);
    double magnitude = (double)f < 0 ? -(double)f : (double)f;
    if (magnitude > (v < 0 ? -v : v)) bits--; /* toward zero */
    return fri_f32_from_bits(bits | 1u);
}

static int64_t i64_saturated(double v, int64_t low, int64_t high) {
    if (v != v) return 0;
    if (v >= (double)high) return high; /* (double)INT64_MAX is 2^63 */
    if (v <= (double)low) return low;
    return (int64_t)v;
}

static void load_f64(fr_dtype t, int64_t n, const void *x, double *v) {
    for (int64_t i = 0; i < n; i++) switch (t) {
        case FR_F32: v[i] = ((const float *)x)[i]; break;
        case FR_F16: v[i] = fri_f32_from_f16(((const fri_f16 *)x)[i]); break;
        case FR_BF16: v[i] = fri_f32_from_bf16(((const fri_bf16 *)x)[i]); break;
        default: v[i] = ((const double *)x)[i]; break;
        }
}

static void load_i64(fr_dtype t, int64_t n, const void *x, int64_t *v) {
    for (int64_t i = 0; i < n; i++) switch (t) {
        case FR_I64: v[i] = ((const int64_t *)x)[i]; break;
        case FR_I32: v[i] = ((const int32_t *)x)[i]; break;
        case FR_I16: v[i] = ((const int16_t *)x)[i]; break;
        case FR_I8: v[i] = ((const int8_t *)x)[i]; break;
        default: v[i] = ((const uint8_t *)x)[i]; break; /* u8, bool */
        }
}

static void store_f64(fr_dtype t, int64_t n, const double *v, void *y) {
    for (int64_t i = 0; i < n; i++) switch (t) {
        case FR_F32: ((float *)y)[i] = (float)v[i]; break;
        case FR_F16: ((fri_f16 *)y)[i] = fri_f16_from_f32(f32_round_to_odd(v[i])); break;
        case FR_BF16: ((fri_bf16 *)y)[i] = fri_bf16_from_f32(f32_round_to_odd(v[i])); break;
        case FR_F64: ((double *)y)[i] = v[i]; break;
        case FR_I64: ((int64_t *)y)[i] = i64_saturated(v[i], INT64_MIN, INT64_MAX); break;
        case FR_I32: ((int32_t *)y)[i] = (int32_t)i64_saturated(v[i], INT32_MIN, INT32_MAX); break;
        case FR_I16: ((int16_t *)y)[i] = (int16_t)i64_saturated(v[i], INT16_MIN, INT16_MAX); break;
        case FR_I8: ((int8_t *)y)[i] = (int8_t)i64_saturated(v[i], INT8_MIN, INT8_MAX); break;
        case FR_U8: ((uint8_t *)y)[i] = (uint8_t)i64_saturated(v[i], 0, UINT8_MAX); break;
        case FR_BOOL: ((uint8_t *)y)[i] = v[i] != 0; break;
        }
}

static void store_i64(fr_dtype t, int64_t n, const int64_t *v, void *y) {
    for (int64_t i = 0; i < n; i++) switch (t) {
        case FR_F32: ((float *)y)[i] = (float)v[i]; break;
        case FR_F16: ((fri_f16 *)y)[i] = fri_f16_from_f32((float)v[i]); break;
        case FR_BF16: ((fri_bf16 *)y)[i] = fri_bf16_from_f32((float)v[i]); break;
        case FR_F64: ((double *)y)[i] = (double)v[i]; break;
        case FR_I64: ((int64_t *)y)[i] = v[i]; break;
        case FR_I32: ((int32_t *)y)[i] = (int32_t)v[i]; break;
        case FR_I16: ((int16_t *)y)[i] = (int16_t)v[i]; break;
        case FR_I8: ((int8_t *)y)[i] = (int8_t)v[i]; break;
        case FR_U8: ((uint8_t *)y)[i] = (uint8_t)v[i]; break;
        case FR_BOOL: ((uint8_t *)y)[i] = v[i] != 0; break;
        }
}

FRI_CLONES static void f32_from_u8(int64_t n, const uint8_t *x, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = (float)x[i];
}

static bool up_to_f32(fr_dtype t) {
    return t == FR_F32 || t == FR_F16 || t == FR_BF16;
}

/* n <= CAST_BLOCK elements. */
static void cast_block(fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    union {
        float f32[CAST_BLOCK];
        double f64[CAST_BLOCK];
        int64_t i64[CAST_BLOCK];
    } v;
    if (from == to) {
        memcpy(y, x, (size_t)n * fr_dtype_size(from));
    } else if (to == FR_F32 && up_to_f32(from)) {
        fri_cpu_widen(from, n, x, y);
    } else if (up_to_f32(from) && up_to_f32(to)) {
        fri_cpu_narrow(to, n, fri_cpu_load(from, x, 0, n, v.f32), y);
    } else if (from == FR_U8 && to == FR_F32) {
        f32_from_u8(n, x, y);
    } else if (fr_dtype_is_float(from)) {
        load_f64(from, n, x, v.f64);
        store_f64(to, n, v.f64, y);
    } else {
        load_i64(from, n, x, v.i64);
        store_i64(to, n, v.i64, y);
    }
}

typedef struct cast_loop {
    fr_dtype from, to;
    const void *x;
    void *y;
} cast_loop;

static void cast_range(const void *context, int64_t first, int64_t last) {
    const cast_loop *l = context;
    for (int64_t i = first; i < last; i += CAST_BLOCK)
        cast_block(l->from, l->to, fri_min_i64(CAST_BLOCK, last - i), fri_cpu_at(l->from, l->x, i),
                   (char *)l->y + (size_t)i * fr_dtype_size(l->to));
}

fr_status fri_cpu_cast(const fri_exec *e, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    if (fr_dtype_size(from) == 0 || fr_dtype_size(to) == 0)
        return fr_fail(FR_EDTYPE, "cast: from element type %d to %d, one of which does not exist", (int)from, (int)to);
    fri_cpu_ranges(n, cast_range, &(cast_loop){from, to, x, y});
    return FR_OK;
}

fr_status fri_cpu_cast_list(const fri_exec *e, fr_dtype from, fr_dtype to, int count, const fri_cast_item *items) {
    for (int i = 0; i < count; i++) FRI_TRY(fri_cpu_cast(e, from, to, items[i].n, items[i].x, items[i].y));
    return FR_OK;
}
