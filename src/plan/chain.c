/* chain.c - see chain.h. */
#include "plan/chain.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fri_solution {
    const fri_chain *chain; /* borrowed */
    int n, slots;
    size_t slot;     /* bytes */
    size_t *held;    /* [i][k]: input(i, k), 0 <= i, k <= n */
    float *time;     /* [i, j][before][slots + 1] */
    int16_t *choice; /* an option, FR_UNIT_OPTIONS + k for a range up to unit k - 1, or -1 */
};

static bool is_recomputed(fr_unit_option o) {
    return o == FR_UNIT_REBUILD || o == FR_UNIT_REBUILD_OFFLOAD;
}

fri_before fri_chain_next(const fri_chain_unit *u, fri_before before, fr_unit_option o) {
    if (before == FRI_BEFORE_RANGE && !u->source) return FRI_BEFORE_RANGE;
    return is_recomputed(o) ? FRI_BEFORE_REBUILT : FRI_BEFORE_KEPT;
}

const fri_unit_cost *fri_chain_cost(const fri_chain_unit *u, fri_before before, fr_unit_option o) {
    if (!u->option[o].possible || (is_recomputed(o) && before == FRI_BEFORE_RANGE)) return NULL;
    return o == FR_UNIT_REBUILD && before == FRI_BEFORE_REBUILT ? &u->chained : &u->option[o];
}

/* State (i, j, before), i < j, among the pairs. */
static size_t at(const fri_solution *s, int i, int j, fri_before before) {
    size_t n = (size_t)s->n, row = (size_t)i, pair = row * n - row * (row - 1) / 2 + (size_t)(j - i - 1);
    return (pair * FRI_BEFORE_STATES + before) * (size_t)(s->slots + 1);
}

static int in_slots(const fri_solution *s, size_t bytes) {
    size_t n = bytes / s->slot + (bytes % s->slot != 0);
    return n > (size_t)s->slots + 1 ? s->slots + 1 : (int)n;
}

/* input(i, k). */
static size_t held_bytes(const fri_solution *s, int i, int k) {
    return s->held[(size_t)i * (size_t)(s->n + 1) + (size_t)k];
}

/* Units of a chain without crossing values read only the input. */
static void find_held(fri_solution *s) {
    for (int i = 0; s->chain->crossing == NULL && i < s->n; i++)
        for (int k = i + 1; k <= s->n; k++)
            s->held[(size_t)i * (size_t)(s->n + 1) + (size_t)k] = s->chain->unit[i].input;
    for (int v = 0; v < s->chain->crossings; v++) {
        const fri_crossing *c = &s->chain->crossing[v];
        for (int i = c->made + 1; i <= c->last; i++)
            for (int k = c->last + 1; k <= s->n; k++) s->held[(size_t)i * (size_t)(s->n + 1) + (size_t)k] += c->bytes;
    }
}

/* Leaf gradients of units from j on, and the pending gradient at j. */
static size_t gradients_from(const fri_chain *c, int j) {
    size_t bytes = j < c->n ? c->unit[j].input : 0;
    for (int u = j; u < c->n; u++) bytes += c->unit[u].gradient;
    return bytes;
}

static size_t leaf_gradients_after(const fri_chain *c, int i) {
    size_t bytes = 0;
    for (int u = i + 1; u < c->n; u++) bytes += c->unit[u].gradient;
    return bytes;
}

static void try_option(fri_solution *s, int i, int j, fri_before before, fr_unit_option o, size_t waiting) {
    const fri_chain_unit *u = &s->chain->unit[i];
    const fri_unit_cost *c = fri_chain_cost(u, before, o);
    if (c == NULL) return;
    float *time = s->time + at(s, i, j, before);
    int16_t *choice = s->choice + at(s, i, j, before);
    const float *rest = i + 1 < j ? s->time + at(s, i + 1, j, fri_chain_next(u, before, o)) : NULL;
    bool tail = j == i + 1 && j < s->n; /* the last unit of a recomputation; the whole chain's last runs in full */
    size_t most = tail && u->tail_peak < c->forward_peak ? u->tail_peak : c->forward_peak;
    int saved = in_slots(s, c->saved);
    int forward = in_slots(s, most + waiting);
    int backward = in_slots(s, c->backward_peak + leaf_gradients_after(s->chain, i));
    int least = forward > backward ? forward : backward;
    if (least < saved) least = saved;
    float own = (float)(c->forward + c->backward - (tail ? u->tail : 0));
    for (int m = least; m <= s->slots; m++) {
        float t = rest != NULL ? own + rest[m - saved] : own;
        if (t < time[m]) {
            time[m] = t;
            choice[m] = (int16_t)o;
        }
    }
}

