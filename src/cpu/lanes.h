/* lanes.h - vectors of channels, for loops that keep sums in registers.
 *
 * Compilers keep a vector wider than the processor's in memory, where such loops take fifty times as long. Files with
 * these loops are therefore compiled once per width (src/cpu/meson.build) and export the names made by FRI_FOR; the
 * engine takes the widest available. Multiply-adds are fused (except on SSE2), and no sum depends on the width: AVX2,
 * AVX-512 and NEON give equal bits. */
#ifndef FRI_CPU_LANES_H
#define FRI_CPU_LANES_H

#include "cpu/cpu.h"
#include "cpu/stream.h"

#define FRI_INLINE static inline __attribute__((always_inline))

#if defined(FRI_LANES_BF16) /* AVX-512 with products of bf16 */
enum { FRI_VECTOR = 16 };
#define FRI_FOR(name) name##_bf16
#elif defined(FRI_LANES_V4) /* AVX-512 */
enum { FRI_VECTOR = 16 };
#define FRI_FOR(name) name##_v4
#elif defined(FRI_LANES_V3) /* AVX2 and FMA */
enum { FRI_VECTOR = 8 };
#define FRI_FOR(name) name##_v3
#else /* SSE2, NEON */
enum { FRI_VECTOR = 4 };
#define FRI_FOR(name) name
#endif
#if defined(FRI_LANES_V4) || defined(__aarch64__)
enum { FRI_LANES_REGISTERS = 32 };
#else
enum { FRI_LANES_REGISTERS = 16 };
#endif
enum { FRI_LANES_MIN = 16 }; /* minimum channels of layers for these loops, on every processor */
typedef float fri_lanes __attribute__((vector_size(FRI_VECTOR * 4), aligned(4), may_alias));

static inline int64_t fri_vectors(int64_t channels) {
    return fri_ceil_div(channels, FRI_VECTOR);
}

/* First channel of a vector. The last vector overlaps its neighbour if channels are no multiple of FRI_VECTOR. */
static inline int64_t fri_vector_at(int64_t channels, int64_t vector) {
    return fri_min_i64(vector * FRI_VECTOR, channels - FRI_VECTOR);
}

#define FRI_LANES_AT(p) (*(const fri_lanes *)(p))

/* True if rows of `channels` may be streamed: whole vectors only, because streamed vectors must not overlap. */
static inline bool fri_lanes_may_stream(const float *y, int64_t channels, int64_t rows) {
    return channels % FRI_VECTOR == 0 && fri_may_stream(y, sizeof(fri_lanes), rows * channels * (int64_t)sizeof *y);
}

FRI_INLINE void fri_lanes_put(float *y, const fri_lanes *v, bool stream) {
#if defined(__SSE2__)
    if (stream) {
        fri_stream_copy(y, v, sizeof *v);
        return;
    }
#else
    (void)stream;
#endif
    *(fri_lanes *)y = *v;
}

#endif
