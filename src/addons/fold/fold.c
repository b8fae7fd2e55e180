/* fold.c - a network that only infers (fold.h).
 *
 * A new network is defined from the old one's list. A convolution takes in the batch norm, the sum and the rectifier
 * after it, as far as each is the only reader of the one before, and stands where the convolution stood: the value that
 * it adds must be there by then. All other layers stay as they are. */
#include <frugal/addon.h>
#include <frugal/fold.h>
#include <frugal/tools.h>

#include <math.h>

const fr_addon fr_addon_fold = {.name = "fold", .fold = fr_net_fold};

/* The old network, and the values of the new. */
typedef struct folding {
    fr_module *from;
    fr_net_info info;
    fr_layer *layer; /* by number */
    bool *within;    /* by layer: absorbed by a call */
    fr_value *value; /* of the new network, by the old network's number */
    fr_net *net;
} folding;

/* ---- the layers of a call --------------------------------------------------------------------------- */

/* Layers, -1: none. */
typedef struct chain {
    int norm, add, relu;
    int addend, result; /* values */
} chain;

static bool is_a(const folding *f, int layer, const char *class_) {
    return strcmp(fr_module_class_of(f->layer[layer].module)->name, class_) == 0;
}

static bool runs_once(const folding *f, const fr_module *m) {
    int n = 0;
    for (int i = 0; i < f->info.layers; i++) n += f->layer[i].module == m;
    return n == 1;
}

static bool can_fold(const folding *f, int i) {
    fr_module *m = f->layer[i].module;
    return is_a(f, i, "Conv2d") && runs_once(f, m) && fr_tensor_dtype(fr_module_tensor(m, "weight")) == FR_F32;
}

/* The only reader of the value, if of the class; else -1. */
static int reader_of(const folding *f, int value, const char *class_) {
    fr_net_value v = {.last_layer = -1};
    (void)fr_net_value_get(f->from, value, &v);
    return v.readers == 1 && v.last_layer >= 0 && is_a(f, v.last_layer, class_) ? v.last_layer : -1;
}

static int maker_of(const folding *f, int value) {
    fr_net_value v = {.made_by = -1};
    (void)fr_net_value_get(f->from, value, &v);
    return v.made_by;
}

static bool equal_shapes(const folding *f, int a, int b) {
    fr_net_value x = {.dtype = FR_F32}, y = x;
    (void)fr_net_value_get(f->from, a, &x);
    (void)fr_net_value_get(f->from, b, &y);
    bool equal = x.shape.rank == y.shape.rank;
    for (int i = 0; i < x.shape.rank && equal; i++) equal = x.shape.dim[i] == y.shape.dim[i];
    return equal;
}

