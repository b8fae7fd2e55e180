/* half.h - f16 and bf16 to and from f32, by integer arithmetic only.
 *
 * Round to nearest, ties to even; NaN stays NaN, infinities and subnormals are exact. No f32 subnormal is ever produced
 * on the way, so results do not depend on the thread's flush-to-zero mode. Branch-free selects: loops over these
 * functions vectorize. Compiled by the C compiler only; CUDA has its own conversions. */
#ifndef FRI_BASE_HALF_H
#define FRI_BASE_HALF_H

#include <stdint.h>
#include <string.h>

typedef uint16_t fri_f16;  /* IEEE 754 binary16 */
typedef uint16_t fri_bf16; /* the upper half of an f32 */

static inline uint32_t fri_bits_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float fri_f32_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float fri_f32_from_f16(fri_f16 h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t normal = magnitude + ((127u - 15u) << 23);
    uint32_t special = magnitude + ((255u - 31u) << 23); /* infinity and NaN */
    /* A subnormal m * 2^-24 is the difference of two normal numbers: (2^-14 + m * 2^-24) - 2^-14. */
    float subnormal = fri_f32_from_bits(magnitude + ((127u - 14u) << 23)) - fri_f32_from_bits((127u - 14u) << 23);
    uint32_t bits = (h & 0x7c00u) == 0x7c00u ? special : normal;
    bits = (h & 0x7c00u) == 0 ? fri_bits_from_f32(subnormal) : bits;
    return fri_f32_from_bits(bits | sign);
}

static inline fri_f16 fri_f16_from_f32(float f) {
    uint32_t u = fri_bits_from_f32(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    /* Results below 2^-14: adding 0.5 aligns the value so that the float adder rounds at 2^-24. */
    uint32_t subnormal = fri_bits_from_f32(fri_f32_from_bits(a) + 0.5f) - (126u << 23);
    uint32_t normal = (a - ((127u - 15u) << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
    uint32_t nan = 0x7e00u;
    uint32_t h = a < ((127u - 14u) << 23) ? subnormal : normal;
    h = a >= (143u << 23) ? 0x7c00u : h; /* 2^16 and above; 65520..65536 round up to 2^16 by the general rule */
    h = a > (255u << 23) ? nan : h;
    return (fri_f16)(h | sign);
}

static inline float fri_f32_from_bf16(fri_bf16 h) {
    return fri_f32_from_bits((uint32_t)h << 16);
}

static inline fri_bf16 fri_bf16_from_f32(float f) {
    uint32_t u = fri_bits_from_f32(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;
    return (fri_bf16)((u & 0x7fffffffu) > (255u << 23) ? nan : rounded);
}

#endif
