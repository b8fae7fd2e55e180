/* array.c - arrays that grow (unstable/try.h). An array is full at length 0 and at powers of two from FIRST on. */
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 32 };

fr_status fr_array_room(void *items, size_t size, size_t n, const char *what) {
    void *p = NULL;
    size_t bytes = 0;
    if (n != 0 && (n < FIRST || (n & (n - 1)) != 0)) return FR_OK;
    memcpy(&p, items, sizeof p);
    const bool fits = !__builtin_mul_overflow(n == 0 ? FIRST : n, n == 0 ? size : 2 * size, &bytes);
    p = fits ? realloc(p, bytes) : NULL;
    if (p == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory for %zu more", what, n == 0 ? FIRST : n);
    memcpy(items, &p, sizeof p);
    return FR_OK;
}
