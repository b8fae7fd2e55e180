/* test_chain.c - the dynamic programme against brute force: every plan of small chains, walked step by step. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/chain.h"

enum { MOST = 6 };

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

static int roll(uint64_t *state, int n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

/* ---- a walk through a plan, with no recursion formula: memory goes up and down as in a run ---------------------- */

typedef struct machine {
    const fri_chain *chain;
    size_t held;  /* by saved units and inputs of ranges */
    size_t grads; /* of leaves whose backward is over */
    size_t peak;
    double time;
    bool impossible; /* rebuilds without a source */
} machine;

/* Bytes kept by a range first .. end - 1: values made before the range and read last inside. */
static size_t kept_by(const fri_chain *c, int first, int end) {
    size_t bytes = 0;
    if (c->crossing == NULL) return end > first ? c->unit[first].input : 0;
    for (int v = 0; v < c->crossings; v++) {
        const fri_crossing *x = &c->crossing[v];
        if (x->made < first && x->last >= first && x->last < end) bytes += x->bytes;
    }
    return bytes;
}

static void touch(machine *m, size_t more, int waiting_at) {
    size_t waiting = waiting_at < m->chain->n ? m->chain->unit[waiting_at].input : 0;
    size_t now = m->held + m->grads + more + waiting;
    if (now > m->peak) m->peak = now;
}

/* Cost of unit u, and the state before the next unit. */
static const fri_unit_cost *price(machine *m, const fr_unit_plan *p, int u, fri_before *before) {
    const fri_chain_unit *c = &m->chain->unit[u];
    fr_unit_option o = p->option[u];
    bool chained = o == FR_UNIT_REBUILD && *before == FRI_BEFORE_REBUILT;
    if (o == FR_UNIT_REBUILD && *before == FRI_BEFORE_RANGE) m->impossible = true;
    if (*before != FRI_BEFORE_RANGE || c->source) *before = o == FR_UNIT_REBUILD ? FRI_BEFORE_REBUILT : FRI_BEFORE_KEPT;
    return chained ? &c->chained : &c->option[o];
}

/* Runs units i .. j-1 forward, keeps values as planned, then runs backward. Ranges of this level start at number
 * r. */
static void run(machine *m, const fr_unit_plan *p, int i, int j, int r, fri_before before) {
    int first[FRI_CHAIN_MAX], end[FRI_CHAIN_MAX], number[FRI_CHAIN_MAX], steps = 0;
    size_t kept[FRI_CHAIN_MAX];
    const fri_unit_cost *cost[FRI_CHAIN_MAX];
    for (int u = i; u < j; steps++) {
        while (r < p->ranges && p->range[r].first < u) r++;
        const fri_chain_unit *c = &m->chain->unit[u];
        first[steps] = u;
        if (r < p->ranges && p->range[r].first == u && p->range[r].end <= j) {
            number[steps] = r;
            end[steps] = p->range[r].end;
            for (int k = u; k < end[steps]; k++) {
                touch(m, m->chain->unit[k].plain_peak + kept_by(m->chain, u, k), j);
                m->time += m->chain->unit[k].plain;
            }
            kept[steps] = kept_by(m->chain, u, end[steps]);
            before = FRI_BEFORE_RANGE;
        } else {
            const fri_unit_cost *o = price(m, p, u, &before);
            cost[steps] = o;
            number[steps] = -1;
            end[steps] = u + 1;
            /* A recomputation ends here, because the last result is not read. */
            bool tail = u + 1 == j && j < m->chain->n;
            touch(m, tail && c->tail_peak < o->forward_peak ? c->tail_peak : o->forward_peak, j);
            m->time += o->forward - (tail ? c->tail : 0);
            kept[steps] = o->saved;
        }
        m->held += kept[steps];
        u = end[steps];
    }
    while (steps-- > 0) {
        m->held -= kept[steps];
        if (number[steps] >= 0) {
            run(m, p, first[steps], end[steps], number[steps] + 1, FRI_BEFORE_RANGE);
        } else {
            const fri_chain_unit *c = &m->chain->unit[first[steps]];
            const fri_unit_cost *o = cost[steps];
            size_t now = m->held + m->grads + o->backward_peak;
            if (now > m->peak) m->peak = now;
            m->time += o->backward;
            m->grads += c->gradient;
        }
    }
}

