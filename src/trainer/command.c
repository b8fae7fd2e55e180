/* command.c - the run of a training program, from options to exit status. */
#include "trainer/command.h"

#include "session/driver.h"
#include "session/fit.h"
#include "session/flags.h"
#include "session/prepare.h"
#include "session/state.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static fr_status run_plan(fri_run *r) {
    FRI_TRY(fri_weights_check(r));
    if (r->config->opts.plan > FR_TRAIN_PLAN_PEAK) return fri_plan_all(r->config);
    fri_switch_notes(r);
    return fri_plan_command(r);
}

static fr_status run_steps(fri_run *r) {
    fri_calibration *calibration = NULL;
    fr_status s = FR_OK;
    fri_switch_notes(r);
    FR_TRY(s, fri_run_setup(r, &calibration));
    FR_TRY(s, fri_train_loop(r));
    FR_TRY(s, fri_run_emit(r, FR_RUN_STEPS_END));
    FR_TRY(s, fri_weights_end(r));
done:
    if (s == FR_OK) return fri_calibration_end(r->config, &calibration, r->at.signal == 0);
    (void)fri_calibration_end(r->config, &calibration, false);
    return s;
}

static fr_status run_training(fri_run *r, const fr_train_shell *shell) {
    r->interrupted = shell->interrupted;
    r->interrupted_ctx = shell->ctx;
    if (shell->training != NULL) shell->training(shell->ctx, true);
    fr_status s = run_steps(r);
    if (shell->training != NULL) shell->training(shell->ctx, false);
    fri_train_arena_end(r);
    if (s == FR_OK) s = fri_ranks_report(r);
    return s == FR_OK ? fri_run_emit(r, FR_RUN_END) : s;
}

/* Summary and plan replace all other commands; prediction replaces training. */
static fr_status run_command(fri_run *r, const fr_train_shell *shell) {
    const fr_train_opts *o = &r->config->opts;
    if (o->summary) FRI_TRY(fri_summary_command(r));
    if (o->plan) return run_plan(r);
    if (o->summary) return FR_OK;
    return o->files.predict != NULL ? fri_predict_command(r) : run_training(r, shell);
}

/* Flushes the output and reports a failure. */
static fr_status flush_output(FILE *out) {
    if (fflush(out) != 0) return fr_fail(FR_EIO, "standard output cannot be written: %s", strerror(errno));
    return ferror(out) ? fr_fail(FR_EIO, "standard output cannot be written: a part of it is lost") : FR_OK;
}

/* Prints advice after a failed run, whose error is already printed. Exhausted host memory leaves no room for dry
 * runs. */
static void print_advice(const fri_run *r, FILE *err) {
    if (strstr(fr_last_error(), "host memory") != NULL) return;
    /* Dry runs allocate on meta, where a limit would stop them. */
    if (r->config->opts.device == FR_META) (void)fr_memory_limit_set(FR_META, SIZE_MAX);
    if (fri_advise(r->config, err) < 0) fprintf(err, "  no advice: %s\n", fr_last_error());
}

int fr_train_run(const fr_train_program *p, int argc, char *const *argv, const fr_train_shell *shell) {
    if (p == NULL || shell == NULL || (argv == NULL && argc > 0)) {
        (void)fr_fail(FR_EINVAL, "fr_train_run: %s is NULL", p == NULL ? "program" : shell == NULL ? "shell" : "argv");
        return 2;
    }
    fri_config config = {.program = p,
                         .opts = p->defaults,
                         .argc = argc,
                         .argv = argv,
                         .out = shell->out,
                         .err = shell->err,
                         .listener = {&fri_progress_view, fri_progress_said, &config}};
    const fr_train_opts *o = &config.opts;
    fri_run r = {.config = &config, .at.saved_step = -1, .numbers.loss = NAN, .tested = FRI_NOT_TESTED};
    fri_views *views = NULL;
    fr_status s = fri_flags_check(p);
    if (s == FR_OK) s = shell->read(shell->ctx, &config.opts);
    if (s == FR_OK) s = fri_places_check(p, o);
    if (s == FR_OK) s = fri_ranks_begin(&config);
    const bool table = o->plan == FR_TRAIN_PLAN_SWITCHES; /* prepares a run for each row itself */
    if (s == FR_OK) s = table ? fri_switches_command(&config) : fri_run_prepare(&config, &r, &views);
    if (s == FR_OK && !table) fri_ranks_note(&r);
    r.watcher = (fri_run_watcher){fri_views_event, views};
    const int failure = s == FR_EINVAL ? 2 : 1; /* 2: wrong flags; 1: failure of the run */
    const bool advises = s < 0 || o->plan || (!o->summary && o->files.predict == NULL);
    if (s == FR_OK && !table) s = run_command(&r, shell);
    if (s >= 0) s = flush_output(shell->out);
    if (s < 0) fri_ranks_failed(&r, s, shell->err);
    if (s == FR_ENOMEM && advises && config.ranks < 2) print_advice(&r, shell->err);
    fri_views_end(&views);
    fri_run_end(&r);
    fr_offload_close();
    if (config.comm != NULL) config.rank_calls->release(&config.comm);
    if (config.out != shell->out) fclose(config.out);
    return s < 0 ? failure : r.at.signal != 0 ? 128 + r.at.signal : 0;
}
