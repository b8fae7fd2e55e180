/* chain.c - see chain.h. */
#include "plan/chain.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes in slots. */
typedef struct cell {
    int input, saved[FR_UNIT_OPTIONS];
} cell;

struct fri_solution {
    const fri_chain *chain; /* only during the solving */
    int n, slots;
    size_t slot; /* bytes */
    cell *cell;
    double *time;    /* [i, j][slots + 1] */
    int16_t *choice; /* an option, FR_UNIT_OPTIONS + k for a range that ends before unit k, or -1 */
};

/* State (i, j), i < j, among the pairs. */
static size_t at(const fri_solution *s, int i, int j) {
    size_t n = (size_t)s->n, row = (size_t)i;
    return (row * n - row * (row - 1) / 2 + (size_t)(j - i - 1)) * (size_t)(s->slots + 1);
}

static int in_slots(const fri_solution *s, size_t bytes) {
    size_t n = bytes / s->slot + (bytes % s->slot != 0);
    return n > (size_t)s->slots + 1 ? s->slots + 1 : (int)n;
}

static double time_of(const fri_solution *s, int i, int j, int m) {
    return i == j ? 0 : m < 0 ? INFINITY : s->time[at(s, i, j) + (size_t)m];
}

/* Leaf gradients of units j and behind, and the gradient that waits at j. */
static size_t behind(const fri_chain *c, int j) {
    size_t bytes = j < c->n ? c->unit[j].input : 0;
    for (int u = j; u < c->n; u++) bytes += c->unit[u].gradient;
    return bytes;
}

static size_t leaf_gradients_after(const fri_chain *c, int i) {
    size_t bytes = 0;
    for (int u = i + 1; u < c->n; u++) bytes += c->unit[u].gradient;
    return bytes;
}

static void try_option(fri_solution *s, int i, int j, int o, size_t waiting) {
    const fri_chain_unit *u = &s->chain->unit[i];
    const fri_unit_cost *c = &u->option[o];
    double *time = s->time + at(s, i, j);
    int16_t *choice = s->choice + at(s, i, j);
    int saved = s->cell[i].saved[o];
    int forward = in_slots(s, c->forward_peak + waiting);
    int backward = in_slots(s, c->backward_peak + leaf_gradients_after(s->chain, i));
    int least = forward > backward ? forward : backward;
    if (least < saved) least = saved;
    /* The last unit of a recomputation; the whole chain's last unit runs in full. */
    double own = c->forward + c->backward - (j == i + 1 && j < s->n ? u->tail : 0);
    for (int m = least; m <= s->slots; m++) {
        double t = own + time_of(s, i + 1, j, m - saved);
        if (t < time[m]) {
            time[m] = t;
            choice[m] = (int16_t)o;
        }
    }
}

static void try_range(fri_solution *s, int i, int j, int k, double plain, size_t peak) {
    double *time = s->time + at(s, i, j);
    int16_t *choice = s->choice + at(s, i, j);
    const double *again = s->time + at(s, i, k), *rest = s->time + at(s, k, j);
    int held = s->cell[i].input, least = in_slots(s, peak);
    for (int m = least > held ? least : held; m <= s->slots; m++) {
        double t = plain + again[m] + rest[m - held];
        if (t < time[m]) {
            time[m] = t;
            choice[m] = (int16_t)(FR_UNIT_OPTIONS + k);
        }
    }
}

static void solve_state(fri_solution *s, int i, int j) {
    const fri_chain *c = s->chain;
    size_t waiting = behind(c, j);
    for (int o = 0; o < FR_UNIT_OPTIONS; o++)
        if (c->unit[i].option[o].possible) try_option(s, i, j, o, waiting);
    double plain = 0;
    size_t peak = 0;
    for (int k = i + 1; k < j; k++) {
        const fri_chain_unit *u = &c->unit[k - 1];
        size_t now = u->plain_peak + (k - 1 > i ? c->unit[i].input : 0) + waiting;
        plain += u->plain;
        if (now > peak) peak = now;
        try_range(s, i, j, k, plain, peak);
    }
}

