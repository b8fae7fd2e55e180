/* pool.c - the allocator of a thread: a device's default, or a pool's. */
#include "memory/segment.h"

#include "backend/fork.h"
#include "memory/report.h"
#include "base/status.h"
#include "base/thread.h"

#include <stdatomic.h>

/* Guards the list of all allocators and the creation of defaults. Taken before an allocator's lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_allocator *all;
static fri_allocator *_Atomic defaults[FR_DEVICE_COUNT];

const void *fri_thread_self(void) {
    return &fri_here;
}

void fri_pool_register(fri_allocator *a) {
    pthread_mutex_lock(&lock);
    a->next = all;
    all = a;
    pthread_mutex_unlock(&lock);
}

void fri_pool_unregister(fri_allocator *a) {
    pthread_mutex_lock(&lock);
    fri_allocator **at = &all;
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    pthread_mutex_unlock(&lock);
}

static fr_status check_device(fr_device d) {
    if ((int)d < 0 || (int)d >= FR_DEVICE_COUNT) return fr_fail(FR_EDEVICE, "%d is not a device", (int)d);
    if (fr_device_available(d)) return FR_OK;
    return fr_fail(FR_EDEVICE, "device %s cannot be used: %s", fr_device_name(d), fr_device_reason(d));
}

static fr_status pool_create(fr_device d, fri_allocator **out) {
    FRI_TRY(check_device(d));
    const fri_backend *b = fri_backend_get(d);
    fri_segment_source source = {b->segment_alloc, b->segment_free};
    fri_fork_watch();
    return fri_allocator_create(d, source, out);
}

/* Two threads may both create a default; the second is destroyed. */
static fr_status make_default(fr_device d, fri_allocator **out) {
    fri_allocator *none = NULL;
    FRI_TRY(pool_create(d, out));
    if (!atomic_compare_exchange_strong(&defaults[d], &none, *out)) {
        fri_allocator_destroy(out);
        *out = none;
    }
    return FR_OK;
}

/* Unloading the library returns the host's cached segments. A child after fork keeps the segments, because a thread of
 * the parent may have held the allocator's lock. */
__attribute__((destructor)) static void empty_host_cache(void) {
    fri_allocator *a = defaults[FR_CPU];
    if (a != NULL && !fri_forked()) fri_allocator_empty_cache(a);
}

fri_allocator *fri_allocator_there(fr_device d) {
    return fri_here.pools[d] != NULL ? fri_here.pools[d] : atomic_load_explicit(&defaults[d], memory_order_acquire);
}

typedef struct block_teller {
    fr_event_fn *fn;
    void *ctx;
} block_teller;

static void tell_block(void *ctx, const fri_block *b) {
    const block_teller *t = ctx;
    t->fn(t->ctx, &(fr_event){.kind = FR_EVENT_ALLOC,
                              .device = fri_allocator_device(b->owner),
                              .block = b->serial,
                              .requested = b->requested,
                              .allocated = b->size,
                              .tag = b->tag});
}

void fr_event_blocks(fr_event_fn *fn, void *ctx) {
    block_teller t = {fn, ctx};
    for (int d = 0; d < FR_DEVICE_COUNT; d++) {
        const fri_allocator *a = fri_allocator_there((fr_device)d);
        if (a != NULL) fri_allocator_each(a, tell_block, &t);
    }
}

fr_status fri_allocator_get(fr_device d, fri_allocator **out) {
    FRI_TRY(fri_fork_refuses());
    if ((int)d < 0 || (int)d >= FR_DEVICE_COUNT) return check_device(d);
    *out = fri_allocator_there(d);
    return *out != NULL ? FR_OK : make_default(d, out);
}

fri_allocator *fri_allocator_override(fr_device d, fri_allocator *a) {
    fri_allocator *was = fri_here.pools[d];
    fri_here.pools[d] = a;
    return was;
}

/* ---- public ------------------------------------------------------------------------------------------------- */

fr_status fr_pool_create(fr_device d, fr_pool **out) {
    FRI_NOT_NULL(out);
    fri_allocator *a = NULL;
    FRI_TRY(fri_fork_refuses());
    FRI_TRY(pool_create(d, &a));
    fr_status s = fri_event_log_create(&a->log);
    if (s < 0)
        fri_allocator_destroy(&a);
    else
        *out = a;
    return s;
}

void fr_pool_release(fr_pool **pool) {
    if (pool != NULL) fri_allocator_destroy(pool);
}

fr_status fr_pool_begin(fr_pool *pool, fr_pool_state *was) {
    FRI_NOT_NULL(pool, was);
    fri_allocator_enter(pool);
    *was = (fr_pool_state){.device = pool->device,
                           .entered = pool,
                           .pool = fri_allocator_override(pool->device, pool),
                           .log = fri_event_log_use(pool->log)};
    return FR_OK;
}

void fr_pool_end(fr_pool_state was) {
    (void)fri_allocator_override(was.device, was.pool);
    (void)fri_event_log_use(was.log);
    if (was.entered != NULL) fri_allocator_leave(was.entered);
}

static void add_stats(fr_memory_stats *sum, const fr_memory_stats *t) {
    sum->requested += t->requested;
    sum->allocated += t->allocated;
    sum->reserved += t->reserved;
    sum->peak_requested += t->peak_requested;
    sum->peak_allocated += t->peak_allocated;
    sum->peak_reserved += t->peak_reserved;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) {
        sum->requested_by[c] += t->requested_by[c];
        sum->allocated_by[c] += t->allocated_by[c];
        sum->at_peak_requested[c] += t->at_peak_requested[c];
        sum->at_peak_allocated[c] += t->at_peak_allocated[c];
    }
    sum->allocs += t->allocs;
    sum->frees += t->frees;
    sum->segment_allocs += t->segment_allocs;
    sum->segment_frees += t->segment_frees;
    sum->retries += t->retries;
    sum->ooms += t->ooms;
    if (t->largest_free > sum->largest_free) sum->largest_free = t->largest_free;
}

fr_status fri_memory_process_get(fr_device d, fr_memory_stats *out) {
    FRI_NOT_NULL(out);
    FRI_TRY(check_device(d));
    FRI_TRY(fri_fork_refuses());
    *out = (fr_memory_stats){.peak_op = "", .peak_module = "", .limit = SIZE_MAX};
    pthread_mutex_lock(&lock);
    for (const fri_allocator *a = all; a != NULL; a = a->next) {
        fr_memory_stats t;
        if (a->device != d || a->silent) continue;
        fri_allocator_stats(a, &t);
        add_stats(out, &t);
    }
    pthread_mutex_unlock(&lock);
    return FR_OK;
}
