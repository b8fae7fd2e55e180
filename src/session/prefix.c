/* prefix.c - number of images that the frozen prefix processes at a time: by --prefix-parts auto, or where nothing else
 * fits a budget. */
#include "session/fit.h"

#include "net/units.h"

static fr_status prefix_of(const fri_run *trial, void *ctx) {
    *(int *)ctx = fri_module_frozen_prefix(trial->net.model);
    return FR_OK;
}

/* True if the plan chooses: under 'auto', or without the flag where a budget fits only in parts. */
static fr_status is_wanted(const fri_config *c, bool *yes) {
    const fr_train_opts *o = &c->opts;
    int layers = 0;
    *yes = o->memory.prefix_parts == FR_TRAIN_PARTS_AUTO;
    if (o->memory.prefix_parts != FR_TRAIN_AUTO || o->memory.budget == SIZE_MAX || !o->memory.fit_switches ||
        c->fit_batch)
        return FR_OK;
    FRI_TRY(fri_on_meta(c, prefix_of, &layers));
    if (layers == 0) return FR_OK;
    FRI_TRY(fri_try_budget(c, o->memory.budget < o->memory.limit ? o->memory.budget : o->memory.limit, true, yes));
    *yes = !*yes;
    return FR_OK;
}

/* Largest power of two whose run fits the budget, else the largest with the smallest peak. Without a budget: the
 * largest within 2 % of the smallest peak, because smaller parts cost time and save almost nothing. */
fr_status fri_prefix_choose(fri_config *c) {
    enum { MOST = 32 };
    size_t peak[MOST], least = SIZE_MAX;
    const size_t budget = c->opts.memory.budget;
    fri_trial tried;
    bool wanted = false;
    int n = 0, best = 0;
    FRI_TRY(is_wanted(c, &wanted));
    if (!wanted) return FR_OK;
    for (; n < MOST && (int64_t)1 << n < 2 * c->opts.optim.batch_size; n++) {
        fri_config trial = *c;
        trial.opts.memory.prefix_parts = (int64_t)1 << n;
        FRI_TRY(fri_try(&trial, SIZE_MAX, false, &tried));
        peak[n] = tried.reserved;
        if (peak[n] < least) least = peak[n];
    }
    const size_t most = budget == SIZE_MAX ? least + least / 50 : budget > least ? budget : least;
    for (int i = 0; i < n; i++)
        if (peak[i] <= most) best = i;
    c->opts.memory.prefix_parts = (int64_t)1 << best;
    fri_say(c, FRI_SAY_CHOICE, "--prefix-parts auto: %lld images at a time, %zu bytes; %zu with all at once",
            (long long)c->opts.memory.prefix_parts, peak[best], peak[n - 1]);
    return FR_OK;
}
