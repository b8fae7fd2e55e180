/* arena.h - fixed places for the allocations of a run that repeats.
 *
 * A training step makes the same allocations each time, so the lifetimes are known after one dry run. The arena is one
 * segment in which every allocation of the planned sections has an offset of its own: reserved equals the placement's
 * extent, allocation takes constant time, and addresses are the same in each step.
 *
 *     time ->
 *     offset | parameters........................................|
 *            | conv out ....|  | dconv out .....|
 *            | mask ...........................|   | workspace |
 *
 * The run follows section by section, allocation by allocation. An allocation that departs (a different size, or an
 * occupied place) goes to the caching allocator, with the rest of the section: slower, never wrong.
 *
 * Note [Learning]
 * The requests of a section are noted. A section that departed and left nothing alive is placed when the next section
 * begins, beside the memory alive now, in the unchanged arena; blocks without a place there get an extension, a segment
 * of their own. So a section has variants. A section begins with the variant that was followed last; where sizes
 * differ, a variant with an equal beginning takes over. An occupied place is never handed out, whatever the variant. */
#ifndef FRI_MEMORY_ARENA_H
#define FRI_MEMORY_ARENA_H

#include "memory/event.h"

/* A planned allocation, in order of allocation. end: index of the freeing event; SIZE_MAX: lives on. */
typedef struct fri_lifetime {
    size_t begin, end; /* event indices */
    size_t bytes;      /* multiple of 512, > 0 */
    size_t offset;     /* result */
} fri_lifetime;

/* placement.c: gives every lifetime an offset without overlap of live blocks. cuts: ascending event indices where
 * sections begin. *extent: bytes from 0 to the end of the last; *peak: the largest live sum, a lower bound of every
 * placement. Equal on every machine. */
fr_status fri_arena_place(fri_lifetime *l, size_t n, const size_t *cuts, size_t n_cuts, size_t *extent, size_t *peak);

/* A piece of the arena. Offsets from the extent on lie in the extension. */
typedef struct fri_place {
    size_t offset, bytes;
} fri_place;

/* Places blocks beside fixed blocks, which are sorted by offset. The search ends below the bound. */
fr_status fri_arena_place_beside(fri_lifetime *l, size_t n, const fri_place *fixed, size_t n_fixed, size_t bound,
                                 size_t *extent);

typedef struct fri_arena fri_arena;

/* Sections of the run: section i is lifetimes first[i] .. end[i] - 1; two sections may share lifetimes. Takes
 * copies. */
fr_status fri_arena_create(const fri_lifetime *l, size_t n, const size_t *first, const size_t *end, int n_sections,
                           size_t extent, fri_arena **out);
void fri_arena_destroy(fri_arena **a);

size_t fri_arena_extent(const fri_arena *a);
bool fri_arena_departed(const fri_arena *a); /* since the section began */

/* Starts a section for the next allocations. First learns the ended section if departed: `extend` gets the extension's
 * bytes (0: none) and returns success; the extension is empty and may move. */
typedef bool fri_arena_extend_fn(void *ctx, size_t bytes);
void fri_arena_section(fri_arena *a, int section, fri_arena_extend_fn *extend, void *ctx);

/* The place of the next allocation; false: not planned, ask the caching allocator. *note: for fri_arena_gone, for every
 * block, also outside the arena. */
bool fri_arena_take(fri_arena *a, size_t bytes, size_t *offset, uint64_t *note);
void fri_arena_give(fri_arena *a, size_t offset);
void fri_arena_gone(fri_arena *a, uint64_t note);

#endif
