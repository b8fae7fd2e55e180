/* commands.c - see commands.h. */
#include "cli/commands.h"

#include "session/fit.h"
#include "session/prepare.h"

#include <string.h>

static fr_status run_plan(fri_session *r) {
    if (r->config->opts.plan > FR_TRAIN_PLAN_PEAK) return fri_plan_all(r->config);
    fri_switch_notes(r);
    return fri_plan_command(r);
}

static fr_status run_steps(fri_session *r) {
    fri_calibration *calibration = NULL;
    fr_status s = FR_OK;
    fri_switch_notes(r);
    FR_TRY(s, fri_run_setup(r, &calibration));
    FR_TRY(s, fri_train_go_on(r));
    FR_TRY(s, fri_run_emit(r, FR_RUN_STEPS_END));
    FR_TRY(s, fri_weights_end(r));
done:
    if (s == FR_OK) return fri_calibration_end(r->config, &calibration, r->at.signal == 0);
    (void)fri_calibration_end(r->config, &calibration, false);
    return s;
}

static fr_status run_training(fri_session *r) {
    r->interrupted = fri_signal_seen;
    fri_signals_begin();
    fr_status s = run_steps(r);
    fri_signals_end();
    fri_train_arena_end(r);
    if (s == FR_OK) s = fri_ranks_report(r);
    return s == FR_OK ? fri_run_emit(r, FR_RUN_END) : s;
}

enum { SUMMARY, PLAN, PREDICT, TRAIN, EXPORT, COMMANDS };
const fri_command fri_commands[] = {
    [SUMMARY] = {"summary", "--summary", NULL, "Print a line per layer; nothing is trained.", "Print a line per layer",
                 fri_summary_command},
    [PLAN] = {"plan", "--plan", NULL, "Print the exact memory that training would need; nothing is trained.",
              "Print the memory it would need, to the byte", run_plan, true},
    [PREDICT] = {"predict", "--predict", "IMAGE...", "Print the likeliest classes of image files; nothing is trained.",
                 "Print the likeliest classes of images", fri_predict},
    [TRAIN] = {"train", NULL, NULL, "Train; without a command, too.", "Train; so does no command", run_training, true},
    [EXPORT] = {"export", "--export", "FILE", "Train, and write the weights at the end.",
                "Train, and write the weights at the end"},
};
const int fri_commands_count = COMMANDS;

const fri_command *fri_command_find(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(fri_commands[i].name, name) == 0) return &fri_commands[i];
    return NULL;
}

/* Runs the requested commands in order. Summary and plan replace all others; prediction replaces training. */
fr_status fri_commands_run(fri_session *r, bool *advises) {
    const fr_train_opts *o = &r->config->opts;
    const bool dry = o->summary || o->plan, predict = !dry && o->files.predict != NULL;
    const bool asked[COMMANDS] =
        {[SUMMARY] = o->summary, [PLAN] = o->plan, [PREDICT] = predict, [TRAIN] = !dry && !predict};
    fr_status s = FR_OK;
    for (int i = 0; i < COMMANDS && s == FR_OK; i++) {
        if (!asked[i]) continue;
        *advises = fri_commands[i].advises;
        s = fri_commands[i].run(r);
    }
    return s;
}
