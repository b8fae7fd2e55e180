/* cuda_fp16.h - half types for the emulator, by the conversions of the CPU's kernels. */
#ifndef TESTS_CUDA_EMULATOR_HALF_H
#define TESTS_CUDA_EMULATOR_HALF_H

#include "base/half.h"

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __half2float(__half h) {
    return fri_f32_from_f16(h.bits);
}
static inline __half __float2half_rn(float f) {
    return {fri_f16_from_f32(f)};
}
static inline float __bfloat162float(__nv_bfloat16 h) {
    return fri_f32_from_bf16(h.bits);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    return {fri_bf16_from_f32(f)};
}

/* One rounding: f64 to f32 to odd, then to nearest even. */
static inline float emulate_to_odd(double v) {
    float f = (float)v;
    if ((double)f == v || v != v || f - f != 0) return f;
    uint32_t bits = fri_bits_from_f32(f);
    if ((f < 0 ? -(double)f : (double)f) > (v < 0 ? -v : v)) bits--;
    return fri_f32_from_bits(bits | 1u);
}
static inline __half __double2half(double v) {
    return __float2half_rn(emulate_to_odd(v));
}
static inline __nv_bfloat16 __double2bfloat16(double v) {
    return __float2bfloat16_rn(emulate_to_odd(v));
}

#endif
