/* finder.c - for one partition of a model: from dry runs to the fastest plan that fits.
 *
 * 1. Dry runs with every unit saving in one way, and with every unit recomputed, give the chain (measure.c).
 * 2. The dynamic programme (chain.c) solves it for all amounts of memory at once. Its amount of memory is only a knob:
 *    the model rounds and adds what a run may overlap. Bisection over the knob, a dry run under the budget at each
 *    step, finds the fastest plan within the budget.
 * 3. If none fits, the plans at the lower end of the knob are tried under smaller and larger limits: the smallest limit
 *    under which a plan runs is the smallest budget. The limits do not depend on the budget, so a run with the smallest
 *    budget fits. */
#include "plan/finder.h"

#include "base/status.h"
#include "plan/calibration.h"
#include "plan/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_STEP = 2 << 20 }; /* no segment of the allocator is smaller */

typedef struct candidate {
    fr_unit_option *option; /* [units] */
    fr_unit_range *range;   /* [units] */
    int ranges;
    fr_memory_stats memory;
    double seconds;
    bool ok; /* a dry run succeeded, with the memory and seconds below */
} candidate;

typedef struct finder {
    fr_fit_run_fn *run;
    void *ctx;
    const fr_fit_opts *opts;
    fri_cost *cost;
    int units, *first; /* [units]: the first layer of each */
    fri_partition partition;
    int dry_runs;
    fri_step_trace trace[FR_UNIT_OPTIONS], recompute;
    fri_step_trace apart[2]; /* rebuild in units of a single parity, inside in the rest */
    fri_chain_unit *unit;    /* [units] */
    fri_chain chain;         /* merged */
    int *group;              /* [units] */
    candidate best, smallest, trial;
    candidate last; /* tried before */
    bool any;       /* `last` has a plan */
} finder;

/* ---- candidates -------------------------------------------------------------------------------------------- */

static fr_status candidate_create(candidate *c, int units) {
    *c = (candidate){.option = calloc((size_t)units, sizeof *c->option),
                     .range = calloc((size_t)units, sizeof *c->range)};
    return c->option != NULL && c->range != NULL ? FR_OK : fr_fail(FR_ENOMEM, "fit: out of host memory");
}

static void candidate_free(candidate *c) {
    free(c->option);
    free(c->range);
    *c = (candidate){0};
}

static void candidate_copy(candidate *to, const candidate *from, int units) {
    memcpy(to->option, from->option, (size_t)units * sizeof *to->option);
    memcpy(to->range, from->range, (size_t)from->ranges * sizeof *to->range);
    to->ranges = from->ranges;
    to->memory = from->memory;
    to->seconds = from->seconds;
    to->ok = from->ok;
}

static bool same_plan(const candidate *a, const candidate *b, int units) {
    return a->ranges == b->ranges && memcmp(a->option, b->option, (size_t)units * sizeof *a->option) == 0 &&
           memcmp(a->range, b->range, (size_t)a->ranges * sizeof *a->range) == 0;
}

static fr_unit_plan plan_of(const finder *f, const candidate *c) {
    return (fr_unit_plan){.units = f->units,
                          .option = c->option,
                          .ranges = c->ranges,
                          .range = c->range,
                          .first = f->first};
}

/* Every unit saves by o; `each`: and forms a separate range. */
static void set_uniform(candidate *c, int units, fr_unit_option o, bool each) {
    for (int i = 0; i < units; i++) {
        c->option[i] = o;
        c->range[i] = (fr_unit_range){i, i + 1};
    }
    c->ranges = each ? units : 0;
}

/* A dry run of c under a limit. c->ok: success. */
static fr_status dry_run(finder *f, candidate *c, size_t limit) {
    fri_fit_clock *clock = NULL;
    fr_unit_plan plan = plan_of(f, c);
    FRI_TRY(fri_fit_clock_begin(f->opts->target, &clock));
    fr_status s = f->run(f->ctx, &plan, limit, &c->memory);
    fri_fit_clock_end(&clock, &c->seconds);
    f->dry_runs++;
    c->ok = s == FR_OK;
    return s == FR_ENOMEM && limit != SIZE_MAX ? FR_OK : s;
}

