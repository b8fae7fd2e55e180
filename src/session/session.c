/* session.c - sessions for programs that are not trainers (frugal/session.h). */
#include <frugal/session.h>

#include "session/driver.h"
#include "session/flags.h"
#include "session/plan_switches.h"
#include "session/prepare.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STOPPED = -1 }; /* stands in for a signal's number when the program ends a run */

struct fr_session {
    fr_session_opts opts;
    fr_train_program program; /* stands in for a trainer's program */
    fri_config config;
    fri_run run;
    fri_views *views;
    atomic_bool cancel;  /* cancellation requested, by any thread */
    bool asked;          /* end requested by a callback */
    int64_t until;       /* step at which the current call ends */
    int64_t epoch_ended; /* step at which on_epoch was last called */
    bool inside;         /* a call is running, in the run's pool */
    bool finished;       /* all steps are done; with EMA the module holds the averages */
    fr_status failed;    /* failure after which the run cannot continue */
    fr_rng rng;          /* the run's random state between calls */
};

fr_session_opts fr_session_opts_default(void) {
    fr_session_opts o = {.train = fr_train_opts_default()};
    o.train.quiet = true;
    o.train.data.augment = FR_TRAIN_AUGMENT_NONE;
    o.train.data.dataset = FR_TRAIN_OWN;
    o.train.optim.epochs = 30;
    return o;
}

/* ---- thread state during a session's call -------------------------------------------------------------------- */

typedef struct scope {
    fr_switches switches;
    fr_rng rng;
    int threads;
} scope;

static scope enter_scope(void) {
    return (scope){fr_switches_get(), fr_rng_get(), fr_threads_get()};
}

static void leave_scope(fr_session *s, scope was) {
    s->inside = false;
    s->rng = fr_rng_get();
    if (s->run.pool != NULL) fr_pool_end(s->run.no_pool);
    fr_switches_set(was.switches);
    fr_rng_set(was.rng);
    if (fr_threads_get() != was.threads) (void)fr_threads_set(was.threads);
}

static fr_status enter_again(fr_session *s) {
    FRI_TRY(fr_pool_begin(s->run.pool, &s->run.no_pool));
    s->inside = true;
    fr_switches_set(s->config.opts.memory.switches);
    fr_rng_set(s->rng);
    if (s->config.opts.threads != FR_TRAIN_AUTO) (void)fr_threads_set((int)s->config.opts.threads);
    return FR_OK;
}

/* ---- callbacks and stopping ---------------------------------------------------------------------------------- */

fr_status fr_session_info_get(const fr_session *session, fr_session_info *out) {
    if (session == NULL || out == NULL)
        return fr_fail(FR_EINVAL, "fr_session_info_get: %s is NULL", session == NULL ? "session" : "out");
    const fri_run *r = &session->run;
    fr_memory_stats now = {0};
    if (session->inside) (void)fr_memory_stats_get(r->config->opts.device, &now);
    size_t reserved = now.peak_reserved, allocated = now.peak_allocated;
    const fr_memory_stats *kept[] = {&r->memory.training, &r->memory.evaluation};
    for (int i = 0; i < 2; i++) {
        if (kept[i]->peak_reserved > reserved) reserved = kept[i]->peak_reserved;
        if (kept[i]->peak_allocated > allocated) allocated = kept[i]->peak_allocated;
    }
    *out = (fr_session_info){.step = r->at.step,
                             .steps = fri_steps_total(r->config),
                             .epoch = r->at.epoch,
                             .epochs = fri_epochs_total(r->config),
                             .finished = fri_run_finished(r),
                             .loss = r->numbers.loss,
                             .epoch_loss = fri_epoch_loss(r),
                             .epoch_accuracy = fri_epoch_accuracy(r),
                             .test_loss = r->tested.loss,
                             .test_accuracy = r->tested.accuracy,
                             .seconds = r->at.seconds,
                             .peak_reserved = reserved,
                             .peak_allocated = allocated,
                             .planned = r->memory.arena.used ? r->memory.arena.placement.extent : 0};
    memcpy(out->mean, r->config->mean, sizeof out->mean);
    memcpy(out->std, r->config->std, sizeof out->std);
    for (int64_t i = 0; i < r->config->program->n_metrics; i++) out->metrics[i] = r->tested.metric[i];
    return FR_OK;
}

static fr_status tell_program(fr_session *s, const char *name, fr_status (*fn)(void *ctx, const fr_session_info *now)) {
    fr_session_info now;
    if (fn == NULL) return FR_OK;
    FRI_TRY(fr_session_info_get(s, &now));
    const fr_status status = FRI_CALLBACK(name, fn(s->opts.ctx, &now));
    if (status == FR_END) s->asked = true;
    return status < 0 ? status : FR_OK;
}

