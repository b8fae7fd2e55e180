/* placement.c - offsets for blocks with known lifetimes: dynamic storage allocation, offline.
 *
 * The problem is NP-hard, but training has a helpful shape. Blocks that live across sections (parameters, optimizer
 * state, buffers of the loader) are placed first, at the bottom. All further blocks live inside a section, so each
 * section is a small separate problem above. A section is placed greedily (the smallest sufficient gap, in some order);
 * if the result exceeds the lower bound, the blocks above the bound move to the front of the order for the next try
 * ("squeaky wheel": Joslin and Clements 1999). Work is bounded by counted comparisons, not by a clock, so the result is
 * equal on every machine. */
#include "memory/arena.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Comparisons of two lifetimes, about two nanoseconds each. */
static const size_t WORK_MAX = 16 * 1000 * 1000;
enum { ROUNDS_MAX = 40 };

/* Distance from the lower bound where the search stops: a thousandth. */
static size_t close_enough(size_t bound) {
    return bound + bound / 1024;
}

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

static int last_freed_first(const void *a, const void *b) {
    const size_t p = (*(fri_lifetime *const *)a)->end, q = (*(fri_lifetime *const *)b)->end;
    return p != q ? (p < q ? 1 : -1) : largest_first(a, b);
}

static int oldest_first(const void *a, const void *b) {
    return by_begin(*(fri_lifetime *const *)a, *(fri_lifetime *const *)b);
}

/* ---- an order --------------------------------------------------------------------------------------------- */

typedef struct spot {
    size_t begin, end, offset, top;
} spot;

/* Placed blocks, sorted by offset, so a single pass finds the gaps. */
typedef struct space {
    spot *placed;
    size_t n;
    size_t bottom; /* lower end of free offsets */
    size_t work;   /* comparisons so far */
} space;

static void insert_block(space *s, const fri_lifetime *b) {
    size_t at = s->n++;
    while (at > 0 && s->placed[at - 1].offset > b->offset) {
        s->placed[at] = s->placed[at - 1];
        at--;
    }
    s->placed[at] = (spot){b->begin, b->end, b->offset, b->offset + b->bytes};
}

/* The smallest gap that holds b among concurrently live blocks, else the place above all. */
static size_t gap_for(space *s, const fri_lifetime *b) {
    size_t top = s->bottom, best = SIZE_MAX, best_gap = SIZE_MAX;
    s->work += s->n;
    for (size_t k = 0; k < s->n; k++) {
        const spot *p = &s->placed[k];
        if (b->begin >= p->end || p->begin >= b->end) continue;
        if (p->offset > top && p->offset - top >= b->bytes && p->offset - top < best_gap) {
            best = top;
            best_gap = p->offset - top;
            if (best_gap == b->bytes) break;
        }
        if (p->top > top) top = p->top;
    }
    return best != SIZE_MAX ? best : top;
}

static size_t place_in_order(space *s, fri_lifetime **order, size_t n) {
    size_t extent = s->bottom;
    for (size_t i = 0; i < n; i++) {
        order[i]->offset = gap_for(s, order[i]);
        insert_block(s, order[i]);
        if (order[i]->offset + order[i]->bytes > extent) extent = order[i]->offset + order[i]->bytes;
    }
    return extent;
}

/* ---- searching an order ------------------------------------------------------------------------------------ */

/* Blocks to place, beside placed blocks. */
typedef struct group {
    fri_lifetime **blocks;
    size_t n;
    spot *fixed; /* sorted by offset */
    size_t n_fixed;
    size_t bottom;
} group;

typedef struct search {
    spot *placed;         /* room for all */
    fri_lifetime **order; /* the same */
    fri_lifetime **moved;
    size_t *best; /* offsets of the best attempt, by position in the group */
    size_t work;
} search;

static size_t try_order(search *t, const group *g) {
    space s = {.placed = t->placed, .n = g->n_fixed, .bottom = g->bottom};
    memcpy(t->placed, g->fixed, g->n_fixed * sizeof(*g->fixed));
    size_t extent = place_in_order(&s, t->order, g->n);
    t->work += s.work;
    return extent;
}

