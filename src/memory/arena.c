/* arena.c - offline placement, and following it. */
#include "memory/arena.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- placement --------------------------------------------------------------------------------------------- */

typedef int order_fn(const void *a, const void *b);

static int by_begin(const fri_lifetime *x, const fri_lifetime *y) {
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int largest_first(const void *a, const void *b) {
    const fri_lifetime *x = *(fri_lifetime *const *)a, *y = *(fri_lifetime *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return by_begin(x, y);
}

static int longest_first(const void *a, const void *b) {
    const fri_lifetime *x = *(fri_lifetime *const *)a, *y = *(fri_lifetime *const *)b;
    size_t p = x->end - x->begin, q = y->end - y->begin;
    if (p != q) return p < q ? 1 : -1;
    return largest_first(a, b);
}

static int oldest_first(const void *a, const void *b) {
    return by_begin(*(fri_lifetime *const *)a, *(fri_lifetime *const *)b);
}

static bool overlap(const fri_lifetime *a, const fri_lifetime *b) {
    return a->begin < b->end && b->begin < a->end;
}

/* Puts blocks one by one into the smallest gap that holds them among the blocks alive at the same time. `placed` stays
 * sorted by offset, so one pass finds the gaps. */
static size_t place_in_order(fri_lifetime **order, size_t n, fri_lifetime **placed, size_t stop_above) {
    size_t extent = 0;
    for (size_t i = 0; i < n; i++) {
        fri_lifetime *b = order[i];
        size_t top = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
        for (size_t k = 0; k < i; k++) {
            const fri_lifetime *p = placed[k];
            if (!overlap(b, p)) continue;
            if (p->offset > top && p->offset - top >= b->bytes && p->offset - top < best_gap) {
                best = top;
                best_gap = p->offset - top;
            }
            if (p->offset + p->bytes > top) top = p->offset + p->bytes;
        }
        b->offset = best != SIZE_MAX ? best : top;
        if (b->offset + b->bytes > extent) extent = b->offset + b->bytes;
        if (extent > stop_above) return extent;
        size_t at = i;
        while (at > 0 && placed[at - 1]->offset > b->offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = b;
    }
    return extent;
}

struct edge {
    size_t at;
    size_t bytes;
    bool begins;
};

static int earlier(const void *a, const void *b) {
    const struct edge *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (int)x->begins - (int)y->begins; /* frees first */
}

static size_t largest_live_set(const fri_lifetime *l, size_t n, struct edge *edges) {
    size_t live = 0, peak = 0;
    for (size_t i = 0; i < n; i++) {
        edges[2 * i] = (struct edge){l[i].begin, l[i].bytes, true};
        edges[2 * i + 1] = (struct edge){l[i].end, l[i].bytes, false};
    }
    qsort(edges, 2 * n, sizeof(*edges), earlier);
    for (size_t i = 0; i < 2 * n; i++) {
        live = edges[i].begins ? live + edges[i].bytes : live - edges[i].bytes;
        if (live > peak) peak = live;
    }
    return peak;
}

fr_status fri_arena_place(fri_lifetime *l, size_t n, size_t *extent, size_t *peak) {
    static order_fn *const orders[] = {largest_first, longest_first, oldest_first};
    fr_status s = FR_OK;
    fri_lifetime **order = malloc((n + 1) * sizeof(*order)), **placed = malloc((n + 1) * sizeof(*placed));
    size_t *best = malloc((n + 1) * sizeof(*best));
    struct edge *edges = malloc((2 * n + 1) * sizeof(*edges));
    *extent = *peak = 0;
    if (order == NULL || placed == NULL || best == NULL || edges == NULL) {
        s = fri_fail(FR_ENOMEM, "arena: out of host memory");
        goto done;
    }
    *peak = largest_live_set(l, n, edges);
    size_t least = SIZE_MAX;
    for (size_t k = 0; k < sizeof orders / sizeof *orders && least > *peak; k++) {
        for (size_t i = 0; i < n; i++) order[i] = &l[i];
        qsort(order, n, sizeof(*order), orders[k]);
        size_t e = place_in_order(order, n, placed, least);
        if (e >= least) continue;
        least = e;
        for (size_t i = 0; i < n; i++) best[i] = l[i].offset;
    }
    for (size_t i = 0; i < n; i++) l[i].offset = best[i];
    *extent = n > 0 ? least : 0;
done:
    free(order);
    free(placed);
    free(best);
    free(edges);
    return s;
}

/* ---- following it ------------------------------------------------------------------------------------------ */

struct place {
    size_t offset, bytes;
};

struct fri_arena {
    size_t extent;
    struct place *plan; /* in order of allocation */
    size_t *first;
    int n_sections, section;
    size_t next; /* position in the plan */
    bool departed;
    struct place *live; /* sorted by offset */
    size_t n_live, live_capacity;
};

fr_status fri_arena_create(const fri_lifetime *l, size_t n, const size_t *first, int n_sections, size_t extent,
                           fri_arena **out) {
    fri_arena *a = calloc(1, sizeof *a);
    if (a == NULL) return fri_fail(FR_ENOMEM, "arena: out of host memory");
    a->plan = malloc((n + 1) * sizeof(*a->plan));
    a->live = malloc((n + 1) * sizeof(*a->live));
    a->first = malloc((size_t)(n_sections + 1) * sizeof(*a->first));
    if (a->plan == NULL || a->live == NULL || a->first == NULL) {
        fri_arena_destroy(&a);
        return fri_fail(FR_ENOMEM, "arena: out of host memory");
    }
    for (size_t i = 0; i < n; i++) a->plan[i] = (struct place){l[i].offset, l[i].bytes};
    memcpy(a->first, first, (size_t)n_sections * sizeof(*first));
    a->first[n_sections] = n;
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
    const struct place *p = a->next < a->first[a->section + 1] ? &a->plan[a->next] : NULL;
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
