/* allocator.h - the one door for device memory: a caching allocator with PyTorch's published rules.
 *
 * A block has a tag and a fixed place until the free; the category can change (relabel). Segments come from a backend's
 * segment_alloc/segment_free. The meta backend gives addresses without memory, and all further code is shared, so a dry
 * run and a run agree to the byte. */
#ifndef FRI_MEMORY_ALLOCATOR_H
#define FRI_MEMORY_ALLOCATOR_H

#include "backend/backend.h"
#include "base/tag.h"

#include <frugal/memory.h>

/* PyTorch c10/cuda/CUDACachingAllocator.cpp: sizes are rounded to 512; up to 1 MiB comes from 2 MiB segments, below
 * 10 MiB from 20 MiB segments, above from segments rounded to 2 MiB. */
#define FRI_ROUND_BYTES       ((size_t)512)
#define FRI_SMALL_BYTES       ((size_t)1 << 20)
#define FRI_SMALL_SEGMENT     ((size_t)2 << 20)
#define FRI_LARGE_SEGMENT     ((size_t)20 << 20)
#define FRI_LARGE_OWN_SEGMENT ((size_t)10 << 20)
#define FRI_LARGE_ROUND       ((size_t)2 << 20)

typedef struct fr_pool fri_allocator; /* a pool of the public interface */
struct fri_segment;

/* A live or cached piece of a segment. Users of a live block read the fields above the line. */
typedef struct fri_block {
    void *data;       /* NULL for a block of 0 bytes */
    size_t requested; /* bytes asked for, rounded to 512 */
    size_t size;      /* bytes of the block: requested plus the unsplit tail */
    fr_tag tag;
    uint64_t serial;
    /* ---------------------------------------------------------------------------------------------- */
    fri_allocator *owner;
    struct fri_segment *segment;
    size_t offset; /* in the segment */
    bool live;
    bool in_arena;                 /* offset is in the arena; segment is NULL */
    uint64_t arena_note;           /* see fri_arena_gone */
    struct fri_block *prev, *next; /* neighbours in the segment */
    struct fri_block *live_prev, *live_next;
} fri_block;

/* Source of segments: the two functions of a backend, or of a test. */
typedef struct fri_segment_source {
    fr_status (*alloc)(size_t bytes, void **out);
    void (*free)(void *segment, size_t bytes);
} fri_segment_source;

/* The thread's allocator on a device: of the thread's pool, else the device's default allocator, created at the first
 * use and never destroyed. FR_EDEVICE if the device cannot be used (meta always can); FR_EUSAGE in a child of fork if
 * the parent used the library. */
fr_status fri_allocator_get(fr_device d, fri_allocator **out);

fri_allocator *fri_allocator_there(fr_device d); /* likewise; NULL if never used. d is a device */

/* Safe for any number of threads, as all functions below with an allocator or a block. destroy: live blocks keep the
 * allocator until the last free. */
fr_status fri_allocator_create(fr_device d, fri_segment_source source, fri_allocator **out);
void fri_allocator_destroy(fri_allocator **a);

/* Sets the thread's allocator on the device; NULL is the default. Returns the previous allocator, NULL for the default.
 * The caller keeps the allocator alive, by enter and leave if further threads may destroy the allocator. */
fri_allocator *fri_allocator_override(fr_device d, fri_allocator *a);
void fri_allocator_enter(fri_allocator *a);
void fri_allocator_leave(fri_allocator *a);

/* A block of at least `bytes` bytes. FR_ENOMEM: with a report in fr_last_error, and no change. */
fr_status fri_block_alloc(fri_allocator *a, size_t bytes, const fr_tag *tag, fri_block **out);
void fri_block_free(fri_block **b); /* accepts NULL, clears the caller's pointer */
void fri_block_relabel(fri_block *b, fr_category to);
/* A stream other than the compute stream uses the block until the fence (uses.h). The block may be freed before. */
fr_status fri_block_used(fri_block *b, fri_fence until);

void fri_allocator_stats(const fri_allocator *a, fr_memory_stats *out);
size_t fri_allocator_requested(const fri_allocator *a); /* bytes requested and alive now */
void fri_allocator_reset_peak(fri_allocator *a);
void fri_allocator_empty_cache(fri_allocator *a);
void fri_allocator_limit(fri_allocator *a, size_t bytes);
fr_device fri_allocator_device(const fri_allocator *a);

/* Hash of the state behind later allocations: segments and blocks, live or free. Equal numbers: equal requests get
 * equal sizes and places. */
uint64_t fri_allocator_fingerprint(const fri_allocator *a);

struct fri_arena;
/* Takes a segment of the arena's extent from the device; planned allocations then get places in the arena. The
 * allocator owns the arena. FR_ENOMEM; FR_EUSAGE: the allocator has an arena. remove: FR_EUSAGE while blocks of the
 * arena live. */
fr_status fri_allocator_arena_install(fri_allocator *a, struct fri_arena *arena);
fr_status fri_allocator_arena_remove(fri_allocator *a);
/* The thread's next allocations follow the given section of the arena; other threads use the caching allocator. False:
 * no arena. departed: since the section began. */
bool fri_allocator_arena_follow(fri_allocator *a, int section);
bool fri_allocator_arena_departed(const fri_allocator *a);

/* Excludes an allocator from the event log and from all sums, for memory that is not the device's. Call before the
 * first use. */
void fri_allocator_silence(fri_allocator *a);

/* Fault injection: the n-th allocation from now on fails (1 = the next); 0 switches the fault off. */
void fri_allocator_fail_at(fri_allocator *a, uint64_t n);

/* Calls fn for every live block, oldest first. */
void fri_allocator_each(const fri_allocator *a, void (*fn)(void *ctx, const fri_block *b), void *ctx);

size_t fri_round_bytes(size_t bytes); /* up to a multiple of 512; 0 stays 0 */

#endif
