/* views.h - views observe a run and write lines, reports or pictures: add-ons' views (fr_view of train.h) and the
 * session's own.
 *
 * The driver emits events without knowing the views. A view reads the run and keeps its own state. */
#ifndef FRI_SESSION_VIEWS_H
#define FRI_SESSION_VIEWS_H

#include "session/session.h"

typedef struct fri_view {
    size_t bytes; /* size of the view's state, zeroed at first; 0: none */
    /* Opens the view's file before the run, to find an unwritable path early. FR_END: the flags do not ask for this
     * view. NULL: nothing to open. */
    fr_status (*begin)(void *state, const fri_run *r);
    fr_status (*event)(void *state, const fri_run *r, fr_run_event e);
    void (*end)(void *state); /* releases resources, also after a failed begin. NULL: nothing to release */
    bool survives_errors;     /* as fr_view.survives_errors */
} fri_view;

extern const fri_view fri_watch_view, fri_report_view, fri_log_view;

typedef struct fri_views fri_views;
/* Starts the views that the flags ask for. Call fri_views_end also after a failure. */
fr_status fri_views_begin(const fri_run *r, fri_views **out);
/* Event function of an fri_run_watcher: calls the views in turn and stops at the first failure. */
fr_status fri_views_event(void *views, fr_run_event e);
void fri_views_end(fri_views **views); /* *views may be NULL */

/* log.c: numbers of the last known step. */
fr_status fri_log_step_of(const fri_run *r, fr_log_step *out);
/* watch.c: bytes of process memory (on the CPU, resident set) that the engine did not reserve; 0 for a plan and if
 * unknown. *use: as the backend reports. */
size_t fri_watch_outside(const fri_run *r, fr_memory_use *use, size_t *reserved);

#endif
