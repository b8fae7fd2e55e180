/* test_abn_models.c - networks with InPlaceABN: kept bytes by formula, unchanged parameter names, and gradients close
 * to those of separate batch norm and leaky relu. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/layers.h"
#include "net/module.h"
#include "support/golden.h"

#define SLOPE 0.01

typedef fr_status model_fn(int depth, const fr_model_opts *opts, fr_module **m);

static const struct {
    const char *name;
    model_fn *make;
    int depth;
    fr_model_opts o;
} nets[] = {
    {"VGG-11", fr_vgg, 11, {FR_MODEL_DEFAULTS, .batch_norm = true, .image_size = 32, .classes = 10}},
    {"ResNet-18", fr_resnet, 18, {FR_MODEL_DEFAULTS, .image_size = 64, .classes = 10}},
    {"ResNet-50", fr_resnet, 50, {FR_MODEL_DEFAULTS, .image_size = 64, .classes = 10}},
    {"DenseNet-121", fr_densenet, 121, {FR_MODEL_DEFAULTS, .image_size = 64, .classes = 10}},
    {"DenseNet-BC-22", fr_densenet, 22, {FR_MODEL_DEFAULTS, .image_size = 16, .classes = 10}},
    {"MobileNetV2", fr_mobilenet, 2, {FR_MODEL_DEFAULTS, .image_size = 64, .classes = 10}},
    {"U-Net", fr_unet, 3, {FR_MODEL_DEFAULTS, .image_size = 32, .classes = 3}},
};
enum { NETS = sizeof nets / sizeof *nets };

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static size_t rounded(int64_t bytes) {
    return (size_t)(bytes + 511) / 512 * 512;
}

/* Savings of InPlaceABN over batch norm and relu: less by a map, more by |gamma| + eps. */
typedef struct saving {
    size_t less, more;
    int layers;
} saving;

static void on_module(void *ctx, const fr_module *m, const fr_tensor *x) {
    saving *s = ctx;
    int64_t n = 1;
    if (strcmp(fr_module_class_of(m)->name, "InPlaceABN") != 0) return;
    for (int i = 0; i < 4; i++) n *= fr_tensor_dim(x, i);
    s->less += rounded(4 * n);
    s->more += rounded(4 * fr_tensor_dim(x, 3));
    s->layers++;
}

/* Bytes kept for backward after a forward pass with all switches off, PyTorch's set. */
static size_t kept(int net, double slope, saving *s) {
    fr_model_opts o = nets[net].o;
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    fr_memory_stats t;
    o.device = FR_META;
    o.abn_slope = slope;
    must(nets[net].make(nets[net].depth, &o, &m));
    must(fr_tensor_empty(4, (int64_t[]){2, o.image_size, o.image_size, 3}, FR_F32, FR_META, &x));
    must(fr_memory_stats_get(FR_META, &t));
    size_t before = t.requested;
    fri_module_watch was = fri_module_watch_set((fri_module_watch){on_module, s});
    must(fr_module_forward(m, x, &x));
    (void)fri_module_watch_set(was);
    must(fr_memory_stats_get(FR_META, &t));
    fr_tensor_release(&x);
    fr_module_release(&m);
    return t.requested - before;
}

Test(abn_models, keep_one_map_less_per_norm) {
    fr_switches_set(fr_switches_all_off());
    for (int i = 0; i < NETS; i++) {
        saving none = {0}, s = {0};
        size_t two = kept(i, 0, &none), one = kept(i, SLOPE, &s);
        cr_expect(none.layers == 0 && s.layers > 0, "%s has %d InPlaceABN, %d without the option", nets[i].name,
                  s.layers, none.layers);
        cr_expect_eq(two - one, s.less - s.more, "%s: %zu bytes kept, with InPlaceABN %zu; %zu less by the formula",
                     nets[i].name, two, one, s.less - s.more);
    }
    expect_nothing_left();
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

typedef struct names {
    char *text;
    size_t n;
} names;

static fr_status add_name(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    names *all = ctx;
    size_t more = strlen(path) + 40;
    all->text = realloc(all->text, all->n + more);
    all->n += (size_t)snprintf(all->text + all->n, more, "%s %lld%s\n", path,
                               fr_tensor_rank(t) > 0 ? (long long)fr_tensor_dim(t, 0) : 0, is_parameter ? "" : " -");
    return FR_OK;
}

Test(abn_models, keep_every_name) {
    for (int i = 0; i < NETS; i++) {
        names got[2] = {{0}};
        for (int abn = 0; abn < 2; abn++) {
            fr_model_opts o = nets[i].o;
            fr_module *m = NULL;
            o.device = FR_META;
            o.abn_slope = abn ? SLOPE : 0;
            must(nets[i].make(nets[i].depth, &o, &m));
            must(fr_module_each_tensor(m, add_name, &got[abn]));
            fr_module_release(&m);
        }
        cr_expect_str_eq(got[0].text, got[1].text, "%s: other names", nets[i].name);
        free(got[0].text);
        free(got[1].text);
    }
    expect_nothing_left();
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

enum { N = 4, SIDE = 9, LAYERS = 3, CHANNELS = 10 };

/* Convolution and norm, three times; the weights w satisfy |w| + eps = weights of the other form. */
static fr_module *chain(bool abn) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 3});
    for (int i = 0; i < LAYERS; i++) {
        x = fr_net_conv2d(n, NULL, x, CHANNELS, 3, NULL, FR_NO_BIAS);
        if (abn) {
            x = fr_net_inplace_abn(n, NULL, x, SLOPE);
            continue;
        }
        x = fr_net_batchnorm2d(n, NULL, x, NULL);
        fr_net_try(n, fr_tensor_fill(fr_module_tensor(fr_net_layer_of(n, x), "weight"), 1 + 1e-5));
        x = fr_net_leaky_relu(n, NULL, x, SLOPE);
    }
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

