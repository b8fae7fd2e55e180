/* event.h - the one event log: every change of device memory, in order.
 *
 * Tracker, timeline, plan and arena read it and nothing else. A subscriber is called at each event, after the
 * allocator's own numbers were updated.
 *
 * Each thread has a log, and each pool of a run has one. A thread's current log is that of the innermost pool it has
 * begun, else its own; ops are marked there. An allocator that belongs to a pool writes to the pool's log, whichever
 * thread frees a block; the others write to the current log of the thread that calls. A log is locked while its
 * subscribers are called, so they run one at a time; they must not subscribe or unsubscribe meanwhile. */
#ifndef FRI_MEMORY_EVENT_H
#define FRI_MEMORY_EVENT_H

#include "base/tag.h"

typedef enum fri_event_kind {
    FRI_EVENT_ALLOC,
    FRI_EVENT_FREE,
    FRI_EVENT_RELABEL,       /* tag.category is the new one, from the old */
    FRI_EVENT_SEGMENT_ALLOC, /* bytes taken from the device: `allocated` */
    FRI_EVENT_SEGMENT_FREE,
    FRI_EVENT_OP_BEGIN, /* name = op, module path and phase in tag */
    FRI_EVENT_OP_END,
    FRI_EVENT_ASIDE_BEGIN, /* inside an op, but no part of it: a saved tensor is encoded, made again or brought back */
    FRI_EVENT_ASIDE_END,
    FRI_EVENT_STEP_BEGIN,
    FRI_EVENT_STEP_END,
    FRI_EVENT_OOM, /* `requested` bytes did not fit */
} fri_event_kind;

typedef struct fri_event {
    fri_event_kind kind;
    fr_device device;
    uint64_t index;   /* position in the log */
    uint64_t block;   /* serial number of the block, 0 if the event has none */
    size_t requested; /* rounded to 512 */
    size_t allocated;
    fr_category from;
    fri_tag tag;
} fri_event;

typedef void fri_event_fn(void *ctx, const fri_event *e);

/* Does the event change what lives on the device? Then so do the requested bytes by category in `live`. */
bool fri_event_live(const fri_event *e, fr_device device, size_t live[FR_CATEGORY_COUNT]);

typedef struct fri_event_log fri_event_log;
fr_status fri_event_log_create(fri_event_log **out);
void fri_event_log_destroy(fri_event_log **log); /* accepts NULL */
/* The log becomes this thread's current one; NULL: the thread's own. Returns what was, NULL for the thread's own. */
fri_event_log *fri_event_log_use(fri_event_log *log);

/* To the thread's current log. FR_ENOMEM if all places are taken. */
fr_status fri_event_subscribe(fri_event_fn *fn, void *ctx);
void fri_event_unsubscribe(fri_event_fn *fn, void *ctx);

/* log: NULL stands for the thread's current one. */
bool fri_event_wanted(const fri_event_log *log);       /* false: nobody listens, building the event can be skipped */
void fri_event_emit(fri_event_log *log, fri_event *e); /* fills in index */

/* Both in the thread's current log. */
void fri_event_mute(bool on);             /* only segments are told of: what happens meanwhile leaves no trace */
void fri_event_mark(fri_event_kind kind); /* an event without a block, under the current scope */

#endif
