/* arena.c - following a placement. */
#include "memory/arena.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- following it ------------------------------------------------------------------------------------------ */

struct place {
    size_t offset, bytes;
};

struct fri_arena {
    size_t extent;
    struct place *plan;  /* in order of allocation */
    size_t *first, *end; /* per section */
    int n_sections, section;
    size_t next; /* position in the plan */
    bool departed;
    struct place *live; /* sorted by offset */
    size_t n_live, live_capacity;
};

fr_status fri_arena_create(const fri_lifetime *l, size_t n, const size_t *first, const size_t *end, int n_sections,
                           size_t extent, fri_arena **out) {
    fri_arena *a = calloc(1, sizeof *a);
    if (a == NULL) return fri_fail(FR_ENOMEM, "arena: out of host memory");
    a->plan = malloc((n + 1) * sizeof(*a->plan));
    a->live = malloc((n + 1) * sizeof(*a->live));
    a->first = malloc((size_t)n_sections * sizeof(*a->first));
    a->end = malloc((size_t)n_sections * sizeof(*a->end));
    if (a->plan == NULL || a->live == NULL || a->first == NULL || a->end == NULL) {
        fri_arena_destroy(&a);
        return fri_fail(FR_ENOMEM, "arena: out of host memory");
    }
    for (size_t i = 0; i < n; i++) a->plan[i] = (struct place){l[i].offset, l[i].bytes};
    memcpy(a->first, first, (size_t)n_sections * sizeof(*first));
    memcpy(a->end, end, (size_t)n_sections * sizeof(*end));
    a->n_sections = n_sections;
    a->extent = extent;
    a->live_capacity = n;
    *out = a;
    return FR_OK;
}

void fri_arena_destroy(fri_arena **p) {
    fri_arena *a = *p;
    *p = NULL;
    if (a == NULL) return;
    free(a->plan);
    free(a->live);
    free(a->first);
    free(a->end);
    free(a);
}

size_t fri_arena_extent(const fri_arena *a) {
    return a->extent;
}

void fri_arena_section(fri_arena *a, int section) {
    if (section < 0 || section >= a->n_sections) {
        a->departed = true;
        return;
    }
    a->section = section;
    a->next = a->first[section];
    a->departed = false;
}

bool fri_arena_departed(const fri_arena *a) {
    return a->departed;
}

/* First live place that ends after `offset`. */
static size_t live_at(const fri_arena *a, size_t offset) {
    size_t low = 0, high = a->n_live;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->live[middle].offset + a->live[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool fri_arena_take(fri_arena *a, size_t bytes, size_t *offset) {
    if (a->departed) return false;
    const struct place *p = a->next < a->end[a->section] ? &a->plan[a->next] : NULL;
    size_t at = p != NULL ? live_at(a, p->offset) : 0;
    bool fits = p != NULL && p->bytes == bytes && a->n_live < a->live_capacity &&
                (at == a->n_live || a->live[at].offset >= p->offset + bytes);
    if (!fits) {
        a->departed = true;
        return false;
    }
    memmove(a->live + at + 1, a->live + at, (a->n_live - at) * sizeof(*a->live));
    a->live[at] = *p;
    a->n_live++;
    a->next++;
    *offset = p->offset;
    return true;
}

void fri_arena_give(fri_arena *a, size_t offset) {
    size_t at = live_at(a, offset);
    if (at == a->n_live || a->live[at].offset != offset) return;
    memmove(a->live + at, a->live + at + 1, (a->n_live - at - 1) * sizeof(*a->live));
    a->n_live--;
}
