/* segment.h - the inside of an allocator, for the allocator's files: lists, and the segments under blocks. */
#ifndef FRI_MEMORY_SEGMENT_H
#define FRI_MEMORY_SEGMENT_H

#include "memory/allocator.h"
#include "memory/arena.h"
#include "memory/freelist.h"
#include "memory/uses.h"

#include <pthread.h>

/* A piece of device memory. */
typedef struct fri_segment {
    void *data;
    size_t size;
    uint64_t number; /* in order of creation */
    bool small;      /* pool of blocks up to 1 MiB */
    fri_block *first;
    struct fri_segment *prev, *next;
} fri_segment;

/* The lock guards every field below. The lock is recursive, because subscribers and the out-of-memory report run under
 * the lock and may ask for statistics. */
struct fr_pool {
    fr_device device;
    fri_segment_source source;
    pthread_mutex_t lock;
    fri_event_log *log; /* NULL: events go to the calling thread's log */
    fri_freelist small, large;
    fri_segment *segments, *last_segment;
    fri_block *live, *last_live;
    size_t blocks; /* all, live and cached: the free lists have memory for all */
    uint64_t next_segment, next_serial, fail_at;
    bool silent;
    bool given_up; /* destroyed by the owner while blocks lived; the last free destroys the allocator */
    int begun;     /* threads that use the allocator now (fr_pool_begin) */
    fri_arena *arena;
    const void *arena_thread; /* thread of the arena: fri_thread_self */
    void *arena_data;
    size_t arena_blocks; /* live blocks of the arena */
    void *extension;     /* of the arena: Note [Learning] in arena.h */
    size_t extension_bytes;
    fri_uses uses; /* elsewhere than on the compute stream */
    fr_memory_stats stats;
    fri_allocator *next; /* in the list of all allocators: pool.c */
};

/* A number that differs between live threads. */
const void *fri_thread_self(void);

void fri_allocator_lock(const fri_allocator *a);
void fri_allocator_unlock(const fri_allocator *a);

/* pool.c: the list of all allocators, for fri_memory_process_get. */
void fri_pool_register(fri_allocator *a);
void fri_pool_unregister(fri_allocator *a);

/* Functions below expect the lock to be held. */

const fri_streams *fri_allocator_streams(const fri_allocator *a);
/* An event of bytes without a block. */
void fri_allocator_emit(const fri_allocator *a, fr_event_kind kind, size_t bytes);
fri_freelist *fri_freelist_of(fri_allocator *a, bool small);

/* A block in no list, for a piece of the segment. NULL: out of host memory. */
fri_block *fri_segment_block(fri_allocator *a, fri_segment *segment, size_t offset, size_t size);
/* A free block of at least `rounded` bytes, in no list, from new device memory. NULL: over the limit, or device or host
 * memory is exhausted. */
fri_block *fri_segment_take(fri_allocator *a, size_t rounded);
/* Returns the segment, a single free block in no list, to the device. */
void fri_segment_give(fri_allocator *a, fri_segment *g);
/* Whatever is wholly free goes back to the device. */
void fri_segments_trim(fri_allocator *a);

/* Memory for the arena, in no free list. False: over the limit, or device memory is exhausted. */
bool fri_plain_segment_take(fri_allocator *a, size_t bytes, void **data);
void fri_plain_segment_give(fri_allocator *a, size_t bytes, void *data);

#endif
