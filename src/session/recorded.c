/* recorded.c - see recorded.h. */
#include "session/recorded.h"

#include "session/driver.h"

#include <stdlib.h>
#include <string.h>

/* Places per part of a batch: loss, number of correct answers, a bad target, and that again for a second pass; of the
 * step: the learning rate and the loss scaler's state. */
enum { PLACES_PER_PART = 4, PLACES = 2, FAILURES_AT_MOST = 3 };

/* ---- making -------------------------------------------------------------------------------------------------- */

static fr_status step_prepare(const fri_session *r, fri_recorded_step *step) {
    const fr_train_opts *o = &r->config->opts;
    step->values = calloc(1, sizeof *step->values);
    step->places = calloc((size_t)o->accumulate, sizeof *step->places);
    if (step->values == NULL || step->places == NULL)
        return fr_fail(FR_ENOMEM, "trainer: no host memory for a recorded step");
    return fr_capture_create(o->device, PLACES_PER_PART * o->accumulate * o->split_batch + PLACES, &step->capture);
}

fr_status fri_train_graph_prepare(fri_session *r) {
    fri_train_graph *g = &r->graph;
    if (!r->config->opts.cuda_graph) return FR_OK;
    FRI_TRY(step_prepare(r, &g->full));
    if (fri_batch_rest(r->config, FR_SPLIT_TRAIN) > 0) FRI_TRY(step_prepare(r, &g->shorter));
    return FR_OK;
}

static void step_release(fri_recorded_step *step) {
    fr_capture_release(&step->capture);
    if (step->values != NULL) fri_step_values_free(step->values);
    free(step->values);
    free(step->places);
    *step = (fri_recorded_step){0};
}

void fri_train_graph_release(fri_session *r) {
    step_release(&r->graph.full);
    step_release(&r->graph.shorter);
}

void fri_train_graph_forget(fri_session *r) {
    if (r->graph.full.capture != NULL) fr_capture_forget(r->graph.full.capture);
    if (r->graph.shorter.capture != NULL) fr_capture_forget(r->graph.shorter.capture);
}

/* ---- recording ----------------------------------------------------------------------------------------------- */

static fri_recorded_step *step_of(fri_session *r, fri_part part) {
    fri_recorded_step *step = part == FRI_PART_STEP         ? &r->graph.full
                              : part == FRI_PART_SHORT_STEP ? &r->graph.shorter
                                                            : NULL;
    return step != NULL && step->capture != NULL ? step : NULL;
}

static void keep_reason(fri_train_graph *g, const char *why) {
    snprintf(g->reason, sizeof g->reason, "%.*s", (int)strcspn(why, "\n"), why);
}

/* What is the same for the whole run. */
static bool possible(fri_session *r) {
    const char *reason = r->arena.used ? fr_capture_refused() : "the run is without an arena";
    if (reason[0] != '\0') keep_reason(&r->graph, reason);
    return reason[0] == '\0';
}

void fri_train_graph_batch(fri_session *r, const fr_tensor *images, const fr_tensor *targets) {
    const fr_tensor *t[2] = {images, targets};
    for (int i = 0; i < 2 && r->config->opts.cuda_graph; i++) {
        r->graph.dtype[i] = fr_tensor_dtype(t[i]);
        r->graph.shape[i].rank = fr_tensor_rank(t[i]);
        for (int k = 0; k < fr_tensor_rank(t[i]); k++) r->graph.shape[i].dim[k] = fr_tensor_dim(t[i], k);
    }
}

typedef struct recording {
    fri_step_work work;
    fri_recorded_step *step;
    bool began;
} recording;

/* The allocations of fr_input_next. Nothing is laid there now. */
static fr_status lay_out(fri_step_work *w, fr_input_place *place) {
    const fri_train_graph *g = &w->r->graph;
    fr_tensor **out[2] = {&w->images, &w->targets};
    for (int i = 0; i < 2; i++) {
        FRI_TRY(fr_tensor_empty(g->shape[i].rank, g->shape[i].dim, g->dtype[i], w->r->config->opts.device, out[i]));
        fr_tensor_category_set(*out[i], FR_MEM_INPUT);
        place->data[i] = fr_tensor_data(*out[i]);
        place->bytes[i] = fr_tensor_nbytes(*out[i]);
    }
    return FR_OK;
}

