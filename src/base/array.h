/* array.h - arrays that grow by one element at a time and keep no capacity: it follows from their length. */
#ifndef FRI_BASE_ARRAY_H
#define FRI_BASE_ARRAY_H

#include "base/status.h"

/* Makes room for element n of an array that has n; items (T *) is NULL at the start and freed with free(). FR_ENOMEM
 * says what had no room, and the n elements are still there. The last elements may be dropped between calls. */
#define FRI_ROOM(items, n, what) fri_array_room(&(items), sizeof *(items), (size_t)(n), (what))
fr_status fri_array_room(void *items, size_t size, size_t n, const char *what);

#endif
