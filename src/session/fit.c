/* fit.c - --memory-budget and --batch-size fit. */
#include "session/fit.h"

#include "memory/report.h"
#include "session/flags.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- dry runs ---------------------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t fri_planned_reserved(const fri_train_plan *p) {
    return larger(p->training.peak_reserved, p->evaluation.peak_reserved);
}

static size_t planned_requested(const fri_train_plan *p) {
    return larger(p->training.peak_requested, p->evaluation.peak_requested);
}

static bool in_arena(const fr_train_opts *o) {
    return o->memory.arena && o->device != FR_META && !fri_memory_unpooled();
}

/* Plans the run with its real allocator (arena.c): in an arena if wanted and if the arena fits, else on the caching
 * allocator, which under a limit releases cached segments before a request fails. */
static fr_status plan_run(const fri_config *c, size_t limit, fri_train_plan *out) {
    bool arena = in_arena(&c->opts);
    fr_status s = fri_train_plan_make(c, SIZE_MAX, out);
    if (s < 0) return s;
    if (planned_requested(out) > limit) {
        s = fr_fail(FR_ENOMEM, "the run needs %zu bytes, the limit is %zu", planned_requested(out), limit);
        goto done;
    }
    if (fri_planned_reserved(out) <= limit && !arena) return FR_OK;
    if (arena && out->workspaces) {
        FR_TRY(s, fri_train_plan_use_arena(out, NULL));
        if (fri_planned_reserved(out) <= limit) return FR_OK;
    }
    fri_train_plan_release(out);
    return fri_train_plan_make(c, limit, out);
done:
    fri_train_plan_release(out);
    return s;
}

fr_status fri_try(const fri_config *c, size_t limit, bool anyway, fri_trial *out) {
    fri_train_plan p = {0};
    *out = (fri_trial){0};
    fr_status s = plan_run(c, limit, &p);
    out->fits = s == FR_OK;
    if (s == FR_ENOMEM && limit != SIZE_MAX) s = anyway ? plan_run(c, SIZE_MAX, &p) : FR_OK;
    out->workspaces = p.workspaces;
    out->requested = planned_requested(&p);
    out->allocated = larger(p.training.peak_allocated, p.evaluation.peak_allocated);
    out->reserved = fri_planned_reserved(&p);
    fri_train_plan_release(&p);
    return s;
}

/* An fr_fit_run_fn; ctx is the config. */
static fr_status fit_dry_run(void *ctx, const fr_unit_plan *plan, size_t limit, fr_memory_stats *peak) {
    fri_config trial = *(const fri_config *)ctx;
    fri_train_plan p = {0};
    trial.opts.memory.unit_plan = plan;
    FRI_TRY(plan_run(&trial, limit, &p));
    const fr_memory_stats *x = &p.training, *y = &p.evaluation;
    bool evaluation = y->peak_reserved > x->peak_reserved ||
                      (y->peak_reserved == x->peak_reserved && y->peak_allocated > x->peak_allocated);
    *peak = evaluation ? *y : *x;
    fri_train_plan_release(&p);
    return FR_OK;
}

void fri_fit_switches(fri_config *c) {
    fr_train_opts *o = &c->opts;
    const fri_switch *w = NULL;
    for (int i = 0; (w = fri_switch_at(i)) != NULL; i++)
        if (w->cost == FRI_SWITCH_FREE) *fri_switch_field(w, &o->memory.switches) = w->saves;
    o->memory.checkpoint_segments = FR_TRAIN_AUTO;
    if (fri_fused_step_possible(c)) o->memory.fused_step = FR_TRAIN_FUSED_ON;
}

static fr_status keep_model(const fri_run *trial, void *ctx) {
    *(fr_module **)ctx = fr_module_retain(trial->net.model);
    return FR_OK;
}

fr_status fri_fit_find(const fri_config *c, size_t budget, bool any, fr_fit *out) {
    fri_config chosen = *c;
    fri_evaluations known = {0};
    fr_train_opts *o = &chosen.opts;
    chosen.evaluations = &known;
    fri_fit_switches(&chosen);
    fr_fit_opts f = {.target = o->device, .budget = budget, .offload = o->memory.switches.offload, .any = any};
    *out = (fr_fit){0};
    fr_status s = fri_on_meta(c, keep_model, &f.model);
    if (s == FR_OK) s = fr_fit_find(fit_dry_run, &chosen, &f, out);
    fr_module_release(&f.model);
    return s;
}

/* ---- the batch --------------------------------------------------------------------------------------------- */

