/* settings.h - what FRUGAL_ALLOC and fr_memory_settings_set say: PyTorch's settings against fragmentation. */
#ifndef FRI_MEMORY_SETTINGS_H
#define FRI_MEMORY_SETTINGS_H

#include "memory/allocator.h"

enum { FRI_ROUNDUP_INTERVALS = 16 }; /* [1, 2) MiB, [2, 4) MiB, ... from 32 GiB on; below 1 MiB: the first */

typedef struct fri_settings {
    size_t max_split;                        /* SIZE_MAX: every block may be split */
    size_t divisions[FRI_ROUNDUP_INTERVALS]; /* of the space between two powers of two; 0 or 1: no rounding */
    double collect;                          /* part of the limit above which idle segments go back; 0: off */
} fri_settings;

extern const fri_settings fri_settings_default;

/* `where` opens the sentence of the error. FR_EINVAL: *out is unchanged. */
fr_status fri_settings_parse(const char *where, const char *text, fri_settings *out);

/* The size that a request of so many bytes, > 0, is served with: a multiple of 512. */
size_t fri_settings_round(const fri_settings *s, size_t bytes);

/* All that follows expects the allocator's lock to be held. */

/* A cached block for a request of this size, out of its list; NULL: none that the settings allow. */
fri_block *fri_settings_cached(fri_allocator *a, size_t size);
/* Gives back segments that were idle for long, if more than the set part of the limit is reserved. Called before a
 * request. */
void fri_settings_collect(fri_allocator *a);
/* The device has no room: blocks that are never split go back, as few as make up for the request. False: too few. */
bool fri_settings_make_room(fri_allocator *a, size_t size);

#endif
