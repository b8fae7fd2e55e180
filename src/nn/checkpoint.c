/* checkpoint.c - checkpointing a chain of units (torch.utils.checkpoint.checkpoint_sequential). */
#include "nn/module.h"

#include <stdlib.h>

int fr_module_units(fr_module *m, fr_module **out, int n) {
    if (m == NULL || (out == NULL && n > 0)) return 0;
    if (m->class_->units != NULL) return m->class_->units(m, out, n);
    if (n > 0) out[0] = m;
    return 1;
}

/* A run of consecutive units; owned by the graph while a checkpoint may need it again. */
typedef struct run {
    fr_module *whole; /* retained: keeps the units alive */
    int n;
    fr_module *units[]; /* n, and the one behind them or NULL */
} run;

static void run_free(void *p) {
    run *r = p;
    fr_module_release(&r->whole);
    free(r);
}

static void run_under(fr_module *m, int child, fr_tensor **x, fr_status *s) {
    const char *was = fri_scope_module_push(m->names[child]);
    *s = fri_module_run(m->children[child], NULL, x);
    fri_scope_module_pop(was);
}

/* The path of a unit is found by walking the tree: units of a class may lie at different depths. Children first: a path
 * costs more than a pointer, and a chain may have a thousand of them. */
static bool path_to(fr_module *m, const fr_module *unit, fr_tensor **x, fr_status *s) {
    for (int i = 0; i < m->n_children; i++) {
        if (m->children[i] != unit) continue;
        run_under(m, i, x, s);
        return true;
    }
    for (int i = 0; i < m->n_children; i++) {
        if (m->children[i]->n_children == 0) continue;
        const char *was = fri_scope_module_push(m->names[i]);
        bool found = path_to(m->children[i], unit, x, s);
        fri_scope_module_pop(was);
        if (found) return true;
    }
    return false;
}

fr_status fri_unit_run(fr_module *whole, fr_module *unit, const fr_module *next, fr_tensor **x) {
    fr_status s = FR_OK;
    fri_module_runs_before(unit, next);
    if (!path_to(whole, unit, x, &s)) s = fri_module_run(unit, NULL, x);
    fri_batchnorm_follows(false);
    return s;
}

static fr_status run_units(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const run *r = ctx;
    (void)n_in;
    (void)n_out;
    fr_tensor *x = fr_tensor_retain(in[0]);
    fr_status s = FR_OK;
    for (int i = 0; i < r->n; i++) FRI_TRY(s, fri_unit_run(r->whole, r->units[i], r->units[i + 1], &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static fr_status checkpoint_run(fr_module *m, fr_module **units, int n, fr_tensor **x) {
    run *r = malloc(sizeof *r + ((size_t)n + 1) * sizeof(fr_module *));
    if (r == NULL) return fri_fail(FR_ENOMEM, "checkpoint: out of host memory");
    r->whole = fr_module_retain(m);
    r->n = n;
    for (int i = 0; i <= n; i++) r->units[i] = units[i];
    fr_tensor *out = NULL;
    fr_status s = fr_checkpoint(run_units, r, run_free, x, 1, &out, 1);
    if (s == FR_OK) fri_tensor_put(&out, x);
    fr_tensor_release(&out);
    return s;
}

fr_status fr_checkpoint_units(fr_module *m, const int *first, const bool *checkpoint, int segments, fr_tensor *x,
                              fr_tensor **y) {
    FRI_NOT_NULL(m, first, checkpoint, x, y);
    fr_module *units[FRI_MAX_UNITS + 1];
    int n = fr_module_units(m, units, FRI_MAX_UNITS);
    if (segments < 1 || segments > n || n > FRI_MAX_UNITS)
        return fri_fail(FR_EINVAL, "checkpoint: %d segments; the module has %d units, so 1..%d are possible", segments,
                        n, n < FRI_MAX_UNITS ? n : FRI_MAX_UNITS);
    units[n] = NULL;
    fr_tensor *value = fr_tensor_retain(x);
    fr_status s = FR_OK;
    for (int i = 0; i < segments; i++) {
        int end = i + 1 < segments ? first[i + 1] : n;
        if (end <= first[i] || first[0] != 0) {
            s = fri_fail(FR_EINVAL, "checkpoint: segment %d begins at unit %d and ends before unit %d", i, first[i],
                         end);
            goto done;
        }
        if (checkpoint[i])
            FRI_TRY(s, checkpoint_run(m, units + first[i], end - first[i], &value));
        else
            for (int k = first[i]; k < end; k++) FRI_TRY(s, fri_unit_run(m, units[k], units[k + 1], &value));
    }
    fri_tensor_put(&value, y);
done:
    fr_tensor_release(&value);
    return s;
}

fr_status fr_checkpoint_sequential(fr_module *m, int segments, fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(m, x, y);
    int first[FRI_MAX_UNITS], n = fr_module_units(m, NULL, 0);
    bool checkpoint[FRI_MAX_UNITS];
    if (segments < 1 || segments > n || n > FRI_MAX_UNITS)
        return fri_fail(FR_EINVAL, "checkpoint: %d segments; the module has %d units, so 1..%d are possible", segments,
                        n, n < FRI_MAX_UNITS ? n : FRI_MAX_UNITS);
    for (int i = 0; i < segments; i++) {
        first[i] = i * (n / segments);
        checkpoint[i] = i + 1 < segments;
    }
    return fr_checkpoint_units(m, first, checkpoint, segments, x, y);
}