/* ---- measuring --------------------------------------------------------------------------------------------- */

/* c's plan without a limit, watched. */
static fr_status run_candidate(finder *f, candidate *c, fri_step_trace *out) {
    fri_observer *o = NULL;
    fr_unit_plan plan = plan_of(f, c);
    FRI_TRY(fri_observe_begin(f->cost, f->units, &o));
    fr_status s = f->run(f->ctx, &plan, SIZE_MAX, &c->memory);
    fr_status ended = fri_observe_end(&o, out);
    f->dry_runs++;
    if (s < 0) return s;
    if (ended < 0) return ended;
    if (!out->seen)
        return fr_fail(FR_EUSAGE,
                       "fit: the dry run made no training step through fr_checkpoint_plan in which all %d "
                       "units ran",
                       f->units);
    c->seconds = out->seconds;
    c->ok = true;
    return FR_OK;
}

static bool candidate_fits(const finder *f, const candidate *c) {
    return c->ok && c->memory.peak_reserved <= f->opts->budget;
}

/* Fewer seconds, then fewer bytes. */
static bool is_faster(const candidate *a, const candidate *b) {
    if (!b->ok) return true;
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    return a->memory.peak_reserved < b->memory.peak_reserved;
}

static void consider_candidate(finder *f, const candidate *c) {
    if (candidate_fits(f, c) && is_faster(c, &f->best)) candidate_copy(&f->best, c, f->units);
}

/* Unit of a layer: the last unit that begins at or before the layer. */
static int unit_of_layer(const finder *f, int layer) {
    int u = f->units - 1;
    while (u > 0 && f->first[u] > layer) u--;
    return u;
}

/* The measured units and values between units, merged if the programme would take too long. */
static fr_status make_chain(finder *f) {
    enum { FINE_MAX = 24 }; /* of a fine partition: more found no faster plans */
    fri_one_layer one;
    const fri_list *l = fri_list_of(f->opts->model, &one);
    FRI_OWNED(fri_free) fri_crossing *crossing = calloc((size_t)l->values + 1, sizeof *crossing);
    fri_chain all = {.n = f->units, .unit = f->unit, .crossing = crossing};
    if (crossing == NULL) return fr_fail(FR_ENOMEM, "fit: out of host memory");
    for (int v = l->inputs; v < l->values && f->recompute.value != NULL; v++) {
        if (l->value[v].last_layer < 0) continue;
        const fri_crossing c = {unit_of_layer(f, l->value[v].made_by), unit_of_layer(f, l->value[v].last_layer),
                                f->recompute.value[v]};
        if (c.last > c.made) crossing[all.crossings++] = c;
    }
    return fri_chain_merge(&all, f->partition == FRI_FINE_UNITS ? FINE_MAX : FRI_CHAIN_MAX, &f->chain, f->group);
}

static fr_status measure_units(finder *f, fr_fit *out) {
    int n = f->units;
    for (int o = FR_UNIT_KEEP; o < FR_UNIT_OPTIONS; o++) {
        if (!f->opts->offload && (o == FR_UNIT_OFFLOAD || o == FR_UNIT_REBUILD_OFFLOAD)) continue;
        set_uniform(&f->trial, n, (fr_unit_option)o, false);
        FRI_TRY(run_candidate(f, &f->trial, &f->trace[o]));
        consider_candidate(f, &f->trial);
        if (o == FR_UNIT_KEEP) {
            out->keep_seconds = f->trial.seconds;
            out->keep_memory = f->trial.memory;
        }
        if (f->opts->any && f->best.ok) return FR_OK;
    }
    set_uniform(&f->trial, n, FR_UNIT_ENCODE, true);
    FRI_TRY(run_candidate(f, &f->trial, &f->recompute));
    consider_candidate(f, &f->trial);
    if (f->opts->any && f->best.ok) return FR_OK;
    for (int parity = 0; parity < 2; parity++) {
        for (int i = 0; i < n; i++) f->trial.option[i] = i % 2 == parity ? FR_UNIT_REBUILD : FR_UNIT_INSIDE;
        f->trial.ranges = 0;
        FRI_TRY(run_candidate(f, &f->trial, &f->apart[parity]));
        consider_candidate(f, &f->trial);
        if (f->opts->any && f->best.ok) return FR_OK;
    }
    fri_chain_of(f->trace, &f->recompute, f->unit);
    for (int i = 0; i < n; i++) fri_chain_rebuild_of(&f->apart[i % 2], &f->trace[FR_UNIT_REBUILD], i, &f->unit[i]);
    return make_chain(f);
}