fr_status fri_chain_solve(const fri_chain *c, size_t memory, int slots, fri_solution **out) {
    if (c->n < 1 || c->n > FRI_CHAIN_MOST || slots < 1)
        return fri_fail(FR_EINVAL, "chain: %d units and %d slots; 1..%d units and at least 1 slot are needed", c->n,
                        slots, FRI_CHAIN_MOST);
    fri_solution *s = calloc(1, sizeof *s);
    if (s == NULL) return fri_fail(FR_ENOMEM, "chain: out of host memory");
    size_t cells = (size_t)c->n * (size_t)(c->n + 1) / 2 * (size_t)(slots + 1);
    *s = (fri_solution){.chain = c,
                        .n = c->n,
                        .slots = slots,
                        .slot = memory / (size_t)slots > 0 ? memory / (size_t)slots : 1,
                        .cell = calloc((size_t)c->n, sizeof *s->cell),
                        .time = malloc(cells * sizeof *s->time),
                        .choice = malloc(cells * sizeof *s->choice)};
    if (s->cell == NULL || s->time == NULL || s->choice == NULL) {
        fri_solution_release(&s);
        return fri_fail(FR_ENOMEM, "chain: no host memory for %zu states", cells);
    }
    for (size_t k = 0; k < cells; k++) {
        s->time[k] = INFINITY;
        s->choice[k] = -1;
    }
    for (int i = 0; i < c->n; i++) {
        s->cell[i].input = in_slots(s, c->unit[i].input);
        for (int o = 0; o < FR_UNIT_OPTIONS; o++) s->cell[i].saved[o] = in_slots(s, c->unit[i].option[o].saved);
    }
    for (int length = 1; length <= c->n; length++)
        for (int i = 0; i + length <= c->n; i++) solve_state(s, i, i + length);
    s->chain = NULL;
    fri_solution_release(out);
    *out = s;
    return FR_OK;
}

void fri_solution_release(fri_solution **p) {
    fri_solution *s = *p;
    *p = NULL;
    if (s == NULL) return;
    free(s->cell);
    free(s->time);
    free(s->choice);
    free(s);
}

double fri_solution_time(const fri_solution *s, int slots) {
    return time_of(s, 0, s->n, slots > s->slots ? s->slots : slots);
}

/* Ranges come out outer first, then by first unit: a range, what is in it, what is behind it. */
static void walk(const fri_solution *s, int i, int j, int m, fr_unit_option *option, fr_unit_range *range, int *count) {
    while (i < j) {
        int choice = s->choice[at(s, i, j) + (size_t)m];
        if (choice < FR_UNIT_OPTIONS) {
            option[i] = (fr_unit_option)choice;
            m -= s->cell[i].saved[choice];
            i++;
        } else {
            int k = choice - FR_UNIT_OPTIONS;
            range[(*count)++] = (fr_unit_range){i, k};
            walk(s, i, k, m, option, range, count);
            m -= s->cell[i].input;
            i = k;
        }
    }
}

int fri_solution_plan(const fri_solution *s, int slots, fr_unit_option *option, fr_unit_range *range) {
    int count = 0;
    if (slots > s->slots) slots = s->slots;
    if (!isfinite(fri_solution_time(s, slots))) return -1;
    walk(s, 0, s->n, slots, option, range, &count);
    return count;
}

/* ---- long chains ------------------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* *a becomes a followed by b. */
static void join(fri_chain_unit *a, const fri_chain_unit *b) {
    for (int o = 0; o < FR_UNIT_OPTIONS; o++) {
        fri_unit_cost *x = &a->option[o];
        const fri_unit_cost *y = &b->option[o];
        x->possible = x->possible && y->possible;
        x->forward += y->forward;
        x->backward += y->backward;
        x->forward_peak = larger(x->forward_peak, x->saved + y->forward_peak);
        x->backward_peak = larger(x->backward_peak + b->gradient, x->saved + y->backward_peak);
        x->saved += y->saved;
    }
    a->gradient += b->gradient;
    a->plain += b->plain;
    a->tail = b->tail;
    a->plain_peak = larger(a->plain_peak, b->plain_peak);
}

/* Bytes that a pair saves at most. */
static size_t weight(const fri_chain_unit *a, const fri_chain_unit *b) {
    size_t most = 0;
    for (int o = 0; o < FR_UNIT_OPTIONS; o++)
        if (a->option[o].possible && b->option[o].possible)
            most = larger(most, a->option[o].saved + b->option[o].saved);
    return most;
}

fr_status fri_chain_merge(const fri_chain *c, fri_chain *out, int *group) {
    fri_chain_unit *u = malloc((size_t)(c->n > 0 ? c->n : 1) * sizeof *u);
    if (u == NULL) return fri_fail(FR_ENOMEM, "chain: out of host memory");
    if (c->n > 0) memcpy(u, c->unit, (size_t)c->n * sizeof *u);
    int n = c->n;
    for (int i = 0; i < n; i++) group[i] = i;
    while (n > FRI_CHAIN_MOST) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (weight(&u[i], &u[i + 1]) < weight(&u[best], &u[best + 1])) best = i;
        join(&u[best], &u[best + 1]);
        memmove(&u[best + 1], &u[best + 2], (size_t)(n - best - 2) * sizeof *u);
        n--;
        for (int i = 0; i < c->n; i++)
            if (group[i] > best) group[i]--;
    }
    *out = (fri_chain){.n = n, .unit = u};
    return FR_OK;
}