static void try_range(fri_solution *s, int i, int j, fri_before before, int k, double plain, size_t peak) {
    float *time = s->time + at(s, i, j, before), once = (float)plain;
    int16_t *choice = s->choice + at(s, i, j, before);
    const float *again = s->time + at(s, i, k, FRI_BEFORE_RANGE), *rest = s->time + at(s, k, j, FRI_BEFORE_RANGE);
    int kept = in_slots(s, held_bytes(s, i, k)), least = in_slots(s, peak);
    for (int m = least > kept ? least : kept; m <= s->slots; m++) {
        float t = once + again[m] + rest[m - kept];
        if (t < time[m]) {
            time[m] = t;
            choice[m] = (int16_t)(FR_UNIT_OPTIONS + k);
        }
    }
}

static void solve_state(fri_solution *s, int i, int j, fri_before before) {
    const fri_chain *c = s->chain;
    size_t waiting = gradients_from(c, j);
    for (int o = 0; o < FR_UNIT_OPTIONS; o++) try_option(s, i, j, before, (fr_unit_option)o, waiting);
    double plain = 0;
    size_t peak = 0;
    for (int k = i + 1; k < j; k++) {
        const fri_chain_unit *u = &c->unit[k - 1];
        size_t now = u->plain_peak + held_bytes(s, i, k - 1) + waiting;
        plain += u->plain;
        if (now > peak) peak = now;
        try_range(s, i, j, before, k, plain, peak);
    }
}

fr_status fri_chain_solve(const fri_chain *c, size_t memory, int slots, fri_solution **out) {
    if (c->n < 1 || c->n > FRI_CHAIN_MOST || slots < 1)
        return fr_fail(FR_EINVAL, "chain: %d units and %d slots; 1..%d units and at least 1 slot are needed", c->n,
                       slots, FRI_CHAIN_MOST);
    fri_solution *s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "chain: out of host memory");
    size_t cells = (size_t)c->n * (size_t)(c->n + 1) / 2 * FRI_BEFORE_STATES * (size_t)(slots + 1);
    *s = (fri_solution){.chain = c,
                        .n = c->n,
                        .slots = slots,
                        .slot = memory / (size_t)slots > 0 ? memory / (size_t)slots : 1,
                        .time = malloc(cells * sizeof *s->time),
                        .choice = malloc(cells * sizeof *s->choice),
                        .held = calloc((size_t)(c->n + 1) * (size_t)(c->n + 1), sizeof *s->held)};
    if (s->time == NULL || s->choice == NULL || s->held == NULL) {
        fri_solution_release(&s);
        return fr_fail(FR_ENOMEM, "chain: no host memory for %zu states", cells);
    }
    find_held(s);
    for (size_t k = 0; k < cells; k++) {
        s->time[k] = INFINITY;
        s->choice[k] = -1;
    }
    for (int length = 1; length <= c->n; length++)
        for (int i = 0; i + length <= c->n; i++)
            for (int b = 0; b < FRI_BEFORE_STATES; b++) solve_state(s, i, i + length, (fri_before)b);
    fri_solution_release(out);
    *out = s;
    return FR_OK;
}

void fri_solution_release(fri_solution **p) {
    fri_solution *s = *p;
    *p = NULL;
    if (s == NULL) return;
    free(s->time);
    free(s->choice);
    free(s->held);
    free(s);
}

double fri_solution_time(const fri_solution *s, int slots) {
    if (slots < 0) return INFINITY;
    return s->time[at(s, 0, s->n, FRI_BEFORE_KEPT) + (size_t)(slots > s->slots ? s->slots : slots)];
}

/* Ranges come out outer first, then by first unit: a range, inner ranges, following ranges. */
static void trace_choices(const fri_solution *s, int i, int j, fri_before before, int m, fr_unit_option *option,
                          fr_unit_range *range, int *count) {
    while (i < j) {
        const fri_chain_unit *u = &s->chain->unit[i];
        int choice = s->choice[at(s, i, j, before) + (size_t)m];
        if (choice < FR_UNIT_OPTIONS) {
            option[i] = (fr_unit_option)choice;
            m -= in_slots(s, fri_chain_cost(u, before, option[i])->saved);
            before = fri_chain_next(u, before, option[i]);
            i++;
        } else {
            int k = choice - FR_UNIT_OPTIONS;
            range[(*count)++] = (fr_unit_range){i, k};
            trace_choices(s, i, k, FRI_BEFORE_RANGE, m, option, range, count);
            m -= in_slots(s, held_bytes(s, i, k));
            before = FRI_BEFORE_RANGE;
            i = k;
        }
    }
}

