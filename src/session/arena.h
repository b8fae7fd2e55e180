/* arena.h - runs a training in an arena: one reservation in which the plan has given each block an offset.
 *
 * Before anything is on the device, the run is planned on meta (arena_begin.c), each block gets an offset, and one
 * segment of exactly the planned size is reserved. Every allocation, from the first parameter on, is served from the
 * segment without a call of the device's allocator. The caching allocator serves requests that differ from the plan
 * (departures), which are counted. */
#ifndef FRI_SESSION_ARENA_H
#define FRI_SESSION_ARENA_H

#include <frugal/plan.h>
#include <stdbool.h>
#include <stdint.h>

/* Sections of a run's plan, one for each repeated phase of a run. */
typedef enum fri_section {
    FRI_PART_SETUP,
    FRI_PART_FIRST_STEP, /* first step of the run */
    FRI_PART_STEP,
    FRI_PART_SHORT_STEP,       /* step on the short last batch of an epoch */
    FRI_PART_EVALUATION,       /* loader and first batch of an evaluation */
    FRI_PART_EVALUATION_BATCH, /* each later full batch */
    FRI_PART_EVALUATION_SHORT, /* short last batch */
    FRI_PART_COUNT,
} fri_section;

enum { FRI_ARENA_REASON = 256 };

typedef struct fri_train_arena {
    bool used;
    bool short_of_memory;          /* the device or a limit has too little for the arena */
    char reason[FRI_ARENA_REASON]; /* reason why --arena was asked for and not used */
    fr_placement placement;
    double plan_seconds;
    int section[FRI_PART_COUNT]; /* index into the plan's sections; -1: not planned */
    int64_t departures;          /* sections in which a request differed from the plan */
    bool counting;               /* the second step has begun */
    uint64_t calls_before;       /* calls of the device's allocator before `counting` */
    uint64_t calls;              /* calls since then */
} fri_train_arena;

struct fri_run;
/* True if --arena applies to this run; otherwise the reason is stored. */
bool fri_train_arena_wanted(struct fri_run *r);
/* Declares that the following allocations belong to section `part`. */
fr_status fri_train_arena_part(struct fri_run *r, fri_section part);
/* End closes the counters. Release returns the segment once no tensor is alive. */
void fri_train_arena_end(struct fri_run *r);
void fri_train_arena_release(struct fri_run *r);

#endif
