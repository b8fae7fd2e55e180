/* small_train.c - see small_train.h. */
#include "support/small_train.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { BATCH = 4, SIZE = 32, CLASSES = 5, SCALE = 1024 };

const char *const small_net_names[SMALL_NETS] = {"VGG", "ResNet", "DenseNet", "U-Net"};
const char *const small_form_names[SMALL_FORMS] = {"plain", "two segments", "three segments", "each unit", "nested",
                                                   "sqrt",  "log"};

/* ---- the networks ----------------------------------------------------------------------------------------------- */

static fr_value conv(fr_net *n, fr_value x, int64_t out) {
    return fr_net_conv2d(n, NULL, x, out, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
}

static fr_value norm(fr_net *n, fr_value x) {
    return fr_net_batchnorm2d(n, NULL, x, NULL);
}

static fr_value classifier(fr_net *n, fr_value x) {
    return fr_net_linear(n, NULL, fr_net_flatten(n, NULL, x, 1), CLASSES, FR_BIAS);
}

static fr_value vgg(fr_net *n, fr_value x) {
    for (int i = 0; i < 2; i++) x = fr_net_relu(n, NULL, norm(n, conv(n, x, 8)));
    x = fr_net_dropout(n, NULL, fr_net_maxpool2d(n, NULL, x, 2, NULL), 0.2);
    x = fr_net_relu(n, NULL, conv(n, x, 16));
    x = fr_net_dropout(n, NULL, fr_net_maxpool2d(n, NULL, x, 2, NULL), 0.1);
    return classifier(n, x);
}

/* relu(x + norm(conv(relu(norm(conv(x)))))); with a downsample, x is replaced by norm(conv(x)). */
static fr_value block(fr_net *n, fr_value x, int64_t channels, bool downsample) {
    fr_value y = norm(n, conv(n, fr_net_relu(n, NULL, norm(n, conv(n, x, channels))), channels));
    if (downsample) x = norm(n, conv(n, x, channels));
    return fr_net_relu(n, NULL, fr_net_add(n, NULL, y, x));
}

static fr_value resnet(fr_net *n, fr_value x) {
    x = fr_net_leaky_relu(n, NULL, norm(n, conv(n, x, 8)), 0.1);
    x = block(n, x, 8, false);
    x = fr_net_dropout2d(n, NULL, fr_net_avgpool2d(n, NULL, x, 2, NULL), 0.2);
    x = block(n, x, 8, true);
    return classifier(n, fr_net_adaptive_avgpool2d(n, NULL, x, 4, 4));
}

static fr_value stem(fr_net *n, fr_value x) {
    x = fr_net_leaky_relu(n, NULL, norm(n, conv(n, x, 8)), 0.1);
    x = fr_net_relu(n, NULL, conv(n, x, 8));
    x = fr_net_maxpool2d(n, NULL, x, 3, FR_POOL2D_OPTS(.stride = 4, .padding = 1));
    return fr_net_dropout2d(n, NULL, x, 0.2);
}

fr_module *small_net_make(small_net net, fr_device device) {
    const fr_model_opts *o =
        FR_MODEL_OPTS(.classes = CLASSES, .in_channels = 8, .image_size = 8, .growth = 4, .device = device);
    fr_module *m = NULL, *last = NULL;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3});
    switch (net) {
    case SMALL_VGG: x = vgg(n, x); break;
    case SMALL_RESNET: x = resnet(n, x); break;
    default:
        x = stem(n, x);
        must(net == SMALL_DENSENET ? fr_densenet(16, o, &last) : fr_unet(1, o, &last));
        fr_net_module(n, NULL, &last, &x, 1, &x, 1);
    }
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

/* ---- forms ------------------------------------------------------------------------------------------------------ */

static fr_status nested(fr_module *m, fr_tensor *x, fr_tensor **y) {
    int n = fr_module_units(m, NULL, 0);
    const fr_unit_range range[] = {{0, n - 1}, {1, n / 2 + 1}, {2, n / 2}, {n / 2 + 1, n - 1}};
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = n, .ranges = 4, .range = range}, x, y);
}

