/* parts.c - parts of one batch that advance together, from one batch norm to the next (fr_module_forward_parts).
 *
 * The list is cut in front of each batch norm that trains. There the parts wait for each other, and their values become
 * statistics of the batch; then each runs up to the next cut, as a checkpoint. Backward needs no order of its own:
 * nodes run youngest first, which is from cut to cut, too (Note [Parts] in ops/batchnorm2d.h). */
#include "net/list.h"

#include "base/status.h"

#include <stdlib.h>

static bool is_norm(const fr_module *m, fri_layer_kind kind) {
    const fri_layer_call *call = m->class_->fri_call;
    return call != NULL && call->kind == kind && fri_norm_trains(m);
}

int fr_module_batch_norms(fr_module *m) {
    if (m == NULL) return 0;
    int n = is_norm(m, FRI_LAYER_NORM) || is_norm(m, FRI_LAYER_INPLACE_NORM);
    for (int i = 0; i < m->n_children; i++) n += fr_module_batch_norms(m->children[i]);
    return n;
}

static bool is_layer(const fri_list *l, const fr_module *m) {
    for (int i = 0; i < l->layers; i++)
        if (l->layer[i].module == m) return true;
    return false;
}

static fr_status check(fr_module *m, const fri_list *l) {
    if (is_norm(m, FRI_LAYER_INPLACE_NORM))
        return fr_fail(FR_EINVAL, "forward in parts: %s overwrites what its parts would wait with", m->class_->name);
    if (is_norm(m, FRI_LAYER_NORM) && !is_layer(l, m))
        return fr_fail(FR_EINVAL,
                       "forward in parts: a batch norm of %lld channels is inside a layer, where parts do not meet",
                       (long long)fri_numel(m->tensors[FRI_NORM_MEAN].tensor));
    for (int i = 0; i < m->n_children; i++) {
        FRI_TRY(check(m->children[i], l));
    }
    return FR_OK;
}

/* The first layer from `at` on that is a batch norm that trains; none: the number of layers. */
static int next_cut(const fri_list *l, int at) {
    while (at < l->layers && !is_norm(l->layer[at].module, FRI_LAYER_NORM)) at++;
    return at;
}

/* The parts are in front of the batch norm `at`. */
static fr_status meet(const fri_list *l, fri_net_pass *pass, int parts, int at, fr_tensor **x, fri_norm_parts **out) {
    const fri_net_layer *a = &l->layer[at];
    const char *was = a->name != NULL ? fri_scope_module_push(a->name) : fri_scope_module();
    for (int i = 0; i < parts; i++) x[i] = pass[i].value[a->in[0]]; /* borrowed */
    fr_status s = fri_batchnorm2d_together(a->module, x, parts, out);
    if (s < 0) s = fr_fail_prefix(s, "%s (%s): ", fri_scope_module(), a->module->class_->name);
    fri_scope_module_pop(was);
    return s;
}

/* Cuts as units, each of them a range. */
static fr_status schedule_of(fr_module *m, const fri_list *l, fri_schedule **out) {
    int n = 1, *first = calloc((size_t)l->layers + 1, sizeof *first);
    fr_unit_range *range = calloc((size_t)l->layers + 1, sizeof *range);
    fr_status s = first != NULL && range != NULL ? FR_OK : fr_fail(FR_ENOMEM, "forward in parts: out of host memory");
    if (s == FR_OK) {
        for (int at = next_cut(l, 1); at < l->layers; at = next_cut(l, at + 1)) first[n++] = at;
        for (int i = 0; i < n; i++) range[i] = (fr_unit_range){i, i + 1};
        s = fri_schedule_new(m, &(fr_unit_plan){.units = n, .ranges = n, .range = range, .first = first}, out);
    }
    free(first);
    free(range);
    return s;
}

/* With rebuild on: do layers first .. end - 1 hand on what an elementwise layer or a concatenation has made? That is
 * made again without being kept (src/autograd/rebuild.c), but not out of a checkpoint. */
