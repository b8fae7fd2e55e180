/* views.h - views watch a run: those of add-ons (fr_view of train.h) and the session's own, each told of its events.
 *
 * The driver emits events and knows no view. A view reads the run, keeps what it needs in a state of its own, and
 * writes: lines, a report, a picture. */
#ifndef FRI_SESSION_VIEWS_H
#define FRI_SESSION_VIEWS_H

#include "session/session.h"

typedef struct fri_view {
    size_t bytes; /* of its state, which begins as zeroes; 0: none */
    /* Opens its file before anything runs, so that a place that cannot be written is known then. FR_END: the flags do
     * not ask for this view. NULL: there is nothing to open. */
    fr_status (*begin)(void *state, const fri_session *r);
    fr_status (*event)(void *state, const fri_session *r, fr_run_event e);
    void (*end)(void *state); /* releases, also after a begin that failed. NULL: nothing to release */
} fri_view;

extern const fri_view fri_watch_view, fri_report_view, fri_log_view;

typedef struct fri_views fri_views;
/* Begins the views that the flags ask for. What *out holds is to be ended, also after a failure. */
fr_status fri_views_begin(const fri_session *r, fri_views **out);
/* An fri_run_watcher's function: tells the views in turn, up to the first that fails. */
fr_status fri_views_event(void *views, fr_run_event e);
void fri_views_end(fri_views **views); /* accepts NULL */

/* log.c: the numbers of the last known step. */
fr_status fri_log_step_of(const fri_session *r, fr_log_step *out);
/* views.c: before a line of its own, over the progress line that is redrawn. */
void fri_view_line_begin(const fri_session *r);
/* watch.c: what the process holds (on the CPU its resident set) without what the engine reserved, in bytes; 0 where
 * nobody counts it, in a plan, or where it is less. *use as the backend says. */
size_t fri_watch_outside(const fri_session *r, fr_memory_use *use, size_t *reserved);

#endif