/* Runs each layer as a unit. */
static fr_status each(fr_module *m, fr_tensor *x, fr_tensor **y) {
    enum { MOST = 256 };
    int first[MOST], n = fr_module_layers(m);
    fr_unit_range range[MOST];
    cr_assert_leq(n, MOST);
    for (int i = 0; i < n; i++) {
        first[i] = i;
        range[i] = (fr_unit_range){i, i + 1};
    }
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = n, .ranges = n, .range = range, .first = first}, x, y);
}

fr_status small_net_forward(fr_module *m, small_form form, fr_tensor *x, fr_tensor **y) {
    switch (form) {
    case SMALL_TWO: return fr_checkpoint_sequential(m, 2, x, y);
    case SMALL_THREE: return fr_checkpoint_sequential(m, 3, x, y);
    case SMALL_EACH: return each(m, x, y);
    case SMALL_NESTED: return nested(m, x, y);
    case SMALL_SQRT: return fr_checkpoint_segments(m, FR_SEGMENTS_SQRT, 1, NULL, x, y);
    case SMALL_LOG: return fr_checkpoint_segments(m, FR_SEGMENTS_LOG, 1, NULL, x, y);
    default: return fr_module_forward(m, x, y);
    }
}

/* ---- freezing ------------------------------------------------------------------------------------------------ */

typedef struct freezing {
    fr_module *m;
    uint32_t random;
} freezing;

/* A third is unchanged; otherwise the layer or a parameter is frozen or unfrozen. */
static fr_status freeze_or_not(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    freezing *f = ctx;
    char layer[256];
    (void)t;
    f->random = f->random * 1664525u + 1013904223u;
    const uint32_t r = f->random >> 16, kind = r % 6;
    snprintf(layer, sizeof layer, "%s", path);
    if (strrchr(layer, '.') != NULL) *strrchr(layer, '.') = '\0';
    if (!is_parameter || kind > 3) return FR_OK;
    return fr_module_freeze(f->m, kind < 3 ? layer : path, r / 6 % 3 != 0);
}

static fr_status thaw_last(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)t;
    if (is_parameter) snprintf(ctx, 256, "%s", path);
    return FR_OK;
}

void small_freeze(fr_module *m, uint32_t choice) {
    freezing f = {m, choice};
    char last[256] = "";
    must(fr_module_each_tensor(m, freeze_or_not, &f));
    must(fr_module_each_tensor(m, thaw_last, last));
    if (fr_module_trained_count(m) == 0) must(fr_module_freeze(m, last, false));
}

/* ---- training --------------------------------------------------------------------------------------------------- */

static void keep(small_bytes *b, const void *data, size_t n) {
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->data = realloc(b->data, b->capacity);
        cr_assert_not_null(b->data);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static fr_status keep_state(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    (void)is_parameter;
    keep(ctx, host_of(t), fr_tensor_nbytes(t));
    return FR_OK;
}

/* Adding to a cleared gradient turns -0 into 0, so -0 counts as 0. */
static fr_status keep_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    if (!is_parameter) return FR_OK;
    fr_tensor *grad = fr_tensor_get_grad(t);
    if (!fr_tensor_requires_grad(t)) {
        cr_assert_null(grad, "%s is frozen and has a gradient", path);
        return FR_OK;
    }
    cr_assert_not_null(grad, "%s has no gradient", path);
    double *v = values_of(grad); /* of f32, or of autocast's type */
    for (int64_t i = 0; i < fr_tensor_numel(grad); i++) {
        float x = (float)v[i] + 0.0f;
        keep(ctx, &x, sizeof x);
    }
    free(v);
    return FR_OK;
}

static fr_status clear(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx;
    (void)path;
    if (!is_parameter || fr_tensor_get_grad(t) == NULL) return FR_OK;
    return fr_tensor_fill(fr_tensor_get_grad(t), 0);
}

