/* plan.c - runs a chain of units by a plan: nested recomputation, and switches per unit.
 *
 * A range becomes a checkpoint whose function runs the units and nested ranges inside. In the first forward the inner
 * checkpoints run plainly; in the recomputation they become segments of the shadow graph. That is the recursion of
 * optimal schedules for chains (Beaumont et al., "Optimal checkpointing for heterogeneous chains"). */
#include "net/list.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

fri_unit_watch fri_unit_watch_set(fri_unit_watch w) {
    fri_unit_watch was = fri_here.units;
    fri_here.units = w;
    return was;
}

/* A plan over its list, owned by the graph as long as a checkpoint may be recomputed. */
typedef struct schedule {
    int references;
    fr_module *whole; /* retained, to keep the layers alive */
    fri_one_layer one;
    const fri_list *list;
    int *first; /* [units + 1], first layer of each unit */
    fr_unit_option *option;
    fr_unit_range *range;
    int units, ranges;
} schedule;

/* Layers of one checkpoint, and the values read and made by these layers. */
typedef struct piece {
    schedule *schedule;
    int range, n_in, n_out;
    int *in, *out; /* one allocation */
} piece;

static void schedule_release(schedule **p) {
    schedule *s = *p;
    *p = NULL;
    if (s == NULL || --s->references > 0) return;
    fr_module_release(&s->whole);
    free(s->first);
    free(s->option);
    free(s->range);
    free(s);
}

static void piece_free(void *p) {
    piece *c = p;
    schedule_release(&c->schedule);
    free(c->in);
    free(c);
}

/* ---- running ----------------------------------------------------------------------------------------------- */

static fr_switches switches_for(fr_unit_option o, fr_switches s) {
    if (o == FR_UNIT_AS_SET) return s;
    s.encode = o != FR_UNIT_KEEP;
    s.rebuild = o == FR_UNIT_INSIDE || o == FR_UNIT_REBUILD || o == FR_UNIT_REBUILD_OFFLOAD;
    s.offload = o == FR_UNIT_OFFLOAD || o == FR_UNIT_REBUILD_OFFLOAD;
    return s;
}

/* Retains the values read by layers first .. end - 1. NULL: no host memory. */
static fr_tensor **hold_inputs(const fri_net_pass *p, int first, int end, int *n) {
    int *id = malloc(((size_t)p->list->values + 1) * sizeof *id);
    fr_tensor **held = malloc(((size_t)p->list->values + 1) * sizeof *held);
    *n = 0;
    if (id != NULL && held != NULL) {
        *n = fri_reads_of(p->list, first, end, id);
        for (int i = 0; i < *n; i++) held[i] = fr_tensor_retain(p->value[id[i]]);
    }
    if (id == NULL) free(held);
    const bool failed = id == NULL;
    free(id);
    return failed ? NULL : held;
}

/* True if a fused call spans the border before layer `at`. */
static bool is_fused(const fri_list *l, int first, int at) {
    for (int i = at - 1; i >= first && i > at - 3; i--)
        if (fri_fuse(l, i, l->layers).layers > at - i) return true;
    return false;
}

/* Units that keep whole tensors or codes; both leave a norm's input unchanged. */
static bool keeps_values(fr_unit_option o) {
    return o == FR_UNIT_KEEP || o == FR_UNIT_ENCODE;
}

/* End of the units that run together with unit i: units are joined if a fused call spans their border and both save
 * in the same way. A unit watch prevents joining. */
static int join_ranges(const schedule *c, int i, int end, int r) {
    int next = i + 1;
    for (; fri_here.units.fn == NULL && next < end; next++) {
        const fr_unit_option a = c->option[next - 1], b = c->option[next];
        if (r < c->ranges && c->range[r].first == next) break;
        if (!(keeps_values(a) && keeps_values(b)) && !(a == FR_UNIT_AS_SET && b == FR_UNIT_AS_SET)) break;
        if (!is_fused(c->list, c->first[next - 1], c->first[next])) break;
    }
    return next;
}

