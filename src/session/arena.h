/* arena.h - a run in an arena: planned, reserved exactly, followed part by part.
 *
 * Before anything is on the device, the run is planned on meta (arena_begin.c), its blocks get their places, and one
 * segment of that size is reserved. From the first parameter on every allocation goes to its place; the device's
 * allocator is not called again. What departs from the plan is served by the caching allocator and counted. */
#ifndef FRI_SESSION_ARENA_H
#define FRI_SESSION_ARENA_H

#include <frugal/plan.h>
#include <stdbool.h>
#include <stdint.h>

/* Sections of a run's plan: parts that repeat in the run. */
typedef enum fri_section {
    FRI_PART_SETUP,
    FRI_PART_FIRST_STEP, /* of the run */
    FRI_PART_STEP,
    FRI_PART_SHORT_STEP,       /* on the short last batch of an epoch */
    FRI_PART_EVALUATION,       /* its loader and first batch */
    FRI_PART_EVALUATION_BATCH, /* each further one */
    FRI_PART_EVALUATION_SHORT, /* the short last one */
    FRI_PART_COUNT,
} fri_section;

enum { FRI_ARENA_REASON = 256 };

typedef struct fri_train_arena {
    bool used;
    char reason[FRI_ARENA_REASON]; /* why not, if --arena asked for it */
    fr_placement placement;
    double plan_seconds;
    int section[FRI_PART_COUNT]; /* -1: not in the plan */
    int64_t departures;          /* parts in which an allocation departed */
    bool counting;               /* the second step has begun */
    uint64_t calls_before;       /* to the device's allocator until then */
    uint64_t calls;              /* since */
} fri_train_arena;

struct fri_session;
/* --arena applies to this run; if not, the reason is kept. */
bool fri_train_arena_wanted(struct fri_session *r);
/* The allocations that follow are those of this part. */
fr_status fri_train_arena_part(struct fri_session *r, fri_section part);
/* Closes the counts; release gives the memory back when no tensor lives any more. */
void fri_train_arena_end(struct fri_session *r);
void fri_train_arena_release(struct fri_session *r);

#endif
