/* record.h - a recorded piece of the event log. */
#ifndef FRI_PLAN_RECORD_H
#define FRI_PLAN_RECORD_H

#include "memory/event.h"

typedef struct fri_record {
    fr_device device; /* events of other devices are ignored */
    fr_event *events;
    size_t count;
    bool failed; /* host memory ran out: the record is incomplete */
} fri_record;

void fri_record_event(void *record, const fr_event *e); /* a fr_event_fn */
void fri_record_free(fri_record *r);

/* Position of the event at which live allocated bytes first reach their maximum; count if there is none. */
size_t fri_record_peak(const fri_record *r, size_t *bytes);

/* The largest working set of one op (largest_op.h). */
size_t fri_record_largest_op(const fri_record *r, fr_tag *op);

/* Blocks alive after event `at`: calls fn with the event that allocated each (category as relabelled since). */
fr_status fri_record_live(const fri_record *r, size_t at, void (*fn)(void *ctx, const fr_event *alloc), void *ctx);

#endif
