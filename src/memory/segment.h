/* segment.h - a piece of memory as the device gave it. Private to the allocator's files. */
#ifndef FRI_MEMORY_SEGMENT_H
#define FRI_MEMORY_SEGMENT_H

#include "memory/allocator.h"

typedef struct fri_segment {
    void *data;
    size_t size;
    uint64_t number; /* in order of creation */
    size_t span;     /* addresses of a segment that grows; 0: it does not. `size` is the part that has memory */
    bool small;      /* pool of blocks up to 1 MiB */
    fri_block *first;
    struct fri_segment *prev, *next;
} fri_segment;

#endif