fr_status fri_try_budget(const fri_config *c, size_t budget, bool choose, bool *fits) {
    FRI_OWNED(fr_fit_release) fr_fit fit = {0};
    fri_trial trial = {0};
    fr_status s = choose ? fri_fit_find(c, budget, true, &fit) : fri_try(c, budget, false, &trial);
    *fits = s == FR_OK && (choose ? fit.fits : trial.fits);
    return s;
}

static fr_status batch_fits(const fri_config *c, size_t budget, bool choose, int64_t batch, bool *yes) {
    fri_config one = *c;
    one.opts.optim.batch_size = batch;
    return fri_try_budget(&one, budget, choose, yes);
}

/* Doubles the batch until `high` does not fit, then bisects between `low` (fits) and `high`. The batch is limited so
 * that an epoch has at least one step. */
fr_status fri_fit_largest_batch(const fri_config *c, size_t budget, bool choose, int64_t *out) {
    int64_t low = 0, high = 1, most = c->train_count / c->opts.memory.accumulate;
    bool yes = false;
    *out = 0;
    for (; high <= most; high = 2 * high < most || high == most ? 2 * high : most) {
        FRI_TRY(batch_fits(c, budget, choose, high, &yes));
        if (!yes) break;
        low = high;
    }
    if (high > most + 1) high = most + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        FRI_TRY(batch_fits(c, budget, choose, middle, &yes));
        if (yes)
            low = middle;
        else
            high = middle;
    }
    *out = low;
    return FR_OK;
}

/* ---- reporting the choice ------------------------------------------------------------------------------------ */

const char *fri_units_text(const fr_unit_plan *p, char text[FRI_UNITS_TEXT]) {
    static const char letter[FR_UNIT_OPTIONS] = {'-', 'k', 'e', 'i', 'r', 'o', 'R'};
    char *t = text;
    for (int i = 0; i < p->units; i++) {
        for (int k = 0; k < p->ranges; k++)
            if (p->range[k].first == i) *t++ = '[';
        *t++ = letter[p->option[i]];
        for (int k = 0; k < p->ranges; k++)
            if (p->range[k].end == i + 1) *t++ = ']';
    }
    *t = '\0';
    return text;
}

static void print_chosen(const fri_config *c, const fr_fit *f) {
    char budget[FR_BYTES_TEXT], peak[FR_BYTES_TEXT], units[FRI_UNITS_TEXT];
    int64_t calls = f->kernels_measured + f->kernels_estimated;
    fri_say(c, FRI_SAY_CHOICE,
            "budget %s (%zu bytes), batches of %" PRId64
            ": planned peak %s (%zu bytes reserved, %zu allocated), predicted step time %.3f of keeping everything",
            fr_bytes_text(c->opts.memory.budget, budget), c->opts.memory.budget, c->opts.optim.batch_size,
            fr_bytes_text(f->memory.peak_reserved, peak), f->memory.peak_reserved, f->memory.peak_allocated,
            f->keep_seconds > 0 ? f->seconds / f->keep_seconds : 1);
    fri_say(
        c, FRI_SAY_CHOICE,
        "  units %s\n"
        "  (k keep, e encode, i rebuild inside, r rebuild, o offload, R rebuild and offload; [in brackets]: run again\n"
        "  in backward)\n"
        "%s"
        "  found by %d dry runs in %.2f s; %.0f %% of the kernel times measured%s",
        fri_units_text(&f->plan, units),
        fri_fused_step(c) ? "  parameters are updated as soon as their gradients are complete (--fused-step)\n" : "",
        f->dry_runs, f->milliseconds / 1000, calls > 0 ? 100.0 * (double)f->kernels_measured / (double)calls : 0,
        f->kernels_measured == 0 ? " (--calibrate measures)" : "");
}

/* Names the smallest budget and its cause: "op conv2d of features.2 in backward sets it, with 1234 bytes alive". */
static fr_status nothing_fits(const fri_config *c, const fr_fit *f) {
    const fr_memory_stats *m = &f->memory;
    char budget[FR_BYTES_TEXT], least[FR_BYTES_TEXT], parts[400] = "";
    size_t at = 0;
    for (int i = 0; i < FR_CATEGORY_COUNT && at < sizeof parts; i++)
        if (m->at_peak_allocated[i] > 0) {
            int n = snprintf(parts + at, sizeof parts - at, "%s%s %zu", at > 0 ? ", " : "",
                             fr_category_name((fr_category)i), m->at_peak_allocated[i]);
            if (n > 0) at += (size_t)n;
        }
    return fr_fail(FR_ENOMEM,
                   "--memory-budget %s: nothing fits; the smallest budget for batches of %" PRId64 " is %zu bytes (%s)"
                   ": op %s of %s in %s sets it, with %zu bytes alive (%s)",
                   fr_bytes_text(c->opts.memory.budget, budget), c->opts.optim.batch_size, f->smallest,
                   fr_bytes_text(f->smallest, least), m->peak_op != NULL && m->peak_op[0] ? m->peak_op : "-",
                   m->peak_module != NULL && m->peak_module[0] ? m->peak_module : "-", fr_phase_name(m->peak_phase),
                   m->peak_allocated, parts);
}

