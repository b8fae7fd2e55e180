/* event.h - writing to the event log (frugal/events.h), and the choice of the log. */
#ifndef FRI_MEMORY_EVENT_H
#define FRI_MEMORY_EVENT_H

#include "base/tag.h"

#include <frugal/events.h>

typedef struct fri_event_log fri_event_log;
fr_status fri_event_log_create(fri_event_log **out);
void fri_event_log_destroy(fri_event_log **log); /* accepts NULL */
/* Sets the thread's current log; NULL: the thread's own. Returns the old log, NULL for the thread's own. */
fri_event_log *fri_event_log_use(fri_event_log *log);

/* log: NULL is the thread's current log. */
bool fri_event_wanted(const fri_event_log *log);      /* false: no subscribers, so the caller can skip the event */
void fri_event_emit(fri_event_log *log, fr_event *e); /* fills in index */

/* Both in the thread's current log. */
void fri_event_mark(fr_event_kind kind); /* an event without a block, under the current scope */

#endif
