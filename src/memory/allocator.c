/* allocator.c - the caching allocator.
 *
 * Policy (PyTorch's, to the byte; reference: c10/cuda/CUDACachingAllocator.cpp):
 *  - a request is rounded to 512 bytes; 0 bytes allocate nothing;
 *  - up to 1 MiB is served from the small pool, the rest from the large pool; best fit within the pool;
 *  - a block is split if the rest is >= 512 bytes (small pool) or > 1 MiB (large pool); an unsplit tail belongs to the
 * block;
 *  - a freed block merges with its free neighbours and is cached;
 *  - on a miss a segment is taken from the device: 2 MiB (small), 20 MiB (requests below 10 MiB), else the request
 * rounded up to 2 MiB; if that fails, all wholly free segments are given back and it is tried once more;
 *  - with segments that grow (PyTorch's expandable_segments) each pool is one segment: a miss maps as many granules (2
 * MiB small, 20 MiB large) behind its end as the free block there lacks, every rest is split off, and granules behind
 * the last live block are what goes back. The arena is a segment of its own in any case. */
#include "memory/freelist.h"
#include "memory/segment.h"

#include "backend/backend.h"
#include "base/env.h"
#include "base/status.h"
#include "memory/arena.h"
#include "memory/event.h"
#include "memory/report.h"
#include "memory/uses.h"

#include <stdlib.h>
#include <string.h>

struct fri_allocator {
    fr_device device;
    fri_segment_source source;
    fri_freelist small, large;
    fri_segment *segments, *last_segment;
    fri_block *live, *last_live;
    size_t blocks; /* all, live and cached: the free lists are kept roomy enough for them */
    uint64_t next_segment, next_serial, fail_at;
    bool silent;
    fri_arena *arena;
    void *arena_data;
    size_t arena_blocks; /* live in it */
    void *extension;     /* of the arena: Note [Learning] in arena.h */
    size_t extension_bytes;
    fri_uses uses; /* elsewhere than on the compute stream */
    fr_memory_stats stats;
};

static const fri_streams *streams_of(const fri_allocator *a) {
    return fri_backend_get(a->device)->streams;
}

/* Back to the device. */
static void source_free(fri_allocator *a, void *data, size_t bytes) {
    if (a->uses.count > 0) fri_uses_wait(&a->uses, streams_of(a), data, bytes);
    a->source.free(data, bytes);
}

size_t fri_round_bytes(size_t bytes) {
    return (bytes + FRI_ROUND_BYTES - 1) / FRI_ROUND_BYTES * FRI_ROUND_BYTES;
}

fr_status fri_allocator_create(fr_device d, fri_segment_source source, fri_allocator **out) {
    fri_allocator *a = calloc(1, sizeof *a);
    if (a == NULL) return fri_fail(FR_ENOMEM, "allocator: out of host memory");
    a->device = d;
    a->source = source;
    a->next_serial = 1;
    a->stats.limit = SIZE_MAX;
    a->stats.peak_op = a->stats.peak_module = "";
    *out = a;
    return FR_OK;
}

void fri_allocator_destroy(fri_allocator **p) {
    fri_allocator *a = *p;
    if (a == NULL) return;
    fri_allocator_empty_cache(a);
    free(a->small.items);
    free(a->large.items);
    free(a->uses.items);
    free(a);
    *p = NULL;
}

/* ---- the devices' allocators ------------------------------------------------------------------------------- */

static fri_allocator *defaults[FR_DEVICE_COUNT], *overrides[FR_DEVICE_COUNT];

fr_status fri_allocator_get(fr_device d, fri_allocator **out) {
    if ((int)d < 0 || (int)d >= FR_DEVICE_COUNT) return fri_fail(FR_EDEVICE, "%d is not a device", (int)d);
    if (overrides[d] != NULL) {
        *out = overrides[d];
        return FR_OK;
    }
    if (defaults[d] == NULL) {
        if (!fr_device_available(d))
            return fri_fail(FR_EDEVICE, "device %s cannot be used: %s", fr_device_name(d), fr_device_reason(d));
        const fri_backend *b = fri_backend_get(d);
        fri_segment_source source = {b->segment_alloc, b->segment_free, b->expandable != NULL ? b->expandable() : NULL};
        fr_status s = fri_allocator_create(d, source, &defaults[d]);
        if (s < 0) return s;
    }
    *out = defaults[d];
    return FR_OK;
}

void fri_allocator_override(fr_device d, fri_allocator *a) {
    overrides[d] = a;
}

/* ---- numbers and events ------------------------------------------------------------------------------------ */

