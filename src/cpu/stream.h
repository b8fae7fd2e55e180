/* stream.h - results larger than the caches, written past them: a store would first read what it overwrites, and
 * whoever reads the result next reads memory anyway. Changes no bit; whether it is done may depend on the batch. */
#ifndef FRI_CPU_STREAM_H
#define FRI_CPU_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { FRI_STREAM_BYTES = 24 << 20 };

/* May y be streamed? unit: bytes that are written at a time. */
static inline bool fri_may_stream(const void *y, size_t unit, int64_t bytes) {
#if defined(__SSE2__)
    return bytes >= FRI_STREAM_BYTES && unit % 16 == 0 && (uintptr_t)y % 64 == 0;
#else
    (void)y, (void)unit, (void)bytes;
    return false;
#endif
}

/* bytes: a multiple of 16, as y's address is. */
static inline void fri_stream_copy(void *y, const void *x, size_t bytes) {
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_ps((float *)(void *)((char *)y + i),
                      _mm_loadu_ps((const float *)(const void *)((const char *)x + i)));
#else
    memcpy(y, x, bytes);
#endif
}

/* A thread's last word on what it streamed, before another thread reads it. */
static inline void fri_stream_end(bool streamed) {
#if defined(__SSE2__)
    if (streamed) _mm_sfence();
#else
    (void)streamed;
#endif
}

#endif
