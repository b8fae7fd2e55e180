/* small_train.c - see small_train.h. */
#include "support/small_train.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "support/golden.h"

enum { BATCH = 4, SIZE = 32, CLASSES = 5, SCALE = 1024 };

const char *const small_net_names[SMALL_NETS] = {"VGG", "ResNet", "DenseNet", "U-Net"};
const char *const small_form_names[SMALL_FORMS] = {"plain", "two segments", "three segments", "each unit", "nested",
                                                   "sqrt",  "log"};

/* ---- the networks ----------------------------------------------------------------------------------------------- */

static void append(fr_module *m, fr_module **child) {
    char name[16]; /* as in a Sequential, which a block is not */
    snprintf(name, sizeof name, "%d", fr_module_children(m));
    must(fr_module_add_child(m, name, child));
}

static void conv(fr_module *m, int64_t in, int64_t out, fr_device device) {
    fr_module *c = NULL;
    fr_conv2d_module_opts o = *FR_CONV2D_MODULE_OPTS();
    o.conv.padding = 1;
    must(fr_nn_conv2d(in, out, 3, &o, device, &c));
    append(m, &c);
}

static void norm(fr_module *m, int64_t channels, fr_device device) {
    fr_module *c = NULL;
    must(fr_nn_batchnorm2d(channels, device, &c));
    append(m, &c);
}

static void relu(fr_module *m) {
    fr_module *c = NULL;
    must(fr_nn_relu(&c));
    append(m, &c);
}

static void pool(fr_module *m, int64_t kernel, const fr_pool2d_opts *o) {
    fr_module *c = NULL;
    must(fr_nn_maxpool2d(kernel, o, &c));
    append(m, &c);
}

static void drop(fr_module *m, double p, bool channels) {
    fr_module *c = NULL;
    must(channels ? fr_nn_dropout2d(p, &c) : fr_nn_dropout(p, &c));
    append(m, &c);
}

static void classifier(fr_module *m, int64_t in, fr_device device) {
    fr_module *c = NULL;
    must(fr_nn_flatten(1, &c));
    append(m, &c);
    must(fr_nn_linear(in, CLASSES, true, device, &c));
    append(m, &c);
}

static void vgg(fr_module *m, fr_device device) {
    conv(m, 3, 8, device);
    norm(m, 8, device);
    relu(m);
    conv(m, 8, 8, device);
    norm(m, 8, device);
    relu(m);
    pool(m, 2, NULL);
    drop(m, 0.2, false);
    conv(m, 8, 16, device);
    relu(m);
    pool(m, 2, NULL);
    drop(m, 0.1, false);
    classifier(m, 8 * 8 * 16, device);
}

enum { BRANCH = 5 };

/* relu(x + norm(conv(relu(norm(conv(x)))))); with a sixth child, a Sequential, its x is norm(conv(x)). The norm before
 * the add makes the sum, as in src/models/resnet.c. */
static fr_status block_forward(fr_module *m, fr_tensor **x) {
    fr_tensor *identity = fr_tensor_retain(*x);
    const bool other = fr_module_children(m) > BRANCH;
    const fri_norm_tail sum = {.addend = &identity, .relu = true, .module = fri_scope_module()};
    fr_status s = FR_OK;
    for (int i = 0; i < BRANCH; i++) {
        const fri_layer_args last = {.tail = i == BRANCH - 1 && !other ? &sum : NULL};
        FR_TRY(s, fri_layer_run(m->children[i], m->names[i], &last, x));
    }
    if (other) {
        const fri_norm_tail over = {.addend = x, .over = true, .relu = true, .module = fri_scope_module()};
        FR_TRY(s, fri_module_run_chain(m->children[BRANCH], &over, &identity));
        fri_tensor_put(&identity, x);
    }
done:
    fr_tensor_release(&identity);
    return s;
}

static int block_units(fr_module *m, fr_module **out, int n) {
    if (n > 0) out[0] = m;
    return 1;
}

static const fr_module_class block_class = {.name = "Block", .forward = block_forward, .units = block_units};

static void block(fr_module *m, int64_t channels, bool downsample, fr_device device) {
    fr_module *b = NULL, *d = NULL;
    must(fr_module_create(&block_class, 0, &b));
    conv(b, channels, channels, device);
    norm(b, channels, device);
    relu(b);
    conv(b, channels, channels, device);
    norm(b, channels, device);
    if (downsample) {
        must(fr_nn_sequential(&d));
        conv(d, channels, channels, device);
        norm(d, channels, device);
        append(b, &d);
    }
    append(m, &b);
}

static void resnet(fr_module *m, fr_device device) {
    fr_module *c = NULL;
    conv(m, 3, 8, device);
    norm(m, 8, device);
    must(fr_nn_leaky_relu(0.1, &c));
    append(m, &c);
    block(m, 8, false, device);
    must(fr_nn_avgpool2d(2, NULL, &c));
    append(m, &c);
    drop(m, 0.2, true);
    block(m, 8, true, device);
    must(fr_nn_adaptive_avgpool2d(4, 4, &c));
    append(m, &c);
    classifier(m, 4 * 4 * 8, device);
}

static void stem(fr_module *m, fr_device device) {
    fr_module *c = NULL;
    conv(m, 3, 8, device);
    norm(m, 8, device);
    must(fr_nn_leaky_relu(0.1, &c));
    append(m, &c);
    conv(m, 8, 8, device);
    relu(m);
    pool(m, 3, FR_POOL2D_OPTS(.stride = 4, .padding = 1));
    drop(m, 0.2, true);
}

fr_module *small_net_make(small_net net, fr_device device) {
    fr_model_opts o = *FR_MODEL_OPTS(.classes = CLASSES, .in_channels = 8, .image_size = 8, .growth = 4);
    fr_module *m = NULL, *c = NULL;
    o.device = device;
    must(fr_nn_sequential(&m));
    switch (net) {
    case SMALL_VGG: vgg(m, device); return m;
    case SMALL_RESNET: resnet(m, device); return m;
    case SMALL_DENSENET:
        stem(m, device);
        must(fr_densenet(16, &o, &c));
        break;
    default: stem(m, device); must(fr_unet(1, &o, &c));
    }
    append(m, &c);
    return m;
}

/* ---- forms ------------------------------------------------------------------------------------------------------ */

static fr_status nested(fr_module *m, fr_tensor *x, fr_tensor **y) {
    static const fr_unit_option as_set[32] = {FR_UNIT_AS_SET};
    int n = fr_module_units(m, NULL, 0);
    const fr_unit_range range[] = {{0, n - 1}, {1, n / 2 + 1}, {2, n / 2}, {n / 2 + 1, n - 1}};
    return fr_checkpoint_plan(m, &(fr_unit_plan){.units = n, .option = as_set, .ranges = 4, .range = range}, x, y);
}

static fr_status each(fr_module *m, fr_tensor *x, fr_tensor **y) {
    int first[32], n = fr_module_units(m, NULL, 0);
    bool all[32];
    for (int i = 0; i < n; i++) {
        first[i] = i;
        all[i] = true;
    }
    return fr_checkpoint_units(m, first, all, n, x, y);
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
    cr_assert_not_null(grad, "%s has no gradient", path);
    cr_assert_eq(fr_tensor_dtype(grad), FR_F32);
    const float *v = host_of(grad);
    for (int64_t i = 0; i < fr_tensor_numel(grad); i++) {
        float x = v[i] + 0.0f;
        keep(ctx, &x, sizeof x);
    }
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