static machine walk(const fri_chain *c, const fr_unit_plan *p) {
    machine m = {.chain = c};
    run(&m, p, 0, c->n, 0, FRI_BEFORE_KEPT);
    return m;
}

/* ---- every plan ---------------------------------------------------------------------------------------------- */

typedef struct search {
    const fri_chain *chain;
    size_t memory;
    double best;
    long plans;
    fr_unit_option option[MOST];
    fr_unit_range range[MOST];
    int ranges;
    struct {
        int i, j;
    } open[2 * MOST]; /* undecided parts of the chain, the next part on top */
    int depth;
} search;

static void enumerate(search *s) {
    if (s->depth == 0) {
        fr_unit_plan p = {s->chain->n, s->option, s->ranges, s->range};
        machine m = walk(s->chain, &p);
        s->plans++;
        if (!m.impossible && m.peak <= s->memory && m.time < s->best) s->best = m.time;
        return;
    }
    int i = s->open[s->depth - 1].i, j = s->open[s->depth - 1].j;
    s->depth--;
    if (i == j) {
        enumerate(s);
    } else {
        for (int o = 0; o < FR_UNIT_OPTIONS; o++) {
            if (!s->chain->unit[i].option[o].possible) continue;
            s->option[i] = (fr_unit_option)o;
            s->open[s->depth].i = i + 1;
            s->open[s->depth++].j = j;
            enumerate(s);
            s->depth--;
        }
        for (int k = i + 1; k < j; k++) {
            s->range[s->ranges++] = (fr_unit_range){i, k};
            s->open[s->depth].i = k;
            s->open[s->depth++].j = j;
            s->open[s->depth].i = i;
            s->open[s->depth++].j = k;
            enumerate(s);
            s->depth -= 2;
            s->ranges--;
        }
    }
    s->open[s->depth].i = i;
    s->open[s->depth++].j = j;
}

