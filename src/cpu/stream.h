/* stream.h - writes results larger than the caches past them: an ordinary store would first read the overwritten
 * memory, and the next reader reads from memory anyway. Bits do not change; the batch may decide whether streaming is
 * used. */
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

/* True if y may be streamed. unit: bytes written at a time. */
static inline bool fri_may_stream(const void *y, size_t unit, int64_t bytes) {
#if defined(__SSE2__)
    return bytes >= FRI_STREAM_BYTES && unit % 16 == 0 && (uintptr_t)y % 64 == 0;
#else
    (void)y, (void)unit, (void)bytes;
    return false;
#endif
}

/* bytes and the address of y: multiples of 16. */
static inline void fri_stream_copy(void *y, const void *x, size_t bytes) {
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_ps((float *)(void *)((char *)y + i),
                      _mm_loadu_ps((const float *)(const void *)((const char *)x + i)));
#else
    memcpy(y, x, bytes);
#endif
}

/* Makes streamed data visible to other threads; call before another thread reads. */
static inline void fri_stream_end(bool streamed) {
#if defined(__SSE2__)
    if (streamed) _mm_sfence();
#else
    (void)streamed;
#endif
}

#endif
