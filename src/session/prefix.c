/* prefix.c - --prefix-parts auto: how many images of the frozen prefix run at a time. */
#include "session/fit.h"

/* The largest power of two whose run fits into the budget; without one, or where none does, the largest whose planned
 * peak is within 2 % of the smallest, since smaller parts only cost time then. */
fr_status fri_prefix_choose(fri_config *c) {
    enum { MOST = 32 };
    size_t peak[MOST], least = SIZE_MAX;
    const size_t budget = c->opts.memory_budget;
    int n = 0, best = 0;
    if (c->opts.prefix_parts != FR_TRAIN_PARTS_AUTO) return FR_OK;
    for (; n < MOST && (int64_t)1 << n < 2 * c->opts.batch_size; n++) {
        fri_config trial = *c;
        trial.opts.prefix_parts = (int64_t)1 << n;
        FRI_TRY(fri_fits(&trial, SIZE_MAX, &peak[n]));
        if (peak[n] < least) least = peak[n];
    }
    for (int i = 0; i < n; i++)
        if (peak[i] <= (budget != SIZE_MAX && budget > least ? budget : least + least / 50)) best = i;
    c->opts.prefix_parts = (int64_t)1 << best;
    if (!c->opts.quiet)
        fprintf(c->out, "--prefix-parts auto: %lld images at a time, %zu bytes; %zu with all at once\n",
                (long long)c->opts.prefix_parts, peak[best], peak[n - 1]);
    return FR_OK;
}