static fr_status embedded_event(void *ctx, fr_run_event e) {
    fr_session *s = ctx;
    fr_status status = fri_views_event(s->views, e);
    if (status < 0) return status;
    if (e == FR_RUN_STEP) return tell_program(s, "on_step", s->opts.on_step);
    if (e != FR_RUN_EPOCH || s->run.at.step % fri_steps_per_epoch(&s->config) != 0 ||
        s->run.at.first_evaluation == FRI_FIRST_MEASUREMENT)
        return FR_OK;
    s->epoch_ended = s->run.at.step;
    return tell_program(s, "on_epoch", s->opts.on_epoch);
}

static void embedded_said(void *ctx, fri_saying how, const char *text) {
    const fr_session *s = ctx;
    if (s->opts.out != NULL) fri_said_print(s->opts.out, s->program.name, how, text);
    if (s->opts.on_note != NULL) s->opts.on_note(s->opts.ctx, text);
}

/* A stop at the end of an epoch waits for the evaluation. A finished training cannot be stopped. */
static int is_interrupted(void *ctx) {
    const fr_session *s = ctx;
    int64_t step = s->run.at.step;
    if (fri_run_finished(&s->run)) return 0;
    bool stop = s->asked || step >= s->until || atomic_load_explicit(&s->cancel, memory_order_relaxed);
    return stop && (step % fri_steps_per_epoch(&s->config) != 0 || s->epoch_ended == step) ? STOPPED : 0;
}

void fr_session_cancel(fr_session *session) {
    if (session != NULL) atomic_store_explicit(&session->cancel, true, memory_order_relaxed);
}

/* ---- from options to a run --------------------------------------------------------------------------------------- */

fr_status fri_session_check(const fr_session_opts *o) {
    const fr_train_opts *t = &o->train;
    const char *flag = t->plan                    ? "plan"
                       : t->summary               ? "summary"
                       : t->files.predict != NULL ? "predict"
                       : t->memory.calibrate      ? "calibrate"
                       : t->data.path != NULL     ? "data"
                                                  : NULL;
    if (o->model == NULL) return fr_fail(FR_EINVAL, "session_create: opts->model is NULL; it must build the network");
    if (flag != NULL) return fr_fail(FR_EINVAL, "session_create: --%s works in trainers only; leave it unset", flag);
    if (t->data.dataset != FR_TRAIN_OWN)
        return fr_fail(FR_EINVAL,
                       "session_create: leave train.data.dataset unset; a session gets its data as arguments");
    for (int i = 0; i < FR_CHANNELS_MAX; i++) {
        if (!isfinite(o->mean[i]) || !isfinite(o->std[i]) || o->std[i] < 0 || (o->mean[i] != 0 && o->std[i] == 0))
            return fr_fail(FR_EINVAL, "session_create: channel %d has mean %g and std %g; std must be above 0", i,
                           o->mean[i], o->std[i]);
    }
    return fri_options_check(t);
}

/* Takes image_size and image_width from the images if all have the same size. */
static fr_status resolve_image_size(fr_train_opts *t, const fr_dataset *train) {
    fr_dataset_info info;
    fr_status status = fr_dataset_info_get(train, &info);
    if (status < 0 || t->data.image_size != FR_TRAIN_AUTO) return status;
    if (!info.same_size)
        return fr_fail(
            FR_EINVAL,
            "session_create: the images have several sizes; set train.data.image_size and train.data.image_width");
    t->data.image_size = info.height;
    t->data.image_width = info.width;
    return FR_OK;
}

/* 0.1 for batches of 64 and more, less in proportion for smaller ones (Goyal et al., 2017): small folders learn. */
static double own_sgd_lr(int64_t batch) {
    return batch < 64 ? 0.1 * (double)batch / 64 : 0.1;
}

fr_status fri_session_configure(const fr_session_opts *o, fr_dataset *train, fr_dataset *test,
                                fr_train_program *program, fri_config *out) {
    *program = (fr_train_program){.name = o->name != NULL ? o->name : "network",
                                  .sgd_lr = own_sgd_lr(o->train.optim.batch_size),
                                  .batch_norm_optional = true,
                                  .loss = o->loss,
                                  .metrics = o->metrics,
                                  .metric_names = o->metric_names,
                                  .n_metrics = o->n_metrics,
                                  .ctx = o->ctx};
    *out = (fri_config){.program = program,
                        .opts = o->train,
                        .model = o->model,
                        .model_ctx = o->ctx,
                        .given = {[FR_SPLIT_TRAIN] = train, [FR_SPLIT_TEST] = test}};
    memcpy(out->mean, o->mean, sizeof o->mean);
    memcpy(out->std, o->std, sizeof o->std);
    return resolve_image_size(&out->opts, train);
}

static fr_status start_run(fr_session *s) {
    fri_run *r = &s->run;
    FRI_TRY(fri_run_prepare(&s->config, r, &s->views));
    r->watcher = (fri_run_watcher){embedded_event, s};
    r->interrupted = is_interrupted;
    r->interrupted_ctx = s;
    return fri_run_setup(r, NULL);
}