static void keep_best(search *t, const group *g, size_t *min, size_t extent) {
    *min = extent;
    for (size_t i = 0; i < g->n; i++) t->best[i] = g->blocks[i]->offset;
}

/* Blocks that end above the target go to the front of the order, the rest follow in the old order. */
static bool move_to_front(search *t, const group *g, size_t target) {
    size_t front = 0, at = 0;
    bool changed = false;
    for (size_t i = 0; i < g->n; i++)
        if (t->order[i]->offset + t->order[i]->bytes > target) {
            changed = changed || i != front;
            t->moved[front++] = t->order[i];
        }
    at = front;
    for (size_t i = 0; i < g->n; i++)
        if (t->order[i]->offset + t->order[i]->bytes <= target) t->moved[at++] = t->order[i];
    memcpy(t->order, t->moved, g->n * sizeof(*t->order));
    return changed;
}

/* The best extent found, at the blocks' offsets. */
static size_t place_group(search *t, const group *g, size_t bound) {
    static order_fn *const orders[] = {largest_first, longest_first, oldest_first, last_freed_first};
    size_t min = SIZE_MAX;
    for (size_t k = 0; k < sizeof orders / sizeof *orders && min > close_enough(bound); k++) {
        memcpy(t->order, g->blocks, g->n * sizeof(*t->order));
        qsort(t->order, g->n, sizeof(*t->order), orders[k]);
        for (int round = 0; round < ROUNDS_MAX; round++) {
            size_t extent = try_order(t, g);
            if (extent < min) keep_best(t, g, &min, extent);
            if (min <= close_enough(bound) || t->work > WORK_MAX || !move_to_front(t, g, bound)) break;
        }
    }
    for (size_t i = 0; i < g->n; i++) g->blocks[i]->offset = t->best[i];
    return min;
}

/* ---- the largest live set ---------------------------------------------------------------------------------- */

typedef struct edge {
    size_t at, bytes;
    bool begins;
} edge;

static int compare_edges(const void *a, const void *b) {
    const edge *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (int)x->begins - (int)y->begins; /* frees first */
}

/* The largest sum of live bytes, and the first time of the maximum. */
static size_t largest_live_set(const fri_lifetime *l, size_t n, edge *edges, size_t *when) {
    size_t live = 0, peak = 0;
    *when = 0;
    for (size_t i = 0; i < n; i++) {
        edges[2 * i] = (edge){l[i].begin, l[i].bytes, true};
        edges[2 * i + 1] = (edge){l[i].end, l[i].bytes, false};
    }
    qsort(edges, 2 * n, sizeof(*edges), compare_edges);
    for (size_t i = 0; i < 2 * n; i++) {
        live = edges[i].begins ? live + edges[i].bytes : live - edges[i].bytes;
        if (live <= peak) continue;
        peak = live;
        *when = edges[i].at;
    }
    return peak;
}

/* ---- all of it --------------------------------------------------------------------------------------------- */

typedef struct problem {
    fri_lifetime *l;
    size_t n;
    const size_t *cuts;
    size_t n_cuts;
    spot *lasting; /* placed blocks that live across sections, by offset */
    size_t n_lasting;
    group g;
    search t;
    edge *edges;
} problem;

