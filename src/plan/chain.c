/* chain.c - see chain.h. */
#include "plan/chain.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* T(i, j, FRI_BEFORE_RANGE) falls with the memory in few steps, so only steps are stored. T of the other states follows
 * from T(i, j, FRI_BEFORE_RANGE) and from unit i + 1, and is kept for a single j. Choices are made again by a plan. */
struct fri_solution {
    const fri_chain *chain; /* borrowed */
    int n, slots, asked;    /* slots: asked, or a half, a quarter, ... */
    size_t slot, bytes;     /* of a slot, and of all tables */
    size_t *held;           /* [i][k]: input(i, k), 0 <= i, k <= n */
    float *column;          /* [i][before][slots + 1]: T(i, j, before) of a j */
    float *whole, *one;     /* [slots + 1]: T(0, n, FRI_BEFORE_KEPT), and scratch */
    uint32_t *end;          /* [j, i]: steps up to this pair's last; j rises, i falls */
    uint16_t *from;         /* [max]: a step's first slot */
    float *time;            /* [max] */
    uint32_t steps, max;
};

/* Slots first .. last of a row. */
typedef struct span {
    float *time;
    int first, last;
} span;

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

static float *times_of(const fri_solution *s, int i, fri_before before) {
    return s->column + ((size_t)i * FRI_BEFORE_STATES + before) * (size_t)(s->slots + 1);
}

static size_t pair_of(int i, int j) {
    return (size_t)j * (size_t)(j - 1) / 2 + (size_t)(j - 1 - i);
}

