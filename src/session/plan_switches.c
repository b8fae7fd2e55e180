/* plan_switches.c - fr_plan_switches: a training planned under each memory switch, from all off to the smallest budget.
 *
 * Each row is prepared as a command with the row's flags (prepare.c), so both have the same plan. */
#include "session/plan_switches.h"

#include "session/arena.h"
#include "session/driver.h"
#include "session/dry.h"
#include "session/flags.h"
#include "session/prepare.h"
#include "session/state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct kind {
    const char *name, *flag; /* flag: added to --all-off, or to the defaults; NULL: nothing is added */
    int64_t value;           /* of a number or choice */
    bool defaults, amp;      /* amp: --amp is added, too */
} kind;

static const kind switch_kinds[] = {
    {"everything off, as PyTorch"},
    {"in-place ops", "inplace"},
    {"encodings: 1 bit per relu", "encode"},
    {"rebuild of norms and relus", "rebuild"},
    {"early release", "early-release"},
    {"in-place ABN", "inplace-abn"},
    {"fused optimizer step", "fused-step", FR_TRAIN_FUSED_ON},
    {"offload to a file", "offload"},
    {"checkpointing, 2 segments", "checkpoint-segments", 2},
    {"checkpointing, 4 segments", "checkpoint-segments", 4},
    {"checkpointing, sqrt", "checkpoint-segments", FR_TRAIN_SQRT},
    {"checkpointing, log", "checkpoint-segments", FR_TRAIN_LOG},
    {"checkpointing, each unit", "checkpoint-segments", FR_TRAIN_EACH},
    {"one batch in 4 parts", "split-batch", 4},
    {"accumulation, 4 x 1/4 batch", "accumulate", 4},
    {"mixed precision, loss scaling", "amp", FR_TRAIN_AMP_FP16},
    {"4 segments, AMP", "checkpoint-segments", 4, .amp = true},
    {"defaults", NULL, 0, true},
    {"defaults, mixed precision", "amp", FR_TRAIN_AMP_FP16, true},
    {"defaults, 4 segments", "checkpoint-segments", 4, true},
    {"defaults, 4 segments, AMP", "checkpoint-segments", 4, true, .amp = true},
    {"defaults, checkpointing, log", "checkpoint-segments", FR_TRAIN_LOG, true},
    {"the smallest budget", "memory-budget", 1, true}, /* nothing fits, and the error knows what would */
};
enum { SWITCH_KINDS = sizeof switch_kinds / sizeof *switch_kinds };
_Static_assert((int)SWITCH_KINDS == (int)FR_PLAN_SWITCH_ROWS, "room for all rows");

/* ---- options of a row ------------------------------------------------------------------------------------------- */

static void set_flag(const fr_flag *f, int64_t value, fr_train_opts *o) {
    void *to = fr_flag_place(f, o);
    if (f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET) *(bool *)to = true;
    if (f->kind == FR_FLAG_CHOICE) *(int *)to = (int)value;
    if (f->kind == FR_FLAG_INT) *(int64_t *)to = value;
    if (f->kind == FR_FLAG_SIZE) *(size_t *)to = (size_t)value;
    if (f->kind == FR_FLAG_TEXT) *(const char **)to = ""; /* --offload alone */
}

static void add_words(const fr_flag *f, const fr_train_opts *o, fr_plan_switch_row *row) {
    char words[FRI_FLAG_WORDS];
    const size_t at = strlen(row->flag);
    snprintf(row->flag + at, sizeof row->flag - at, "%s%s", at > 0 ? " " : "", fri_flag_words(f, o, words));
}

