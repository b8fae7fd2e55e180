/* advise.c - after running out of memory: flags that change that.
 *
 * Every line was tried: a dry run of the same command with these flags added, under the same limit. "fits" means that
 * it ended, so the run will; the peak is to the byte. */
#include "base/status.h"
#include "memory/report.h"
#include "train/fit.h"
#include "train/plan.h"

#include <inttypes.h>

typedef struct adviser {
    const fri_run *run;
    size_t limit;
    FILE *out;
    int fitting; /* lines that fit */
} adviser;

static void say(adviser *a, bool fits, size_t reserved, const char *flags) {
    char text[FRI_BYTES_TEXT];
    fprintf(a->out, "  %s %-44s peak %s (%zu bytes reserved)\n", fits ? "fits:        " : "does not fit:", flags,
            fri_bytes_text(reserved, text), reserved);
    a->fitting += fits;
}

/* One line of advice: o instead of the run's flags. */
static fr_status try_flags(adviser *a, fr_train_opts o, const char *flags) {
    size_t reserved = 0;
    o.memory_limit = a->limit;
    fr_status s = fri_fits(a->run, &o, &reserved);
    bool fits = s == FR_OK;
    if (s == FR_ENOMEM) {
        o.memory_limit = SIZE_MAX;
        s = fri_fits(a->run, &o, &reserved);
    }
    if (s < 0) return s;
    say(a, fits, reserved, flags);
    return FR_OK;
}

static fr_status advise_switches(adviser *a) {
    const fr_train_opts *now = &a->run->opts;
    fr_train_opts o = *now;
    fr_status s = FR_OK;
    o.switches.inplace = o.switches.encode = o.switches.early_release = true;
    if (!now->switches.inplace || !now->switches.encode || !now->switches.early_release)
        FR_TRY(s, try_flags(a, o, "--inplace --encode --early-release"));
    if (now->switches.rebuild) return FR_OK;
    o.switches.rebuild = true;
    FR_TRY(s, try_flags(a, o, "--inplace --encode --early-release --rebuild"));
done:
    return s;
}

/* The number of equal segments that needs least. */
static fr_status advise_segments(adviser *a) {
    char flags[64];
    fr_train_opts best = a->run->opts, o = best;
    size_t least = SIZE_MAX, reserved = 0;
    int units = 0;
    fr_status s = FR_OK;
    o.memory_limit = SIZE_MAX;
    FR_TRY(s, fri_fit_units(a->run, &units));
    for (int64_t k = 2; k <= units && k <= 32; k++) {
        o.checkpoint_segments = k;
        FR_TRY(s, fri_fits(a->run, &o, &reserved));
        if (reserved >= least) continue;
        least = reserved;
        best = o;
    }
    if (least == SIZE_MAX) return FR_OK;
    snprintf(flags, sizeof flags, "--checkpoint-segments %" PRId64, best.checkpoint_segments);
    s = try_flags(a, best, flags);
done:
    return s;
}

static fr_status advise_budget(adviser *a) {
    char flags[96];
    fr_fit fit = {0};
    fr_status s = FR_OK;
    FR_TRY(s, fri_fit_find(a->run, &a->run->opts, a->limit, false, &fit));
    if (fit.fits) {
        /* Undoes what would contradict it, wherever that stands in the command. */
        snprintf(flags, sizeof flags, "--memory-budget %zu --fit-switches", a->limit);
        say(a, true, fit.memory.peak_reserved, flags);
    } else {
        snprintf(flags, sizeof flags, "--memory-budget %zu --fit-switches", fit.smallest);
        say(a, false, fit.smallest, flags);
    }
done:
    fr_fit_release(&fit);
    return s;
}

/* The largest batch under the flags as they are. With --memory-budget these choose anew for each batch. */
static fr_status advise_batch(adviser *a) {
    fr_train_opts o = a->run->opts;
    char flags[64];
    bool choose = o.memory_budget != SIZE_MAX && o.fit_switches;
    fr_fit fit = {0};
    fr_status s = FR_OK;
    o.unit_plan = NULL;
    FR_TRY(s, fri_fit_largest_batch(a->run, &o, a->limit, choose, &o.batch_size));
    if (o.batch_size == 0 || o.batch_size >= a->run->opts.batch_size) return FR_OK;
    snprintf(flags, sizeof flags, "--batch-size %" PRId64, o.batch_size);
    if (!choose) return try_flags(a, o, flags);
    FR_TRY(s, fri_fit_find(a->run, &o, a->limit, false, &fit));
    say(a, fit.fits, fit.fits ? fit.memory.peak_reserved : fit.smallest, flags);
done:
    fr_fit_release(&fit);
    return s;
}

/* What the command as it is comes to, and the floor that nothing but a smaller op can lower. */
static fr_status say_needs(const adviser *a) {
    char peak[FRI_BYTES_TEXT], floor[FRI_BYTES_TEXT], op[FRI_BYTES_TEXT];
    fr_train_opts o = a->run->opts;
    fri_train_plan p = {0};
    o.memory_limit = SIZE_MAX;
    fr_status s = fri_train_plan_make(a->run, &o, &p);
    if (s < 0) return s;
    fprintf(a->out, "this command needs %s; its floor (parameters, optimizer state and the largest op, %s) is %s\n",
            fri_bytes_text(p.training.peak_allocated, peak), fri_bytes_text(fri_plan_largest_op(p.plan), op),
            fri_bytes_text(fr_plan_floor(p.plan), floor));
    fri_train_plan_release(&p);
    return FR_OK;
}

fr_status fri_advise(const fri_run *r, FILE *out) {
    adviser a = {.run = r, .limit = r->opts.memory_limit, .out = out};
    fr_memory_stats now;
    char text[FRI_BYTES_TEXT];
    fr_status s = FR_OK;
    if (a.limit == SIZE_MAX) {
        FR_TRY(s, fr_memory_stats_get(r->opts.device, &now));
        a.limit = now.reserved;
    }
    FR_TRY(s, say_needs(&a));
    fprintf(out, "what would fit into %s; each line is a dry run of this command with these flags added:\n",
            fri_bytes_text(a.limit, text));
    if (r->opts.unit_plan == NULL) {
        FR_TRY(s, advise_switches(&a));
        if (r->opts.checkpoint_segments == FR_TRAIN_AUTO) FR_TRY(s, advise_segments(&a));
    }
    FR_TRY(s, advise_budget(&a));
    FR_TRY(s, advise_batch(&a));
    if (a.fitting == 0) fprintf(out, "  nothing tried fits, not even one image a step\n");
done:
    return s;
}
