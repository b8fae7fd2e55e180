/* plan_all.c - --plan=all: dry runs of every combination of switches and equal segments, and of fitted budgets
 * between the smallest and the largest combination. Printed are the Pareto-optimal runs (no run is better in both
 * memory and time) and the run with all switches off; --plan=every prints all and marks the optimal ones with a
 * star. */
#include "trainer/command.h"

#include "plan/calibration.h"
#include "session/fit.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 256, BUDGETS = 8, TEXT_BYTES = 96 };

typedef struct line {
    char flags[TEXT_BYTES]; /* flags to add to the command after --all-off */
    size_t allocated, reserved;
    double seconds;
    bool best;
} line;

typedef struct table {
    const fri_config *config;
    line lines[MOST_LINES];
    int n;
} table;

/* Adds a dry run and the predicted time of its step. */
static fr_status add_line(table *t, const fri_config *c, const char *flags) {
    fri_trial trial;
    fri_fit_clock *clock = NULL;
    double seconds = 0;
    if (t->n == MOST_LINES) return FR_OK;
    fr_status s = fri_fit_clock_begin(c->opts.device, &clock);
    if (s < 0) return s;
    s = fri_try(c, SIZE_MAX, false, &trial);
    fri_fit_clock_end(&clock, &seconds);
    if (s < 0) return s;
    line *l = &t->lines[t->n++];
    *l = (line){.allocated = trial.allocated, .reserved = trial.reserved, .seconds = seconds};
    snprintf(l->flags, sizeof l->flags, "%s", flags);
    return FR_OK;
}

/* Adds every combination of the first n switches to c and `flags`, except switches that save nothing or need a
 * file. */
static fr_status add_choices(table *t, const fri_config *c, const char *flags, int n) {
    if (n == 0) return add_line(t, c, flags);
    const fri_switch *w = fri_switch_at(n - 1);
    fr_status s = add_choices(t, c, flags, n - 1);
    if (s < 0 || !w->saves || w->cost == FRI_SWITCH_MOVE) return s;
    fri_config with = *c;
    char longer[TEXT_BYTES];
    *fri_switch_field(w, &with.opts.memory.switches) = true;
    snprintf(longer, sizeof longer, "--%s%s%s", w->name, flags[0] != '\0' ? " " : "", flags);
    return add_choices(t, &with, longer, n - 1);
}

static fr_status add_combinations(table *t, const fri_config *base, int64_t segments) {
    fri_config c = *base;
    char flags[TEXT_BYTES] = "";
    int n = 0;
    while (fri_switch_at(n) != NULL) n++;
    if (segments > 1) {
        c.opts.memory.checkpoint_segments = segments;
        snprintf(flags, sizeof flags, "--checkpoint-segments %" PRId64, segments);
    }
    return add_choices(t, &c, flags, n);
}

/* Adds fitted plans between the smallest budget and the fastest line's reserved bytes. */
static fr_status add_budgets(table *t, const fri_config *base, size_t most) {
    FRI_OWNED(fr_fit_release) fr_fit fit = {0};
    fri_config fitted = *base;
    fitted.opts.memory.switches = t->config->opts.memory.switches;
    FRI_TRY(fri_fit_find(&fitted, 1, false, &fit));
    size_t least = fit.smallest;
    for (int k = 0; k <= BUDGETS && least <= most && t->n < MOST_LINES; k++) {
        size_t budget = least + (most - least) / BUDGETS * (size_t)k;
        fr_fit_release(&fit);
        FRI_TRY(fri_fit_find(&fitted, budget, false, &fit));
        if (!fit.fits) continue;
        line *l = &t->lines[t->n++];
        *l = (line){.allocated = fit.memory.peak_allocated,
                    .reserved = fit.memory.peak_reserved,
                    .seconds = fit.seconds};
        snprintf(l->flags, sizeof l->flags, "--memory-budget %zu", budget);
    }
    return FR_OK;
}

static int smaller_first(const void *a, const void *b) {
    const line *x = a, *y = b;
    if (x->reserved != y->reserved) return (x->reserved > y->reserved) - (x->reserved < y->reserved);
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Lines are sorted by memory, so a line is optimal if it is faster than all lines before. */
static void mark_best(table *t) {
    double fastest = INFINITY;
    for (int i = 0; i < t->n; i++) {
        t->lines[i].best = t->lines[i].seconds < fastest;
        if (t->lines[i].best) fastest = t->lines[i].seconds;
    }
}

static fr_status print_lines(const table *t, double off, double seconds) {
    FILE *out = t->config->out;
    bool every = t->config->opts.plan == FR_TRAIN_PLAN_EVERY;
    int printed = 0;
    fprintf(out, "  %15s %15s %8s  %s\n", "reserved", "allocated", "time", "flags (after --all-off, or a budget)");
    for (int i = 0; i < t->n; i++) {
        const line *l = &t->lines[i];
        if (!every && !l->best && l->flags[0] != '\0') continue;
        fr_fprintf(out, "%c %15zu %15zu %8.3f  %s\n", l->best ? '*' : ' ', l->reserved, l->allocated,
                   off > 0 ? l->seconds / off : 1, l->flags[0] ? l->flags : "(none)");
        printed++;
    }
    fr_fprintf(out,
               "%d dry runs and fits in %.2f s; bytes at the peak, predicted time of a step relative to --all-off\n",
               t->n, seconds);
    if (!every)
        fprintf(out, "%d of them need more memory and time than a line above; --plan=every prints them\n",
                t->n - printed);
    return fflush(out) == 0 ? FR_OK : fr_fail(FR_EIO, "--plan=all: standard output cannot be written");
}

fr_status fri_plan_all(const fri_config *c) {
    FRI_OWNED(fri_free) table *t = calloc(1, sizeof *t);
    fri_config base = *c;
    fr_train_opts *o = &base.opts;
    int units = 0;
    double began = fri_seconds_now();
    if (t == NULL) return fr_fail(FR_ENOMEM, "--plan=all: out of host memory");
    t->config = c;
    o->memory.switches = fr_switches_all_off();
    o->memory.switches.workspace_limit = c->opts.memory.switches.workspace_limit;
    o->memory.switches.pool_index = c->opts.memory.switches.pool_index;
    o->memory.checkpoint_segments = FR_TRAIN_AUTO;
    o->memory.unit_plan = NULL;
    o->memory.fused_step = FR_TRAIN_FUSED_OFF;
    FRI_TRY(fri_model_units(c, &units));
    FRI_TRY(add_combinations(t, &base, 1));
    double off = t->lines[0].seconds;
    size_t most = t->lines[0].reserved;
    for (int64_t segments = 2; segments <= units && segments <= 16; segments += segments < 4 ? 1 : segments / 2)
        FRI_TRY(add_combinations(t, &base, segments));
    FRI_TRY(add_budgets(t, &base, most));
    qsort(t->lines, (size_t)t->n, sizeof *t->lines, smaller_first);
    mark_best(t);
    return print_lines(t, off, fri_seconds_now() - began);
}