static size_t section_of(const problem *p, size_t at) {
    size_t low = 0, high = p->n_cuts;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->cuts[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int by_offset(const void *a, const void *b) {
    const spot *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Longest first: permanent blocks lie densely at the bottom. */
static size_t place_lasting(problem *p) {
    group *g = &p->g;
    for (size_t i = 0; i < p->n; i++)
        if (section_of(p, p->l[i].begin) != section_of(p, p->l[i].end)) g->blocks[g->n++] = &p->l[i];
    memcpy(p->t.order, g->blocks, g->n * sizeof(*g->blocks));
    qsort(p->t.order, g->n, sizeof(*g->blocks), longest_first);
    size_t extent = try_order(&p->t, g);
    p->n_lasting = g->n;
    for (size_t i = 0; i < g->n; i++) {
        const fri_lifetime *b = g->blocks[i];
        p->lasting[i] = (spot){b->begin, b->end, b->offset, b->offset + b->bytes};
    }
    qsort(p->lasting, p->n_lasting, sizeof(*p->lasting), by_offset);
    return extent;
}

static size_t place_section(problem *p, size_t k, size_t bound) {
    group *g = &p->g;
    size_t from = k == 0 ? 0 : p->cuts[k - 1], to = k == p->n_cuts ? SIZE_MAX : p->cuts[k];
    bool floor = true;
    g->n = g->n_fixed = g->bottom = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->l[i].begin >= from && (p->l[i].end < to || k == p->n_cuts)) g->blocks[g->n++] = &p->l[i];
    for (size_t i = 0; i < p->n_lasting; i++) {
        const spot *b = &p->lasting[i];
        if (b->begin >= to || b->end <= from) continue;
        floor = floor && b->begin < from && (b->end >= to || k == p->n_cuts) && b->offset == g->bottom;
        if (floor)
            g->bottom = b->top;
        else
            g->fixed[g->n_fixed++] = *b;
    }
    return g->n > 0 ? place_group(&p->t, g, bound) : 0;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool problem_new(problem *p, fri_lifetime *l, size_t n, size_t n_fixed) {
    size_t max = n + n_fixed + 1;
    *p = (problem){.l = l, .n = n};
    p->g.blocks = malloc(max * sizeof(*p->g.blocks));
    p->g.fixed = malloc(max * sizeof(*p->g.fixed));
    p->t.placed = malloc(max * sizeof(*p->t.placed));
    p->t.order = malloc(max * sizeof(*p->t.order));
    p->t.moved = malloc(max * sizeof(*p->t.moved));
    p->t.best = malloc(max * sizeof(*p->t.best));
    p->lasting = malloc(max * sizeof(*p->lasting));
    p->edges = malloc(2 * max * sizeof(*p->edges));
    return p->g.blocks != NULL && p->g.fixed != NULL && p->t.placed != NULL && p->t.order != NULL &&
           p->t.moved != NULL && p->t.best != NULL && p->lasting != NULL && p->edges != NULL;
}

static void problem_free(problem *p) {
    free(p->g.blocks);
    free(p->g.fixed);
    free(p->t.placed);
    free(p->t.order);
    free(p->t.moved);
    free(p->t.best);
    free(p->lasting);
    free(p->edges);
}

fr_status fri_arena_place(fri_lifetime *l, size_t n, const size_t *cuts, size_t n_cuts, size_t *extent, size_t *peak) {
    FRI_OWNED(problem_free) problem p;
    size_t when = 0;
    *extent = *peak = 0;
    if (!problem_new(&p, l, n, 0)) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    p.cuts = cuts;
    p.n_cuts = n_cuts;
    *peak = largest_live_set(l, n, p.edges, &when);
    *extent = place_lasting(&p);
    /* The section of the peak sets the bound of all sections. */
    size_t decisive = section_of(&p, when);
    *extent = max_size(*extent, place_section(&p, decisive, *peak));
    for (size_t k = 0; k <= n_cuts; k++)
        if (k != decisive) *extent = max_size(*extent, place_section(&p, k, max_size(*peak, *extent)));
    return FR_OK;
}

fr_status fri_arena_place_beside(fri_lifetime *l, size_t n, const fri_place *fixed, size_t n_fixed, size_t bound,
                                 size_t *extent) {
    FRI_OWNED(problem_free) problem p;
    *extent = 0;
    if (!problem_new(&p, l, n, n_fixed)) return fr_fail(FR_ENOMEM, "arena: out of host memory");
    for (size_t i = 0; i < n; i++) p.g.blocks[p.g.n++] = &l[i];
    for (size_t i = 0; i < n_fixed; i++) {
        if (p.g.n_fixed == 0 && fixed[i].offset == p.g.bottom)
            p.g.bottom += fixed[i].bytes;
        else
            p.g.fixed[p.g.n_fixed++] = (spot){0, SIZE_MAX, fixed[i].offset, fixed[i].offset + fixed[i].bytes};
    }
    if (n > 0) *extent = place_group(&p.t, &p.g, bound);
    return FR_OK;
}