static uint32_t first_step(const fri_solution *s, int i, int j) {
    const size_t pair = pair_of(i, j);
    return pair > 0 ? s->end[pair - 1] : 0;
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

/* Bytes of the leaf gradients of all units from j on. */
static size_t leaf_gradients_from(const fri_chain *c, int j) {
    size_t bytes = 0;
    for (int u = j; u < c->n; u++) bytes += c->unit[u].gradient;
    return bytes;
}

/* Lowers `time` where option o is faster; true: in the last slot, too. */
static bool try_option(const fri_solution *s, int i, int j, fri_before before, fr_unit_option o, size_t waiting,
                       span at) {
    const fri_chain_unit *u = &s->chain->unit[i];
    const fri_unit_cost *c = fri_chain_cost(u, before, o);
    if (c == NULL) return false;
    const float *rest = i + 1 < j ? times_of(s, i + 1, fri_chain_next(u, before, o)) : NULL, was = at.time[at.last];
    bool tail = j == i + 1 && j < s->n; /* the last unit of a recomputation; the whole chain's last runs in full */
    size_t max = tail && u->tail_peak < c->forward_peak ? u->tail_peak : c->forward_peak;
    int saved = in_slots(s, c->saved);
    int forward = in_slots(s, max + waiting);
    int backward = in_slots(s, c->backward_peak + leaf_gradients_from(s->chain, i + 1));
    int min = forward > backward ? forward : backward;
    if (min < saved) min = saved;
    float own = (float)(c->forward + c->backward - (tail ? u->tail : 0));
    for (int m = min > at.first ? min : at.first; m <= at.last; m++) {
        float t = rest != NULL ? own + rest[m - saved] : own;
        at.time[m] = t < at.time[m] ? t : at.time[m];
    }
    return at.time[at.last] < was;
}

static bool try_range(const fri_solution *s, int i, int k, double plain, size_t peak, span at) {
    const float *rest = times_of(s, k, FRI_BEFORE_RANGE), once = (float)plain, was = at.time[at.last];
    int kept = in_slots(s, held_bytes(s, i, k)), min = in_slots(s, peak);
    if (min < kept) min = kept;
    if (min < at.first) min = at.first;
    for (uint32_t p = first_step(s, i, k), end = s->end[pair_of(i, k)]; p < end; p++) {
        const int next = p + 1 < end ? s->from[p + 1] - 1 : s->slots, last = next < at.last ? next : at.last;
        const float again = once + s->time[p];
        for (int m = s->from[p] > min ? s->from[p] : min; m <= last; m++) {
            float t = again + rest[m - kept];
            at.time[m] = t < at.time[m] ? t : at.time[m];
        }
    }
    return at.time[at.last] < was;
}

/* Lowers `time` to the state's, from rows of j > i. Returns the last slot's choice: an option, FR_UNIT_OPTIONS + k for
 * a range up to unit k - 1, or -1 for neither. */
static int solve_state(const fri_solution *s, int i, int j, fri_before before, bool ranges, span at) {
    const fri_chain *c = s->chain;
    /* leaf gradients of later units, and the pending gradient at j */
    size_t waiting = leaf_gradients_from(c, j) + (j < c->n ? c->unit[j].input : 0);
    size_t peak = 0;
    double plain = 0;
    int choice = -1;
    for (int o = 0; o < FR_UNIT_OPTIONS; o++)
        if (try_option(s, i, j, before, (fr_unit_option)o, waiting, at)) choice = o;
    for (int k = i + 1; ranges && k < j; k++) {
        const fri_chain_unit *u = &c->unit[k - 1];
        size_t now = u->plain_peak + held_bytes(s, i, k - 1) + waiting;
        plain += u->plain;
        if (now > peak) peak = now;
        if (try_range(s, i, k, plain, peak, at)) choice = FR_UNIT_OPTIONS + k;
    }
    return choice;
}

/* T after kept and rebuilt values: that after a range, or an option that a range forbids or makes slower. */
static void solve_others(const fri_solution *s, int i, int j) {
    for (int b = 0; b < FRI_BEFORE_RANGE; b++) {
        float *row = times_of(s, i, (fri_before)b);
        memcpy(row, times_of(s, i, FRI_BEFORE_RANGE), (size_t)(s->slots + 1) * sizeof *row);
        (void)solve_state(s, i, j, (fri_before)b, false, (span){row, 0, s->slots});
    }
}

/* False: no space for the steps of T(i, j, FRI_BEFORE_RANGE). */
static bool store_steps(fri_solution *s, int i, int j) {
    const float *row = times_of(s, i, FRI_BEFORE_RANGE);
    float last = INFINITY;
    for (int m = 0; m <= s->slots; m++) {
        if (!(row[m] < last)) continue;
        if (s->steps == s->max) return false;
        s->from[s->steps] = (uint16_t)m;
        s->time[s->steps++] = last = row[m];
    }
    s->end[pair_of(i, j)] = s->steps;
    return true;
}

static bool solve_all(fri_solution *s) {
    s->steps = 0;
    for (int j = 1; j <= s->n; j++)
        for (int i = j - 1; i >= 0; i--) {
            float *row = times_of(s, i, FRI_BEFORE_RANGE);
            for (int m = 0; m <= s->slots; m++) row[m] = INFINITY;
            (void)solve_state(s, i, j, FRI_BEFORE_RANGE, true, (span){row, 0, s->slots});
            if (!store_steps(s, i, j)) return false;
            solve_others(s, i, j);
        }
    memcpy(s->whole, times_of(s, 0, FRI_BEFORE_KEPT), (size_t)(s->slots + 1) * sizeof *s->whole);
    return true;
}

/* One mapping, so that pages of unused steps take no memory and a release gives all back. False: no memory. */
static bool take_tables(fri_solution *s) {
    const size_t n = (size_t)s->n, row = (size_t)s->slots + 1, held = (n + 1) * (n + 1), end = n * (n + 1) / 2;
    const size_t column = n * FRI_BEFORE_STATES * row;
    s->bytes = held * sizeof *s->held + (column + 2 * row + s->max) * sizeof *s->time + end * sizeof *s->end +
               s->max * sizeof *s->from;
    size_t *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    s->held = p;
    s->column = (float *)(s->held + held);
    s->whole = s->column + column;
    s->one = s->whole + row;
    s->time = s->one + row;
    s->end = (uint32_t *)(s->time + s->max);
    s->from = (uint16_t *)(s->end + end);
    return true;
}

fr_status fri_chain_solve(const fri_chain *c, size_t memory, int slots, fri_solution **out) {
    if (c->n < 1 || c->n > FRI_CHAIN_MAX || slots < 1 || slots > UINT16_MAX)
        return fr_fail(FR_EINVAL, "chain: %d units and %d slots; 1..%d units and 1..%d slots are possible", c->n, slots,
                       FRI_CHAIN_MAX, UINT16_MAX);
    fri_solution_release(out);
    fri_solution *s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "chain: out of host memory");
    *s = (fri_solution){.chain = c, .n = c->n, .slots = slots, .asked = slots, .max = FRI_CHAIN_STEPS};
    if (!take_tables(s)) {
        fri_solution_release(&s);
        return fr_fail(FR_ENOMEM, "chain: no host memory for %d units and %d slots", c->n, slots);
    }
    find_held(s);
    do {
        s->slot = memory / (size_t)s->slots > 0 ? memory / (size_t)s->slots : 1;
    } while (!solve_all(s) && (s->slots /= 2) > 0);
    *out = s;
    return FR_OK;
}