static void forward_backward(fr_module *m, const small_setting *c, fr_device device, fr_grad_scaler *g, double *loss) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *l = NULL;
    fr_autocast_state was = {0};
    must(fr_tensor_uniform(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, -1, 1, FR_F32, device, &x));
    if (c->net == SMALL_UNET)
        must(fr_tensor_full(3, (int64_t[]){BATCH, SIZE / 4, SIZE / 4}, 2, FR_I64, device, &target));
    else
        must(fr_tensor_full(1, (int64_t[]){BATCH}, 2, FR_I64, device, &target));
    if (c->amp != SMALL_F32) must(fr_autocast_begin(c->amp == SMALL_F16 ? FR_F16 : FR_BF16, &was));
    must(small_net_forward(m, c->form, x, &y));
    fr_tensor_release(&x);
    must(fr_cross_entropy(y, target, NULL, &l));
    fr_tensor_release(&y);
    if (c->amp != SMALL_F32) fr_autocast_end(was);
    *loss = 0;
    if (device != FR_META) must(fr_tensor_item(l, loss));
    if (g != NULL) must(fr_grad_scaler_scale(g, l, &l));
    must(fr_backward(l, NULL));
    fr_tensor_release(&target);
    fr_tensor_release(&l);
}

static void step(fr_module *m, fr_optimizer *o, fr_grad_scaler *g, const small_setting *c, fr_device device, int i,
                 small_record *out) {
    fr_step_scope scope;
    bool skipped = false;
    must(fr_step_begin(&scope));
    forward_backward(m, c, device, g, &out->loss[i]);
    if (device != FR_META && !c->fused) must(fr_module_each_tensor(m, keep_gradient, &out->gradients));
    if (g != NULL) {
        must(fr_grad_scaler_step(g, o));
        must(fr_grad_scaler_update(g, &skipped));
        cr_expect(!skipped, "%s: step %d overflowed", small_net_names[c->net], i);
    } else {
        must(fr_optimizer_step(o));
    }
    if (c->grad_zero)
        must(fr_module_each_tensor(m, clear, NULL));
    else
        fr_optimizer_zero_grad(o);
    if (device != FR_META) {
        keep(&out->state, &out->loss[i], sizeof out->loss[i]);
        must(fr_module_each_tensor(m, keep_state, &out->state));
    }
    must(fr_step_end(&scope));
}

void small_train(const small_setting *c, fr_device device, small_record *out) {
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    fr_graph_stats before = fr_graph_stats_get();
    *out = (small_record){0};
    cr_assert_leq((size_t)c->steps, sizeof out->loss / sizeof *out->loss);
    must(fr_memory_empty_cache(device));
    must(fr_memory_reset_peak(device));
    fr_seed(21);
    fr_switches_set(c->switches);
    fr_module *m = small_net_make(c->net, device);
    if (c->frozen != 0) small_freeze(m, c->frozen);
    must(c->net == SMALL_RESNET ? fr_adam(m, FR_ADAM_OPTS(.lr = 0.01), &o)
                                : fr_sgd(m, FR_SGD_OPTS(.lr = 0.02, .momentum = 0.9), &o));
    if (c->fused) must(fr_optimizer_fuse(o, true));
    if (c->amp == SMALL_F16)
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = SCALE, .dynamic = false), device, &g));
    for (int i = 0; i < c->steps; i++) step(m, o, g, c, device, i, out);
    must(fr_memory_stats_get(device, &out->memory));
    fr_graph_stats after = fr_graph_stats_get();
    out->graph = (fr_graph_stats){.inplace = after.inplace - before.inplace,
                                  .encoded = after.encoded - before.encoded,
                                  .absorbed = after.absorbed - before.absorbed,
                                  .rebuilt = after.rebuilt - before.rebuilt,
                                  .offloaded = after.offloaded - before.offloaded,
                                  .recomputed_segments = after.recomputed_segments - before.recomputed_segments};
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

void small_record_free(small_record *r) {
    free(r->state.data);
    free(r->gradients.data);
    r->state = r->gradients = (small_bytes){0};
}
