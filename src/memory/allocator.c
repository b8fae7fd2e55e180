/* allocator.c - the caching allocator.
 *
 * Policy (PyTorch's, to the byte; reference: c10/cuda/CUDACachingAllocator.cpp):
 *  - a request is rounded to 512 bytes; 0 bytes allocate nothing;
 *  - up to 1 MiB is served from the small pool, the rest from the large pool; best fit within the pool;
 *  - a block is split if the rest is >= 512 bytes (small pool) or > 1 MiB (large pool); an unsplit tail belongs to the
 *    block;
 *  - a freed block merges with its free neighbours and is cached;
 *  - on a miss a segment is taken from the device: 2 MiB (small), 20 MiB (requests below 10 MiB), else the request
 *    rounded up to 2 MiB; on failure the allocator returns all wholly free segments and tries again.
 *
 * Functions of allocator.h take the allocator's lock; static functions expect the lock to be held. In a child of fork
 * nothing is handed out and nothing is freed: another thread of the parent may have held the lock. */
#include "memory/segment.h"

#include "backend/fork.h"
#include "base/env.h"
#include "base/status.h"
#include "memory/report.h"

#include <stdlib.h>
#include <string.h>

size_t fri_round_bytes(size_t bytes) {
    return (bytes + FRI_ROUND_BYTES - 1) / FRI_ROUND_BYTES * FRI_ROUND_BYTES;
}

void fri_allocator_lock(const fri_allocator *a) {
    pthread_mutex_lock((pthread_mutex_t *)&a->lock);
}

void fri_allocator_unlock(const fri_allocator *a) {
    pthread_mutex_unlock((pthread_mutex_t *)&a->lock);
}

fr_status fri_allocator_create(fr_device d, fri_segment_source source, fri_allocator **out) {
    fri_allocator *a = calloc(1, sizeof *a);
    pthread_mutexattr_t recursive;
    if (a == NULL) return fr_fail(FR_ENOMEM, "allocator: out of host memory");
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&a->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    a->device = d;
    a->source = source;
    a->next_serial = 1;
    a->stats.limit = SIZE_MAX;
    a->stats.peak_op = a->stats.peak_module = "";
    fri_pool_register(a);
    *out = a;
    return FR_OK;
}