void fri_solution_release(fri_solution **p) {
    fri_solution *s = *p;
    *p = NULL;
    if (s == NULL) return;
    if (s->held != NULL) munmap(s->held, s->bytes);
    free(s);
}

/* Slots of the solution for a number of slots asked. */
static int own_slots(const fri_solution *s, int slots) {
    return (int)((int64_t)(slots > s->asked ? s->asked : slots) * s->slots / s->asked);
}

double fri_solution_time(const fri_solution *s, int slots) {
    return slots < 0 ? INFINITY : s->whole[own_slots(s, slots)];
}

/* Makes rows i .. j - 1 of j from the stored steps. Ranges inside leave the rows from their ends on as they are. */
static void restore_column(const fri_solution *s, int i, int j) {
    for (int u = j - 1; u >= i; u--) {
        float *row = times_of(s, u, FRI_BEFORE_RANGE), last = INFINITY;
        uint32_t p = first_step(s, u, j), end = s->end[pair_of(u, j)];
        for (int m = 0; m <= s->slots; m++) {
            if (p < end && s->from[p] == m) last = s->time[p++];
            row[m] = last;
        }
        solve_others(s, u, j);
    }
}

/* Ranges come out outer first, then by first unit: a range, inner ranges, following ranges. */
static void trace_choices(const fri_solution *s, int i, int j, fri_before before, int m, fr_unit_option *option,
                          fr_unit_range *range, int *count) {
    restore_column(s, i, j);
    while (i < j) {
        const fri_chain_unit *u = &s->chain->unit[i];
        s->one[m] = INFINITY;
        int choice = solve_state(s, i, j, before, true, (span){s->one, m, m});
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
    if (!isfinite(fri_solution_time(s, slots))) return -1;
    trace_choices(s, 0, s->n, FRI_BEFORE_KEPT, own_slots(s, slots), option, range, &count);
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
    size_t max = 0;
    for (int o = 0; o < FR_UNIT_OPTIONS; o++)
        if (a->option[o].possible && b->option[o].possible)
            max = max_bytes(max, a->option[o].saved + b->option[o].saved);
    return max;
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
    FRI_OWNED(fri_free) fri_chain_unit *u = malloc((size_t)(c->n + 1) * sizeof *u);
    FRI_OWNED(fri_free) fri_crossing *crossing = malloc((size_t)(c->crossings + 1) * sizeof *crossing);
    if (u == NULL || crossing == NULL) return fr_fail(FR_ENOMEM, "chain: out of host memory");
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
    *out = (fri_chain){.n = n};
    FRI_MOVE(&out->unit, u);
    if (c->crossing != NULL) FRI_MOVE(&out->crossing, crossing);
    merge_crossings(c, group, out);
    return FR_OK;
}
