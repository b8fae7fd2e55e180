/* advise.c - after FR_ENOMEM: suggests flags with which the command fits.
 *
 * Each suggestion is tested by a dry run of the command with the flags added, under the run's limit. "fits" means
 * that the dry run ended, so the real run will too; the printed peak is exact to the byte. */
#include "trainer/command.h"

#include "plan/section.h"
#include "session/fit.h"

#include <inttypes.h>
#include <string.h>

typedef struct adviser {
    const fri_config *config;
    size_t limit;
    FILE *out;
    int fitting; /* lines that fit */
} adviser;

static void print_trial(adviser *a, bool fits, size_t reserved, const char *flags) {
    char text[FR_BYTES_TEXT];
    fprintf(a->out, "  %s %-44s peak %s (%zu bytes reserved)\n", fits ? "fits:        " : "does not fit:", flags,
            fr_bytes_text(reserved, text), reserved);
    a->fitting += fits;
}

/* Dry run of options o in place of the run's, printed as one line of advice. */
static fr_status try_flags(adviser *a, const fr_train_opts *o, const char *flags) {
    fri_config trial = *a->config;
    fri_trial tried;
    trial.opts = *o;
    FRI_TRY(fri_try(&trial, a->limit, true, &tried));
    print_trial(a, tried.fits, tried.reserved, flags);
    return FR_OK;
}

static bool budget_chooses(const fri_config *c) {
    return c->opts.memory.budget != SIZE_MAX && c->opts.memory.fit_switches;
}

/* Turns on all switches but offload. */
static fr_status advise_switches(adviser *a) {
    fr_train_opts o = a->config->opts;
    char flags[128] = "";
    const fri_switch *w = NULL;
    bool more = false;
    for (int i = 0; (w = fri_switch_at(i)) != NULL && w->cost != FRI_SWITCH_MOVE; i++) {
        bool *on = fri_switch_field(w, &o.memory.switches);
        if (!w->saves) continue;
        more = more || !*on;
        *on = true;
        size_t at = strlen(flags);
        snprintf(flags + at, sizeof flags - at, "%s--%s", at > 0 ? " " : "", w->name);
    }
    return more ? try_flags(a, &o, flags) : FR_OK;
}

/* Number of equal checkpoint segments with the lowest peak. */
static fr_status advise_segments(adviser *a) {
    char flags[64];
    fri_config trial = *a->config;
    int64_t best = 0;
    size_t least = SIZE_MAX;
    fri_trial tried;
    int units = 0;
    FRI_TRY(fri_model_units(&trial, &units));
    for (int64_t k = 2; k <= units && k <= 32; k++) {
        trial.opts.memory.checkpoint_segments = k;
        FRI_TRY(fri_try(&trial, SIZE_MAX, false, &tried));
        if (tried.reserved >= least) continue;
        least = tried.reserved;
        best = k;
    }
    if (best == 0) return FR_OK;
    trial.opts.memory.checkpoint_segments = best;
    snprintf(flags, sizeof flags, "--checkpoint-segments %" PRId64, best);
    return try_flags(a, &trial.opts, flags);
}

/* Runs the budget search for these options and prints whether the limit suffices. */
static fr_status say_fit(adviser *a, const fri_config *c, const char *flags) {
    FRI_OWNED(fr_fit_release) fr_fit fit = {0};
    char text[96];
    fr_status s = fri_fit_find(c, a->limit, false, &fit);
    size_t bytes = fit.fits ? fit.memory.peak_reserved : fit.smallest;
    if (flags == NULL) /* last in the command, so an earlier --all-off changes nothing */
        snprintf(text, sizeof text, "--memory-budget %zu", fit.fits ? a->limit : fit.smallest);
    if (s == FR_OK) print_trial(a, fit.fits, bytes, flags != NULL ? flags : text);
    return s;
}

/* Largest batch that fits with the command's flags. --memory-budget chooses switches anew for each batch size. */
static fr_status advise_batch(adviser *a) {
    fri_config trial = *a->config;
    fr_train_opts *o = &trial.opts;
    char flags[64];
    const bool choose = budget_chooses(a->config);
    o->memory.unit_plan = NULL;
    fr_status s = fri_fit_largest_batch(&trial, a->limit, choose, &o->optim.batch_size);
    if (s < 0 || o->optim.batch_size == 0 || o->optim.batch_size >= a->config->opts.optim.batch_size) return s;
    snprintf(flags, sizeof flags, "--batch-size %" PRId64, o->optim.batch_size);
    return choose ? say_fit(a, &trial, flags) : try_flags(a, o, flags);
}

/* Prints the command's peak and its floor. Only a smaller largest op can lower the floor. */
static fr_status say_needs(const adviser *a) {
    char peak[FR_BYTES_TEXT], floor[FR_BYTES_TEXT], op[FR_BYTES_TEXT];
    fri_train_plan p = {0};
    FRI_TRY(fri_train_plan_make(a->config, SIZE_MAX, &p));
    fprintf(a->out, "this command needs %s; its floor (parameters, optimizer state and the largest op, %s) is %s\n",
            fr_bytes_text(p.training.peak_allocated, peak), fr_bytes_text(fri_plan_largest_op(p.plan), op),
            fr_bytes_text(fri_plan_floor(p.plan), floor));
    fri_train_plan_release(&p);
    return FR_OK;
}

fr_status fri_advise(const fri_config *c, FILE *out) {
    adviser a = {.config = c, .limit = c->opts.memory.limit, .out = out};
    fr_memory_stats now;
    char text[FR_BYTES_TEXT];
    if (a.limit == SIZE_MAX) {
        FRI_TRY(fr_memory_stats_get(c->opts.device, &now));
        a.limit = now.reserved;
    }
    FRI_TRY(say_needs(&a));
    fprintf(out, "what would fit into %s; each line is a dry run of this command with these flags added:\n",
            fr_bytes_text(a.limit, text));
    if (!budget_chooses(c)) { /* which has tried all of these, and its sentence names the smallest budget */
        FRI_TRY(advise_switches(&a));
        if (c->opts.memory.checkpoint_segments == FR_TRAIN_AUTO) FRI_TRY(advise_segments(&a));
        FRI_TRY(say_fit(&a, c, NULL));
    }
    FRI_TRY(advise_batch(&a));
    if (a.fitting == 0) fprintf(out, "  nothing tried fits, not even one image a step\n");
    return FR_OK;
}