typedef struct values {
    double *v[2 + 5 * LAYERS];
    int64_t size[2 + 5 * LAYERS];
    int n;
} values;

static fr_status take(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    values *all = ctx;
    int64_t n = 1;
    (void)path;
    if (fr_tensor_rank(t) == 0) return FR_OK; /* the number of batches */
    for (int i = 0; i < fr_tensor_rank(t); i++) n *= fr_tensor_dim(t, i);
    all->v[all->n] = values_of(is_parameter ? fr_tensor_get_grad(t) : t);
    all->size[all->n++] = n;
    return FR_OK;
}

/* Gradients of all parameters and the running statistics, after one backward pass. */
static values trained(bool abn) {
    values out = {0};
    fr_tensor *x = NULL, *loss = NULL;
    fr_seed(3);
    fr_module *m = chain(abn);
    fr_seed(4);
    must(fr_tensor_normal(4, (int64_t[]){N, SIDE, SIDE, 3}, 0, 1, FR_F32, test_device(), &x));
    must(fr_module_forward(m, x, &x));
    must(fr_mul(x, x, &loss));
    must(fr_mul(loss, x, &loss));
    fr_tensor_release(&x);
    must(fr_mean(loss, &loss));
    must(fr_backward(loss, NULL));
    must(fr_module_each_tensor(m, take, &out));
    fr_tensor_release(&loss);
    fr_module_release(&m);
    return out;
}

/* The bound of docs/ops/inplace_abn.md through three layers: a rounding of each rebuilt input. */
Test(abn_models, gradients_are_near_the_two_layers) {
    values two = trained(false), one = trained(true);
    cr_assert_eq(one.n, 5 * LAYERS);
    cr_assert_eq(two.n, one.n);
    for (int k = 0; k < one.n; k++) {
        double largest = 0;
        cr_assert_eq(one.size[k], two.size[k]);
        for (int64_t i = 0; i < two.size[k]; i++) largest = fmax(largest, fabs(two.v[k][i]));
        cr_expect_gt(largest, 0);
        for (int64_t i = 0; i < two.size[k]; i++)
            cr_expect(fabs(one.v[k][i] - two.v[k][i]) <= 2e-5 * largest,
                      "tensor %d element %lld: %.9g, two layers %.9g", k, (long long)i, one.v[k][i], two.v[k][i]);
        free(one.v[k]);
        free(two.v[k]);
    }
    expect_nothing_left();
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

Test(abn_models, refuse_what_has_no_norm) {
    fr_module *m = NULL;
    expect_refused(fr_vgg(11, FR_MODEL_OPTS(.abn_slope = SLOPE), &m), FR_EINVAL, "abn_slope is 0.01",
                   "batch_norm is off", NULL);
    expect_refused(fr_resnet(18, FR_MODEL_OPTS(.abn_slope = -1), &m), FR_EINVAL, "abn_slope is -1", "> 0", NULL);
    expect_refused(fri_nn_inplace_abn(4, 0, test_device(), &m), FR_EINVAL, "slope is 0", "> 0", NULL);
    expect_refused(fri_nn_inplace_abn(0, SLOPE, test_device(), &m), FR_EINVAL, "InPlaceABN", "0 channels", NULL);
    cr_expect_null(m);
    expect_nothing_left();
}
