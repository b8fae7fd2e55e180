/* segment.c - segments: memory on its way from the device and back.
 *
 * A segment is cut into blocks by allocator.c. Segments of fixed size are taken on a miss and go back when they are
 * wholly free; a segment that grows gets and gives granules at its end. */
#include "memory/segment.h"

#include "base/env.h"

#include <stdlib.h>

const fri_streams *fri_allocator_streams(const fri_allocator *a) {
    return fri_backend_get(a->device)->streams;
}

void fri_allocator_emit(const fri_allocator *a, fr_event_kind kind, size_t bytes) {
    if (a->silent || !fri_event_wanted(a->log)) return;
    fr_event e = {.kind = kind,
                  .device = a->device,
                  .requested = bytes,
                  .allocated = bytes,
                  .tag = {.op = fri_scope_op(), .module = fri_scope_module(), .phase = fr_phase_get()}};
    fri_event_emit(a->log, &e);
}

static void source_free(fri_allocator *a, void *data, size_t bytes) {
    if (a->uses.count > 0) fri_uses_wait(&a->uses, fri_allocator_streams(a), data, bytes);
    a->source.free(data, bytes);
}

fri_freelist *fri_freelist_of(fri_allocator *a, bool small) {
    return small ? &a->small : &a->large;
}

fri_block *fri_segment_block(fri_allocator *a, fri_segment *segment, size_t offset, size_t size) {
    if (!fri_freelist_reserve(fri_freelist_of(a, segment->small), a->blocks + 1)) return NULL;
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

static void count_segment(fri_allocator *a, bool small, size_t size) {
    fri_flow_segment(a, small, size, true);
    a->stats.segment_allocs++;
    a->stats.reserved += size;
    if (a->stats.reserved > a->stats.peak_reserved) a->stats.peak_reserved = a->stats.reserved;
    fri_allocator_emit(a, FR_EVENT_SEGMENT_ALLOC, size);
}

static void count_segment_gone(fri_allocator *a, bool small, size_t size) {
    fri_flow_segment(a, small, size, false);
    a->stats.segment_frees++;
    a->stats.reserved -= size;
    fri_allocator_emit(a, FR_EVENT_SEGMENT_FREE, size);
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

/* ---- segments that grow ------------------------------------------------------------------------------------ */

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
    if (have == 0) b = fri_segment_block(a, g, g->size, more);
    if ((have == 0 && b == NULL) || more > g->span - g->size ||
        a->source.expandable->map((char *)g->data + g->size, more, granule) < 0) {
        if (b != NULL) a->blocks--;
        free(b);
        release_empty(a, g);
        return NULL;
    }
    g->size += more;
    count_segment(a, small, more);
    if (have > 0) {
        fri_freelist_remove(fri_freelist_of(a, small), tail);
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
    fri_freelist_remove(fri_freelist_of(a, g->small), tail);
    if (a->uses.count > 0) fri_uses_wait(&a->uses, fri_allocator_streams(a), (char *)g->data + keep, gone);
    a->source.expandable->unmap((char *)g->data + keep, gone);
    g->size = keep;
    count_segment_gone(a, g->small, gone);
    tail->size = keep - tail->offset;
    if (tail->size > 0) {
        fri_freelist_insert(fri_freelist_of(a, g->small), tail);
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

/* ---- segments of fixed size -------------------------------------------------------------------------------- */

fri_block *fri_segment_take(fri_allocator *a, size_t rounded) {
    size_t size = segment_size(rounded);
    fri_segment *g = NULL;
    if (a->source.expandable != NULL && !fri_env_get()->no_pool) return grow(a, rounded <= FRI_SMALL_BYTES, rounded);
    if (size > a->stats.limit || a->stats.reserved > a->stats.limit - size) return NULL;
    if ((g = calloc(1, sizeof *g)) == NULL) return NULL;
    if (a->source.alloc(size, &g->data) < 0) goto fail;
    g->size = size;
    g->small = rounded <= FRI_SMALL_BYTES;
    g->first = fri_segment_block(a, g, 0, size);
    if (g->first == NULL) {
        source_free(a, g->data, size);
        goto fail;
    }
    segment_append(a, g);
    count_segment(a, g->small, size);
    return g->first;
fail:
    free(g);
    return NULL;
}

void fri_segment_give(fri_allocator *a, fri_segment *g) {
    size_t size = g->size;
    bool small = g->small;
    segment_unlink(a, g);
    source_free(a, g->data, size);
    free(g->first);
    free(g);
    a->blocks--;
    count_segment_gone(a, small, size);
}

void fri_segments_trim(fri_allocator *a) {
    for (fri_segment *g = a->segments, *next; g != NULL; g = next) {
        next = g->next;
        if (g->span > 0) {
            shrink(a, g);
            continue;
        }
        if (g->first->live || g->first->next != NULL) continue;
        fri_freelist_remove(fri_freelist_of(a, g->small), g->first);
        fri_segment_give(a, g);
    }
}

/* ---- memory of the arena ------------------------------------------------------------------------------------- */

bool fri_plain_segment_take(fri_allocator *a, size_t bytes, void **data) {
    *data = NULL;
    if (bytes > a->stats.limit || a->stats.reserved > a->stats.limit - bytes) return false;
    if (bytes > 0 && a->source.alloc(bytes, data) < 0) return false;
    count_segment(a, false, bytes);
    return true;
}

void fri_plain_segment_give(fri_allocator *a, size_t bytes, void *data) {
    if (bytes > 0) source_free(a, data, bytes);
    count_segment_gone(a, false, bytes);
}
