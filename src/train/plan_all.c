/* plan_all.c - --plan --all: every combination of switches and equal segments, and fitted budgets between the smallest
 * and the largest of them, each a dry run; a star where no other line needs less of both memory and time. */
#include "base/status.h"
#include "memory/report.h"
#include "train/fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 256, BUDGETS = 8, TEXT_BYTES = 96 };

typedef struct line {
    char flags[TEXT_BYTES]; /* to add to the command, after --all-off */
    size_t allocated, reserved;
    double seconds;
    bool best;
} line;

typedef struct table {
    const fri_run *run;
    line lines[MOST_LINES];
    int n;
} table;

static void mention(char text[TEXT_BYTES], bool on, const char *flag) {
    size_t at = strlen(text);
    if (on) snprintf(text + at, TEXT_BYTES - at, "%s%s", at > 0 ? " " : "", flag);
}

/* A dry run by o, and how long its step would take. */
static fr_status add_line(table *t, const fr_train_opts *o, const char *flags) {
    fri_train_plan p = {0};
    fr_fit_clock *clock = NULL;
    double seconds = 0;
    if (t->n == MOST_LINES) return FR_OK;
    fr_status s = fr_fit_clock_begin(o->device, &clock);
    if (s < 0) return s;
    s = fri_plan_run(t->run, o, &p);
    fr_fit_clock_end(&clock, &seconds);
    if (s < 0) return s;
    line *l = &t->lines[t->n++];
    const fr_memory_stats *m = p.training.peak_allocated > p.evaluation.peak_allocated ? &p.training : &p.evaluation;
    *l = (line){.allocated = m->peak_allocated, .reserved = fri_planned_reserved(&p), .seconds = seconds};
    snprintf(l->flags, sizeof l->flags, "%s", flags);
    fri_train_plan_release(&p);
    return FR_OK;
}

/* The four lossless switches by the bits of i. */
static fr_status combinations(table *t, const fr_train_opts *base, int64_t segments) {
    fr_status s = FR_OK;
    for (int i = 0; i < 16 && s == FR_OK; i++) {
        fr_train_opts o = *base;
        char flags[TEXT_BYTES] = "", count[48] = "";
        o.switches.inplace = i & 1;
        o.switches.encode = i & 2;
        o.switches.early_release = i & 4;
        o.switches.rebuild = i & 8;
        if (segments > 1) o.checkpoint_segments = segments;
        mention(flags, o.switches.inplace, "--inplace");
        mention(flags, o.switches.encode, "--encode");
        mention(flags, o.switches.early_release, "--early-release");
        mention(flags, o.switches.rebuild, "--rebuild");
        snprintf(count, sizeof count, "--checkpoint-segments %" PRId64, segments);
        mention(flags, segments > 1, count);
        s = add_line(t, &o, flags);
    }
    return s;
}

/* Fitted plans between the smallest budget and what the fastest line reserves. */
static fr_status budgets(table *t, const fr_train_opts *base, size_t most) {
    fr_fit fit = {0};
    fr_train_opts o = *base;
    fr_status s = FR_OK;
    o.switches = t->run->opts.switches;
    FR_TRY(s, fri_fit_find(t->run, &o, 1, false, &fit));
    size_t least = fit.smallest;
    for (int k = 0; k <= BUDGETS && least <= most && t->n < MOST_LINES; k++) {
        size_t budget = least + (most - least) / BUDGETS * (size_t)k;
        fr_fit_release(&fit);
        FR_TRY(s, fri_fit_find(t->run, &o, budget, false, &fit));
        if (!fit.fits) continue;
        line *l = &t->lines[t->n++];
        *l = (line){.allocated = fit.memory.peak_allocated,
                    .reserved = fit.memory.peak_reserved,
                    .seconds = fit.seconds};
        snprintf(l->flags, sizeof l->flags, "--memory-budget %zu", budget);
    }
done:
    fr_fit_release(&fit);
    return s;
}

static int smaller_first(const void *a, const void *b) {
    const line *x = a, *y = b;
    if (x->reserved != y->reserved) return (x->reserved > y->reserved) - (x->reserved < y->reserved);
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Lines are sorted by memory: one is best if it is faster than all before it. */
static void mark(table *t) {
    double fastest = INFINITY;
    for (int i = 0; i < t->n; i++) {
        t->lines[i].best = t->lines[i].seconds < fastest;
        if (t->lines[i].best) fastest = t->lines[i].seconds;
    }
}

static fr_status print(const table *t, double off, double seconds) {
    FILE *out = t->run->out;
    fprintf(out, "  %15s %15s %8s  %s\n", "reserved", "allocated", "time", "flags (after --all-off, or a budget)");
    for (int i = 0; i < t->n; i++) {
        const line *l = &t->lines[i];
        fprintf(out, "%c %15zu %15zu %8.3f  %s\n", l->best ? '*' : ' ', l->reserved, l->allocated,
                off > 0 ? l->seconds / off : 1, l->flags[0] ? l->flags : "(none)");
    }
    fprintf(out, "%d dry runs and fits in %.2f s; bytes at the peak, predicted time of a step relative to --all-off\n",
            t->n, seconds);
    return fflush(out) == 0 ? FR_OK : fri_fail(FR_EIO, "--plan --all: standard output cannot be written");
}

fr_status fri_plan_all(fri_run *r) {
    table *t = calloc(1, sizeof *t);
    fr_train_opts base = r->opts;
    fr_status s = FR_OK;
    int units = 0;
    double began = fri_seconds_now();
    if (t == NULL) return fri_fail(FR_ENOMEM, "--plan --all: out of host memory");
    t->run = r;
    base.switches = fr_switches_all_off();
    base.switches.workspace_limit = r->opts.switches.workspace_limit;
    base.switches.pool_index = r->opts.switches.pool_index;
    base.checkpoint_segments = FR_TRAIN_AUTO;
    base.unit_plan = NULL;
    base.memory_limit = SIZE_MAX;
    FR_TRY(s, fri_fit_units(r, &units));
    FR_TRY(s, combinations(t, &base, 1));
    double off = t->lines[0].seconds;
    size_t most = t->lines[0].reserved;
    for (int64_t segments = 2; segments <= units && segments <= 16; segments += segments < 4 ? 1 : segments / 2)
        FR_TRY(s, combinations(t, &base, segments));
    FR_TRY(s, budgets(t, &base, most));
    qsort(t->lines, (size_t)t->n, sizeof *t->lines, smaller_first);
    mark(t);
    s = print(t, off, fri_seconds_now() - began);
done:
    free(t);
    return s;
}
