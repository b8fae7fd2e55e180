/* checkpoint.c - checkpointing a chain of units (torch.utils.checkpoint.checkpoint_sequential). */
#include "nn/module.h"

int fr_module_units(fr_module *m, fr_module **out, int n) {
    if (m == NULL || (out == NULL && n > 0)) return 0;
    if (m->class_->units != NULL) return m->class_->units(m, out, n);
    if (n > 0) out[0] = m;
    return 1;
}

/* The path of a unit is found by walking the tree: units of a class may lie at different depths. Children first: a path
 * costs more than a pointer, and a chain may have a thousand of them. */
static bool run_below(fr_module *m, const fr_module *unit, const fri_layer_args *args, fr_tensor **x, fr_status *s) {
    for (int i = 0; i < m->n_children; i++) {
        if (m->children[i] != unit) continue;
        *s = fri_layer_run(m->children[i], m->names[i], args, x);
        return true;
    }
    for (int i = 0; i < m->n_children; i++) {
        if (m->children[i]->n_children == 0) continue;
        const char *was = fri_scope_module_push(m->names[i]);
        bool found = run_below(m->children[i], unit, args, x, s);
        fri_scope_module_pop(was);
        if (found) return true;
    }
    return false;
}

fr_status fri_unit_run(fr_module *whole, fr_module *unit, const fri_layer_args *args, fr_tensor **x) {
    fr_status s = FR_OK;
    return run_below(whole, unit, args, x, &s) ? s : fri_layer_run(unit, NULL, args, x);
}

fr_status fr_checkpoint_units(fr_module *m, const int *first, const bool *checkpoint, int segments, fr_tensor *x,
                              fr_tensor **y) {
    FRI_NOT_NULL(m, first, checkpoint, x, y);
    static const fr_unit_option as_set[FRI_MAX_UNITS]; /* zeroed: FR_UNIT_AS_SET */
    fr_unit_range range[FRI_MAX_UNITS];
    int n = fr_module_units(m, NULL, 0), ranges = 0;
    if (segments < 1 || segments > n || n > FRI_MAX_UNITS)
        return fri_fail(FR_EINVAL, "checkpoint: %d segments; the module has %d units, so 1..%d are possible", segments,
                        n, n < FRI_MAX_UNITS ? n : FRI_MAX_UNITS);
    for (int i = 0; i < segments; i++) {
        int end = i + 1 < segments ? first[i + 1] : n;
        if (end <= first[i] || first[0] != 0)
            return fri_fail(FR_EINVAL, "checkpoint: segment %d begins at unit %d and ends before unit %d", i, first[i],
                            end);
        if (checkpoint[i]) range[ranges++] = (fr_unit_range){first[i], end};
    }
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = n, .option = as_set, .ranges = ranges, .range = range}, x, y);
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
