/* clock.h - seconds between two moments. */
#ifndef FRI_BASE_CLOCK_H
#define FRI_BASE_CLOCK_H

#include <time.h>

/* Seconds of the monotonic clock. */
static inline double fri_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
