/* try.h - how the run passes failures on and cleans up: what base/status.h is inside the library, and in the same
 * words. The run sees public headers only (docs/design.md, law 8). */
#ifndef FRI_SESSION_TRY_H
#define FRI_SESSION_TRY_H

#include <frugal/base.h>
#include <stdlib.h>
#include <string.h>

/* FR_TRY for a function that has nothing left to clean up: a failure is returned. */
#define FRI_TRY(...)                             \
    do {                                         \
        const fr_status fri_tried = __VA_ARGS__; \
        if (fri_tried < 0) return fri_tried;     \
    } while (0)

/* A variable that is released wherever the function returns; `release` takes its address. */
#define FRI_OWNED(release) __attribute__((cleanup(release)))

/* For memory of malloc: p is the address of a pointer. */
static inline void fri_free(void *p) {
    void *memory;
    memcpy(&memory, p, sizeof memory);
    free(memory);
}

#endif