static void emit(const fri_allocator *a, fri_event_kind kind, const fri_block *b, fr_category from) {
    if (a->silent || !fri_event_wanted()) return;
    fri_event e = {.kind = kind,
                   .device = a->device,
                   .block = b->serial,
                   .requested = b->requested,
                   .allocated = b->size,
                   .from = from,
                   .tag = b->tag};
    fri_event_emit(&e);
}

static void emit_plain(const fri_allocator *a, fri_event_kind kind, size_t bytes) {
    if (a->silent || !fri_event_wanted()) return;
    fri_event e = {.kind = kind,
                   .device = a->device,
                   .requested = bytes,
                   .allocated = bytes,
                   .tag = {.op = fri_scope_op(), .module = fri_scope_module(), .phase = fri_scope_phase()}};
    fri_event_emit(&e);
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
    if (from == to || b->owner == NULL) return; /* no owner: memory of another program, in no statistics */
    fr_memory_stats *t = &b->owner->stats;
    t->requested_by[from] -= b->requested;
    t->allocated_by[from] -= b->size;
    t->requested_by[to] += b->requested;
    t->allocated_by[to] += b->size;
    b->tag.category = to;
    emit(b->owner, FRI_EVENT_RELABEL, b, from);
}

/* ---- segments ---------------------------------------------------------------------------------------------- */

static fri_freelist *pool_of(fri_allocator *a, bool small) {
    return small ? &a->small : &a->large;
}

static fri_block *block_new(fri_allocator *a, fri_segment *segment, size_t offset, size_t size) {
    if (!fri_freelist_reserve(pool_of(a, segment->small), a->blocks + 1)) return NULL;
    fri_block *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->owner = a;
    b->segment = segment;
    b->offset = offset;
    b->size = size;
    b->data = (char *)segment->data + offset;
    a->blocks++;
    return b;
}

static size_t segment_size(size_t rounded) {
    if (fri_env_get()->no_pool) return rounded;
    if (rounded <= FRI_SMALL_BYTES) return FRI_SMALL_SEGMENT;
    if (rounded < FRI_LARGE_OWN_SEGMENT) return FRI_LARGE_SEGMENT;
    return (rounded + FRI_LARGE_ROUND - 1) / FRI_LARGE_ROUND * FRI_LARGE_ROUND;
}

static void count_segment(fri_allocator *a, size_t size) {
    a->stats.segment_allocs++;
    a->stats.reserved += size;
    if (a->stats.reserved > a->stats.peak_reserved) a->stats.peak_reserved = a->stats.reserved;
    emit_plain(a, FRI_EVENT_SEGMENT_ALLOC, size);
}

static void count_segment_gone(fri_allocator *a, size_t size) {
    a->stats.segment_frees++;
    a->stats.reserved -= size;
    emit_plain(a, FRI_EVENT_SEGMENT_FREE, size);
}

static void segment_append(fri_allocator *a, fri_segment *g) {
    g->number = a->next_segment++;
    g->prev = a->last_segment;
    if (g->prev != NULL)
        g->prev->next = g;
    else
        a->segments = g;
    a->last_segment = g;
}

static void segment_unlink(fri_allocator *a, fri_segment *g) {
    if (g->prev != NULL)
        g->prev->next = g->next;
    else
        a->segments = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    else
        a->last_segment = g->prev;
}

/* ---- segments that grow */

static size_t granule_of(bool small) {
    return small ? FRI_SMALL_SEGMENT : FRI_LARGE_SEGMENT;
}

static fri_segment *growing(const fri_allocator *a, bool small) {
    for (fri_segment *g = a->segments; g != NULL; g = g->next)
        if (g->span > 0 && g->small == small) return g;
    return NULL;
}

static fri_block *last_block(const fri_segment *g) {
    fri_block *b = g->first;
    while (b != NULL && b->next != NULL) b = b->next;
    return b;
}

static fri_segment *reserve(fri_allocator *a, bool small) {
    fri_segment *g = calloc(1, sizeof *g);
    if (g == NULL || a->source.expandable->reserve(granule_of(small), &g->data, &g->span) < 0) {
        free(g);
        return NULL;
    }
    g->small = small;
    segment_append(a, g);
    return g;
}

static void release_empty(fri_allocator *a, fri_segment *g) {
    if (g->size > 0) return;
    segment_unlink(a, g);
    a->source.expandable->release(g->data, g->span);
    free(g);
}

