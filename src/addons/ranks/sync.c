/* sync.c - synchronized batch norms: each norm sends the rank's sums to all ranks, within the norm's pass. The data are
 * small (2 C + 1 f64 numbers) and in host memory outside the engine, as the lane's. */
#include "addons/ranks/share.h"

#include "autograd/state.h"

#include <stdlib.h>

static double *sum_buffer(void *ctx, int64_t n) {
    fr_share *p = ctx;
    if (n <= p->numbers.room) return p->numbers.of[0];
    for (int i = 0; i < 2; i++) {
        double *larger = realloc(p->numbers.of[i], (size_t)n * (i == 0 ? 1 : (size_t)p->size) * sizeof *larger);
        if (larger == NULL) {
            (void)fr_fail(FR_ENOMEM, "ranks: out of host memory for %lld statistics", (long long)n);
            return NULL;
        }
        p->numbers.of[i] = larger;
    }
    p->numbers.room = n;
    return p->numbers.of[0];
}

static fr_status gather_sums(void *ctx, int64_t n, const double **all) {
    fr_share *p = ctx;
    *all = p->numbers.of[1];
    return fri_comm_agree(p->comm, p->numbers.of[0], (size_t)n * sizeof *p->numbers.of[0], p->numbers.of[1]);
}

void fri_share_sync_begin(fr_share *p) {
    p->sync = (fri_statistics_sync){.ranks = p->size, .room = sum_buffer, .gather = gather_sums, .ctx = p};
    fri_statistics_sync_set(&p->sync);
}

void fri_share_sync_end(fr_share *p) {
    if (fri_statistics_sync_get() == &p->sync) fri_statistics_sync_set(NULL);
}