fr_status fr_session_create(const fr_session_opts *opts, fr_dataset *train, fr_dataset *test, fr_session **out) {
    if (opts == NULL || train == NULL || out == NULL)
        return fr_fail(FR_EINVAL, "fr_session_create: %s is NULL",
                       opts == NULL    ? "opts"
                       : train == NULL ? "train"
                                       : "out");
    scope was = enter_scope();
    fr_session *s = NULL;
    fr_status status = fri_session_check(opts);
    if (status < 0) return fri_speak_of_fields(status);
    s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "session_create: out of host memory");
    s->opts = *opts;
    status = fri_session_configure(opts, train, test, &s->program, &s->config);
    for (int i = 0; i < 2; i++) s->config.given[i] = fr_dataset_retain(s->config.given[i]);
    s->config.listener = (fri_listener){NULL, embedded_said, s};
    s->run = (fri_run){.config = &s->config, .at.saved_step = -1, .numbers.loss = NAN, .tested = FRI_NOT_TESTED};
    s->until = INT64_MAX;
    s->epoch_ended = -1;
    if (status == FR_OK) status = start_run(s);
    if (status == FR_ENOMEM && opts->smallest_budget != NULL) *opts->smallest_budget = s->run.memory.fit.smallest;
    leave_scope(s, was);
    if (status == FR_OK) {
        fr_session_release(out);
        *out = s;
        s = NULL;
    }
    fr_session_release(&s);
    return fri_speak_of_fields(status);
}

void fr_session_release(fr_session **session) {
    if (session == NULL || *session == NULL) return;
    fr_session *s = *session;
    *session = NULL;
    scope was = enter_scope();
    if (s->run.pool != NULL) (void)fr_pool_begin(s->run.pool, &s->run.no_pool);
    fri_views_end(&s->views);
    if (s->config.opts.memory.offload != NULL) fr_offload_close();
    fri_run_end(&s->run); /* also ends the pool */
    for (int i = 0; i < 2; i++) fr_dataset_release(&s->config.given[i]);
    leave_scope(s, was);
    free(s);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* Ends a run after the last step, as a trainer does. */
static fr_status finish_run(fr_session *s) {
    fri_run *r = &s->run;
    FRI_TRY(fri_run_emit(r, FR_RUN_STEPS_END));
    FRI_TRY(fri_weights_end(r));
    fri_train_arena_end(r);
    s->finished = true;
    return fri_run_emit(r, FR_RUN_END);
}

fr_status fr_session_run_steps(fr_session *session, int64_t steps) {
    if (session == NULL) return fr_fail(FR_EINVAL, "fr_session_run_steps: session is NULL");
    fr_session *s = session;
    fri_run *r = &s->run;
    int64_t all = fri_steps_total(r->config);
    if (steps < 1) return fr_fail(FR_EINVAL, "session_run_steps: %lld steps; at least 1 is needed", (long long)steps);
    if (s->failed < 0)
        return fr_fail(FR_EUSAGE, "session_run_steps: an earlier call failed (%s)", fr_status_name(s->failed));
    if (s->finished) return FR_OK;
    scope was = enter_scope();
    fr_status status = enter_again(s);
    if (status < 0) return status;
    s->until = steps < all - r->at.step ? r->at.step + steps : all;
    s->asked = false;
    r->at.signal = 0;
    status = fri_train_loop(r);
    if (status == FR_OK && fri_run_finished(r)) status = finish_run(s);
    if (status < 0) s->failed = status;
    atomic_store_explicit(&s->cancel, false, memory_order_relaxed);
    leave_scope(s, was);
    return status < 0 ? fri_speak_of_fields(status) : FR_OK;
}

fr_status fr_session_run(fr_session *session) {
    if (session == NULL) return fr_fail(FR_EINVAL, "fr_session_run: session is NULL");
    return fr_session_run_steps(session, INT64_MAX);
}

fr_module *fr_session_module(const fr_session *session) {
    return session != NULL ? session->run.net.model : NULL;
}

/* ---- export -------------------------------------------------------------------------------------------------- */

/* Writes the model; in the middle of a training with EMA, the averages. */
static fr_status export_model(fr_session *s, const char *path) {
    const bool swap = s->config.opts.optim.ema > 0 && !s->finished;
    if (swap) FRI_TRY(fri_swap_averages(&s->run));
    fr_status status = fri_weights_write(&s->run, path);
    return swap && fri_swap_averages(&s->run) < 0 ? FR_EINTERNAL : status;
}

fr_status fr_session_export(fr_session *session, const char *path) {
    FRI_NOT_NULL(session, path);
    if (session->inside) return export_model(session, path);
    scope was = enter_scope();
    fr_status status = enter_again(session);
    if (status == FR_OK) status = export_model(session, path);
    leave_scope(session, was);
    return status;
}

fr_status fr_session_input(const fr_session *session, fr_loader_opts *out) {
    FRI_NOT_NULL(session, out);
    fr_loader_opts as;
    fri_data_loader_opts(&session->config, FR_SPLIT_TEST, &as);
    *out = fr_loader_opts_default();
    out->channels = as.channels;
    out->height = as.height;
    out->width = as.width;
    memcpy(out->mean, as.mean, sizeof as.mean);
    memcpy(out->std, as.std, sizeof as.std);
    return FR_OK;
}
