/* segment.c - segments: memory on its way from the device and back.
 *
 * A segment is cut into blocks by allocator.c. A miss takes a segment; a wholly free segment can go back. */
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

static void count_segment(fri_allocator *a, size_t size) {
    a->stats.segment_allocs++;
    a->stats.reserved += size;
    if (a->stats.reserved > a->stats.peak_reserved) a->stats.peak_reserved = a->stats.reserved;
    fri_allocator_emit(a, FR_EVENT_SEGMENT_ALLOC, size);
}

static void count_segment_gone(fri_allocator *a, size_t size) {
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

fri_block *fri_segment_take(fri_allocator *a, size_t rounded) {
    size_t size = segment_size(rounded);
    fri_segment *g = NULL;
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
    count_segment(a, size);
    return g->first;
fail:
    free(g);
    return NULL;
}

void fri_segment_give(fri_allocator *a, fri_segment *g) {
    size_t size = g->size;
    segment_unlink(a, g);
    source_free(a, g->data, size);
    free(g->first);
    free(g);
    a->blocks--;
    count_segment_gone(a, size);
}

void fri_segments_trim(fri_allocator *a) {
    for (fri_segment *g = a->segments, *next; g != NULL; g = next) {
        next = g->next;
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
    count_segment(a, bytes);
    return true;
}

void fri_plain_segment_give(fri_allocator *a, size_t bytes, void *data) {
    if (bytes > 0) source_free(a, data, bytes);
    count_segment_gone(a, bytes);
}
