/* try.h - macros that pass failures on and clean up: for the library, the trainers and add-ons, in the same words. A
 * program's own macro is FR_TRY of base.h. */
#ifndef FRUGAL_TRY_H
#define FRUGAL_TRY_H

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
#define FRI_ROOM(items, n, what) fri_array_room(&(items), sizeof *(items), (size_t)(n), (what))
static inline fr_status fri_array_room(void *items, size_t size, size_t n, const char *what) {
    const size_t first = 32; /* an array is full at length 0 and at powers of two from `first` on */
    void *p = NULL;
    size_t bytes = 0;
    if (n != 0 && (n < first || (n & (n - 1)) != 0)) return FR_OK;
    memcpy(&p, items, sizeof p);
    const bool fits = !__builtin_mul_overflow(n == 0 ? first : n, n == 0 ? size : 2 * size, &bytes);
    p = fits ? realloc(p, bytes) : NULL;
    if (p == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory for %zu more", what, n == 0 ? first : n);
    memcpy(items, &p, sizeof p);
    return FR_OK;
}

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

static inline fr_status fri_check_null(const char *function, const char *names, const void *const *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] == NULL) {
            for (; i > 0; i--) names += strcspn(names, ",") + 2; /* "m, name, child", as the caller wrote them */
            return fr_fail(FR_EINVAL, "%s: %.*s is NULL", function, (int)strcspn(names, ","), names);
        }
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
