/* views.c - see views.h. */
#include "session/views.h"

#include <stdlib.h>
#include <unistd.h>

/* In the order in which an event reaches them: what measured the steps ends before the last lines are printed. */
static const fri_view *const table[] = {&fri_track_view,       &fri_track_lines_view, &fri_trace_view,
                                        &fri_memory_plot_view, &fri_watch_view,       NULL,
                                        &fri_report_view,      &fri_log_view,         &fri_confusion_view};
enum { VIEWS = sizeof table / sizeof *table };

/* View i of a run; NULL: the run has none there. The gap in the table is the place of the terminal's view. */
static const fri_view *view_of(const fri_session *r, int i) {
    return table[i] != NULL ? table[i] : r->config->progress;
}

struct fri_views {
    const fri_session *run;
    bool begun[VIEWS], listens[VIEWS];
    void *state[VIEWS];
};

fr_status fri_views_begin(const fri_session *r, fri_views **out) {
    fri_views *v = *out = calloc(1, sizeof *v);
    fr_status s = v != NULL ? FR_OK : fr_fail(FR_ENOMEM, "trainer: no host memory for the views of a run");
    if (v != NULL) v->run = r;
    for (int i = 0; i < VIEWS && s == FR_OK; i++) {
        const fri_view *view = view_of(r, i);
        if (view == NULL) continue;
        v->state[i] = calloc(1, view->bytes + 1);
        if (v->state[i] == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for a view of the run");
        s = view->begin != NULL ? view->begin(v->state[i], r) : FR_OK;
        v->begun[i] = s == FR_OK;
        if (s == FR_END) s = FR_OK;
    }
    return s;
}

static fr_status tell(fri_views *v, int i, fri_run_event e) {
    const fri_view *view = view_of(v->run, i);
    fr_event_fn *fn = view->on_memory;
    if (e == FRI_RUN_STEPS_END && v->listens[i]) fr_event_unsubscribe(fn, v->state[i]);
    if (e == FRI_RUN_STEPS_END) v->listens[i] = false;
    fr_status s = view->event(v->state[i], v->run, e);
    if (s < 0 || e != FRI_RUN_SETUP || fn == NULL) return s;
    s = fr_event_subscribe(fn, v->state[i]);
    v->listens[i] = s == FR_OK;
    return s;
}

fr_status fri_views_event(void *views, fri_run_event e) {
    fri_views *v = views;
    fr_status s = FR_OK;
    for (int i = 0; i < VIEWS && s == FR_OK; i++)
        if (v->begun[i]) s = tell(v, i, e);
    return s;
}

void fri_views_end(fri_views **views) {
    fri_views *v = *views;
    *views = NULL;
    for (int i = 0; v != NULL && i < VIEWS; i++) {
        if (v->listens[i]) (void)tell(v, i, FRI_RUN_STEPS_END); /* the run has failed: what was seen is kept */
        if (v->state[i] != NULL && view_of(v->run, i)->end != NULL) view_of(v->run, i)->end(v->state[i]);
        free(v->state[i]);
    }
    free(v);
}

fr_status fri_view_open(const char *flag, const char *path, fri_view_file *f) {
    *f = (fri_view_file){.output = FR_ATOMIC_FILE_CLOSED, .flag = flag, .path = path};
    if (path == NULL) return FR_END;
    fr_status s = fr_atomic_open(path, 0666, &f->output);
    if (s == FR_OK) s = fr_atomic_stream(&f->output);
    return s < 0 ? fr_fail_prefix(s, "--%s %s: ", flag, path) : FR_OK;
}

fr_status fri_view_commit(fri_view_file *f) {
    fr_status s = fr_atomic_commit(&f->output);
    return s < 0 ? fr_fail_prefix(s, "--%s %s: ", f->flag, f->path) : FR_OK;
}

void fri_view_line_begin(const fri_session *r) {
    if (isatty(fileno(r->config->out)) == 1) fputs("\r\033[K", r->config->out);
}
