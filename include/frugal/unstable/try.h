/* try.h - macros that pass failures on and clean up: for the library, the trainers and add-ons, in the same words.
 *
 * Unstable: see frugal/unstable.h. */
#ifndef FRUGAL_UNSTABLE_TRY_H
#define FRUGAL_UNSTABLE_TRY_H

#include <frugal/base.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FR_TRY for a function that has nothing to clean up: a failure is returned. */
#define FRI_TRY(...)                             \
    do {                                         \
        const fr_status fri_tried = __VA_ARGS__; \
        if (fri_tried < 0) return fri_tried;     \
    } while (0)

/* A variable that is released wherever the function returns, the last declared one first; `release` takes its address.
 * It has a value from the beginning: NULL or {0}. */
#define FRI_OWNED(release) __attribute__((cleanup(release)))

/* Hands a pointer over: *to = from, and from is NULL. */
#define FRI_MOVE(to, from) (*(to) = (from), (from) = NULL)

/* Frees memory of malloc at the pointer whose address is p. */
static inline void fri_free(void *p) {
    void *memory;
    memcpy(&memory, p, sizeof memory);
    free(memory);
}

/* Makes room for element n of an array that has n; items (T *) is NULL at the start and freed with free(). FR_ENOMEM
 * says what had no room, and the n elements are still there. The last elements may be dropped between calls. */
#define FRI_ROOM(items, n, what) fr_array_room(&(items), sizeof *(items), (size_t)(n), (what))
FR_API fr_status fr_array_room(void *items, size_t size, size_t n, const char *what);

/* The rule about NULL (base.h), as the first line of a public function that returns a status: returns FR_EINVAL and
 * "<function>: <argument> is NULL" for the first of these arguments that is. */
#define FRI_NOT_NULL(...)                                      \
    do {                                                       \
        if (FRI_CHECK_NULL(__VA_ARGS__) < 0) return FR_EINVAL; \
    } while (0)

/* Status of the check as a value, for a function that must clean up. */
#define FRI_CHECK_NULL(...)                                                    \
    fri_check_null(__func__, #__VA_ARGS__, (const void *const[]){__VA_ARGS__}, \
                   sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))

FR_API fr_status fr_fail_null(const char *function, const char *names, size_t i);

static inline fr_status fri_check_null(const char *function, const char *names, const void *const *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] == NULL) return fr_fail_null(function, names, i);
    return FR_OK;
}

/* The status of a callback of the program. A callback that fails without fr_fail gets the sentence "NAME failed
 * (FR_EIO)"; an older failure's sentence is not taken for its own. */
#define FRI_CALLBACK(name, ...) ((void)fr_fail(FR_OK, "%s", ""), fri_callback_status((__VA_ARGS__), (name)))
static inline fr_status fri_callback_status(fr_status s, const char *name) {
    return s < 0 && fr_last_error()[0] == '\0' ? fr_fail(s, "%s failed (%s)", name, fr_status_name(s)) : s;
}

#ifdef __cplusplus
}
#endif
#endif