/* ---- the flags --------------------------------------------------------------------------------------------- */

static fr_status choose_batch(fri_config *c) {
    fr_train_opts *o = &c->opts;
    int64_t batch = 0;
    double began = fri_seconds_now();
    char budget[FR_BYTES_TEXT];
    FRI_TRY(fri_fit_largest_batch(c, o->memory.budget, o->memory.fit_switches, &batch));
    /* If no batch fits, plan batch 1, so that the error can name the smallest budget. */
    o->optim.batch_size = batch > 0 ? batch : 1;
    if (batch > 0)
        fri_say(c, FRI_SAY_CHOICE, "largest batch for %s: %" PRId64 "%s (%.1f s)",
                fr_bytes_text(o->memory.budget, budget), batch, batch == c->train_count ? ", all training images" : "",
                fri_seconds_now() - began);
    return FR_OK;
}

/* True if the user asked for the value in o: by the flag, in a session by another value than the default. */
static bool is_asked(const fri_config *c, const fr_flag *f, const fr_train_opts *o) {
    const fr_train_opts defaults = fr_train_opts_default();
    if (c->model == NULL) return fri_flag_given(f, c->argc, c->argv);
    return f->kind != FR_FLAG_ACT && fri_flag_differs(f, o, &defaults);
}

/* A budget decides for each unit whether to rebuild, without changing the switch. */
static bool is_replaced(const fr_flag *f, const fr_train_opts *asked, const fr_train_opts *now) {
    if (f->kind == FR_FLAG_ACT) return true; /* --all-off */
    if (f->offset == offsetof(fr_train_opts, memory.switches.rebuild)) return !asked->memory.switches.rebuild;
    return fri_flag_differs(f, asked, now);
}

/* Names the memory flags in `asked` that a budget has replaced in c->opts, with the cure. */
static void note_replaced(const fri_config *c, const fr_train_opts *asked) {
    char text[512] = "", words[FRI_FLAG_WORDS];
    for (int i = 0; i < fri_flags_count; i++) {
        const fr_flag *f = &fri_flags[i];
        const size_t at = strlen(text);
        if (f->group == FR_GROUP_MEMORY && is_asked(c, f, asked) && is_replaced(f, asked, &c->opts))
            snprintf(text + at, sizeof text - at, "%s%s", at > 0 ? ", " : "", fri_flag_words(f, asked, words));
    }
    if (text[0] != '\0')
        fri_say(c, FRI_SAY_NOTE, "--memory-budget chooses by itself and replaces %s; to keep them, %s", text,
                c->model != NULL ? "set train.memory.fit_switches to false"
                                 : "write --all-off and these flags after --memory-budget");
}

static fr_status choose_plan(fri_config *c, fr_fit *fit) {
    FRI_TRY(fri_fit_find(c, c->opts.memory.budget, false, fit));
    if (!fit->fits) return nothing_fits(c, fit);
    const fr_train_opts asked = c->opts;
    fri_fit_switches(c);
    note_replaced(c, &asked);
    fr_switches_set(c->opts.memory.switches);
    c->opts.memory.unit_plan = &fit->plan;
    print_chosen(c, fit);
    return FR_OK;
}

static fr_status as_given(const fri_config *c) {
    char text[FR_BYTES_TEXT];
    fri_trial trial;
    FRI_TRY(fri_try(c, c->opts.memory.limit, true, &trial));
    if (trial.fits) return FR_OK;
    return fr_fail(FR_ENOMEM, "--memory-budget %s: this run reserves %zu bytes; raise it or leave --all-off out",
                   fr_bytes_text(c->opts.memory.budget, text), trial.reserved);
}

fr_status fri_fit(fri_config *c, fr_fit *fit) {
    fr_train_opts *o = &c->opts;
    if (o->memory.budget == SIZE_MAX) return FR_OK;
    if (o->memory.limit > o->memory.budget) o->memory.limit = o->memory.budget;
    o->memory.budget = o->memory.limit;
    if (c->fit_batch) FRI_TRY(choose_batch(c));
    return o->memory.fit_switches ? choose_plan(c, fit) : as_given(c);
}
