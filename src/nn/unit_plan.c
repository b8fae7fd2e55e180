/* unit_plan.c - running a chain of units by a plan: nested recomputation, and switches per unit.
 *
 * A range becomes a checkpoint whose function runs its units and, inside, the ranges nested in it. In the first
 * forward the inner checkpoints run plainly; in the recomputation they become segments of the shadow graph, which is
 * the recursion of the optimal schedules for chains (Beaumont et al., "Optimal checkpointing for heterogeneous
 * chains"). */
#include "nn/module.h"

#include <stdlib.h>

static _Thread_local fri_unit_watch watch;

fri_unit_watch fri_unit_watch_set(fri_unit_watch w) {
    fri_unit_watch was = watch;
    watch = w;
    return was;
}

const char *fr_unit_option_name(fr_unit_option o) {
    static const char *const names[FR_UNIT_OPTIONS] = {
        [FR_UNIT_AS_SET] = "as set",
        [FR_UNIT_KEEP] = "keep",
        [FR_UNIT_ENCODE] = "encode",
        [FR_UNIT_INSIDE] = "inside",
        [FR_UNIT_REBUILD] = "rebuild",
        [FR_UNIT_OFFLOAD] = "offload",
        [FR_UNIT_REBUILD_OFFLOAD] = "rebuild+offload",
    };
    return (int)o >= 0 && o < FR_UNIT_OPTIONS ? names[o] : "?";
}

/* A plan and its units, owned by the graph as long as a checkpoint may run again. */
typedef struct schedule {
    int references;
    fr_module *whole; /* retained: keeps the units alive */
    fr_module **unit;
    fr_unit_option *option;
    fr_unit_range *range;
    int units, ranges;
    fr_tensor *sums; /* on their way from a convolution to the norm behind it, over a border too, where no part runs
                        again */
} schedule;

/* What one checkpoint runs. */
typedef struct piece {
    schedule *schedule;
    int range;
} piece;

static void release(schedule **p) {
    schedule *s = *p;
    *p = NULL;
    if (s == NULL || --s->references > 0) return;
    fr_module_release(&s->whole);
    fr_tensor_release(&s->sums);
    free(s->unit);
    free(s->option);
    free(s->range);
    free(s);
}

