/* scratch.c - see scratch.h. */
#include "autograd/scratch.h"

#include "autograd/run.h"
#include "autograd/state.h"
#include "base/cache.h"
#include "base/status.h"
#include "memory/allocator.h"

#include <stdlib.h>
#include <string.h>

struct fri_scratch_limits {
    fri_scratch_use *use[FRI_SCRATCH_BUCKETS];
    bool settled;
};

fr_status fri_scratch_create(fri_scratch_limits **out) {
    FRI_NOT_NULL(out);
    *out = calloc(1, sizeof **out);
    return *out != NULL ? FR_OK : fr_fail(FR_ENOMEM, "scratch: out of host memory");
}

void fri_scratch_release(fri_scratch_limits **scratch) {
    fri_scratch_limits *s = scratch != NULL ? *scratch : NULL;
    if (s == NULL) return;
    *scratch = NULL;
    fr_switches switches = fr_switches_get();
    if (switches.scratch == s) {
        switches.scratch = NULL;
        fr_switches_set(switches);
    }
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        while (s->use[i] != NULL) {
            fri_scratch_use *u = s->use[i];
            s->use[i] = u->next;
            free(u);
        }
    free(s);
}

const fri_scratch_use *fri_scratch_uses(const fri_scratch_limits *s, int bucket) {
    return s->use[bucket];
}

/* Entry of this convolution, created if missing; NULL without host memory (then the limit is unchanged). */
static fri_scratch_use *use_of(fri_scratch_limits *s, const fri_conv2d_desc *d, fri_scratch_pass pass) {
    const int64_t key[] = {pass, d->dtype, FRI_CONV2D_KEY(d)};
    fri_scratch_use **at = &s->use[fri_hash(FRI_HASH, key, sizeof key) >> 32 & (FRI_SCRATCH_BUCKETS - 1)];
    for (fri_scratch_use *u = *at; u != NULL; u = u->next) {
        const int64_t other[] = {u->pass, u->d.dtype, FRI_CONV2D_KEY(&u->d)};
        if (memcmp(key, other, sizeof key) == 0) return u;
    }
    fri_scratch_use *u = s->settled ? NULL : calloc(1, sizeof *u);
    if (u == NULL) return NULL;
    *u = (fri_scratch_use){.pass = pass, .d = *d, .next = *at};
    *at = u;
    return u;
}

size_t fri_scratch_limit(const fri_conv2d_desc *d, fri_scratch_pass pass, fr_device device) {
    fri_scratch_limits *s = fri_switches()->scratch;
    fri_scratch_use *u = s != NULL ? use_of(s, d, pass) : NULL;
    fri_allocator *a = NULL;
    if (u == NULL) return d->workspace_limit;
    if (s->settled) return u->limit > d->workspace_limit ? u->limit : d->workspace_limit;
    if (fri_allocator_get(device, &a) < 0) return d->workspace_limit;
    const size_t live = fri_allocator_requested(a);
    if (live > u->live) u->live = live;
    return d->workspace_limit;
}

void fri_scratch_settle(fri_scratch_limits *s, size_t peak) {
    const size_t mib = (size_t)1 << 20;
    if (s == NULL) return;
    s->settled = true;
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        for (fri_scratch_use *u = s->use[i]; u != NULL; u = u->next)
            u->limit = peak > u->live ? (peak - u->live) / mib * mib : 0;
}