static double brute_force(const fri_chain *c, size_t memory, long *plans) {
    search s = {.chain = c, .memory = memory, .best = INFINITY, .depth = 1};
    s.open[0].i = 0;
    s.open[0].j = c->n;
    enumerate(&s);
    *plans += s.plans;
    return s.best;
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

static void random_chain(uint64_t *rng, fri_chain_unit *u, int n) {
    memset(u, 0, (size_t)n * sizeof *u);
    for (int i = 0; i < n; i++) {
        u[i].input = i == 0 ? 0 : (size_t)(1 + roll(rng, 3));
        u[i].gradient = (size_t)roll(rng, 2);
        u[i].plain = 1 + roll(rng, 9);
        u[i].tail = roll(rng, (int)u[i].plain + 1);
        u[i].plain_peak = u[i].input + (size_t)(1 + roll(rng, 4));
        u[i].tail_peak = u[i].input + (size_t)roll(rng, 3);
        static const fr_unit_option options[] = {FR_UNIT_KEEP, FR_UNIT_ENCODE, FR_UNIT_REBUILD, FR_UNIT_AS_SET};
        u[i].source = roll(rng, 2);
        for (int k = 0; k < 4; k++) {
            fr_unit_option o = options[k];
            fri_unit_cost *c = o == FR_UNIT_AS_SET ? &u[i].chained : &u[i].option[o];
            c->possible = o == FR_UNIT_KEEP || roll(rng, 3) > 0;
            c->saved = (size_t)(2 + roll(rng, 12));
            c->forward = u[i].plain + roll(rng, 2);
            c->backward = 2 + roll(rng, 9);
            c->forward_peak = (u[i].input > c->saved ? u[i].input : c->saved) + (size_t)(1 + roll(rng, 4));
            c->backward_peak = c->saved + (size_t)(1 + roll(rng, 5));
        }
    }
}

/* Values that skip units, besides the values handed from unit to unit. */
static void add_crossings(uint64_t *rng, fri_chain *c, fri_crossing crossing[2 * MOST]) {
    c->crossing = crossing;
    for (int i = 1; i < c->n; i++) crossing[c->crossings++] = (fri_crossing){i - 1, i, c->unit[i].input};
    for (int k = roll(rng, 4); k > 0 && c->n > 1; k--) {
        const int made = roll(rng, c->n - 1), last = made + 1 + roll(rng, c->n - 1 - made);
        const fri_crossing x = {made, last, (size_t)(1 + roll(rng, 4))};
        crossing[c->crossings++] = x;
        for (int i = made + 1; i <= last; i++) c->unit[i].input += x.bytes;
    }
}

/* Slots of one byte avoid rounding: times must be equal, and the plan must achieve the time. */
Test(chain, equals_brute_force) {
    uint64_t rng = 7;
    long plans = 0;
    int solved = 0, impossible = 0, nested = 0;
    for (int trial = 0; trial < 160; trial++) {
        fri_chain_unit unit[MOST];
        int n = 1 + roll(&rng, 5);
        fri_chain c = {.n = n, .unit = unit};
        fri_solution *s = NULL;
        fri_crossing crossing[2 * MOST];
        random_chain(&rng, unit, n);
        if (trial % 2 == 1) add_crossings(&rng, &c, crossing);
        must(fri_chain_solve(&c, 60, 60, &s));
        for (int memory = 4; memory <= 60; memory += 4) {
            double expected = brute_force(&c, (size_t)memory, &plans), found = fri_solution_time(s, memory);
            fr_unit_option option[MOST];
            fr_unit_range range[MOST];
            int ranges = fri_solution_plan(s, memory, option, range);
            cr_assert((isinf(expected) && isinf(found)) || fabs(expected - found) < 1e-9,
                      "trial %d, %d units, %d bytes: %g, brute force %g", trial, n, memory, found, expected);
            cr_assert_eq(ranges < 0, isinf(found) != 0);
            if (ranges < 0) {
                impossible++;
                continue;
            }
            solved++;
            fr_unit_plan p = {n, option, ranges, range};
            machine m = walk(&c, &p);
            cr_expect(!m.impossible && m.peak <= (size_t)memory, "trial %d: the plan needs %zu of %d", trial, m.peak,
                      memory);
            cr_expect(fabs(m.time - found) < 1e-9, "trial %d: the plan takes %g, not %g", trial, m.time, found);
            for (int a = 0; a < ranges; a++)
                for (int b = 0; b < a; b++) nested += range[a].end <= range[b].end;
        }
        fri_solution_release(&s);
    }
    cr_log_info("%ld plans, %d solved, %d impossible, %d nested ranges\n", plans, solved, impossible, nested);
    cr_expect(solved > 500 && impossible > 50 && nested > 15, "%d solved, %d impossible, %d nested", solved, impossible,
              nested);
}

/* Sizes are rounded up to slots: a plan with few, large slots needs at most the bytes of its slots. */
Test(chain, coarse_slots_never_need_more_than_they_hold) {
    enum { MEMORY = 60, SLOTS = 13 };
    uint64_t rng = 5;
    int plans = 0;
    for (int trial = 0; trial < 60; trial++) {
        fri_chain_unit unit[MOST];
        fri_chain c = {.n = MOST, .unit = unit};
        fri_solution *s = NULL;
        random_chain(&rng, unit, MOST);
        must(fri_chain_solve(&c, MEMORY, SLOTS, &s));
        for (int slots = 1; slots <= SLOTS; slots++) {
            fr_unit_option option[MOST];
            fr_unit_range range[MOST];
            int ranges = fri_solution_plan(s, slots, option, range);
            if (ranges < 0) continue;
            machine m = walk(&c, &(fr_unit_plan){MOST, option, ranges, range});
            cr_expect(m.peak <= (size_t)(slots * (MEMORY / SLOTS)), "trial %d: %zu bytes in %d slots of %d", trial,
                      m.peak, slots, MEMORY / SLOTS);
            plans++;
        }
        fri_solution_release(&s);
    }
    cr_expect_gt(plans, 100);
}

/* Saved bytes of a unit count until its backward, even if its own measured peaks are lower. */
Test(chain, a_unit_holds_what_it_saves) {
    fri_chain_unit unit[2];
    fri_chain c = {.n = 2, .unit = unit};
    fri_solution *s = NULL;
    memset(unit, 0, sizeof unit);
    unit[0].plain = unit[1].plain = 100; /* no range pays */
    unit[0].plain_peak = 60;
    unit[0].option[FR_UNIT_REBUILD] = (fri_unit_cost){true, 1, 2, 20, 5, 5};
    unit[1].option[FR_UNIT_KEEP] = (fri_unit_cost){true, 1, 2, 2, 2, 2};
    must(fri_chain_solve(&c, 60, 60, &s));
    for (int memory = 0; memory <= 60; memory++)
        cr_expect_eq(isinf(fri_solution_time(s, memory)) != 0, memory < 22, "%d bytes: %g seconds", memory,
                     fri_solution_time(s, memory));
    fri_solution_release(&s);
}

/* A range keeps its unit's input while later units run without saving: 10 for the first, 30 for the second. */
Test(chain, a_range_holds_its_input_while_it_runs) {
    fri_chain_unit unit[4];
    fri_chain c = {.n = 4, .unit = unit};
    fri_solution *s = NULL;
    memset(unit, 0, sizeof unit);
    for (int i = 0; i < 4; i++) {
        unit[i].input = i == 0 ? 0 : i == 1 ? 10 : 1;
        unit[i].plain = i == 0 ? 10 : 1; /* dear to run again */
        unit[i].plain_peak = i == 2 ? 30 : 2;
        unit[i].option[FR_UNIT_KEEP] = (fri_unit_cost){true, 1, 2, i == 3 ? 1 : 11, 12, 12};
    }
    must(fri_chain_solve(&c, 60, 60, &s));
    for (int memory = 0; memory <= 60; memory++) {
        long plans = 0;
        double expected = brute_force(&c, (size_t)memory, &plans), found = fri_solution_time(s, memory);
        cr_expect((isinf(expected) && isinf(found)) || fabs(expected - found) < 1e-9, "%d bytes: %g, brute force %g",
                  memory, found, expected);
    }
    fri_solution_release(&s);
}

static size_t most_resident(void) {
    size_t kilobytes = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtoul(line + 6, NULL, 10);
    fclose(f);
    return 1024 * kilobytes;
}

/* The most units, all different, have more steps than a solution stores. The solution has half the slots then, and
 * takes 8 MB at most; plans take the promised time, in the bytes of the slots. */
Test(chain, a_solution_of_many_units_stays_small) {
    enum { N = FRI_CHAIN_MAX, MEMORY = 600 * FRI_CHAIN_SLOTS };
    static fri_chain_unit unit[N];
    fri_chain c = {.n = N, .unit = unit};
    uint64_t rng = 3;
    int plans = 0;
    fri_solution *s = NULL;
    random_chain(&rng, unit, N);
    for (int i = 0; i < N; i++) {
        fri_unit_cost *option = unit[i].option;
        unit[i].input *= 1000;
        unit[i].plain_peak *= 1000;
        unit[i].tail_peak *= 1000;
        unit[i].plain += 0.001 * roll(&rng, 1000);
        for (int o = 0; o <= FR_UNIT_OPTIONS; o++) {
            fri_unit_cost *u = o < FR_UNIT_OPTIONS ? &option[o] : &unit[i].chained;
            u->saved = 1000 * u->saved + (size_t)roll(&rng, 1000);
            u->forward_peak = 1000 * u->forward_peak + u->saved;
            u->backward_peak = 1000 * u->backward_peak + u->saved;
            u->backward += 0.001 * roll(&rng, 1000);
        }
    }
    const size_t before = most_resident();
    must(fri_chain_solve(&c, MEMORY, FRI_CHAIN_SLOTS, &s));
    for (int slots = FRI_CHAIN_SLOTS; slots > 0; slots -= 99) {
        fr_unit_option option[N];
        fr_unit_range range[N];
        int ranges = fri_solution_plan(s, slots, option, range);
        cr_expect_eq(ranges < 0, isinf(fri_solution_time(s, slots)) != 0);
        if (ranges < 0) continue;
        machine m = walk(&c, &(fr_unit_plan){N, option, ranges, range});
        cr_expect_leq(m.peak, (size_t)slots * (MEMORY / FRI_CHAIN_SLOTS), "%zu bytes in %d slots", m.peak, slots);
        cr_expect(fabs(m.time - fri_solution_time(s, slots)) < 1e-4 * m.time, "%d slots: %g seconds for %g", slots,
                  m.time, fri_solution_time(s, slots));
        cr_expect(!m.impossible);
        plans++;
    }
    cr_expect_gt(plans, 8);
    cr_expect_eq(fri_solution_time(s, FRI_CHAIN_SLOTS - 1), fri_solution_time(s, FRI_CHAIN_SLOTS - 2));
    size_t taken = most_resident() - before;
#ifdef __SANITIZE_ADDRESS__
    taken = 0; /* the sanitizer takes memory, too */
#endif
    cr_expect_leq(taken, 8000000, "%zu bytes", taken);
    fri_solution_release(&s);
}

/* A chain with large values at the front and long times in the middle, as in convolutional networks: equal segments
 * recompute expensive units or keep large ones. */
Test(chain, beats_every_equal_split) {
    static const size_t saved[MOST] = {40, 4, 4, 4, 4, 40};
    static const double work[MOST] = {1, 20, 20, 20, 20, 1};
    fri_chain_unit unit[MOST];
    fri_chain c = {.n = MOST, .unit = unit};
    fri_solution *s = NULL;
    memset(unit, 0, sizeof unit);
    for (int i = 0; i < MOST; i++) {
        unit[i].input = i == 0 ? 0 : 4;
        unit[i].plain = work[i];
        unit[i].plain_peak = unit[i].input + 4;
        unit[i].option[FR_UNIT_KEEP] = (fri_unit_cost){true, work[i], 2 * work[i], saved[i], saved[i], saved[i] + 4};
    }
    const size_t memory = 64;
    must(fri_chain_solve(&c, memory, (int)memory, &s));
    double found = fri_solution_time(s, (int)memory), equal = INFINITY;
    fr_unit_option option[MOST];
    for (int i = 0; i < MOST; i++) option[i] = FR_UNIT_KEEP;
    for (int segments = 1; segments <= MOST; segments++) {
        fr_unit_range range[MOST];
        int size = MOST / segments;
        for (int i = 0; i + 1 < segments; i++) range[i] = (fr_unit_range){i * size, (i + 1) * size};
        fr_unit_plan p = {MOST, option, segments - 1, range};
        machine m = walk(&c, &p);
        if (m.peak <= memory && m.time < equal) equal = m.time;
    }
    cr_expect(isfinite(equal), "some equal split must fit, or there is nothing to beat");
    cr_expect(found < 0.95 * equal, "dynamic programme %g, best equal split %g", found, equal);
    fri_solution_release(&s);
}

Test(chain, merges_long_chains) {
    enum { LONG = 400 };
    static fri_chain_unit unit[LONG];
    static int group[LONG];
    fri_chain c = {.n = LONG, .unit = unit}, merged = {0};
    fri_solution *s = NULL;
    size_t gradients = 0, saved = 0;
    double forward = 0;
    for (int i = 0; i < LONG; i++)
        unit[i] = (fri_chain_unit){.input = i == 0 ? 0 : 10,
                                   .gradient = 1,
                                   .plain = 1,
                                   .plain_peak = 20,
                                   .option[FR_UNIT_KEEP] = {true, 1, 2, 10, 20, 30}};
    must(fri_chain_merge(&c, FRI_CHAIN_MAX, &merged, group));
    cr_expect_eq(merged.n, FRI_CHAIN_MAX);
    cr_expect_eq(group[0], 0);
    cr_expect_eq(group[LONG - 1], merged.n - 1);
    for (int i = 1; i < LONG; i++) cr_expect(group[i] == group[i - 1] || group[i] == group[i - 1] + 1);
    for (int i = 0; i < merged.n; i++) {
        gradients += merged.unit[i].gradient;
        saved += merged.unit[i].option[FR_UNIT_KEEP].saved;
        forward += merged.unit[i].plain;
    }
    cr_expect_eq(gradients, (size_t)LONG);
    cr_expect_eq(saved, (size_t)(10 * LONG));
    cr_expect(fabs(forward - LONG) < 1e-9);
    must(fri_chain_solve(&merged, 2000, 500, &s));
    cr_expect(isfinite(fri_solution_time(s, 500)));
    fri_solution_release(&s);
    free(merged.unit);
    cr_expect_eq(fri_chain_solve(&c, 2000, 500, &s), FR_EINVAL);
}
