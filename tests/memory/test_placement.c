/* test_placement.c - offline placement: no overlaps, never below the bound, close to the bound for training steps. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "memory/arena.h"

enum { MOST = 600, SECTIONS = 5, ROUNDS = 200 };

static uint64_t counter;

static size_t draw(size_t n) {
    return fri_philox(77, 3, counter++).v[0] % n;
}

typedef struct problem {
    fri_lifetime l[MOST];
    size_t n, cuts[SECTIONS - 1], n_cuts;
} problem;

static int ascending(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void add(problem *p, size_t begin, size_t end, size_t bytes) {
    p->l[p->n++] = (fri_lifetime){.begin = begin, .end = end, .bytes = bytes};
}

/* Any lifetimes, any sizes; some never end. Begins are distinct, as events are. */
static problem any(void) {
    problem p = {.n_cuts = draw(SECTIONS)};
    size_t n = 1 + draw(MOST - 1);
    for (size_t i = 0; i < p.n_cuts; i++) p.cuts[i] = 1 + draw(2 * n);
    qsort(p.cuts, p.n_cuts, sizeof *p.cuts, ascending);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 512 * (1 + (draw(3) == 0 ? draw(100000) : draw(8)));
        add(&p, 2 * i, draw(20) == 0 ? SIZE_MAX : 2 * i + 1 + 2 * draw(1 + draw(40)), bytes);
    }
    return p;
}

/* Parameters, then steps: a forward pass that keeps maps, a backward pass that frees maps, scratch in between. */
static problem steps(void) {
    problem p = {0};
    size_t layers = 4 + draw(30), now = 0, map[64];
    for (size_t i = 0; i < layers; i++) {
        map[i] = 512 * (1 + draw(4000));
        add(&p, now++, SIZE_MAX, 512 * (1 + draw(500)));
    }
    for (int step = 0; step < 3; step++) {
        size_t begin = now, length = 6 * layers;
        p.cuts[p.n_cuts++] = begin;
        for (size_t i = 0; i < layers; i++) {
            size_t forward = begin + 3 * i, backward = begin + length - 3 * i;
            add(&p, forward, backward - 1, map[i]);
            add(&p, forward + 1, forward + 2, 512 * (1 + draw(300)));
        }
        now = begin + length + 4;
    }
    return p;
}

static bool overlap(const fri_lifetime *a, const fri_lifetime *b) {
    bool in_time = a->begin < b->end && b->begin < a->end;
    return in_time && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static double place(problem *p, int round) {
    size_t extent = 0, peak = 0, top = 0, again = 0;
    cr_assert_eq(fri_arena_place(p->l, p->n, p->cuts, p->n_cuts, &extent, &peak), FR_OK);
    for (size_t i = 0; i < p->n; i++) {
        cr_assert_eq(p->l[i].offset % 512, 0u);
        if (p->l[i].offset + p->l[i].bytes > top) top = p->l[i].offset + p->l[i].bytes;
        for (size_t k = 0; k < i; k++)
            cr_assert(!overlap(&p->l[i], &p->l[k]), "round %d: blocks %zu and %zu overlap", round, i, k);
    }
    cr_assert_eq(extent, top, "round %d: extent %zu, last byte %zu", round, extent, top);
    cr_assert(extent >= peak);
    problem copy = *p;
    cr_assert_eq(fri_arena_place(copy.l, copy.n, copy.cuts, copy.n_cuts, &again, &peak), FR_OK);
    cr_expect_eq(memcmp(&copy, p, sizeof copy), 0, "round %d: another placement the second time", round);
    return (double)extent / (double)peak;
}

Test(placement, any_lifetimes_get_places_of_their_own) {
    for (int round = 0; round < ROUNDS; round++) {
        problem p = any();
        place(&p, round);
    }
}

Test(placement, steps_come_within_a_hundredth_of_the_bound) {
    double worst = 0, sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        problem p = steps();
        double ratio = place(&p, round);
        sum += ratio;
        if (ratio > worst) worst = ratio;
    }
    cr_expect(worst <= 1.01, "worst %.4f, mean %.4f", worst, sum / ROUNDS);
}

Test(placement, nothing_to_place) {
    size_t extent = 1, peak = 1;
    cr_assert_eq(fri_arena_place(NULL, 0, NULL, 0, &extent, &peak), FR_OK);
    cr_expect(extent == 0 && peak == 0);
}