static void piece_free(void *p) {
    piece *c = p;
    release(&c->schedule);
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

static fr_status run_one(schedule *c, int i, fr_tensor **x) {
    const fri_layer_args args = {.next = c->unit[i + 1], .sums = &c->sums}; /* behind the last: NULL */
    fr_switches was = fr_switches_get();
    fr_tensor *input = c->option[i] == FR_UNIT_INSIDE ? fr_tensor_retain(*x) : NULL;
    fr_switches_set(switches_for(c->option[i], was));
    if (watch.fn != NULL) watch.fn(watch.ctx, i, false, *x);
    fr_status s = fri_unit_run(c->whole, c->unit[i], &args, x);
    if (input != NULL) { /* what becomes of it is decided where its last handle dies: here, without rebuild */
        fr_switches_set(switches_for(FR_UNIT_ENCODE, was));
        fr_tensor_release(&input);
    }
    if (watch.fn != NULL) watch.fn(watch.ctx, i, true, s == FR_OK ? *x : NULL);
    fr_switches_set(was);
    return s;
}

static fr_status run_piece(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out);

static fr_status checkpoint(schedule *c, int range, fr_tensor **x) {
    piece *p = malloc(sizeof *p);
    fr_tensor *out = NULL;
    if (p == NULL) return fri_fail(FR_ENOMEM, "checkpoint: out of host memory");
    *p = (piece){.schedule = c, .range = range};
    c->references++;
    fr_status s = fr_checkpoint(run_piece, p, piece_free, x, 1, &out, 1);
    if (s == FR_OK) fri_tensor_put(&out, x);
    fr_tensor_release(&out);
    return s;
}

/* Units first .. end - 1; ranges from number r on may lie among them. */
static fr_status run_units(schedule *c, int first, int end, int r, fr_tensor **x) {
    fr_status s = FR_OK;
    for (int i = first; i < end;) {
        while (r < c->ranges && c->range[r].first < i) r++; /* inside the range that just ran */
        if (r < c->ranges && c->range[r].first == i && c->range[r].end <= end) {
            FRI_TRY(s, checkpoint(c, r, x));
            i = c->range[r].end;
        } else {
            FRI_TRY(s, run_one(c, i, x));
            i++;
        }
    }
done:
    return s;
}

static fr_status run_piece(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const piece *p = ctx;
    (void)n_in;
    (void)n_out;
    const fr_unit_range *range = &p->schedule->range[p->range];
    fr_tensor *x = fr_tensor_retain(in[0]);
    fr_status s = run_units(p->schedule, range->first, range->end, p->range + 1, &x);
    if (fri_recomputing()) fr_tensor_release(&p->schedule->sums); /* the norm behind the range has had them */
    if (s == FR_OK) fri_tensor_put(&x, out);
    fr_tensor_release(&x);
    return s;
}

/* ---- the plan ---------------------------------------------------------------------------------------------- */

static fr_status check(const fr_unit_plan *p, int units) {
    if (p->units != units)
        return fri_fail(FR_EINVAL, "checkpoint plan: it is for %d units, but the module has %d", p->units, units);
    for (int i = 0; i < units; i++)
        if ((int)p->option[i] < 0 || p->option[i] >= FR_UNIT_OPTIONS)
            return fri_fail(FR_EINVAL, "checkpoint plan: unit %d has option %d; 0..%d exist", i, (int)p->option[i],
                            FR_UNIT_OPTIONS - 1);
    for (int i = 0; i < p->ranges; i++) {
        const fr_unit_range *a = &p->range[i];
        if (a->first < 0 || a->end > units || a->first >= a->end)
            return fri_fail(FR_EINVAL, "checkpoint plan: range %d is units %d..%d of %d", i, a->first, a->end - 1,
                            units);
        for (int k = 0; k < i; k++) {
            const fr_unit_range *b = &p->range[k];
            bool inside = a->first >= b->first && a->end <= b->end && a->end - a->first < b->end - b->first;
            if (!inside && a->first < b->end)
                return fri_fail(FR_EINVAL,
                                "checkpoint plan: range %d (units %d..%d) is neither inside nor behind range %d "
                                "(%d..%d)",
                                i, a->first, a->end - 1, k, b->first, b->end - 1);
        }
    }
    return FR_OK;
}

static fr_status copy(fr_module *m, const fr_unit_plan *p, schedule **out) {
    schedule *c = calloc(1, sizeof *c);
    if (c == NULL) return fri_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    *c = (schedule){.references = 1,
                    .whole = fr_module_retain(m),
                    .unit = calloc((size_t)p->units + 1, sizeof *c->unit),
                    .option = calloc((size_t)p->units + 1, sizeof *c->option),
                    .range = calloc((size_t)p->ranges + 1, sizeof *c->range),
                    .units = p->units,
                    .ranges = p->ranges};
    if (c->unit == NULL || c->option == NULL || c->range == NULL) {
        release(&c);
        return fri_fail(FR_ENOMEM, "checkpoint plan: out of host memory");
    }
    fr_module_units(m, c->unit, p->units);
    for (int i = 0; i < p->units; i++) c->option[i] = p->option[i];
    for (int i = 0; i < p->ranges; i++) c->range[i] = p->range[i];
    *out = c;
    return FR_OK;
}

fr_status fr_checkpoint_plan(fr_module *m, const fr_unit_plan *plan, fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(m, plan, x, y);
    schedule *c = NULL;
    fr_tensor *value = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, check(plan, fr_module_units(m, NULL, 0)));
    FRI_TRY(s, copy(m, plan, &c));
    value = fr_tensor_retain(x);
    FRI_TRY(s, run_units(c, 0, c->units, 0, &value));
    fri_tensor_put(&value, y);
done:
    fr_tensor_release(&value);
    release(&c);
    return s;
}
