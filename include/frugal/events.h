/* events.h - the event log: every change of device memory, in order, and the ops and steps that it happened in.
 *
 * Tracker, timeline, plan, arena and the trainers' --trace read it and nothing else. A
 * subscriber is called at each event, after the allocator's own numbers were updated.
 *
 * Each thread has a log, and each pool of a run has one. A thread's current log is that of the innermost pool it has
 * begun, else its own; ops are marked there. An allocator that belongs to a pool writes to the pool's log, whichever
 * thread frees a block; the others write to the current log of the thread that calls. A log is locked while its
 * subscribers are called, so they run one at a time; they must not subscribe or unsubscribe meanwhile. */
#ifndef FRUGAL_EVENTS_H
#define FRUGAL_EVENTS_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fr_event_kind {
    FR_EVENT_ALLOC,
    FR_EVENT_FREE,
    FR_EVENT_RELABEL,       /* tag.category is the new one, from the old */
    FR_EVENT_SEGMENT_ALLOC, /* bytes taken from the device: `allocated` */
    FR_EVENT_SEGMENT_FREE,
    FR_EVENT_OP_BEGIN, /* name = op, module path and phase in tag */
    FR_EVENT_OP_END,
    FR_EVENT_ASIDE_BEGIN, /* inside an op, but no part of it: a saved tensor is encoded, made again or brought back */
    FR_EVENT_ASIDE_END,
    FR_EVENT_STEP_BEGIN,
    FR_EVENT_STEP_END,
    FR_EVENT_OOM, /* `requested` bytes did not fit */
} fr_event_kind;

typedef struct fr_event {
    fr_event_kind kind;
    fr_device device;
    uint64_t index;   /* position in the log */
    uint64_t block;   /* serial number of the block, 0 if the event has none */
    size_t requested; /* rounded to 512 */
    size_t allocated;
    fr_category from;
    fr_tag tag;
} fr_event;

typedef void fr_event_fn(void *ctx, const fr_event *e);

/* True if the event changes the live blocks of the device; `live` then gets the requested bytes by category. */
FR_API bool fr_event_live(const fr_event *e, fr_device device, size_t live[FR_CATEGORY_COUNT]);

/* Adds a subscriber to the thread's current log. FR_ENOMEM if the list of subscribers is full. */
FR_API fr_status fr_event_subscribe(fr_event_fn *fn, void *ctx);
FR_API void fr_event_unsubscribe(fr_event_fn *fn, void *ctx);
/* The context that fn was subscribed with to the thread's current log; NULL: it is not. */
FR_API void *fr_event_context(fr_event_fn *fn);

/* Calls fn for each block that lives on the thread's devices, with an FR_EVENT_ALLOC of the block's present tag and
 * index 0. */
FR_API void fr_event_blocks(fr_event_fn *fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