static chain chain_of(const folding *f, int conv) {
    chain c = {.norm = -1, .add = -1, .relu = -1, .addend = -1, .result = f->layer[conv].out[0]};
    c.norm = reader_of(f, c.result, "BatchNorm2d");
    if (c.norm >= 0 && !runs_once(f, f->layer[c.norm].module)) c.norm = -1;
    if (c.norm >= 0) c.result = f->layer[c.norm].out[0];
    const int add = reader_of(f, c.result, "Add");
    if (add >= 0) {
        const int *in = f->layer[add].in;
        c.addend = in[0] == c.result ? in[1] : in[0];
        if (maker_of(f, c.addend) < conv && equal_shapes(f, c.addend, c.result)) c.add = add;
    }
    if (c.add >= 0) c.result = f->layer[c.add].out[0];
    c.relu = reader_of(f, c.result, "ReLU");
    if (c.relu < 0) c.relu = reader_of(f, c.result, "ReLU6");
    if (c.relu >= 0) c.result = f->layer[c.relu].out[0];
    return c;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* Reads a tensor's f32 values; NULL: zeros. */
static fr_status read_floats(const fr_tensor *t, size_t n, float **out) {
    *out = calloc(n, sizeof **out);
    if (*out == NULL) return fr_fail(FR_ENOMEM, "fold: no host memory for %zu values", n);
    return t != NULL ? fr_tensor_to_host(t, *out) : FR_OK;
}

/* w = w s and b = (b - mean) s + beta by output channel, s = gamma / sqrt(var + eps), in f64, rounded once. */
static fr_status scale_weights(fr_module *norm, int64_t channels, size_t per_channel, float *w, float *b) {
    static const char *const name[] = {"weight", "bias", "running_mean", "running_var"};
    enum { WEIGHT, BIAS, MEAN, VAR, TENSORS };
    const double eps = ((const fr_norm_state *)fr_module_state(norm))->eps;
    float *v[TENSORS] = {NULL};
    fr_status s = FR_OK;
    for (int i = 0; i < TENSORS; i++) FR_TRY(s, read_floats(fr_module_tensor(norm, name[i]), (size_t)channels, &v[i]));
    for (int64_t k = 0; k < channels; k++) {
        const double by = v[WEIGHT][k] / sqrt(v[VAR][k] + eps);
        for (size_t i = 0; i < per_channel; i++) w[(size_t)k * per_channel + i] *= by;
        b[k] = (float)(((double)b[k] - v[MEAN][k]) * by + v[BIAS][k]);
    }
done:
    for (int i = 0; i < TENSORS; i++) free(v[i]);
    return s;
}

/* The folded weights have conv's paths. */
static fr_status fold_values(fr_module *conv, fr_module *norm, fr_folded_conv2d *k) {
    fr_tensor *weight = fr_module_tensor(conv, "weight");
    const int64_t channels = fr_tensor_dim(weight, 0);
    const size_t weights = (size_t)fr_tensor_numel(weight);
    FRI_OWNED(fri_free) float *b = NULL, *w = NULL;
    FRI_TRY(fr_tensor_detach(weight, &k->w));
    FRI_TRY(fr_tensor_empty(1, &channels, FR_F32, fr_tensor_device(weight), &k->b));
    fr_tensor_category_set(k->b, FR_MEM_PARAMETER);
    if (fr_tensor_device(weight) == FR_META) return FR_OK;
    FRI_TRY(read_floats(fr_module_tensor(conv, "bias"), (size_t)channels, &b));
    if (norm != NULL) {
        FRI_TRY(read_floats(k->w, weights, &w));
        FRI_TRY(scale_weights(norm, channels, weights / (size_t)channels, w, b));
        FRI_TRY(fr_tensor_upload(w, k->w));
    }
    return fr_tensor_upload(b, k->b);
}

static fr_status fold_layer(const folding *f, int conv, const chain *c, fr_module **out) {
    fr_module *m = f->layer[conv].module;
    fr_folded_conv2d k = {.opts = *(const fr_conv2d_opts *)fr_module_state(m)};
    k.relu = c->relu >= 0 && is_a(f, c->relu, "ReLU");
    k.relu6 = c->relu >= 0 && is_a(f, c->relu, "ReLU6");
    fr_status s = fold_values(m, c->norm >= 0 ? f->layer[c->norm].module : NULL, &k);
    if (s == FR_OK) s = fr_folded_conv2d_create(&k, out);
    fr_tensor_release(&k.w);
    fr_tensor_release(&k.b);
    return s;
}

/* ---- the new network --------------------------------------------------------------------------------------------- */

static bool ran_before(const folding *f, int layer) {
    for (int i = 0; i < layer; i++)
        if (f->layer[i].module == f->layer[layer].module) return true;
    return false;
}

/* Takes *m, a layer with the old network's values; NULL: repeats the layer of the name. */
static fr_status put_layer(const folding *f, const char *name, fr_module **m, const int *in, int n_in, const int *out,
                           int n_out) {
    fr_value *v = malloc((size_t)(n_in + n_out) * sizeof *v);
    if (v == NULL) fr_module_release(m);
    if (v == NULL) return fr_fail(FR_ENOMEM, "fold: out of host memory");
    for (int k = 0; k < n_in; k++) v[k] = f->value[in[k]];
    if (*m != NULL)
        fr_net_module(f->net, name, m, v, n_in, v + n_in, n_out);
    else
        fr_net_again(f->net, name, v, n_in, v + n_in, n_out);
    for (int k = 0; k < n_out; k++) f->value[out[k]] = v[n_in + k];
    free(v);
    return fr_net_status(f->net);
}

static fr_status put_folded(folding *f, int i) {
    const chain c = chain_of(f, i);
    fr_module *m = NULL;
    FRI_TRY(fold_layer(f, i, &c, &m));
    if (c.norm >= 0) f->within[c.norm] = true;
    if (c.add >= 0) f->within[c.add] = true;
    if (c.relu >= 0) f->within[c.relu] = true;
    return put_layer(f, f->layer[i].name, &m, (int[]){f->layer[i].in[0], c.addend}, c.add >= 0 ? 2 : 1, &c.result, 1);
}

static fr_status put_as_it_is(const folding *f, int i) {
    const fr_layer *a = &f->layer[i];
    fr_module *m = ran_before(f, i) ? NULL : fr_module_retain(a->module);
    return put_layer(f, a->name, &m, a->in, a->n_in, a->out, a->n_out);
}

static fr_status fold_list(folding *f, fr_module **out) {
    for (int i = 0; i < f->info.layers; i++) FRI_TRY(fr_module_layer_get(f->from, i, &f->layer[i]));
    for (int i = 0; i < f->info.inputs; i++) {
        fr_net_value v;
        FRI_TRY(fr_net_value_get(f->from, i, &v));
        f->value[i] = fr_net_input(f->net, v.dtype, v.shape.rank, v.shape.dim);
    }
    for (int i = 0; i < f->info.layers; i++)
        if (!f->within[i]) FRI_TRY(can_fold(f, i) ? put_folded(f, i) : put_as_it_is(f, i));
    FRI_OWNED(fri_free) fr_value *result = calloc((size_t)f->info.results + 1, sizeof *result);
    if (result == NULL) return fr_fail(FR_ENOMEM, "fold: out of host memory");
    for (int i = 0; i < f->info.results; i++) result[i] = f->value[f->info.result[i]];
    return fr_net_end(&f->net, result, f->info.results, out);
}

static fr_status fold_module(fr_module *m, fr_module **out) {
    folding f = {.from = m};
    fr_status s = FR_OK;
    FR_TRY(s, fr_net_info_get(m, &f.info));
    f.layer = calloc((size_t)f.info.layers + 1, sizeof *f.layer);
    f.within = calloc((size_t)f.info.layers + 1, sizeof *f.within);
    f.value = calloc((size_t)f.info.values + 1, sizeof *f.value);
    f.net = fr_net_begin(FR_META); /* new layers already have tensors */
    if (f.layer == NULL || f.within == NULL || f.value == NULL || f.net == NULL)
        FR_TRY(s, fr_fail(FR_ENOMEM, "fold: out of host memory"));
    FR_TRY(s, fold_list(&f, out));
    fr_module_train(*out, false);
done:
    fr_net_try(f.net, s);
    if (f.net != NULL) (void)fr_net_end(&f.net, &(fr_value){-1}, 0, out);
    free(f.layer);
    free(f.within);
    free(f.value);
    return s;
}

fr_status fr_net_fold(fr_module **m) {
    FRI_NOT_NULL(m);
    fr_module *folded = NULL;
    const fr_status s = *m != NULL ? fold_module(*m, &folded) : fr_fail(FR_EINVAL, "fold: NULL is not a network");
    fr_module_release(m);
    *m = folded;
    return s;
}