/* Options and words of row k; FR_EINVAL: the row cannot be. */
static fr_status options_of(const fri_config *c, const kind *k, fr_train_opts *o, fr_plan_switch_row *row) {
    const fr_train_opts defaults = c->model != NULL ? fr_session_opts_default().train : c->program->defaults;
    const fr_flag *f = k->flag != NULL ? fri_flag_find(k->flag) : NULL, *amp = fri_flag_find("amp");
    const int64_t accumulate = c->opts.memory.accumulate;
    *o = c->opts;
    *row = (fr_plan_switch_row){.name = k->name, .field = f != NULL ? f->field : NULL, .seconds = NAN, .ratio = NAN};
    o->memory = defaults.memory;
    o->memory.accumulate = accumulate;
    o->model.inplace_abn = defaults.model.inplace_abn;
    o->files = (fr_train_files){.weights = c->opts.files.weights,
                                .resume = c->opts.files.resume,
                                .save_every = FR_TRAIN_AUTO,
                                .keep = defaults.files.keep};
    o->plan = FR_TRAIN_PLAN_PEAK;
    o->summary = false;
    o->quiet = true;
    if (!k->defaults) {
        fri_flag_find("all-off")->act(o);
        add_words(fri_flag_find("all-off"), o, row);
    }
    if (f == NULL) return FR_OK;
    if ((f == amp || k->amp) && (o->precision.amp != FR_TRAIN_AMP_OFF || o->precision.half != FR_TRAIN_AMP_OFF))
        return fr_fail(FR_EINVAL, "the training computes in half precision in every row");
    if (f->offset == offsetof(fr_train_opts, model.inplace_abn) && c->model != NULL)
        return fr_fail(FR_EINVAL, "a network of your own has no other form; end its norms by fr_net_inplace_abn");
    set_flag(f, k->value, o);
    add_words(f, o, row);
    if (k->amp) {
        set_flag(amp, FR_TRAIN_AMP_FP16, o);
        add_words(amp, o, row);
    }
    if (f->offset != offsetof(fr_train_opts, memory.accumulate)) return FR_OK;
    if (accumulate > 1)
        return fr_fail(FR_EINVAL, "the training accumulates %" PRId64 " batches in every row", accumulate);
    if (o->optim.batch_size / k->value < 1)
        return fr_fail(FR_EINVAL, "a batch of %" PRId64 " has no 4 parts of whole images", o->optim.batch_size);
    o->optim.batch_size /= k->value;
    add_words(fri_flag_find("batch-size"), o, row);
    return FR_OK;
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

typedef struct trial {
    fri_config config;
    fri_run run;
    fri_views *views;
} trial;

static void nothing_said(void *ctx, fri_saying how, const char *text) {
    (void)ctx, (void)how, (void)text;
}

static fr_status trial_begin(trial *t, const fri_config *c, const fr_train_opts *o) {
    *t = (trial){.config = *c};
    t->config.opts = *o;
    t->config.argc = 0; /* the command's memory flags are not the row's */
    t->config.listener = (fri_listener){NULL, nothing_said, NULL};
    t->run = (fri_run){.config = &t->config, .at.saved_step = -1, .numbers.loss = NAN, .tested = FRI_NOT_TESTED};
    FRI_TRY(fri_run_prepare(&t->config, &t->run, &t->views));
    return fri_weights_check(&t->run);
}

static void trial_end(trial *t) {
    fri_views_end(&t->views);
    if (!t->config.opts.plan && t->config.opts.memory.offload != NULL) fr_offload_close();
    fri_train_arena_end(&t->run);
    fri_run_end(&t->run);
}

/* The smallest budget with a plan. */
static fr_status find_budget(const fri_config *c, fr_train_opts *o, fr_plan_switch_row *row) {
    trial t;
    const fr_status s = trial_begin(&t, c, o);
    o->memory.budget = t.run.memory.fit.smallest;
    trial_end(&t);
    if (s != FR_ENOMEM || o->memory.budget == 0) return s;
    row->flag[0] = '\0';
    add_words(fri_flag_find("memory-budget"), o, row);
    return FR_OK;
}

static fr_status plan_row(const fri_config *c, const fr_train_opts *o, fr_plan_switch_row *row) {
    FRI_OWNED(fri_train_plan_release) fri_train_plan p = {0};
    const fr_memory_stats *m = &p.training;
    trial t;
    fr_status s = trial_begin(&t, c, o);
    if (s == FR_OK) s = fri_train_plan_make(&t.config, SIZE_MAX, &p);
    trial_end(&t);
    if (s < 0) return s;
    row->planned = m->peak_requested;
    memcpy(row->at_peak, m->at_peak_requested, sizeof row->at_peak);
    row->step_memory = row->planned - row->at_peak[FR_MEM_PARAMETER] - row->at_peak[FR_MEM_OPTIMIZER];
    return FR_OK;
}

static fr_status measure_row(const fri_config *c, const fr_train_opts *o, int64_t rounds, fr_plan_switch_row *row) {
    fr_train_opts timed = *o;
    trial t;
    timed.plan = FR_TRAIN_PLAN_OFF;
    timed.optim.epochs = FR_TRAIN_AUTO;
    timed.optim.steps = rounds + 1;
    fr_status s = trial_begin(&t, c, &timed);
    if (s == FR_OK) s = fri_run_setup(&t.run, NULL);
    if (s == FR_OK) s = fri_train_loop(&t.run);
    if (s == FR_OK) row->seconds = fri_median_step_ms(&t.run) / 1000;
    trial_end(&t);
    return s;
}

static fr_status make_row(const fri_config *c, const kind *k, int64_t rounds, fr_plan_switch_row *row) {
    fr_train_opts o;
    FRI_TRY(options_of(c, k, &o, row));
    if (o.memory.budget != SIZE_MAX) FRI_TRY(find_budget(c, &o, row));
    FRI_TRY(plan_row(c, &o, row));
    return rounds > 0 && o.device != FR_META ? measure_row(c, &o, rounds, row) : FR_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static fr_status check_table(const fri_config *c, const fr_plan_switches_opts *o) {
    char names[1024] = "";
    bool known = o->only == NULL;
    for (int i = 0; i < SWITCH_KINDS; i++) {
        const size_t at = strlen(names);
        known = known || strcmp(o->only, switch_kinds[i].name) == 0;
        snprintf(names + at, sizeof names - at, "%s'%s'", i > 0 ? ", " : "", switch_kinds[i].name);
    }
    if (!known) return fr_fail(FR_EINVAL, "plan_switches: there is no row '%s'; rows are %s", o->only, names);
    if (o->rounds < 0) return fr_fail(FR_EINVAL, "plan_switches: %" PRId64 " rounds; at least 0", o->rounds);
    return c->ranks > 1 ? fr_fail(FR_EINVAL, "--plan=switches on several ranks: plan one process") : FR_OK;
}

fr_status fri_plan_switches(const fri_config *c, const fr_plan_switches_opts *opts, fr_plan_switch_row *rows,
                            int64_t room, int64_t *n) {
    const fr_switches switches = fr_switches_get();
    const fr_rng rng = fr_rng_get();
    const int threads = fr_threads_get();
    *n = 0;
    fr_status s = check_table(c, opts);
    for (int i = 0; i < SWITCH_KINDS && s == FR_OK; i++) {
        fr_plan_switch_row *row = &rows[*n];
        if (i > 0 && opts->only != NULL && strcmp(opts->only, switch_kinds[i].name) != 0) continue;
        s = *n < room ? make_row(c, &switch_kinds[i], opts->rounds, row)
                      : fr_fail(FR_EUSAGE, "plan_switches: room for %" PRId64 " rows; there are more", room);
        if (i > 0 && (s == FR_EINVAL || s == FR_EUNSUPPORTED)) {
            if (c->model != NULL) (void)fri_speak_of_fields(s);
            snprintf(row->reason, sizeof row->reason, "%s", fr_last_error());
            row->planned = 0;
            s = FR_OK;
        } else if (s == FR_OK) {
            row->ratio = (double)row->step_memory / (double)rows[0].step_memory;
        }
        if (s == FR_OK) ++*n;
    }
    fr_switches_set(switches);
    fr_rng_set(rng);
    if (fr_threads_get() != threads) (void)fr_threads_set(threads);
    return s;
}

fr_status fr_plan_switches(const fr_session_opts *o, fr_dataset *train, const fr_plan_switches_opts *opts,
                           fr_plan_switch_row *rows, int64_t room, int64_t *n) {
    FRI_NOT_NULL(o, train, rows, n);
    const fr_plan_switches_opts with = opts != NULL ? *opts : fr_plan_switches_opts_default();
    fr_train_program program;
    fri_config c;
    *n = 0;
    fr_status s = fri_session_check(o);
    if (s < 0) return fri_speak_of_fields(s);
    s = fri_session_configure(o, train, NULL, &program, &c);
    if (s == FR_OK) s = fri_plan_switches(&c, &with, rows, room, n);
    return s < 0 ? fri_speak_of_fields(s) : FR_OK;
}
