/* record.c - see record.h. */
#include "plan/record.h"

#include "base/status.h"
#include "plan/largest_op.h"

#include <stdlib.h>

void fri_record_event(void *record, const fr_event *e) {
    fri_record *r = record;
    bool memory = e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE || e->kind == FR_EVENT_RELABEL;
    if (memory && e->device != r->device) return;
    if (FRI_ROOM(r->events, r->count, "memory events") < 0) {
        r->failed = true;
        return;
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
        const fr_event *e = &r->events[i];
        if (e->kind == FR_EVENT_ALLOC) live += e->allocated;
        if (e->kind == FR_EVENT_FREE) live -= e->allocated;
        if (live > peak) {
            peak = live;
            at = i;
        }
    }
    *bytes = peak;
    return at;
}

size_t fri_record_largest_op(const fri_record *r, fr_tag *op) {
    fri_largest_op *l = malloc(sizeof *l);
    *op = (fr_tag){.op = "", .module = ""};
    if (l == NULL) return 0;
    fri_largest_op_begin(l);
    for (size_t i = 0; i < r->count; i++) fri_largest_op_event(l, &r->events[i]);
    size_t bytes = l->bytes;
    *op = l->op;
    free(l);
    return bytes;
}

/* A block's allocation event, found again by its serial number. */
struct by_block {
    uint64_t block;
    size_t event;
};

static int compare_events(const void *a, const void *b) {
    uint64_t x = ((const struct by_block *)a)->block, y = ((const struct by_block *)b)->block;
    return (x > y) - (x < y);
}

fr_status fri_record_live(const fri_record *r, size_t at, void (*fn)(void *ctx, const fr_event *alloc), void *ctx) {
    size_t n = 0;
    struct by_block *blocks = malloc((r->count + 1) * sizeof(*blocks));
    fr_event *now = malloc((r->count + 1) * sizeof(*now));
    bool *dead = calloc(r->count + 1, sizeof(*dead));
    if (blocks == NULL || now == NULL || dead == NULL) {
        free(blocks);
        free(now);
        free(dead);
        return fr_fail(FR_ENOMEM, "plan: out of host memory");
    }
    for (size_t i = 0; i <= at && i < r->count; i++)
        if (r->events[i].kind == FR_EVENT_ALLOC) {
            now[n] = r->events[i];
            blocks[n] = (struct by_block){r->events[i].block, n};
            n++;
        }
    qsort(blocks, n, sizeof(*blocks), compare_events);
    for (size_t i = 0; i <= at && i < r->count; i++) {
        const fr_event *e = &r->events[i];
        if (e->kind != FR_EVENT_FREE && e->kind != FR_EVENT_RELABEL) continue;
        struct by_block key = {.block = e->block};
        const struct by_block *b = bsearch(&key, blocks, n, sizeof(*blocks), compare_events);
        if (b == NULL) continue; /* allocated before the record began */
        if (e->kind == FR_EVENT_FREE)
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