static bool hands_on_rebuilt(const fri_list *l, int first, int end) {
    for (int i = first; i < end && fr_switches_get().rebuild; i++) {
        const fr_module_class *c = l->layer[i].module->class_;
        const bool elementwise = (c->traits & FR_LAYER_POINTWISE) != 0 || fri_layer_kind_of(l, i) == FRI_LAYER_NORM;
        for (int k = 0; k < l->layer[i].n_out && (elementwise || c == &fri_concat_class); k++)
            if (l->value[l->layer[i].out[k]].last_reader >= end) return true;
    }
    return false;
}

/* All layers of all parts. x: room for a value of each. */
static fr_status advance(fr_module *m, const fri_list *l, fri_net_pass *pass, int parts, fr_tensor **x) {
    FRI_OWNED(fri_schedule_release) fri_schedule *schedule = NULL;
    FRI_OWNED(fri_norm_parts_release) fri_norm_parts *together = NULL;
    int begun = 0; /* layers that a frozen prefix has run */
    FRI_TRY(schedule_of(m, l, &schedule));
    for (int at = 0, range = 0; at < l->layers; at = next_cut(l, at + 1), range++) {
        if (next_cut(l, at) == at) FRI_TRY(meet(l, pass, parts, at, x, &together));
        const bool rebuilt = hands_on_rebuilt(l, at, next_cut(l, at + 1));
        for (int i = 0; i < parts; i++) {
            pass[i].parts = together;
            begun = 0;
            if (at == 0) FRI_TRY(fri_net_pass_prefix(&pass[i], NULL, 0, &begun));
            if (rebuilt || begun > 0)
                FRI_TRY(fri_net_pass_run(&pass[i], at + begun, next_cut(l, at + 1)));
            else
                FRI_TRY(fri_schedule_run(schedule, range, &pass[i]));
        }
        fri_norm_parts_release(&together);
    }
    return FR_OK;
}

static fr_status begin(const fri_list *l, fri_net_pass *pass, int parts, fr_tensor **x) {
    for (int i = 0; i < parts; i++) {
        FRI_TRY(fri_net_pass_begin(l, NULL, &pass[i]));
        pass[i].part = i;
        FRI_MOVE(&pass[i].value[0], x[i]);
    }
    return FR_OK;
}

static fr_status check_inputs(const fri_list *l, fr_module *m, fr_tensor *const *x, int parts) {
    fr_status s = check(m, l);
    if (s == FR_OK && l->inputs != 1)
        s = fr_fail(FR_EINVAL, "forward in parts: the network has %d inputs; 1 is needed", l->inputs);
    for (int i = 0; i < parts && s == FR_OK; i++)
        if (x[i] == NULL) s = fr_fail(FR_EINVAL, "forward in parts: part %d of %d is NULL", i, parts);
    return s;
}

fr_status fr_module_forward_parts(fr_module *m, fr_tensor **x, int parts, fr_tensor **y) {
    FRI_NOT_NULL(m, x, y);
    if (parts < 1) return fr_fail(FR_EINVAL, "forward in parts: %d parts; at least 1", parts);
    fri_one_layer one;
    const fri_list *l = fri_list_of(m, &one);
    fri_net_pass *pass = calloc((size_t)parts, sizeof *pass);
    fr_tensor **room = calloc((size_t)parts, sizeof *room);
    fr_status s = FR_OK;
    if (pass == NULL || room == NULL)
        FR_TRY(s, fr_fail(FR_ENOMEM, "forward in parts: no host memory for %d parts", parts));
    FR_TRY(s, check_inputs(l, m, x, parts));
    FR_TRY(s, begin(l, pass, parts, x));
    FR_TRY(s, advance(m, l, pass, parts, room));
    for (int i = 0; i < parts; i++) fri_tensor_put(&pass[i].value[l->result[0]], &y[i]);
done:
    for (int i = 0; i < parts; i++) {
        if (s < 0) fr_tensor_release(&x[i]);
        if (pass != NULL && pass[i].value != NULL) fri_net_pass_end(&pass[i]);
    }
    free(pass);
    free(room);
    return s;
}
