/* settings.h - FRUGAL_ALLOC and fr_memory_settings_set: PyTorch's settings against fragmentation. */
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

/* The size of the block for a request > 0: a multiple of 512. */
size_t fri_settings_round(const fri_settings *s, size_t bytes);

/* Functions below expect the allocator's lock to be held. */

/* Takes a cached block for a request from the list; NULL: the settings allow none. */
fri_block *fri_settings_cached(fri_allocator *a, size_t size);
/* Gives back idle segments if more than the set part of the limit is reserved. Called before a request. */
void fri_settings_collect(fri_allocator *a);
/* Returns unsplittable blocks to an exhausted device, only as many as the request needs. False: too few. */
bool fri_settings_make_room(fri_allocator *a, size_t size);

#endif
