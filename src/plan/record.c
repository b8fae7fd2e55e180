/* record.c - see record.h. */
#include "plan/record.h"

#include "base/status.h"

#include <stdlib.h>

void fri_record_event(void *record, const fri_event *e) {
    fri_record *r = record;
    bool memory = e->kind == FRI_EVENT_ALLOC || e->kind == FRI_EVENT_FREE || e->kind == FRI_EVENT_RELABEL;
    if (memory && e->device != r->device) return;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 1024;
        fri_event *events = realloc(r->events, capacity * sizeof(*events));
        if (events == NULL) {
            r->failed = true;
            return;
        }
        r->events = events;
        r->capacity = capacity;
    }
    r->events[r->count++] = *e;
}

void fri_record_free(fri_record *r) {
    free(r->events);
    *r = (fri_record){.device = r->device};
}

size_t fri_record_peak(const fri_record *r, size_t *bytes) {
    size_t live = 0, peak = 0, at = r->count;
    for (size_t i = 0; i < r->count; i++) {
        const fri_event *e = &r->events[i];
        if (e->kind == FRI_EVENT_ALLOC) live += e->allocated;
        if (e->kind == FRI_EVENT_FREE) live -= e->allocated;
        if (live > peak) {
            peak = live;
            at = i;
        }
    }
    *bytes = peak;
    return at;
}

size_t fri_record_largest_op(const fri_record *r, fri_tag *op) {
    enum { NESTING = 64 };
    struct {
        size_t live, most;
        fri_tag tag;
    } open[NESTING];
    size_t largest = 0;
    int depth = 0;
    *op = (fri_tag){.op = "", .module = ""};
    for (size_t i = 0; i < r->count; i++) {
        const fri_event *e = &r->events[i];
        switch (e->kind) {
        case FRI_EVENT_OP_BEGIN:
            if (depth < NESTING) {
                open[depth].live = open[depth].most = 0;
                open[depth].tag = e->tag;
            }
            depth++;
            break;
        case FRI_EVENT_OP_END:
            if (depth > 0 && --depth < NESTING && open[depth].most > largest) {
                largest = open[depth].most;
                *op = open[depth].tag;
            }
            break;
        case FRI_EVENT_ALLOC:
            for (int k = 0; k < depth && k < NESTING; k++) {
                open[k].live += e->allocated;
                if (open[k].live > open[k].most) open[k].most = open[k].live;
            }
            break;
        case FRI_EVENT_FREE:
            /* An op may free what was made before it; its own sum does not go below zero for that. */
            for (int k = 0; k < depth && k < NESTING; k++)
                open[k].live -= e->allocated < open[k].live ? e->allocated : open[k].live;
            break;
        default: break;
        }
    }
    return largest;
}

/* A block's allocation event, found again by its serial number. */
struct by_block {
    uint64_t block;
    size_t event;
};

static int compare(const void *a, const void *b) {
    uint64_t x = ((const struct by_block *)a)->block, y = ((const struct by_block *)b)->block;
    return (x > y) - (x < y);
}

fr_status fri_record_live(const fri_record *r, size_t at, void (*fn)(void *ctx, const fri_event *alloc), void *ctx) {
    size_t n = 0;
    struct by_block *blocks = malloc((r->count + 1) * sizeof(*blocks));
    fri_event *now = malloc((r->count + 1) * sizeof(*now));
    bool *dead = calloc(r->count + 1, sizeof(*dead));
    if (blocks == NULL || now == NULL || dead == NULL) {
        free(blocks);
        free(now);
        free(dead);
        return fri_fail(FR_ENOMEM, "plan: out of host memory");
    }
    for (size_t i = 0; i <= at && i < r->count; i++)
        if (r->events[i].kind == FRI_EVENT_ALLOC) {
            now[n] = r->events[i];
            blocks[n] = (struct by_block){r->events[i].block, n};
            n++;
        }
    qsort(blocks, n, sizeof(*blocks), compare);
    for (size_t i = 0; i <= at && i < r->count; i++) {
        const fri_event *e = &r->events[i];
        if (e->kind != FRI_EVENT_FREE && e->kind != FRI_EVENT_RELABEL) continue;
        struct by_block key = {.block = e->block};
        const struct by_block *b = bsearch(&key, blocks, n, sizeof(*blocks), compare);
        if (b == NULL) continue; /* allocated before the record began */
        if (e->kind == FRI_EVENT_FREE)
            dead[b->event] = true;
        else
            now[b->event].tag.category = e->tag.category;
    }
    for (size_t i = 0; i < n; i++)
        if (!dead[i]) fn(ctx, &now[i]);
    free(blocks);
    free(now);
    free(dead);
    return FR_OK;
}