/* ---- searching --------------------------------------------------------------------------------------------- */

/* Plan for `slots` slots, over the unmerged units. */
static bool plan_at(const finder *f, const fri_solution *solution, int slots, candidate *c) {
    fr_unit_option option[FRI_CHAIN_MAX];
    fr_unit_range range[FRI_CHAIN_MAX];
    int first[FRI_CHAIN_MAX + 1], n = f->units;
    c->ok = false;
    c->ranges = fri_solution_plan(solution, slots, option, range);
    if (c->ranges < 0) {
        c->ranges = 0;
        return false;
    }
    for (int i = n - 1; i >= 0; i--) {
        first[f->group[i]] = i;
        c->option[i] = option[f->group[i]];
    }
    first[f->chain.n] = n;
    for (int r = 0; r < c->ranges; r++) c->range[r] = (fr_unit_range){first[range[r].first], first[range[r].end]};
    return true;
}

static int least_slots(const fri_solution *solution, int slots) {
    int low = 0, high = slots; /* no plan below low; a plan at high */
    if (!isfinite(fri_solution_time(solution, slots))) return -1;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (isfinite(fri_solution_time(solution, middle)))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Runs the plan for `slots` slots under the budget; *ok: it fits. f->last is the previously tried plan. */
static fr_status try_slots(finder *f, const fri_solution *solution, int slots, bool *ok) {
    int n = f->units;
    (void)plan_at(f, solution, slots, &f->trial);
    if (f->any && same_plan(&f->trial, &f->last, n)) {
        *ok = candidate_fits(f, &f->last);
        return FR_OK;
    }
    FRI_TRY(dry_run(f, &f->trial, f->opts->budget));
    candidate_copy(&f->last, &f->trial, n);
    f->any = true;
    consider_candidate(f, &f->trial);
    *ok = candidate_fits(f, &f->trial);
    return FR_OK;
}

/* Bisection, from `low` slots (the minimum with a plan), for the maximum of slots with a fitting plan. Overlap makes
 * memory not quite monotonic in the slots, so the search tries some larger plans, too. */
static fr_status bisect_budget(finder *f, const fri_solution *solution, int low, int guess) {
    const int beyond = f->partition == FRI_FINE_UNITS ? 3 : 10;
    int high = FRI_CHAIN_SLOTS;
    bool ok = false;
    while (low <= high) {
        int middle = guess >= low && guess <= high ? guess : low + (high - low) / 2;
        guess = -1;
        FRI_TRY(try_slots(f, solution, middle, &ok));
        if (ok && f->opts->any) return FR_OK;
        if (ok)
            low = middle + 1;
        else
            high = middle - 1;
    }
    for (int k = 1; k <= beyond && low <= FRI_CHAIN_SLOTS; k++, low += FRI_CHAIN_SLOTS / 60)
        FRI_TRY(try_slots(f, solution, low, &ok));
    return FR_OK;
}

static fr_status search_plans(finder *f) {
    const fri_step_trace *keep = &f->trace[FR_UNIT_KEEP];
    size_t budget = f->opts->budget, room = budget > keep->base ? budget - keep->base : 0;
    size_t all = keep->max - keep->base;
    if (room == 0) return FR_OK;
    /* The model may be too careful, so the knob goes above the free memory. */
    size_t memory = room / 2 < all / 2 ? room + room / 3 : all + all / 8;
    FRI_OWNED(fri_solution_release) fri_solution *solution = NULL;
    FRI_TRY(fri_chain_solve(&f->chain, memory, FRI_CHAIN_SLOTS, &solution));
    int low = least_slots(solution, FRI_CHAIN_SLOTS);
    return low >= 0 ? bisect_budget(f, solution, low, (int)(FRI_CHAIN_SLOTS * ((double)room / (double)memory))) : FR_OK;
}

/* The model treats units independently, but neighbours with equal options may share a call. So replaces `keep` of the
 * best plan by codes. */
static fr_status align_options(finder *f) {
    bool any = false;
    if (!f->best.ok) return FR_OK;
    candidate_copy(&f->trial, &f->best, f->units);
    for (int i = 0; i < f->units; i++)
        if (f->trial.option[i] == FR_UNIT_KEEP) {
            f->trial.option[i] = FR_UNIT_ENCODE;
            any = true;
        }
    if (any) FRI_TRY(dry_run(f, &f->trial, f->opts->budget));
    if (any) consider_candidate(f, &f->trial);
    return FR_OK;
}

/* ---- the smallest budget ----------------------------------------------------------------------------------- */

/* Makes f->trial the best plan for the smallest budget if a limit below *smallest is enough for the plan. One dry run
 * or two tell for a plan that needs more. */
static fr_status try_smallest(finder *f, size_t *smallest) {
    candidate *c = &f->trial;
    FRI_TRY(dry_run(f, c, SIZE_MAX));
    size_t low = c->memory.peak_allocated, high = c->memory.peak_reserved; /* runs under high */
    if (low >= *smallest) return FR_OK;
    if (high >= *smallest) FRI_TRY(dry_run(f, c, high = *smallest - 1));
    if (!c->ok) return FR_OK;
    candidate_copy(&f->smallest, c, f->units);
    while (high > low && high - low > LIMIT_STEP) {
        size_t middle = low + (high - low) / 2;
        FRI_TRY(dry_run(f, c, middle));
        if (c->ok) {
            candidate_copy(&f->smallest, c, f->units);
            high = c->memory.peak_reserved < middle ? c->memory.peak_reserved : middle;
        } else {
            low = middle;
        }
    }
    *smallest = high;
    return FR_OK;
}

/* Solves for little more than the smallest memory: *low slots, -1 without a plan. Sizes are rounded up to slots, so
 * slots must be small: a coarse solution gives the memory to divide. */
static fr_status solve_lean(finder *f, fri_solution **out, int *low) {
    enum { COARSE = FRI_CHAIN_SLOTS / 8 };
    size_t all = f->recompute.max - f->recompute.base, memory = all + all / 2;
    fr_status s = fri_chain_solve(&f->chain, memory, COARSE, out);
    if (s < 0 || (*low = least_slots(*out, COARSE)) < 0) return s;
    memory = memory / COARSE * (size_t)*low;
    s = fri_chain_solve(&f->chain, memory + memory / 2, FRI_CHAIN_SLOTS, out);
    if (s == FR_OK) *low = least_slots(*out, FRI_CHAIN_SLOTS);
    return s;
}

/* Calls fn for each of the leanest plans, in f->trial, until fn stops: many, since a plan with 1 % more bytes alive may
 * reserve far fewer. Changes the chain, so no later search can use the chain. */
static fr_status each_lean(finder *f, fr_status (*fn)(finder *f, size_t *smallest), size_t *smallest) {
    FRI_OWNED(fri_solution_release) fri_solution *solution = NULL;
    int n = f->units;
    int low = -1;
    /* Encoding is never larger than keeping, but may seem slower by a hair. */
    for (int i = 0; i < f->chain.n; i++) f->chain.unit[i].option[FR_UNIT_KEEP].possible = false;
    FRI_TRY(solve_lean(f, &solution, &low));
    for (int k = 0; low >= 0 && k <= 40; k++) {
        (void)plan_at(f, solution, low + low * k / 100, &f->trial);
        if (k > 0 && same_plan(&f->trial, &f->last, n)) continue;
        candidate_copy(&f->last, &f->trial, n);
        FRI_TRY(fn(f, smallest));
    }
    for (int o = FR_UNIT_ENCODE; o < FR_UNIT_OPTIONS; o++) {
        if (!f->trace[o].seen) continue;
        set_uniform(&f->trial, n, (fr_unit_option)o, true);
        FRI_TRY(fn(f, smallest));
    }
    return FR_OK;
}

static fr_status try_budget(finder *f, size_t *smallest) {
    (void)smallest;
    FRI_TRY(dry_run(f, &f->trial, f->opts->budget));
    consider_candidate(f, &f->trial);
    return f->best.ok ? FR_END : FR_OK;
}

/* ---- a partition ------------------------------------------------------------------------------------------------ */

static fr_status find_setting(finder *f, fr_fit *out) {
    FRI_TRY(measure_units(f, out));
    if (!f->opts->any || !f->best.ok) FRI_TRY(search_plans(f));
    if (!f->opts->any) FRI_TRY(align_options(f));
    if (f->opts->any && !f->best.ok) FRI_TRY(each_lean(f, try_budget, NULL));
    out->fits = f->best.ok;
    if (!out->fits && !f->opts->any) {
        out->smallest = SIZE_MAX;
        FRI_TRY(each_lean(f, try_smallest, &out->smallest));
        out->fits = out->smallest <= f->opts->budget;
        candidate_copy(&f->best, &f->smallest, f->units);
    }
    out->memory = f->best.memory;
    out->seconds = f->best.seconds;
    out->plan = plan_of(f, &f->best);
    f->best.option = NULL; /* owned by the fit */
    f->best.range = NULL;
    f->first = NULL;
    return FR_OK; /* or FR_END */
}

/* True if a single unit saves so much that finer units may pay. */
static bool has_a_large_unit(const finder *f) {
    enum { SHARE = 8 };
    size_t all = 0, max = 0;
    for (int i = 0; i < f->units; i++) {
        const size_t saved = f->unit[i].option[FR_UNIT_KEEP].saved;
        all += saved;
        max = saved > max ? saved : max;
    }
    return max > all / SHARE;
}

fr_status fri_find_in(fr_fit_run_fn *run, void *ctx, const fr_fit_opts *opts, fri_cost *cost, fri_partition how,
                      fr_fit *out, bool *large) {
    finder f = {.run = run, .ctx = ctx, .opts = opts, .cost = cost, .partition = how};
    fr_status s = FR_OK;
    f.units = fri_units(opts->model, how, NULL, 0);
    if (f.units < 1 || f.units > FR_MAX_UNITS)
        return fr_fail(FR_EINVAL, "fit: the model has %d units; 1..%d are possible", f.units, FR_MAX_UNITS);
    f.first = calloc((size_t)f.units, sizeof *f.first);
    f.unit = calloc((size_t)f.units, sizeof *f.unit);
    f.group = calloc((size_t)f.units, sizeof *f.group);
    if (f.first == NULL || f.unit == NULL || f.group == NULL) {
        s = fr_fail(FR_ENOMEM, "fit: out of host memory");
        goto done;
    }
    (void)fri_units(opts->model, how, f.first, f.units);
    FR_TRY(s, candidate_create(&f.best, f.units));
    FR_TRY(s, candidate_create(&f.smallest, f.units));
    FR_TRY(s, candidate_create(&f.trial, f.units));
    FR_TRY(s, candidate_create(&f.last, f.units));
    FR_TRY(s, find_setting(&f, out));
    *large = has_a_large_unit(&f);
done:
    out->dry_runs = f.dry_runs;
    for (int o = 0; o < FR_UNIT_OPTIONS; o++) fri_step_trace_free(&f.trace[o]);
    fri_step_trace_free(&f.recompute);
    fri_step_trace_free(&f.apart[0]);
    fri_step_trace_free(&f.apart[1]);
    candidate_free(&f.best);
    candidate_free(&f.smallest);
    candidate_free(&f.trial);
    candidate_free(&f.last);
    free(f.first);
    free(f.unit);
    free(f.group);
    fri_chain_free(&f.chain);
    return s;
}