/* Runs units i .. next - 1 under the switches of the last. */
static fr_status run_units_at_once(schedule *c, int i, int next, fri_net_pass *p) {
    fr_switches was = fr_switches_get();
    const int first = c->first[i], end = c->first[next];
    const bool inside = c->option[i] == FR_UNIT_INSIDE;
    int n_held = 0;
    fr_tensor **held = inside ? hold_inputs(p, first, end, &n_held) : NULL;
    if (inside && held == NULL) return fr_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    fr_switches_set(switches_for(c->option[next - 1], was));
    if (fri_here.units.fn != NULL) fri_here.units.fn(fri_here.units.ctx, i, false, p, first);
    fr_status s = fri_net_pass_run(p, first, end);
    if (inside) { /* releases the last handles without rebuild, because the switches at that point decide how values
                     are saved */
        fr_switches_set(switches_for(FR_UNIT_ENCODE, was));
        for (int k = 0; k < n_held; k++) fr_tensor_release(&held[k]);
        free(held);
    }
    if (fri_here.units.fn != NULL) fri_here.units.fn(fri_here.units.ctx, i, true, s == FR_OK ? p : NULL, end);
    fr_switches_set(was);
    return s;
}

static fr_status run_piece(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out);

static fr_status piece_make(schedule *c, int range, piece **out) {
    const fri_list *l = c->list;
    const int first = c->first[c->range[range].first], end = c->first[c->range[range].end];
    piece *p = malloc(sizeof *p);
    int *id = malloc(2 * ((size_t)l->values + 1) * sizeof *id);
    if (p == NULL || id == NULL) {
        free(p);
        free(id);
        return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    }
    *p = (piece){.schedule = c, .range = range, .in = id};
    p->n_in = fri_reads_of(l, first, end, p->in);
    p->out = p->in + p->n_in;
    p->n_out = fri_makes_of(l, first, end, p->out);
    c->references++;
    *out = p;
    return FR_OK;
}

static fr_status run_range(schedule *c, int range, fri_net_pass *p) {
    const int end = c->first[c->range[range].end];
    piece *run = NULL;
    fr_status s = piece_make(c, range, &run);
    if (s < 0) return s;
    const int n_in = run->n_in, n_out = run->n_out;
    FRI_OWNED(fri_free) int *id = malloc(((size_t)n_in + (size_t)n_out) * sizeof *id); /* the piece may be released */
    FRI_OWNED(fri_free) fr_tensor **slot = calloc((size_t)n_in + (size_t)n_out, sizeof *slot);
    if (slot == NULL || id == NULL) {
        piece_free(run);
        s = fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
        goto done;
    }
    memcpy(id, run->in, ((size_t)n_in + (size_t)n_out) * sizeof *id);
    for (int i = 0; i < n_in; i++) slot[i] = p->value[id[i]]; /* borrowed */
    FR_TRY(s, fr_checkpoint(run_piece, run, piece_free, slot, n_in, slot + n_in, n_out));
    for (int i = 0; i < n_in; i++)
        if (p->list->value[id[i]].last_reader < end) fr_tensor_release(&p->value[id[i]]);
    for (int i = n_in; i < n_in + n_out; i++) {
        FRI_MOVE(&p->value[id[i]], slot[i]);
    }
done:
    for (int i = n_in; slot != NULL && i < n_in + n_out; i++) fr_tensor_release(&slot[i]);
    return s;
}

/* Runs units first .. end - 1. Ranges from number r on may lie inside. */
static fr_status run_units(schedule *c, int first, int end, int r, fri_net_pass *p) {
    for (int i = first; i < end;) {
        while (r < c->ranges && c->range[r].first < i) r++; /* skips ranges inside the range that has just run */
        if (r < c->ranges && c->range[r].first == i && c->range[r].end <= end) {
            FRI_TRY(run_range(c, r, p));
            i = c->range[r].end;
        } else {
            const int next = join_ranges(c, i, end, r);
            FRI_TRY(run_units_at_once(c, i, next, p));
            i = next;
        }
    }
    return FR_OK;
}

static fr_status run_piece(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const piece *c = ctx;
    const fr_unit_range *range = &c->schedule->range[c->range];
    FRI_OWNED(fri_net_pass_end) fri_net_pass p = {0};
    FRI_TRY(fri_net_pass_begin(c->schedule->list, &p));
    for (int i = 0; i < n_in; i++) p.value[c->in[i]] = fr_tensor_retain(in[i]);
    FRI_TRY(run_units(c->schedule, range->first, range->end, c->range + 1, &p));
    for (int i = 0; i < n_out; i++) {
        FRI_MOVE(&out[i], p.value[c->out[i]]);
    }
    return FR_OK;
}

/* Runs the frozen prefix in parts, up to a border that no range crosses. *units: number of units that were run. */
static fr_status run_prefix(const schedule *c, fri_net_pass *p, int *units) {
    fr_status s = FR_OK;
    int borders = 0, end = 0;
    int *border = malloc(((size_t)c->units + 1) * sizeof *border);
    if (border == NULL) return fr_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    for (int i = 0; i <= c->units; i++) {
        bool across = false;
        for (int r = 0; r < c->ranges; r++) across = across || (c->range[r].first < i && i < c->range[r].end);
        if (!across) border[borders++] = c->first[i];
    }
    if (fri_here.units.fn == NULL) s = fri_net_pass_prefix(p, border, borders, &end);
    free(border);
    for (*units = 0; *units < c->units && c->first[*units] < end;) (*units)++;
    return s;
}

