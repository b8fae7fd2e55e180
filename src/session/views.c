/* views.c - see views.h. */
#include "session/views.h"

#include <frugal/addon.h>
#include <inttypes.h>
#include <stdlib.h>

/* The session's views in event order, after the add-ons' views, so that measurements end before the last lines are
 * printed. NULL marks the position of the terminal's view. */
static const fri_view *const built_in[] = {&fri_watch_view, NULL, &fri_report_view, &fri_log_view};
enum { OWN = sizeof built_in / sizeof *built_in };

/* One active view, of an add-on (`addon`) or of the session (`own`). */
typedef struct watching {
    const fr_view *addon;
    const fri_view *own;
    void *state;
    bool begun, listens;
    int64_t failures; /* events whose writes failed (fr_view.survives_errors) */
} watching;

struct fri_views {
    const fri_run *run;
    fr_run seen; /* the run as add-ons' views see it */
    watching *view;
    int n;
};

/* ---- run data for add-ons' views ----------------------------------------------------------------------------- */

static fr_status update_seen(fri_views *v, fr_run_event e) {
    const fri_run *r = v->run;
    fr_run *s = &v->seen;
    s->planned = r->planned;
    s->position = r->at.step;
    s->model = r->config->model_name;
    s->test_accuracy = r->tested.accuracy;
    s->test_loss = r->tested.loss;
    return e == FR_RUN_STEP ? fri_log_step_of(r, &s->step) : FR_OK;
}

/* ---- begin and end --------------------------------------------------------------------------------------------- */

static fr_status add_view(fri_views *v, const fr_view *addon, const fri_view *own) {
    watching *w = &v->view[v->n];
    *w = (watching){.addon = addon, .own = own, .state = calloc(1, (addon != NULL ? addon->bytes : own->bytes) + 1)};
    if (w->state == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for a view of the run");
    v->n++;
    fr_status s = FR_OK;
    if (addon != NULL && addon->begin != NULL) s = addon->begin(w->state, &v->seen);
    if (own != NULL && own->begin != NULL) s = own->begin(w->state, v->run);
    w->begun = s == FR_OK;
    return s == FR_END ? FR_OK : s;
}

fr_status fri_views_begin(const fri_run *r, fri_views **out) {
    const fr_train_program *p = r->config->program;
    fri_views *v = *out = calloc(1, sizeof *v);
    int n = OWN;
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        for (const fr_view *const *f = (*a)->views; f != NULL && *f != NULL; f++) n++;
    if (v != NULL) v->view = calloc((size_t)n, sizeof *v->view);
    if (v == NULL || v->view == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for the views of a run");
    v->run = r;
    v->seen = (fr_run){.opts = &r->config->opts,
                       .metric = r->tested.metric,
                       .metric_names = p->metric_names,
                       .n_metrics = p->n_metrics};
    FRI_TRY(update_seen(v, FR_RUN_SETUP));
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        for (const fr_view *const *f = (*a)->views; f != NULL && *f != NULL; f++) FRI_TRY(add_view(v, *f, NULL));
    for (int i = 0; i < OWN; i++) {
        const fri_view *own = built_in[i] != NULL ? built_in[i] : r->config->listener.view;
        if (own != NULL) FRI_TRY(add_view(v, NULL, own));
    }
    return FR_OK;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static fr_status tell_view(fri_views *v, watching *w, fr_run_event e) {
    const fr_view *view = w->addon;
    if (e == FR_RUN_STEPS_END && w->listens) fr_event_unsubscribe(view->on_memory, w->state);
    if (e == FR_RUN_STEPS_END) w->listens = false;
    fr_status s = view != NULL ? view->event(w->state, &v->seen, e) : w->own->event(w->state, v->run, e);
    if (s == FR_EIO && (view != NULL ? view->survives_errors : w->own->survives_errors) && e != FR_RUN_POSITION) {
        if (w->failures++ == 0) fri_say_goes_on(v->run);
        s = FR_OK;
    }
    if (s == FR_OK && e == FR_RUN_END && w->failures > 0)
        return fr_fail(FR_EIO, "the logs are incomplete: %" PRId64 " of their writes failed", w->failures);
    if (s < 0 || e != FR_RUN_SETUP || view == NULL || view->on_memory == NULL) return s;
    s = fr_event_subscribe(view->on_memory, w->state);
    w->listens = s == FR_OK;
    return s;
}

fr_status fri_views_event(void *views, fr_run_event e) {
    fri_views *v = views;
    FRI_TRY(update_seen(v, e));
    for (int i = 0; i < v->n; i++)
        if (v->view[i].begun) FRI_TRY(tell_view(v, &v->view[i], e));
    return FR_OK;
}

void fri_views_end(fri_views **views) {
    fri_views *v = *views;
    *views = NULL;
    for (int i = 0; v != NULL && i < v->n; i++) {
        watching *w = &v->view[i];
        if (w->listens) (void)tell_view(v, w, FR_RUN_STEPS_END); /* finish the views of a failed run */
        if (w->addon != NULL && w->addon->end != NULL) w->addon->end(w->state);
        if (w->own != NULL && w->own->end != NULL) w->own->end(w->state);
        free(w->state);
    }
    if (v != NULL) free(v->view);
    free(v);
}
