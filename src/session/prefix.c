/* prefix.c - --prefix-parts auto: number of images that the frozen prefix processes at a time. */
#include "session/fit.h"

/* Largest power of two whose run fits the budget. Without a budget, or if none fits: the largest within 2 % of the
 * smallest planned peak, because smaller parts would cost time and save almost nothing. */
fr_status fri_prefix_choose(fri_config *c) {
    enum { MOST = 32 };
    size_t peak[MOST], least = SIZE_MAX;
    const size_t budget = c->opts.memory.budget;
    fri_trial tried;
    int n = 0, best = 0;
    if (c->opts.memory.prefix_parts != FR_TRAIN_PARTS_AUTO) return FR_OK;
    for (; n < MOST && (int64_t)1 << n < 2 * c->opts.optim.batch_size; n++) {
        fri_config trial = *c;
        trial.opts.memory.prefix_parts = (int64_t)1 << n;
        FRI_TRY(fri_try(&trial, SIZE_MAX, false, &tried));
        peak[n] = tried.reserved;
        if (peak[n] < least) least = peak[n];
    }
    for (int i = 0; i < n; i++)
        if (peak[i] <= (budget != SIZE_MAX && budget > least ? budget : least + least / 50)) best = i;
    c->opts.memory.prefix_parts = (int64_t)1 << best;
    fri_say(c, FRI_SAY_CHOICE, "--prefix-parts auto: %lld images at a time, %zu bytes; %zu with all at once",
            (long long)c->opts.memory.prefix_parts, peak[best], peak[n - 1]);
    return FR_OK;
}