/* ---- the plan ---------------------------------------------------------------------------------------------- */

static fr_status check_plan(const fr_unit_plan *p, int units, int layers) {
    if (p->first == NULL && p->units != units)
        return fr_fail(FR_EINVAL, "checkpoint plan: it is for %d units, but the module has %d", p->units, units);
    if (p->units < 1) return fr_fail(FR_EINVAL, "checkpoint plan: %d units; at least 1 is needed", p->units);
    for (int i = 0; p->first != NULL && i < p->units; i++)
        if (p->first[0] != 0 || p->first[i] >= layers || (i > 0 && p->first[i] <= p->first[i - 1]))
            return fr_fail(FR_EINVAL, "checkpoint plan: unit %d begins with layer %d of %d", i, p->first[i], layers);
    for (int i = 0; p->option != NULL && i < p->units; i++)
        if ((int)p->option[i] < 0 || p->option[i] >= FR_UNIT_OPTIONS)
            return fr_fail(FR_EINVAL, "checkpoint plan: unit %d has option %d; 0..%d exist", i, (int)p->option[i],
                           FR_UNIT_OPTIONS - 1);
    for (int i = 0; i < p->ranges; i++) {
        const fr_unit_range *a = &p->range[i];
        if (a->first < 0 || a->end > p->units || a->first >= a->end)
            return fr_fail(FR_EINVAL, "checkpoint plan: range %d is units %d..%d of %d", i, a->first, a->end - 1,
                           p->units);
        for (int k = 0; k < i; k++) {
            const fr_unit_range *b = &p->range[k];
            bool inside = a->first >= b->first && a->end <= b->end && a->end - a->first < b->end - b->first;
            if (!inside && a->first < b->end)
                return fr_fail(FR_EINVAL,
                               "checkpoint plan: range %d (units %d..%d) is neither inside nor behind range %d "
                               "(%d..%d)",
                               i, a->first, a->end - 1, k, b->first, b->end - 1);
        }
    }
    return FR_OK;
}

static fr_status schedule_new(fr_module *m, const fr_unit_plan *p, schedule **out) {
    schedule *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    c->references = 1;
    c->whole = fr_module_retain(m);
    c->list = fri_list_of(m, &c->one);
    c->first = calloc((size_t)p->units + 1, sizeof *c->first);
    c->option = calloc((size_t)p->units + 1, sizeof *c->option);
    c->range = calloc((size_t)p->ranges + 1, sizeof *c->range);
    c->units = p->units;
    c->ranges = p->ranges;
    if (c->first == NULL || c->option == NULL || c->range == NULL) {
        schedule_release(&c);
        return fr_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    }
    if (p->first == NULL) (void)fr_module_units(m, c->first, p->units);
    for (int i = 0; i < p->units; i++) {
        if (p->first != NULL) c->first[i] = p->first[i];
        c->option[i] = p->option != NULL ? p->option[i] : FR_UNIT_AS_SET;
    }
    c->first[p->units] = c->list->layers;
    for (int i = 0; i < p->ranges; i++) c->range[i] = p->range[i];
    *out = c;
    return FR_OK;
}

fr_status fr_checkpoint_plan(fr_module *m, const fr_unit_plan *plan, fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(m, plan, x, y);
    FRI_OWNED(schedule_release) schedule *c = NULL;
    fri_net_pass p = {0};
    int done_units = 0;
    fr_status s = FR_OK;
    FR_TRY(s, check_plan(plan, fr_module_units(m, NULL, 0), fr_module_layers(m)));
    FR_TRY(s, schedule_new(m, plan, &c));
    if (c->list->inputs != 1) {
        s = fr_fail(FR_EINVAL, "checkpoint plan: the network has %d inputs; 1 is needed", c->list->inputs);
        goto done;
    }
    FR_TRY(s, fri_net_pass_begin(c->list, &p));
    p.value[0] = fr_tensor_retain(x);
    FR_TRY(s, run_prefix(c, &p, &done_units));
    FR_TRY(s, run_units(c, done_units, c->units, 0, &p));
    fri_tensor_put(&p.value[c->list->result[0]], y);
done:
    if (c != NULL && p.value != NULL) fri_net_pass_end(&p);
    return s;
}
