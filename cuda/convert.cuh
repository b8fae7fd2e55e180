/* convert.cuh - one element of any type to any other, with the CPU backend's rules (src/cpu/cast.c).
 *
 * Float to float rounds once, to nearest even. Float to integer truncates and saturates, NaN gives 0. Integers wrap
 * among themselves; integer to half passes through f32. bool is 0 or 1. */
#ifndef FRI_CUDA_CONVERT_CUH
#define FRI_CUDA_CONVERT_CUH

#include "common.cuh"

static __host__ __device__ inline int64_t fri_saturated(double v, double low, double high, int64_t lowest,
                                                        int64_t highest) {
    if (v != v) return 0;
    if (v >= high) return highest;
    if (v <= low) return lowest;
    return (int64_t)v;
}

static __host__ __device__ inline int64_t fri_integer_of(fr_dtype t, double v) {
    switch (t) {
    case FR_I32: return fri_saturated(v, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX);
    case FR_I16: return fri_saturated(v, INT16_MIN, INT16_MAX, INT16_MIN, INT16_MAX);
    case FR_I8: return fri_saturated(v, INT8_MIN, INT8_MAX, INT8_MIN, INT8_MAX);
    case FR_U8: return fri_saturated(v, 0, UINT8_MAX, 0, UINT8_MAX);
    case FR_BOOL: return v != 0;
    default: return fri_saturated(v, -9223372036854775808.0, 9223372036854775808.0, INT64_MIN, INT64_MAX);
    }
}

/* The element at y becomes v; integer types get integer. */
static __host__ __device__ inline void fri_put_real(fr_dtype t, void *y, int64_t i, double v) {
    switch (t) {
    case FR_F32: ((float *)y)[i] = (float)v; break;
    case FR_F16: ((__half *)y)[i] = __double2half(v); break;
    case FR_BF16: ((__nv_bfloat16 *)y)[i] = __double2bfloat16(v); break;
    case FR_F64: ((double *)y)[i] = v; break;
    case FR_I64: ((int64_t *)y)[i] = fri_integer_of(t, v); break;
    case FR_I32: ((int32_t *)y)[i] = (int32_t)fri_integer_of(t, v); break;
    case FR_I16: ((int16_t *)y)[i] = (int16_t)fri_integer_of(t, v); break;
    case FR_I8: ((int8_t *)y)[i] = (int8_t)fri_integer_of(t, v); break;
    case FR_U8:
    case FR_BOOL: ((uint8_t *)y)[i] = (uint8_t)fri_integer_of(t, v); break;
    }
}

static __device__ inline void fri_put_integer(fr_dtype t, void *y, int64_t i, int64_t v) {
    switch (t) {
    case FR_F32: ((float *)y)[i] = (float)v; break;
    case FR_F16: ((__half *)y)[i] = __float2half_rn((float)v); break;
    case FR_BF16: ((__nv_bfloat16 *)y)[i] = __float2bfloat16_rn((float)v); break;
    case FR_F64: ((double *)y)[i] = (double)v; break;
    case FR_I64: ((int64_t *)y)[i] = v; break;
    case FR_I32: ((int32_t *)y)[i] = (int32_t)v; break;
    case FR_I16: ((int16_t *)y)[i] = (int16_t)v; break;
    case FR_I8: ((int8_t *)y)[i] = (int8_t)v; break;
    case FR_U8: ((uint8_t *)y)[i] = (uint8_t)v; break;
    case FR_BOOL: ((uint8_t *)y)[i] = v != 0; break;
    }
}

static __device__ inline double fri_real_at(fr_dtype t, const void *x, int64_t i) {
    switch (t) {
    case FR_F16: return (double)__half2float(((const __half *)x)[i]);
    case FR_BF16: return (double)__bfloat162float(((const __nv_bfloat16 *)x)[i]);
    case FR_F64: return ((const double *)x)[i];
    default: return (double)((const float *)x)[i];
    }
}

static __device__ inline int64_t fri_integer_at(fr_dtype t, const void *x, int64_t i) {
    switch (t) {
    case FR_I64: return ((const int64_t *)x)[i];
    case FR_I32: return ((const int32_t *)x)[i];
    case FR_I16: return ((const int16_t *)x)[i];
    case FR_I8: return ((const int8_t *)x)[i];
    default: return ((const uint8_t *)x)[i]; /* u8, bool */
    }
}

#endif