static void free_allocator(fri_allocator *a) {
    fri_pool_unregister(a);
    (void)fri_allocator_arena_remove(a);
    fri_segments_trim(a);
    free(a->small.items);
    free(a->large.items);
    free(a->uses.items);
    fri_event_log_destroy(&a->log);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* True if the allocator has no user, and can get none. */
static bool is_abandoned(const fri_allocator *a) {
    return a->given_up && a->live == NULL && a->begun == 0;
}

void fri_allocator_destroy(fri_allocator **p) {
    fri_allocator *a = *p;
    *p = NULL;
    if (a == NULL || fri_forked()) return;
    fri_allocator_lock(a);
    a->given_up = true;
    bool unused = is_abandoned(a);
    if (!unused) fri_segments_trim(a);
    fri_allocator_unlock(a);
    if (unused) free_allocator(a);
}

void fri_allocator_enter(fri_allocator *a) {
    fri_allocator_lock(a);
    a->begun++;
    fri_allocator_unlock(a);
}

void fri_allocator_leave(fri_allocator *a) {
    fri_allocator_lock(a);
    a->begun--;
    bool unused = is_abandoned(a);
    fri_allocator_unlock(a);
    if (unused) free_allocator(a);
}

/* ---- numbers and events ------------------------------------------------------------------------------------ */

static void emit_event(const fri_allocator *a, fr_event_kind kind, const fri_block *b, fr_category from) {
    if (a->silent || !fri_event_wanted(a->log)) return;
    fr_event e = {.kind = kind,
                  .device = a->device,
                  .block = b->serial,
                  .requested = b->requested,
                  .allocated = b->size,
                  .from = from,
                  .tag = b->tag};
    fri_event_emit(a->log, &e);
}

static void count_alloc(fri_allocator *a, const fri_block *b) {
    fr_memory_stats *t = &a->stats;
    fr_category c = b->tag.category;
    t->allocs++;
    t->requested += b->requested;
    t->allocated += b->size;
    t->requested_by[c] += b->requested;
    t->allocated_by[c] += b->size;
    if (t->requested > t->peak_requested) {
        t->peak_requested = t->requested;
        memcpy(t->at_peak_requested, t->requested_by, sizeof t->requested_by);
    }
    if (t->allocated > t->peak_allocated) {
        t->peak_allocated = t->allocated;
        memcpy(t->at_peak_allocated, t->allocated_by, sizeof t->allocated_by);
        t->peak_op = b->tag.op;
        t->peak_module = b->tag.module;
        t->peak_phase = b->tag.phase;
    }
}

static void count_free(fri_allocator *a, const fri_block *b) {
    fr_memory_stats *t = &a->stats;
    t->frees++;
    t->requested -= b->requested;
    t->allocated -= b->size;
    t->requested_by[b->tag.category] -= b->requested;
    t->allocated_by[b->tag.category] -= b->size;
}

void fri_block_relabel(fri_block *b, fr_category to) {
    fr_category from = b->tag.category;
    if (from == to || b->owner == NULL || fri_forked()) return; /* no owner: memory of another program, uncounted */
    fri_allocator_lock(b->owner);
    fr_memory_stats *t = &b->owner->stats;
    t->requested_by[from] -= b->requested;
    t->allocated_by[from] -= b->size;
    t->requested_by[to] += b->requested;
    t->allocated_by[to] += b->size;
    b->tag.category = to;
    emit_event(b->owner, FR_EVENT_RELABEL, b, from);
    fri_allocator_unlock(b->owner);
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

/* Cuts b after `size` bytes if the rest is large enough for a block. False: out of host memory, b is whole. */
static bool split_block(fri_allocator *a, fri_block *b, size_t size) {
    size_t rest = b->size - size;
    if (b->segment->small ? rest < FRI_ROUND_BYTES : rest <= FRI_SMALL_BYTES) return true;
    fri_block *tail = fri_segment_block(a, b->segment, b->offset + size, rest);
    if (tail == NULL) return false;
    tail->prev = b;
    tail->next = b->next;
    if (b->next != NULL) b->next->prev = tail;
    b->next = tail;
    b->size = size;
    fri_freelist_insert(fri_freelist_of(a, b->segment->small), tail);
    return true;
}

/* Joins b with the free next neighbour in the list. */
static void absorb_next(fri_allocator *a, fri_block *b) {
    fri_block *n = b->next;
    fri_freelist_remove(fri_freelist_of(a, b->segment->small), n);
    b->size += n->size;
    b->next = n->next;
    if (n->next != NULL) n->next->prev = b;
    free(n);
    a->blocks--;
}

static void cache_block(fri_allocator *a, fri_block *b) {
    if (b->next != NULL && !b->next->live) absorb_next(a, b);
    if (b->prev != NULL && !b->prev->live) {
        /* The previous neighbour leaves the list and absorbs b; b is in no list. */
        fri_block *p = b->prev;
        fri_freelist_remove(fri_freelist_of(a, p->segment->small), p);
        p->size += b->size;
        p->next = b->next;
        if (b->next != NULL) b->next->prev = p;
        free(b);
        a->blocks--;
        b = p;
    }
    if (fri_env_get()->no_pool)
        fri_segment_give(a, b->segment);
    else
        fri_freelist_insert(fri_freelist_of(a, b->segment->small), b);
}

static void live_append(fri_allocator *a, fri_block *b) {
    b->live_prev = a->last_live;
    b->live_next = NULL;
    if (b->live_prev != NULL)
        b->live_prev->live_next = b;
    else
        a->live = b;
    a->last_live = b;
}

static void live_remove(fri_allocator *a, fri_block *b) {
    if (b->live_prev != NULL)
        b->live_prev->live_next = b->live_next;
    else
        a->live = b->live_next;
    if (b->live_next != NULL)
        b->live_next->live_prev = b->live_prev;
    else
        a->last_live = b->live_prev;
    b->live_prev = b->live_next = NULL;
}

static fr_status out_of_memory(fri_allocator *a, size_t rounded, const fr_tag *tag) {
    a->stats.ooms++;
    fri_allocator_emit(a, FR_EVENT_OOM, rounded);
    return fri_report_out_of_memory(a, rounded, tag);
}

/* A block of 0 bytes: live, tagged, without memory or a segment. */
static fr_status alloc_empty(fri_allocator *a, fri_block **out) {
    fri_block *b = calloc(1, sizeof *b);
    if (b == NULL) return fr_fail(FR_ENOMEM, "allocator: out of host memory");
    b->owner = a;
    *out = b;
    return FR_OK;
}

/* A block at the planned place, of the requested size, without tail. */
static fr_status alloc_in_arena(fri_allocator *a, size_t offset, size_t rounded, fri_block **out) {
    fri_block *b = calloc(1, sizeof *b);
    if (b == NULL) {
        fri_arena_give(a->arena, offset);
        return fr_fail(FR_ENOMEM, "allocator: out of host memory");
    }
    b->owner = a;
    b->offset = offset;
    b->size = rounded;
    size_t extent = fri_arena_extent(a->arena);
    b->data = offset < extent ? (char *)a->arena_data + offset : (char *)a->extension + (offset - extent);
    b->in_arena = true;
    a->arena_blocks++;
    *out = b;
    return FR_OK;
}

static fri_block *take_from_device(fri_allocator *a, size_t size) {
    fri_block *b = fri_segment_take(a, size);
    if (b != NULL) return b;
    a->stats.retries++;
    fri_segments_trim(a);
    return fri_segment_take(a, size);
}

/* A block outside the list of live blocks, from the arena if the allocation is planned. */
static fr_status find_block(fri_allocator *a, size_t bytes, const fr_tag *tag, fri_block **out) {
    size_t place = 0, rounded = fri_round_bytes(bytes);
    uint64_t note = 0;
    fri_block *b = NULL;
    fr_status s = FR_OK;
    if (rounded == 0) {
        s = alloc_empty(a, &b);
    } else if (a->arena != NULL && a->arena_thread == fri_thread_self() &&
               fri_arena_take(a->arena, rounded, &place, &note)) {
        s = alloc_in_arena(a, place, rounded, &b);
    } else {
        b = fri_freelist_take(fri_freelist_of(a, rounded <= FRI_SMALL_BYTES), rounded);
        if (b == NULL && (b = take_from_device(a, rounded)) == NULL) return out_of_memory(a, rounded, tag);
        if (!split_block(a, b, rounded)) {
            fri_freelist_insert(fri_freelist_of(a, b->segment->small), b);
            return fr_fail(FR_ENOMEM, "allocator: out of host memory");
        }
    }
    if (s == FR_OK) b->arena_note = note;
    *out = b;
    return s;
}

static fr_status block_alloc(fri_allocator *a, size_t bytes, const fr_tag *tag, fri_block **out) {
    fri_block *b = NULL;
    size_t rounded = bytes <= SIZE_MAX / 4 ? fri_round_bytes(bytes) : bytes;
    bool fails = a->fail_at != 0 && --a->fail_at == 0;
    if (fails || bytes > SIZE_MAX / 4) return out_of_memory(a, rounded, tag);
    FRI_TRY(find_block(a, bytes, tag, &b));
    b->requested = rounded;
    b->tag = *tag;
    b->serial = a->next_serial++;
    b->live = true;
    live_append(a, b);
    count_alloc(a, b);
    emit_event(a, FR_EVENT_ALLOC, b, tag->category);
    *out = b;
    if (a->uses.count == 0) return FR_OK;
    fr_status s = fri_uses_follow(&a->uses, fri_allocator_streams(a), b->data, b->size);
    if (s < 0) fri_block_free(out);
    return s;
}

/* FRUGAL_POISON: bytes of ones are NaN in every float type. */
static fr_status poison_block(const fri_block *b) {
    const fri_backend *backend = fri_backend_get(b->owner->device);
    fri_exec e = {0};
    if (b->data == NULL || b->owner->device == FR_META) return FR_OK;
    return FRI_KERNEL(backend, FR_I64, fill, (&e, FR_I64, (int64_t)(b->requested / sizeof(int64_t)), -1, b->data));
}

fr_status fri_block_alloc(fri_allocator *a, size_t bytes, const fr_tag *tag, fri_block **out) {
    fri_allocator_lock(a);
    fr_status s = block_alloc(a, bytes, tag, out);
    fri_allocator_unlock(a);
    return s == FR_OK && fri_env_get()->poison ? poison_block(*out) : s;
}

fr_status fri_block_used(fri_block *b, fri_fence until) {
    fri_allocator *a = b->owner;
    if (a == NULL || b->data == NULL) return FR_OK;
    fri_allocator_lock(a);
    fr_status s = fri_uses_add(&a->uses, fri_allocator_streams(a), b->data, b->size, until);
    fri_allocator_unlock(a);
    return s;
}

void fri_block_free(fri_block **p) {
    fri_block *b = *p;
    *p = NULL;
    if (b == NULL || fri_forked()) return;
    fri_allocator *a = b->owner;
    fri_allocator_lock(a);
    count_free(a, b);
    emit_event(a, FR_EVENT_FREE, b, b->tag.category);
    live_remove(a, b);
    b->live = false;
    if (a->arena != NULL) fri_arena_gone(a->arena, b->arena_note);
    if (b->in_arena) {
        fri_arena_give(a->arena, b->offset);
        a->arena_blocks--;
    }
    if (b->segment == NULL)
        free(b);
    else
        cache_block(a, b);
    bool unused = is_abandoned(a);
    fri_allocator_unlock(a);
    if (unused) free_allocator(a);
}

/* ---- the arena --------------------------------------------------------------------------------------------- */

fr_status fri_allocator_arena_install(fri_allocator *a, fri_arena *arena) {
    size_t extent = fri_arena_extent(arena);
    fr_tag tag = fri_tag_make(FR_MEM_OTHER, FR_U8, &(fr_shape){.rank = 1, .dim = {(int64_t)extent}});
    fr_status s = FR_OK;
    fri_allocator_lock(a);
    if (a->arena != NULL)
        s = fr_fail(FR_EUSAGE, "arena: %s has an arena already; remove it first", fr_device_name(a->device));
    else if (!fri_plain_segment_take(a, extent, &a->arena_data))
        s = out_of_memory(a, extent, &tag);
    else
        a->arena = arena;
    fri_allocator_unlock(a);
    return s;
}

static fr_status remove_arena(fri_allocator *a) {
    if (a->arena == NULL) return FR_OK;
    if (a->arena_blocks > 0) return fr_fail(FR_EUSAGE, "arena: %zu blocks are still in use", a->arena_blocks);
    fri_plain_segment_give(a, fri_arena_extent(a->arena), a->arena_data);
    if (a->extension_bytes > 0) fri_plain_segment_give(a, a->extension_bytes, a->extension);
    a->arena_data = a->extension = NULL;
    a->extension_bytes = 0;
    fri_arena_destroy(&a->arena);
    return FR_OK;
}

fr_status fri_allocator_arena_remove(fri_allocator *a) {
    fri_allocator_lock(a);
    fr_status s = remove_arena(a);
    fri_allocator_unlock(a);
    return s;
}

/* An fri_arena_extend_fn. Empties the cache, because the departed section's blocks get places in the arena. */
static bool extend_arena(void *allocator, size_t bytes) {
    fri_allocator *a = allocator;
    void *data = NULL;
    fri_segments_trim(a);
    if (bytes <= a->extension_bytes) return true;
    if (!fri_plain_segment_take(a, bytes, &data)) return false;
    if (a->extension_bytes > 0) fri_plain_segment_give(a, a->extension_bytes, a->extension);
    a->extension = data;
    a->extension_bytes = bytes;
    return true;
}

bool fri_allocator_arena_follow(fri_allocator *a, int section) {
    fri_allocator_lock(a);
    bool there = a->arena != NULL;
    a->arena_thread = fri_thread_self();
    if (there) fri_arena_section(a->arena, section, extend_arena, a);
    fri_allocator_unlock(a);
    return there;
}

bool fri_allocator_arena_departed(const fri_allocator *a) {
    fri_allocator_lock(a);
    bool departed = a->arena != NULL && fri_arena_departed(a->arena);
    fri_allocator_unlock(a);
    return departed;
}

/* ---- reading the allocator ----------------------------------------------------------------------------------- */

void fri_allocator_stats(const fri_allocator *a, fr_memory_stats *out) {
    fri_allocator_lock(a);
    *out = a->stats;
    size_t small = a->small.count ? a->small.items[a->small.count - 1]->size : 0;
    size_t large = a->large.count ? a->large.items[a->large.count - 1]->size : 0;
    out->largest_free = small > large ? small : large;
    fri_allocator_unlock(a);
}

size_t fri_allocator_requested(const fri_allocator *a) {
    fri_allocator_lock(a);
    const size_t bytes = a->stats.requested;
    fri_allocator_unlock(a);
    return bytes;
}

void fri_allocator_reset_peak(fri_allocator *a) {
    fri_allocator_lock(a);
    fr_memory_stats *t = &a->stats;
    t->peak_requested = t->requested;
    t->peak_allocated = t->allocated;
    t->peak_reserved = t->reserved;
    memcpy(t->at_peak_requested, t->requested_by, sizeof t->requested_by);
    memcpy(t->at_peak_allocated, t->allocated_by, sizeof t->allocated_by);
    t->peak_op = fri_scope_op();
    t->peak_module = fri_scope_module();
    t->peak_phase = fr_phase_get();
    fri_allocator_unlock(a);
}

void fri_allocator_empty_cache(fri_allocator *a) {
    fri_allocator_lock(a);
    fri_segments_trim(a);
    fri_allocator_unlock(a);
}

void fri_allocator_limit(fri_allocator *a, size_t bytes) {
    fri_allocator_lock(a);
    a->stats.limit = bytes;
    fri_allocator_unlock(a);
}

uint64_t fri_allocator_fingerprint(const fri_allocator *a) {
    uint64_t h = 0xcbf29ce484222325u;
    fri_allocator_lock(a);
    for (const fri_segment *g = a->segments; g != NULL; g = g->next) {
        h = (h ^ g->size ^ (uint64_t)g->small) * 0x9e3779b97f4a7c15u;
        for (const fri_block *b = g->first; b != NULL; b = b->next) {
            h = (h ^ (b->size << 1) ^ (uint64_t)b->live) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
    }
    fri_allocator_unlock(a);
    return h;
}

fr_device fri_allocator_device(const fri_allocator *a) {
    return a->device;
}

void fri_allocator_silence(fri_allocator *a) {
    a->silent = true;
}

void fri_allocator_fail_at(fri_allocator *a, uint64_t n) {
    fri_allocator_lock(a);
    a->fail_at = n;
    fri_allocator_unlock(a);
}

void fri_allocator_each(const fri_allocator *a, void (*fn)(void *ctx, const fri_block *b), void *ctx) {
    fri_allocator_lock(a);
    for (const fri_block *b = a->live; b != NULL; b = b->live_next) fn(ctx, b);
    fri_allocator_unlock(a);
}
