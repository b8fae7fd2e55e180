/* fold.c - a network that only infers (net.h).
 *
 * A new list is written from the old one. A convolution takes in the batch norm, the sum and the rectifier behind it,
 * as far as each is the only reader of the one before, and stands where the convolution stood: what it adds must be
 * there by then. All other layers stay as they are. */
#include "net/list.h"
#include "ops/conv2d.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what one call takes in ------------------------------------------------------------------------------ */

/* Layers, -1: none. */
typedef struct chain {
    int norm, add, relu;
    int addend, result; /* values */
} chain;

static bool runs_once(const fri_list *l, const fr_module *m) {
    int n = 0;
    for (int i = 0; i < l->layers; i++) n += l->layer[i].module == m;
    return n == 1;
}

static bool folds(const fri_list *l, int i) {
    const fr_module *m = l->layer[i].module;
    return fri_layer_kind_of(l, i) == FRI_LAYER_CONV2D && runs_once(l, m) && m->tensors[0].tensor->dtype == FR_F32;
}

/* The layer that alone reads the value, if it is of this kind; else -1. */
static int reader(const fri_list *l, int value, fri_layer_kind kind) {
    const fri_net_value *v = &l->value[value];
    return v->readers == 1 && v->last_layer >= 0 && fri_layer_kind_of(l, v->last_layer) == kind ? v->last_layer : -1;
}

static chain chain_of(const fri_list *l, int conv) {
    chain c = {.norm = -1, .add = -1, .relu = -1, .addend = -1, .result = l->layer[conv].out[0]};
    c.norm = reader(l, c.result, FRI_LAYER_NORM);
    if (c.norm >= 0 && !runs_once(l, l->layer[c.norm].module)) c.norm = -1;
    if (c.norm >= 0) c.result = l->layer[c.norm].out[0];
    const int add = reader(l, c.result, FRI_LAYER_ADD);
    if (add >= 0) {
        const int *in = l->layer[add].in;
        c.addend = in[0] == c.result ? in[1] : in[0];
        if (l->value[c.addend].made_by < conv) c.add = add;
    }
    if (c.add >= 0) c.result = l->layer[c.add].out[0];
    c.relu = reader(l, c.result, FRI_LAYER_RELU);
    if (c.relu < 0) c.relu = reader(l, c.result, FRI_LAYER_RELU6);
    if (c.relu >= 0) c.result = l->layer[c.relu].out[0];
    return c;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------ */

/* Reads a tensor's f32 values; NULL: zeros. */
static fr_status read(const fr_tensor *t, size_t n, float **out) {
    *out = calloc(n, sizeof **out);
    if (*out == NULL) return fr_fail(FR_ENOMEM, "fold: no host memory for %zu values", n);
    return t != NULL ? fr_tensor_to_host(t, *out) : FR_OK;
}

/* w = w s and b = (b - mean) s + beta by output channel, s = gamma / sqrt(var + eps), in f64, rounded once. */
static fr_status scale(const fr_module *norm, int64_t channels, size_t per_channel, float *w, float *b) {
    const double eps = ((const fr_norm_state *)norm->state)->eps;
    float *v[FR_NORM_VAR + 1] = {NULL};
    fr_status s = FR_OK;
    for (int i = FR_NORM_WEIGHT; i <= FR_NORM_VAR; i++)
        FR_TRY(s, read(norm->tensors[i].tensor, (size_t)channels, &v[i]));
    for (int64_t k = 0; k < channels; k++) {
        const double by = v[FR_NORM_WEIGHT][k] / sqrt(v[FR_NORM_VAR][k] + eps);
        for (size_t i = 0; i < per_channel; i++) w[(size_t)k * per_channel + i] *= by;
        b[k] = (float)(((double)b[k] - v[FR_NORM_MEAN][k]) * by + v[FR_NORM_BIAS][k]);
    }
done:
    for (int i = 0; i <= FR_NORM_VAR; i++) free(v[i]);
    return s;
}

/* The folded weights lie where those of conv lay. */
static fr_status fold_values(const fr_module *conv, const fr_module *norm, fr_folded_conv2d *k) {
    const fr_tensor *bias = conv->n_tensors > 1 ? conv->tensors[1].tensor : NULL;
    const int64_t channels = conv->tensors[0].tensor->shape.dim[0];
    const fri_backend *be = fri_backend_of(conv->tensors[0].tensor);
    const size_t weights = (size_t)fri_numel(conv->tensors[0].tensor);
    FRI_OWNED(fri_free) float *b = NULL, *w = NULL;
    FRI_TRY(fr_tensor_detach(conv->tensors[0].tensor, &k->w));
    FRI_TRY(fri_parameter_new(1, &channels, FR_F32, be->device, &k->b));
    if (be->device == FR_META) return FR_OK;
    FRI_TRY(read(bias, (size_t)channels, &b));
    if (norm != NULL) {
        FRI_TRY(read(k->w, weights, &w));
        FRI_TRY(scale(norm, channels, weights / (size_t)channels, w, b));
        FRI_TRY(be->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, w, fri_data(k->w), weights * sizeof *w));
    }
    FRI_TRY(be->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, b, fri_data(k->b), (size_t)channels * sizeof *b));
    return be->synchronize(FRI_EXEC);
}

