/* philox.h - Philox4x32-10, the counter-based generator (Salmon et al., SC'11; also PyTorch's CUDA generator).
 *
 * A number is a pure function of (seed, counter): any thread can compute any number, in any order, and backward
 * recomputes a dropout mask instead of keeping bytes. Compiled by the C compiler and by nvcc. */
#ifndef FRI_BASE_PHILOX_H
#define FRI_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define FRI_HOST_DEVICE __host__ __device__
#else
#define FRI_HOST_DEVICE
#endif

typedef struct fri_philox4 {
    uint32_t v[4];
} fri_philox4;

static inline FRI_HOST_DEVICE uint32_t fri_mulhi_u32(uint32_t a, uint32_t b) {
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

/* Four 32-bit numbers for the 128-bit counter (stream, counter) under the key `seed`. */
static inline FRI_HOST_DEVICE fri_philox4 fri_philox(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = fri_mulhi_u32(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        uint32_t h1 = fri_mulhi_u32(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    fri_philox4 r = {{c0, c1, c2, c3}};
    return r;
}

/* Uniform in [0, 1) with 24 bits: exact in f32, equal on every backend. */
static inline FRI_HOST_DEVICE float fri_uniform_f32(uint32_t u) {
    return (float)(u >> 8) * (1.0f / 16777216.0f);
}

#endif