/* The recording begins behind the first batch, and pauses for the others. */
static fr_status batch_recorded(void *ctx, int64_t i) {
    recording *c = ctx;
    fr_capture *capture = c->step->capture;
    if (i > 0) FRI_TRY(fr_capture_pause(capture));
    FRI_TRY(lay_out(&c->work, &c->step->places[i]));
    FRI_TRY(i > 0 ? fr_capture_resume(capture) : fr_capture_begin(capture));
    c->began = true;
    return FR_OK;
}

static fr_status record(fri_session *r, fri_recorded_step *step, fri_part part) {
    static const fri_stepping recorded = {batch_recorded, fri_step_train, fri_step_update};
    recording c = {.work = {.r = r, .v = step->values}, .step = step};
    fr_status s = FR_OK;
    FR_TRY(s, fri_train_arena_part(r, part));
    s = fri_drive_step(r, &recorded, &c, step->values);
    if (c.began) s = fr_capture_end(step->capture, s);
    FR_TRY(s, s);
    if (fr_plan_departed(r->config->opts.device)) {
        fr_capture_forget(step->capture);
        s = fr_fail(FR_EUSAGE, "an allocation of the step departs from the plan");
    }
done:
    fri_step_work_end(&c.work);
    return s;
}

void fri_train_graph_capture(fri_session *r, fri_part part) {
    fri_train_graph *g = &r->graph;
    fri_recorded_step *step = step_of(r, part);
    if (step == NULL || step->failures == FAILURES_AT_MOST || fr_capture_pieces(step->capture) > 0) return;
    if (!possible(r) || fri_watch_enabled(r) || fr_plan_departed(r->config->opts.device)) return;
    step->departures = r->arena.departures;
    if (record(r, step, part) < 0) {
        step->failures++;
        keep_reason(g, fr_last_error());
        if (!r->config->opts.grad_zero) fr_optimizer_zero_grad(r->optimizer);
        return;
    }
    g->reason[0] = '\0';
    g->captures++;
}

/* ---- running again ------------------------------------------------------------------------------------------- */

bool fri_train_graph_holds(fri_session *r, fri_part part) {
    fri_recorded_step *step = step_of(r, part);
    if (step == NULL || fr_capture_pieces(step->capture) == 0) return false;
    if (step->departures != r->arena.departures) { /* then a part of the arena may have moved */
        fr_capture_forget(step->capture);
        return false;
    }
    return !fri_watch_enabled(r);
}

typedef struct replay {
    fri_session *r;
    fri_recorded_step *step;
    fri_step_values *v;
} replay;

static fr_status batch_replayed(void *ctx, int64_t i) {
    replay *c = ctx;
    return fr_input_into(c->r->input, c->r->loader, &c->step->places[i]);
}

static fr_status train_replayed(void *ctx, int64_t i) {
    const replay *c = ctx;
    fr_capture *capture = c->step->capture;
    c->v->targets += (double)fr_input_count(c->r->input);
    if (i == 0) FRI_TRY(fr_capture_replay_begin(capture));
    FRI_TRY(fr_capture_replay_piece(capture, (int)i));
    if (i + 1 < fr_capture_pieces(capture)) FRI_TRY(fr_input_fetch(c->r->input, c->r->loader));
    return FR_OK;
}

/* The last piece has updated. */
static fr_status update_replayed(void *ctx) {
    const replay *c = ctx;
    fr_status s = fr_capture_replay_end(c->step->capture);
    return s < 0 ? s : fri_step_values_replayed(c->step->values, c->step->capture, c->v);
}

fr_status fri_train_graph_replay(fri_session *r, fri_part part, fri_step_values *v) {
    static const fri_stepping from_record = {batch_replayed, train_replayed, update_replayed};
    replay c = {.r = r, .step = step_of(r, part), .v = v};
    fr_status s = fri_drive_step(r, &from_record, &c, v);
    if (s == FR_OK) r->graph.replays++;
    return s;
}