static fr_status fold_layer(const fri_list *l, int conv, const chain *c, fr_module **out) {
    const fr_module *m = l->layer[conv].module;
    fr_folded_conv2d k = {.opts = *(const fr_conv2d_opts *)m->state};
    k.relu = c->relu >= 0 && fri_layer_kind_of(l, c->relu) == FRI_LAYER_RELU;
    k.relu6 = c->relu >= 0 && fri_layer_kind_of(l, c->relu) == FRI_LAYER_RELU6;
    fr_status s = fold_values(m, c->norm >= 0 ? l->layer[c->norm].module : NULL, &k);
    if (s == FR_OK) s = fr_folded_conv2d_create(&k, out);
    fr_tensor_release(&k.w);
    fr_tensor_release(&k.b);
    return s;
}

/* ---- the new list ---------------------------------------------------------------------------------------- */

typedef struct folding {
    const fri_list *from;
    fr_module *net;
    int *value;   /* of the new list, by the old one's */
    bool *within; /* by layer: another call does it */
} folding;

/* A value like the old one. */
static fr_status take_value(const folding *f, int old, int id) {
    const fri_net_value *v = &f->from->value[old];
    fri_net_value *to = &fri_list_edit(f->net)->value[id];
    f->value[old] = id;
    to->dtype = v->dtype;
    to->shape = v->shape;
    if (v->pieces == 0) return FR_OK;
    to->piece = malloc((size_t)v->pieces * sizeof *to->piece);
    if (to->piece == NULL) return fr_fail(FR_ENOMEM, "fold: out of host memory");
    memcpy(to->piece, v->piece, (size_t)v->pieces * sizeof *to->piece);
    to->pieces = v->pieces;
    return FR_OK;
}

/* Takes *m, which reads and makes the old list's values; its place in the tree is that of its name. */
static fr_status put_layer(const folding *f, const char *name, fr_module **m, const int *in, int n_in, const int *out,
                           int n_out) {
    fr_module *child = fr_module_retain(*m);
    int *to = malloc((size_t)(n_in + n_out) * sizeof *to);
    fr_status s = to != NULL ? FR_OK : fr_fail(FR_ENOMEM, "fold: out of host memory");
    for (int k = 0; k < n_in && s == FR_OK; k++) to[k] = f->value[in[k]];
    if (s == FR_OK && fri_module_at(f->net, name, NULL, NULL) == NULL) s = fri_module_place(f->net, name, &child);
    if (s == FR_OK) s = fri_list_layer(fri_list_edit(f->net), name, m, to, n_in, to + n_in, n_out);
    for (int k = 0; k < n_out && s == FR_OK; k++) s = take_value(f, out[k], to[n_in + k]);
    fr_module_release(&child);
    free(to);
    return s;
}

static fr_status put_folded(folding *f, int i) {
    const chain c = chain_of(f->from, i);
    const fri_net_layer *a = &f->from->layer[i];
    fr_module *m = NULL;
    fr_status s = fold_layer(f->from, i, &c, &m);
    if (s == FR_OK) s = put_layer(f, a->name, &m, (int[]){a->in[0], c.addend}, c.add >= 0 ? 2 : 1, &c.result, 1);
    fr_module_release(&m);
    if (c.norm >= 0) f->within[c.norm] = true;
    if (c.add >= 0) f->within[c.add] = true;
    if (c.relu >= 0) f->within[c.relu] = true;
    return s;
}

static fr_status fold_list(folding *f) {
    const fri_list *l = f->from;
    fri_list *to = fri_list_edit(f->net);
    for (int i = 0, id = 0; i < l->inputs; i++) {
        FRI_TRY(fri_list_value(to, l->value[i].dtype, &l->value[i].shape, &id));
        FRI_TRY(take_value(f, i, id));
        to->inputs++;
    }
    for (int i = 0; i < l->layers; i++) {
        const fri_net_layer *a = &l->layer[i];
        fr_module *m = f->within[i] || folds(l, i) ? NULL : fr_module_retain(a->module);
        if (m != NULL)
            FRI_TRY(put_layer(f, a->name, &m, a->in, a->n_in, a->out, a->n_out));
        else if (!f->within[i])
            FRI_TRY(put_folded(f, i));
    }
    for (int i = 0; i < l->results; i++) FRI_TRY(fri_list_result(to, f->value[l->result[i]]));
    return FR_OK;
}

fr_status fr_net_fold(fr_module **m) {
    FRI_NOT_NULL(m);
    folding f = {0};
    fr_status s = FR_OK;
    if (*m == NULL || !fri_is_net(*m))
        FR_TRY(s, fr_fail(FR_EINVAL, "fold: %s is no network (net.h)", *m != NULL ? (*m)->class_->name : "NULL"));
    f.from = fri_list_edit(*m);
    FR_TRY(s, fri_net_create(&f.net));
    f.value = calloc((size_t)f.from->values + 1, sizeof *f.value);
    f.within = calloc((size_t)f.from->layers + 1, sizeof *f.within);
    if (f.value == NULL || f.within == NULL) FR_TRY(s, fr_fail(FR_ENOMEM, "fold: out of host memory"));
    FR_TRY(s, fold_list(&f));
    fr_module_train(f.net, false);
done:
    fr_module_release(m);
    if (s == FR_OK)
        *m = f.net;
    else
        fr_module_release(&f.net);
    free(f.value);
    free(f.within);
    return s;
}