/* A block of at least `rounded` bytes at the segment's end, in no list. */
static fri_block *grow(fri_allocator *a, bool small, size_t rounded) {
    size_t granule = granule_of(small);
    fri_segment *g = growing(a, small);
    fri_block *tail = g != NULL ? last_block(g) : NULL, *b = NULL;
    size_t have = tail != NULL && !tail->live ? tail->size : 0;
    size_t more = (rounded - have + granule - 1) / granule * granule;
    if (more > a->stats.limit || a->stats.reserved > a->stats.limit - more) return NULL;
    if (g == NULL && (g = reserve(a, small)) == NULL) return NULL;
    if (have == 0) b = block_new(a, g, g->size, more);
    if ((have == 0 && b == NULL) || more > g->span - g->size ||
        a->source.expandable->map((char *)g->data + g->size, more, granule) < 0) {
        if (b != NULL) a->blocks--;
        free(b);
        release_empty(a, g);
        return NULL;
    }
    g->size += more;
    count_segment(a, more);
    if (have > 0) {
        fri_freelist_remove(pool_of(a, small), tail);
        tail->size += more;
        return tail;
    }
    b->prev = tail;
    if (tail != NULL)
        tail->next = b;
    else
        g->first = b;
    return b;
}

/* Granules behind the last live block go back. */
static void shrink(fri_allocator *a, fri_segment *g) {
    fri_block *tail = last_block(g);
    size_t granule = granule_of(g->small);
    if (tail->live) return;
    size_t keep = (tail->offset + granule - 1) / granule * granule, gone = keep < g->size ? g->size - keep : 0;
    if (gone == 0) return;
    fri_freelist_remove(pool_of(a, g->small), tail);
    if (a->uses.count > 0) fri_uses_wait(&a->uses, streams_of(a), (char *)g->data + keep, gone);
    a->source.expandable->unmap((char *)g->data + keep, gone);
    g->size = keep;
    count_segment_gone(a, gone);
    tail->size = keep - tail->offset;
    if (tail->size > 0) {
        fri_freelist_insert(pool_of(a, g->small), tail);
        return;
    }
    if (tail->prev != NULL)
        tail->prev->next = NULL;
    else
        g->first = NULL;
    free(tail);
    a->blocks--;
    release_empty(a, g);
}

/* ---- segments of fixed size */

static fri_block *segment_take(fri_allocator *a, size_t rounded) {
    size_t size = segment_size(rounded);
    fri_segment *g = NULL;
    if (a->source.expandable != NULL && !fri_env_get()->no_pool) return grow(a, rounded <= FRI_SMALL_BYTES, rounded);
    if (size > a->stats.limit || a->stats.reserved > a->stats.limit - size) return NULL;
    if ((g = calloc(1, sizeof *g)) == NULL) return NULL;
    if (a->source.alloc(size, &g->data) < 0) goto fail;
    g->size = size;
    g->small = rounded <= FRI_SMALL_BYTES;
    g->first = block_new(a, g, 0, size);
    if (g->first == NULL) {
        source_free(a, g->data, size);
        goto fail;
    }
    segment_append(a, g);
    count_segment(a, size);
    return g->first;
fail:
    free(g);
    return NULL;
}

/* The segment is one free block that is in no list. */
static void segment_give(fri_allocator *a, fri_segment *g) {
    size_t size = g->size;
    segment_unlink(a, g);
    source_free(a, g->data, size);
    free(g->first);
    free(g);
    a->blocks--;
    count_segment_gone(a, size);
}

