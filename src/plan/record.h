/* record.h - a recorded piece of the event log. */
#ifndef FRI_PLAN_RECORD_H
#define FRI_PLAN_RECORD_H

#include "memory/event.h"

typedef struct fri_record {
    fr_device device; /* ignores events of other devices */
    fr_event *events;
    size_t count;
    bool failed; /* host memory ran out: the record is incomplete */
} fri_record;

void fri_record_event(void *record, const fr_event *e); /* a fr_event_fn */
void fri_record_free(fri_record *r);

/* Position of the first event with the maximum of live allocated bytes; count without events. */
size_t fri_record_peak(const fri_record *r, size_t *bytes);

/* The largest working set of an op (largest_op.h). */
size_t fri_record_largest_op(const fri_record *r, fr_tag *op);

/* Blocks alive after event `at`: calls fn with each allocation event (with the relabelled category). */
fr_status fri_record_live(const fri_record *r, size_t at, void (*fn)(void *ctx, const fr_event *alloc), void *ctx);

#endif
