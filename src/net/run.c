/* run.c - runs layers of a list.
 *
 * The last layer that reads a value receives the only handle in a slot, so in-place and settling work as in
 * hand-written code. If a call reads a value several times, the first slot may be overwritten. */
#include "net/list.h"

#include "base/status.h"

#include <stdlib.h>

enum { FEW = 8 };

fr_status fri_net_pass_begin(const fri_list *l, fri_net_pass *out) {
    *out = (fri_net_pass){.list = l, .value = calloc((size_t)l->values + 1, sizeof *out->value)};
    return out->value != NULL ? FR_OK : fr_fail(FR_ENOMEM, "network: no host memory for %d values", l->values);
}

void fri_net_pass_end(fri_net_pass *p) {
    for (int i = 0; p->value != NULL && i < p->list->values; i++) fr_tensor_release(&p->value[i]);
    free(p->value);
    p->value = NULL;
}

size_t fri_net_pass_handed(const fri_net_pass *p, int at) {
    size_t bytes = 0;
    for (int i = 0; i < p->list->values; i++) {
        const fr_tensor *t = p->value[i];
        bool counted = t == NULL || !fri_alive(p->list, i, at);
        for (int k = 0; k < i && !counted; k++)
            counted = p->value[k] != NULL && p->value[k]->storage == t->storage && fri_alive(p->list, k, at);
        if (!counted) bytes += t->storage->block->requested;
    }
    return bytes;
}

/* Handle for an input of layer i. */
static fr_tensor *take(const fri_net_pass *p, int i, int value, bool again) {
    fr_tensor *t = p->value[value];
    if (again || p->list->value[value].last_reader > i) return fr_tensor_retain(t);
    p->value[value] = NULL;
    return t;
}

/* Takes the handles of all inputs of layer i. */
static void take_all(const fri_net_pass *p, int i, fr_tensor **in) {
    const fri_net_layer *a = &p->list->layer[i];
    for (int k = 0; k < a->n_in; k++) {
        bool again = false; /* true if a later input is equal */
        for (int j = k + 1; j < a->n_in; j++) again = again || a->in[j] == a->in[k];
        in[k] = take(p, i, a->in[k], again);
    }
}

/* Runs layers with several inputs or results, and all others without fused calls. */
static fr_status run_many(fri_net_pass *p, int i) {
    const fri_net_layer *a = &p->list->layer[i];
    fr_tensor *few_in[FEW], *few_out[FEW], **in = few_in, **out = few_out;
    fr_status s = FR_OK;
    if (a->n_in > FEW) in = malloc((size_t)a->n_in * sizeof *in);
    if (a->n_out > FEW) out = malloc((size_t)a->n_out * sizeof *out);
    if (in == NULL || out == NULL) {
        s = fr_fail(FR_ENOMEM, "%s: no host memory for %d values", a->name, a->n_in + a->n_out);
        goto done;
    }
    take_all(p, i, in);
    for (int k = 0; k < a->n_out; k++) out[k] = NULL;
    s = fri_layer_run_n(a->module, a->name, in, a->n_in, out, a->n_out);
    for (int k = 0; k < a->n_in; k++) fr_tensor_release(&in[k]);
    for (int k = 0; k < a->n_out; k++)
        if (s == FR_OK && p->list->value[a->out[k]].last_reader >= 0)
            p->value[a->out[k]] = out[k];
        else
            fr_tensor_release(&out[k]);
done:
    if (in != few_in) free(in);
    if (out != few_out) free(out);
    return s;
}

static fr_status run_fused(fri_net_pass *p, int i, const fri_fused *f) {
    const fri_list *l = p->list;
    const fri_net_layer *a = &l->layer[i + f->joins], *last = &l->layer[i + f->layers - 1];
    fr_tensor *part[FRI_NORM_PARTS], *x = NULL, *addend = NULL;
    const int parts = f->joins ? l->layer[i].n_in : 0;
    const fri_layer_args args = {.addend = f->add ? &addend : NULL, .act = f->act, .part = part, .parts = parts};
    take_all(p, i, parts > 0 ? part : &x);
    if (f->add) addend = take(p, f->add_layer, f->addend, false);
    fr_status s = fri_layer_run(a->module, a->name, &args, &x);
    for (int k = 0; k < parts; k++) fr_tensor_release(&part[k]);
    for (int k = 0; s == FR_OK && k < f->layers; k++)
        if (k != f->joins) fri_module_ran(l->layer[i + k].module, l->layer[i + k].name, x);
    fr_tensor_release(&addend);
    if (s == FR_OK && l->value[last->out[0]].last_reader >= 0) {
        FRI_MOVE(&p->value[last->out[0]], x);
    }
    fr_tensor_release(&x);
    return s;
}

/* True if the call may leave its inner results out. */
static bool fuses(const fri_net_pass *p, int i, const fri_fused *f) {
    const fri_net_layer *a = &p->list->layer[i];
    if (!f->joins) return fri_norm_fuses(p->value[a->in[0]], f->add ? p->value[f->addend] : NULL);
    const fr_module *norm = p->list->layer[i + 1].module;
    fr_tensor *part[FRI_NORM_PARTS];
    for (int k = 0; k < a->n_in && k < FRI_NORM_PARTS; k++) part[k] = p->value[a->in[k]];
    return fri_norm_joins(part, a->n_in, fri_norm_trains(norm) || norm->tensors[FR_NORM_WEIGHT].tensor->requires_grad);
}

fr_status fri_net_pass_run(fri_net_pass *p, int first, int end) {
    fr_status s = FR_OK;
    for (int i = first; i < end && s == FR_OK;) {
        const fri_net_layer *a = &p->list->layer[i];
        fri_fused f = fri_fuse(p->list, i, end);
        if (f.layers > 1 && !fuses(p, i, &f)) f = (fri_fused){.layers = 1};
        const bool simple = a->n_in == 1 && a->n_out == 1 && a->module->class_->forward != NULL;
        s = simple || f.joins ? run_fused(p, i, &f) : run_many(p, i);
        i += f.layers;
    }
    return s;
}