int fri_solution_plan(const fri_solution *s, int slots, fr_unit_option *option, fr_unit_range *range) {
    int count = 0;
    if (slots > s->slots) slots = s->slots;
    if (!isfinite(fri_solution_time(s, slots))) return -1;
    trace_choices(s, 0, s->n, FRI_BEFORE_KEPT, slots, option, range, &count);
    return count;
}

/* ---- long chains ------------------------------------------------------------------------------------------- */

static size_t max_bytes(size_t a, size_t b) {
    return a > b ? a : b;
}

static void join_costs(fri_unit_cost *x, const fri_unit_cost *y, size_t gradient) {
    x->possible = x->possible && y->possible;
    x->forward += y->forward;
    x->backward += y->backward;
    x->forward_peak = max_bytes(x->forward_peak, x->saved + y->forward_peak);
    x->backward_peak = max_bytes(x->backward_peak + gradient, x->saved + y->backward_peak);
    x->saved += y->saved;
}

/* *a becomes a followed by b. */
static void join_units(fri_chain_unit *a, const fri_chain_unit *b) {
    for (int o = 0; o < FR_UNIT_OPTIONS; o++) join_costs(&a->option[o], &b->option[o], b->gradient);
    join_costs(&a->chained, &b->chained, b->gradient);
    a->source = a->source || b->source;
    a->gradient += b->gradient;
    a->plain += b->plain;
    a->tail = b->tail;
    a->tail_peak = max_bytes(a->plain_peak, b->tail_peak); /* before plain_peak becomes the pair's */
    a->plain_peak = max_bytes(a->plain_peak, b->plain_peak);
}

/* Largest number of saved bytes of a pair. */
static size_t joined_bytes(const fri_chain_unit *a, const fri_chain_unit *b) {
    size_t most = 0;
    for (int o = 0; o < FR_UNIT_OPTIONS; o++)
        if (a->option[o].possible && b->option[o].possible)
            most = max_bytes(most, a->option[o].saved + b->option[o].saved);
    return most;
}

void fri_chain_free(fri_chain *c) {
    free(c->unit);
    free(c->crossing);
    *c = (fri_chain){0};
}

/* Merges the crossing values between the merged units. */
static void merge_crossings(const fri_chain *c, const int *group, fri_chain *out) {
    for (int v = 0; v < c->crossings; v++) {
        const fri_crossing *x = &c->crossing[v];
        const fri_crossing y = {group[x->made], group[x->last], x->bytes};
        if (y.last > y.made) out->crossing[out->crossings++] = y;
    }
}

fr_status fri_chain_merge(const fri_chain *c, int limit, fri_chain *out, int *group) {
    fri_chain_unit *u = malloc((size_t)(c->n > 0 ? c->n : 1) * sizeof *u);
    fri_crossing *crossing = malloc((size_t)(c->crossings > 0 ? c->crossings : 1) * sizeof *crossing);
    if (u == NULL || crossing == NULL) {
        free(u);
        free(crossing);
        return fr_fail(FR_ENOMEM, "chain: out of host memory");
    }
    if (c->n > 0) memcpy(u, c->unit, (size_t)c->n * sizeof *u);
    int n = c->n;
    for (int i = 0; i < n; i++) group[i] = i;
    while (n > limit) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (joined_bytes(&u[i], &u[i + 1]) < joined_bytes(&u[best], &u[best + 1])) best = i;
        join_units(&u[best], &u[best + 1]);
        memmove(&u[best + 1], &u[best + 2], (size_t)(n - best - 2) * sizeof *u);
        n--;
        for (int i = 0; i < c->n; i++)
            if (group[i] > best) group[i]--;
    }
    *out = (fri_chain){.n = n, .unit = u, .crossing = crossing};
    merge_crossings(c, group, out);
    if (c->crossing == NULL) {
        free(crossing);
        out->crossing = NULL;
    }
    return FR_OK;
}