void fri_allocator_empty_cache(fri_allocator *a) {
    for (fri_segment *g = a->segments, *next; g != NULL; g = next) {
        next = g->next;
        if (g->span > 0) {
            shrink(a, g);
            continue;
        }
        if (g->first->live || g->first->next != NULL) continue;
        fri_freelist_remove(pool_of(a, g->small), g->first);
        segment_give(a, g);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

/* Cuts b after `size` bytes when the rest is worth a block of its own. False: out of host memory, b is whole. */
static bool split(fri_allocator *a, fri_block *b, size_t size) {
    size_t rest = b->size - size;
    if (b->segment->small || b->segment->span > 0 ? rest < FRI_ROUND_BYTES : rest <= FRI_SMALL_BYTES) return true;
    fri_block *tail = block_new(a, b->segment, b->offset + size, rest);
    if (tail == NULL) return false;
    tail->prev = b;
    tail->next = b->next;
    if (b->next != NULL) b->next->prev = tail;
    b->next = tail;
    b->size = size;
    fri_freelist_insert(pool_of(a, b->segment->small), tail);
    return true;
}

/* Joins b with the free neighbour after it, which is in the list. */
static void absorb_next(fri_allocator *a, fri_block *b) {
    fri_block *n = b->next;
    fri_freelist_remove(pool_of(a, b->segment->small), n);
    b->size += n->size;
    b->next = n->next;
    if (n->next != NULL) n->next->prev = b;
    free(n);
    a->blocks--;
}

static void cache(fri_allocator *a, fri_block *b) {
    if (b->next != NULL && !b->next->live) absorb_next(a, b);
    if (b->prev != NULL && !b->prev->live) {
        /* The neighbour before leaves the list and swallows b; b itself is in no list. */
        fri_block *p = b->prev;
        fri_freelist_remove(pool_of(a, p->segment->small), p);
        p->size += b->size;
        p->next = b->next;
        if (b->next != NULL) b->next->prev = p;
        free(b);
        a->blocks--;
        b = p;
    }
    if (fri_env_get()->no_pool)
        segment_give(a, b->segment);
    else
        fri_freelist_insert(pool_of(a, b->segment->small), b);
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

static fr_status out_of_memory(fri_allocator *a, size_t rounded, const fri_tag *tag) {
    a->stats.ooms++;
    emit_plain(a, FRI_EVENT_OOM, rounded);
    return fri_report_out_of_memory(a, rounded, tag);
}

/* A block of 0 bytes: live, tagged, without memory or a segment. */
static fr_status alloc_empty(fri_allocator *a, fri_block **out) {
    fri_block *b = calloc(1, sizeof *b);
    if (b == NULL) return fri_fail(FR_ENOMEM, "allocator: out of host memory");
    b->owner = a;
    *out = b;
    return FR_OK;
}

/* A block at its planned place; size is the request, there is no tail. */
static fr_status alloc_in_arena(fri_allocator *a, size_t offset, size_t rounded, fri_block **out) {
    fri_block *b = calloc(1, sizeof *b);
    if (b == NULL) {
        fri_arena_give(a->arena, offset);
        return fri_fail(FR_ENOMEM, "allocator: out of host memory");
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

fr_status fri_block_alloc(fri_allocator *a, size_t bytes, const fri_tag *tag, fri_block **out) {
    fri_block *b = NULL;
    size_t place = 0;
    uint64_t note = 0;
    if (a->fail_at != 0 && --a->fail_at == 0) return out_of_memory(a, fri_round_bytes(bytes), tag);
    if (bytes > SIZE_MAX / 2) return out_of_memory(a, bytes, tag);
    size_t rounded = fri_round_bytes(bytes);
    if (rounded == 0) {
        fr_status s = alloc_empty(a, &b);
        if (s < 0) return s;
    } else if (a->arena != NULL && fri_arena_take(a->arena, rounded, &place, &note)) {
        fr_status s = alloc_in_arena(a, place, rounded, &b);
        if (s < 0) return s;
    } else {
        fri_freelist *pool = pool_of(a, rounded <= FRI_SMALL_BYTES);
        b = fri_freelist_best_fit(pool, rounded);
        if (b != NULL) {
            fri_freelist_remove(pool, b);
        } else if ((b = segment_take(a, rounded)) == NULL) {
            a->stats.retries++;
            fri_allocator_empty_cache(a);
            if ((b = segment_take(a, rounded)) == NULL) return out_of_memory(a, rounded, tag);
        }
        if (!split(a, b, rounded)) {
            cache(a, b);
            return fri_fail(FR_ENOMEM, "allocator: out of host memory");
        }
    }
    b->requested = rounded;
    b->tag = *tag;
    b->arena_note = note;
    b->serial = a->next_serial++;
    b->live = true;
    live_append(a, b);
    count_alloc(a, b);
    emit(a, FRI_EVENT_ALLOC, b, tag->category);
    *out = b;
    if (a->uses.count == 0) return FR_OK;
    fr_status s = fri_uses_follow(&a->uses, streams_of(a), b->data, b->size);
    if (s < 0) fri_block_free(out);
    return s;
}

fr_status fri_block_used(fri_block *b, fri_fence until) {
    fri_allocator *a = b->owner;
    if (a == NULL || b->data == NULL) return FR_OK;
    return fri_uses_add(&a->uses, streams_of(a), b->data, b->size, until);
}

void fri_block_free(fri_block **p) {
    fri_block *b = *p;
    *p = NULL;
    if (b == NULL) return;
    fri_allocator *a = b->owner;
    count_free(a, b);
    emit(a, FRI_EVENT_FREE, b, b->tag.category);
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
        cache(a, b);
}

/* ---- the arena --------------------------------------------------------------------------------------------- */

/* Segments that belong to no pool. False: over the limit, or the device has no room. */
static bool plain_segment_take(fri_allocator *a, size_t bytes, void **data) {
    *data = NULL;
    if (bytes > a->stats.limit || a->stats.reserved > a->stats.limit - bytes) return false;
    if (bytes > 0 && a->source.alloc(bytes, data) < 0) return false;
    count_segment(a, bytes);
    return true;
}

static void plain_segment_give(fri_allocator *a, size_t bytes, void *data) {
    if (bytes > 0) source_free(a, data, bytes);
    count_segment_gone(a, bytes);
}

fr_status fri_allocator_arena_install(fri_allocator *a, fri_arena *arena) {
    size_t extent = fri_arena_extent(arena);
    fri_tag tag = fri_tag_make(FR_MEM_OTHER, FR_U8, &(fri_shape){.rank = 1, .dim = {(int64_t)extent}});
    if (a->arena != NULL) return fri_fail(FR_EUSAGE, "arena: the allocator of %s has one", fr_device_name(a->device));
    if (!plain_segment_take(a, extent, &a->arena_data)) return out_of_memory(a, extent, &tag);
    a->arena = arena;
    return FR_OK;
}

fr_status fri_allocator_arena_remove(fri_allocator *a) {
    if (a->arena == NULL) return FR_OK;
    if (a->arena_blocks > 0) return fri_fail(FR_EUSAGE, "arena: %zu blocks still live in it", a->arena_blocks);
    plain_segment_give(a, fri_arena_extent(a->arena), a->arena_data);
    if (a->extension_bytes > 0) plain_segment_give(a, a->extension_bytes, a->extension);
    a->arena_data = a->extension = NULL;
    a->extension_bytes = 0;
    fri_arena_destroy(&a->arena);
    return FR_OK;
}

/* An fri_arena_extend_fn. What the departed section left in the cache is not needed a second time. */
static bool extend_arena(void *allocator, size_t bytes) {
    fri_allocator *a = allocator;
    void *data = NULL;
    fri_allocator_empty_cache(a);
    if (bytes <= a->extension_bytes) return true;
    if (!plain_segment_take(a, bytes, &data)) return false;
    if (a->extension_bytes > 0) plain_segment_give(a, a->extension_bytes, a->extension);
    a->extension = data;
    a->extension_bytes = bytes;
    return true;
}

void fri_allocator_arena_follow(fri_allocator *a, int section) {
    if (a->arena != NULL) fri_arena_section(a->arena, section, extend_arena, a);
}

fri_arena *fri_allocator_arena(const fri_allocator *a) {
    return a->arena;
}

/* ---- looking at it ----------------------------------------------------------------------------------------- */

void fri_allocator_stats(const fri_allocator *a, fr_memory_stats *out) {
    *out = a->stats;
    size_t small = a->small.count ? a->small.items[a->small.count - 1]->size : 0;
    size_t large = a->large.count ? a->large.items[a->large.count - 1]->size : 0;
    out->largest_free = small > large ? small : large;
}

void fri_allocator_reset_peak(fri_allocator *a) {
    fr_memory_stats *t = &a->stats;
    t->peak_requested = t->requested;
    t->peak_allocated = t->allocated;
    t->peak_reserved = t->reserved;
    memcpy(t->at_peak_requested, t->requested_by, sizeof t->requested_by);
    memcpy(t->at_peak_allocated, t->allocated_by, sizeof t->allocated_by);
    t->peak_op = fri_scope_op();
    t->peak_module = fri_scope_module();
    t->peak_phase = fri_scope_phase();
}

void fri_allocator_limit(fri_allocator *a, size_t bytes) {
    a->stats.limit = bytes;
}

uint64_t fri_allocator_fingerprint(const fri_allocator *a) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const fri_segment *g = a->segments; g != NULL; g = g->next) {
        h = (h ^ g->size ^ (uint64_t)g->small) * 0x9e3779b97f4a7c15u;
        for (const fri_block *b = g->first; b != NULL; b = b->next) {
            h = (h ^ (b->size << 1) ^ (uint64_t)b->live) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
    }
    return h;
}

fr_device fri_allocator_device(const fri_allocator *a) {
    return a->device;
}

void fri_allocator_silence(fri_allocator *a) {
    a->silent = true;
}

void fri_allocator_fail_at(fri_allocator *a, uint64_t n) {
    a->fail_at = n;
}

void fri_allocator_each(const fri_allocator *a, void (*fn)(void *ctx, const fri_block *b), void *ctx) {
    for (const fri_block *b = a->live; b != NULL; b = b->live_next) fn(ctx, b);
}
