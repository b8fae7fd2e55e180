/* test_onnx.c - ONNX files (onnx.h): PyTorch's networks in tiny/ (make_onnx.py) compute and train as in PyTorch;
 * damaged or unsupported files give a sentence. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <frugal/addon.h>
#include <frugal/models.h>
#include <frugal/onnx.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/layers.h"
#include "io/safetensors.h"
#include "io/support.h"
#include "support/golden.h"

TestSuite(onnx, .init = make_folder, .fini = remove_folder);

static const char *tiny(const char *name, const char *ending) {
    static char path[2][1024];
    static int at;
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    cr_assert_not_null(root, "FRUGAL_SOURCE_ROOT is not set");
    at = 1 - at;
    snprintf(path[at], sizeof path[at], "%s/tests/addons/onnx/tiny/%s.%s", root, name, ending);
    return path[at];
}

static fr_tensor *expected(const char *name, const char *what) {
    fri_safetensors *file = NULL;
    fr_tensor *t = NULL;
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, what);
    must(fri_safetensors_open_as(tiny("tiny", "safetensors"), FRI_SAFETENSORS_COPIED, &file));
    must(fri_safetensors_read(file));
    const fri_safetensors_entry *e = fri_safetensors_find(file, full);
    cr_assert_not_null(e, "%s", full);
    must(fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, e->dtype, FR_CPU, &t));
    fri_safetensors_close(&file);
    return t;
}

static fr_module *loaded(const char *name, const fr_onnx_opts *o) {
    fr_module *m = NULL;
    must(fr_onnx_load(tiny(name, "onnx"), o, &m));
    return m;
}

static fr_tensor *evaluated(fr_module *m, fr_tensor *x) {
    fr_tensor *y = NULL;
    fr_module_evaluation_begin(m);
    const bool grad = fr_no_grad_begin();
    must(fr_module_forward(m, x, &y));
    fr_no_grad_end(grad);
    fr_module_evaluation_end(m);
    return y;
}

/* Largest difference over largest value. */
static double distance(const fr_tensor *a, const fr_tensor *b) {
    double *x = values_of(a), *y = values_of(b), most = 0, apart = 0;
    cr_assert_eq(fr_tensor_numel(a), fr_tensor_numel(b));
    for (int64_t i = 0; i < fr_tensor_numel(a); i++) {
        most = fmax(most, fabs(y[i]));
        apart = fmax(apart, fabs(x[i] - y[i]));
    }
    free(x);
    free(y);
    return apart / most;
}

static const char *const files[] = {"residual", "residual_folded", "residual_dynamo",
                                    "mobile",   "mobile_train",    "mobile_dynamo",
                                    "unet",     "unet_static",     "unet_dynamo",
                                    "wide",     "wide_static",     "wide_dynamo",
                                    "shapes",   "shapes_dynamo",   "convnext",
                                    "softmax",  "convnext_train"};

Test(onnx, every_file_computes_what_pytorch_computes) {
    for (size_t i = 0; i < COUNT(files); i++) {
        fr_module *m = loaded(files[i], FR_ONNX_OPTS(.drop_softmax = true));
        fr_tensor *x = expected(files[i], "x"), *want = expected(files[i], "y"), *y = evaluated(m, x);
        cr_assert_eq(fr_tensor_rank(y), fr_tensor_rank(want), "%s", files[i]);
        for (int k = 0; k < fr_tensor_rank(y); k++) cr_expect_eq(fr_tensor_dim(y, k), fr_tensor_dim(want, k));
        cr_expect_lt(distance(y, want), 1e-5, "%s: %g", files[i], distance(y, want));
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_tensor_release(&want);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

Test(onnx, a_network_trains_as_it_trains_in_pytorch) {
    static const char *const names[] = {"residual", "mobile_train", "convnext_train"};
    for (size_t i = 0; i < COUNT(names); i++) {
        fr_module *m = loaded(names[i], NULL);
        fr_tensor *x = expected(names[i], "x"), *want = expected(names[i], "loss"), *target = NULL, *y = NULL,
                  *l = NULL;
        int64_t class_[64], n = fr_tensor_dim(x, 0);
        double *losses = values_of(want), loss = 0;
        fr_optimizer *sgd = NULL;
        for (int64_t k = 0; k < n; k++) class_[k] = k % 3;
        must(fr_tensor_from_host(class_, 1, &n, FR_I64, FR_CPU, &target));
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9), &sgd));
        for (int step = 0; step < 3; step++) {
            fr_optimizer_zero_grad(sgd);
            must(fr_module_forward(m, x, &y));
            must(fr_cross_entropy(y, target, NULL, &l));
            must(fr_tensor_item(l, &loss));
            must(fr_backward(l, NULL));
            must(fr_optimizer_step(sgd));
            cr_expect_lt(fabs(loss - losses[step]), 1e-5 * losses[step], "%s, step %d: %.9g, not %.9g", names[i], step,
                         loss, losses[step]);
        }
        free(losses);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_tensor_release(&l);
        fr_tensor_release(&want);
        fr_tensor_release(&target);
        fr_optimizer_release(&sgd);
        fr_module_release(&m);
    }
}

Test(onnx, layers_have_the_names_of_their_state_dict) {
    static const struct {
        const char *file, *name;
    } cases[] = {
        {"residual", "conv1.weight"},
        {"residual", "bn2.running_var"},
        {"residual", "fc.bias"},
        {"residual_folded", "conv1.bias"},
        {"residual_dynamo", "conv2.weight"},
        {"mobile", "stem.0.weight"},
        {"mobile", "deep.0.weight"},
        {"mobile_train", "stem.1.bias"},
        {"unet", "middle.0.weight"},
        {"wide", "shared.weight"},
        {"softmax", "first.weight"},
        {"softmax", "second.weight"},
        {"wide_dynamo", "fc1.weight"},
        {"unet_dynamo", "out.bias"},
        {"shapes", "up.bias"},
        {"shapes_dynamo", "group.weight"},
        {"convnext", "features.1.0.block.3.weight"},
        {"convnext_train", "features.1.0.block.5.bias"},
        {"convnext", "classifier.0.weight"},
        {"convnext_train", "features.0.1.weight"},
        {"convnext", "features.1.0.layer_scale."},
        {"convnext_train", "features.3.0.layer_scale."},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fr_module *m = loaded(cases[i].file, FR_ONNX_OPTS(.drop_softmax = true));
        char path[64];
        snprintf(path, sizeof path, "%s", cases[i].name);
        char *dot = strrchr(path, '.');
        *dot = '\0';
        fr_module *layer = fr_module_find(m, path);
        cr_expect(layer != NULL && fr_module_tensor(layer, dot + 1) != NULL, "%s: %s", cases[i].file, cases[i].name);
        fr_module_release(&m);
    }
}

Test(onnx, a_layer_that_runs_twice_has_one_set_of_parameters) {
    fr_module *m = loaded("wide", NULL);
    int runs = 0;
    fr_layer l;
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l));
        runs += strcmp(l.name, "shared") == 0;
    }
    cr_expect_eq(runs, 2);
    fr_module_release(&m);
}

Test(onnx, options_of_batch_norm_and_dropout_are_the_files) {
    fr_module *m = loaded("residual", NULL), *w = loaded("wide", NULL);
    const double *state = fr_module_state(fr_module_find(m, "bn1")); /* eps, momentum: net/module.h */
    cr_expect_eq(state[0], 1e-5);
    cr_expect_lt(fabs(state[1] - 0.2), 1e-12);
    state = fr_module_state(fr_module_find(m, "bn2"));
    cr_expect_eq(state[0], 1e-3);
    cr_expect_lt(fabs(state[1] - 0.1), 1e-12);
    fr_module_release(&m);
    fr_module_release(&w);
}

Test(onnx, loading_draws_no_random_numbers_and_meta_takes_no_memory) {
    fr_seed(7);
    const fr_rng before = fr_rng_get();
    fr_module *m = loaded("unet", FR_ONNX_OPTS(.device = FR_META));
    const fr_rng after = fr_rng_get();
    cr_expect_arr_eq(&before, &after, sizeof before);
    cr_expect_eq(fr_tensor_device(fr_module_tensor(fr_module_find(m, "out"), "weight")), FR_META);
    OK(fr_onnx_save(m, NULL, NULL));
    cr_expect_neq(fr_onnx_save(m, in_folder("m.onnx"), NULL), FR_OK);
    cr_expect_neq(access(in_folder("m.onnx"), F_OK), 0);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- saving ---------------------------------------------------------------------------------------------- */

static fr_status trained(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const char *dot = strrchr(path, '.');
    (void)ctx;
    if (strcmp(dot, ".running_var") == 0) return fr_init_uniform(t, 0.5, 2);
    if (strcmp(dot, ".running_mean") == 0 || (is_parameter && fr_tensor_rank(t) == 1))
        return fr_init_uniform(t, -0.5, 0.7);
    return FR_OK;
}

/* Saved and loaded networks give equal bits; folded networks, whose order of additions may change, give close
 * numbers. */
static void expect_round_trip(fr_module *m, const char *what, fr_tensor *x, const fr_onnx_save_opts *o, double apart) {
    fr_module *again = NULL;
    fr_tensor *y = evaluated(m, x);
    OK(fr_onnx_save(m, in_folder("saved.onnx"), o));
    OK(fr_onnx_load(in_folder("saved.onnx"), NULL, &again));
    fr_tensor *z = evaluated(again, x);
    cr_expect_eq(fr_tensor_rank(z), fr_tensor_rank(y));
    cr_expect_leq(distance(z, y), apart, "%s: %g", what, distance(z, y));
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    fr_module_release(&again);
}

Test(onnx, our_networks_come_back_as_they_were_saved) {
    static const struct {
        const char *name;
        int64_t size;
        bool zoo;
    } cases[] = {
        {"vgg11_bn", 32},
        {"resnet18_small", 32},
        {"densenet_bc22_k12", 32},
        {"mobilenet_v2_small", 32},
        {"unet3", 32},
        {"resnet18_small_abn", 32},
        {"mobilenet_v3_small", 64, true},
        {"vgg11", 64},
        {"efficientnet_b0", 64, true},
        {"convnext_tiny", 32, true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int64_t n = cases[i].size;
        if (cases[i].zoo && fr_addon_find("zoo") == NULL) continue;
        fr_tensor *x = uniform_tensor(4, (int64_t[]){2, n, n, 3});
        fr_module *m = NULL;
        fr_seed(5);
        OK(fr_model(cases[i].name, FR_MODEL_OPTS(.classes = 7, .image_size = n, .head = FR_HEAD_GLOBAL), &m));
        must(fr_module_each_tensor(m, trained, NULL));
        fr_module_train(m, false);
        expect_round_trip(m, cases[i].name, x, NULL, 1e-6);
        expect_round_trip(m, cases[i].name, x, FR_ONNX_SAVE_OPTS(.opset = 13), 1e-6);
        const fr_addon *fold = fr_addon_find("fold");
        if (fold != NULL) must(fold->fold(&m));
        if (fold != NULL) expect_round_trip(m, cases[i].name, x, NULL, 1e-5); /* weights have the kernel's layout */
        fr_tensor_release(&x);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* Every kind of layer, with non-default options that differ between height and width. */
static fr_module *all_layers(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value in = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 12, 18, 3}), x = in, y, z;
    x = fr_net_conv_transpose2d(n, "a.up", x, 8, 3,
                                FR_CONV_TRANSPOSE2D_OPTS(.stride = 1, .stride_w = 2, .padding = 2, .padding_w = 0,
                                                         .output_padding_w = 1, .dilation = 2, .dilation_w = 1),
                                FR_BIAS);
    y = fr_net_linear(n, "a.mix", fr_net_layer_norm(n, "a.last", x, 1e-3), 8, FR_BIAS);
    y = fr_net_layer_scale(n, "a.scale", fr_net_linear(n, NULL, y, 8, FR_NO_BIAS), 0.3);
    x = fr_net_sub(n, "a.sub", fr_net_clamp(n, NULL, x, -0.7, INFINITY), fr_net_softmax(n, NULL, y));
    x = fr_net_div(n, "a.div", fr_net_clamp(n, NULL, y, -0.2, 0.3), fr_net_log_softmax(n, NULL, x));
    x = fr_net_zero_pad2d(n, "a.pad", fr_net_pixel_shuffle(n, NULL, x, 2), (int64_t[]){1, 0, 2, 3});
    x = fr_net_conv2d(n, "a.conv", x, 4, 3,
                      FR_CONV2D_OPTS(.stride = 1, .stride_w = 2, .padding = 2, .padding_w = 1, .dilation = 2,
                                     .dilation_w = 1),
                      FR_BIAS);
    x = fr_net_batchnorm2d(n, "a.norm", x, FR_BATCHNORM2D_OPTS(.eps = 1e-2, .momentum = 0.3));
    x = fr_net_hardswish(n, NULL, fr_net_gelu(n, NULL, fr_net_silu(n, NULL, x)));
    x = fr_net_leaky_relu(n, NULL, fr_net_tanh(n, NULL, x), 0.3);
    x = fr_net_inplace_abn(n, "abn", x, 0.2);
    y = fr_net_maxpool2d(n, "max", x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1, .kernel_w = 2, .stride_w = 3));
    y = fr_net_conv2d(n, "group", y, 4, 1, FR_CONV2D_OPTS(.groups = 2), FR_NO_BIAS);
    z = fr_net_upsample_to(n, "to", y, x, FR_UPSAMPLE_BILINEAR);
    x = fr_net_concat(n, "cat", (fr_value[]){fr_net_add(n, "add", x, z), z}, 2);
    x = fr_net_avgpool2d(n, "avg", x, 2, FR_POOL2D_OPTS(.padding = 1, .count_include_pad = false));
    x = fr_net_upsample(n, "up", x, 2, FR_UPSAMPLE_NEAREST);
    x = fr_net_relu6(n, "six", fr_net_dropout2d(n, "drop", x, 0.3));
    y = fr_net_hardsigmoid(n, "gate", fr_net_adaptive_avgpool2d(n, "one", x, 1, 1));
    x = fr_net_mul(n, "mul", x, y);
    x = fr_net_adaptive_avgpool2d(n, "two", x, 2, 2);
    x = fr_net_flatten(n, "flat", fr_net_identity(n, "same", x), 1);
    x = fr_net_linear(n, "fc", fr_net_dropout(n, "half", x, 0.5), 5, FR_NO_BIAS);
    x = fr_net_layer_scale(n, "tail.scale", fr_net_layer_norm(n, "tail.norm", x, 1e-2), 0.4);
    x = fr_net_linear(n, "head", fr_net_sigmoid(n, "sigmoid", x), 3, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    must(fr_module_each_tensor(m, trained, NULL));
    return m;
}

/* Layers missing in all_layers, from rows to images and back. */
static fr_module *more_layers(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 7}), y;
    x = fr_net_channel_shuffle(n, "b.rows", fr_net_linear(n, "b.fc", x, 4 * 5 * 6, FR_BIAS), 6);
    x = fr_net_slice(n, "b.cut", fr_net_unflatten(n, "b.images", x, 4, 5), 1, 1, 4, 1);
    x = fr_net_group_norm(n, "b.groups", fr_net_channel_shuffle(n, "b.shuffle", x, 3), 2, 1e-3);
    x = fr_net_resize(n, "b.size", fr_net_prelu(n, "b.slope", x, 6, 0.2), 4, 6, FR_UPSAMPLE_BILINEAR, true);
    x = fr_net_pixel_unshuffle(n, "b.down", fr_net_add_scalar(n, "b.plus", fr_net_scale(n, "b.times", x, 0.7), 0.1), 2);
    y = fr_net_narrow(n, "b.part", fr_net_layer_shift(n, "b.shift", fr_net_gelu_tanh(n, NULL, x), 0.2), 3, 11);
    y = fr_net_stochastic_depth(n, "b.depth", fr_net_constant_pad2d(n, NULL, y, (int64_t[]){1, 0, 1, 0}, 0.5), 0.4);
    y = fr_net_softplus(n, NULL, fr_net_elu(n, NULL, y));
    x = fr_net_unflatten(n, "b.again", fr_net_linear(n, "b.out", fr_net_flatten(n, NULL, y, 1), 12, FR_BIAS), 3, 4);
    x = fr_net_conv2d(n, "b.one", x, 2, 1, NULL, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &m));
    must(fr_module_each_tensor(m, trained, NULL));
    return m;
}

Test(onnx, every_layer_and_option_comes_back) {
    fr_tensor *x = uniform_tensor(4, (int64_t[]){3, 12, 18, 3}), *rows = uniform_tensor(2, (int64_t[]){3, 7});
    fr_module *m = all_layers(), *more = more_layers();
    for (int64_t opset = 13; opset <= 18; opset++) {
        expect_round_trip(m, "all layers", x, FR_ONNX_SAVE_OPTS(.opset = opset), 1e-6);
        expect_round_trip(more, "more layers", rows, FR_ONNX_SAVE_OPTS(.opset = opset), 1e-6);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&rows);
    fr_module_release(&m);
    fr_module_release(&more);
    expect_nothing_left();
}

static fr_status mine_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    return fr_relu(*x, x);
}

Test(onnx, what_cannot_be_saved_is_named_and_leaves_the_file) {
    static const fr_module_class mine = {.name = "Mine", .forward = mine_forward};
    fr_module *m = NULL, *conv = NULL, *small = loaded("residual", NULL);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3});
    fr_net_op(n, "deep.mine", &mine, NULL, 0, &x, 1, &x, 1);
    OK(fr_net_end(&n, &x, 1, &m));
    OK(fri_nn_conv2d(1, 1, 1, NULL, true, FR_CPU, &conv));
    write_bytes(in_folder("f.onnx"), "old", 3);
    cr_expect_eq(fr_onnx_save(m, in_folder("f.onnx"), NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("f.onnx': layer 'deep.mine' (Mine): frugal writes no node for it");
    cr_expect_eq(fr_onnx_save(m, NULL, NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("saving ONNX: layer 'deep.mine' (Mine): frugal writes no node for it");
    cr_expect_eq(fr_onnx_save(conv, in_folder("f.onnx"), NULL), FR_EINVAL);
    EXPECT_SENTENCE("Conv2d is not a network");
    cr_expect_eq(fr_onnx_save(small, in_folder("f.onnx"), FR_ONNX_SAVE_OPTS(.opset = 12)), FR_EINVAL);
    EXPECT_SENTENCE("opset 12; 13 to 18 are written");
    limit_files(1000);
    cr_expect_eq(fr_onnx_save(small, in_folder("f.onnx"), NULL), FR_EIO);
    limit_files((size_t)-1);
    size_t bytes = 0;
    unsigned char *b = read_bytes(in_folder("f.onnx"), &bytes);
    cr_expect_eq(bytes, 3);
    free(b);
    fr_module_release(&m);
    fr_module_release(&conv);
    fr_module_release(&small);
    expect_nothing_left();
}

/* One name for two nodes is invalid ONNX. */
Test(onnx, a_layer_that_runs_again_makes_nodes_of_other_names) {
    fr_module *m = NULL;
    size_t bytes = 0, nodes = 0, numbered = 0;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3}),
             y = fr_net_conv2d(n, "l0", x, 3, 1, NULL, FR_BIAS);
    fr_net_again(n, "l0", &y, 1, &y, 1);
    OK(fr_net_end(&n, &y, 1, &m));
    OK(fr_onnx_save(m, in_folder("again.onnx"), NULL));
    fr_tensor *image = uniform_tensor(4, (int64_t[]){2, 4, 4, 3});
    expect_round_trip(m, "again", image, NULL, 1e-6);
    fr_tensor_release(&image);
    unsigned char *b = read_bytes(in_folder("again.onnx"), &bytes);
    for (unsigned char *at = b; (at = memmem(at, bytes - (size_t)(at - b), "/l0/Conv", 8)) != NULL; at += 8, nodes++)
        numbered += at[8] == '_';
    cr_expect_eq(nodes, 2);
    cr_expect_eq(numbered, 1);
    free(b);
    fr_module_release(&m);
}

Test(onnx, what_onnx_orders_otherwise_is_not_saved) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3}),
             row = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 3});
    fr_value y = fr_net_add(n, "sum", x, row);
    OK(fr_net_end(&n, &y, 1, &m));
    cr_expect_eq(fr_onnx_save(m, NULL, NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("layer 'sum' (Add): its inputs have rank 4 and 2; equal ranks are written");
    fr_module_release(&m);
    n = fr_net_begin(FR_CPU);
    x = fr_net_flatten(n, "flat", fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3}), 1);
    OK(fr_net_end(&n, &x, 1, &m));
    cr_expect_eq(fr_onnx_save(m, NULL, NULL), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("result 0 comes from a Flatten, whose features have another order in ONNX");
    fr_module_release(&m);
}

/* ---- refused --------------------------------------------------------------------------------------------- */

Test(onnx, what_frugal_has_not_is_named_with_its_node) {
    fr_module *m = NULL;
    cr_expect_eq(fr_onnx_load(tiny("unknown", "onnx"), FR_ONNX_OPTS(.height = 8, .width = 8), &m), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("unknown.onnx': node '/decoder/up' (GridSample, 1 of 1): frugal has no layer for GridSample");
    cr_expect_eq(fr_onnx_load(tiny("unknown", "onnx"), NULL, &m), FR_EINVAL);
    EXPECT_SENTENCE("dimension 2 of input 'x' is open; give height and width");
    cr_expect_eq(fr_onnx_load(tiny("softmax", "onnx"), NULL, &m), FR_EINVAL);
    EXPECT_SENTENCE("node 'last' (Softmax, 4 of 4): the network ends with it");
    cr_expect_eq(fr_onnx_load(in_folder("none.onnx"), NULL, &m), FR_EIO);
    EXPECT_SENTENCE("none.onnx': cannot be opened");
    write_bytes(in_folder("empty.onnx"), "", 0);
    cr_expect_eq(fr_onnx_load(in_folder("empty.onnx"), NULL, &m), FR_EFORMAT);
    EXPECT_SENTENCE("it is empty");
    cr_expect_eq(fr_onnx_load(tiny("depth_unscaled", "onnx"), FR_ONNX_OPTS(.height = 8, .width = 8), &m),
                 FR_EUNSUPPORTED);
    EXPECT_SENTENCE("node '/depth/RandomUniformLike' (RandomUniformLike, 3 of 8): random numbers but in torchvision's "
                    "stochastic depth");
    cr_expect_eq(fr_onnx_load(tiny("bare", "onnx"), FR_ONNX_OPTS(.height = 8, .width = 8), &m), FR_EFORMAT);
    EXPECT_SENTENCE("node 'bare' (Identity, 1 of 1): it has no input");
    cr_expect_null(m);
    expect_nothing_left();
}

/* Nodes from RandomUniformLike to Mul are one layer, which keeps four of five. */
Test(onnx, stochastic_depth_is_a_layer) {
    fr_module *m = NULL;
    fr_layer l;
    int found = 0;
    must(fr_onnx_load(tiny("depth", "onnx"), FR_ONNX_OPTS(.height = 8, .width = 8), &m));
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l));
        if (strcmp(fr_module_class_of(l.module)->name, "StochasticDepth") != 0) continue;
        cr_expect_float_eq(*(double *)fr_module_state(l.module), 0.2, 1e-12);
        found++;
    }
    cr_expect_eq(found, 1);
    cr_expect_eq(fr_module_layers(m), 3, "%d layers", fr_module_layers(m));
    fr_module_release(&m);
    expect_nothing_left();
}

/* Floats become integers of twice the size. */
Test(onnx, sizes_may_be_computed_as_floats) {
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    must(fr_onnx_load(tiny("cast", "onnx"), NULL, &m));
    must(fr_tensor_zeros(4, (int64_t[]){2, 2, 2, 3}, FR_F32, FR_CPU, &x));
    fr_tensor *y = evaluated(m, x);
    cr_expect_eq(fr_tensor_rank(y), 2);
    cr_expect_eq(fr_tensor_dim(y, 1), 5);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Replaces the first `from` in the file by `to`, of equal length. */
static fr_status changed_bytes(const char *file, const char *from, const char *to, size_t length) {
    size_t n = 0;
    unsigned char *b = read_bytes(tiny(file, "onnx"), &n);
    fr_module *m = NULL;
    char *at = memmem(b, n, from, strlen(from));
    cr_assert_not_null(at, "%s in %s", from, file);
    memcpy(at, to, length);
    write_bytes(in_folder("changed.onnx"), b, n);
    free(b);
    const fr_status s = fr_onnx_load(in_folder("changed.onnx"), NULL, &m);
    cr_expect_null(m);
    fr_module_release(&m);
    return s;
}

static fr_status changed(const char *file, const char *from, const char *to) {
    cr_assert_eq(strlen(from), strlen(to));
    return changed_bytes(file, from, to, strlen(to));
}

Test(onnx, another_attribute_type_or_value_is_refused) {
    cr_expect_eq(changed("residual", "dilations", "dilation_"), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("node '/conv1/Conv' (Conv, 1 of 11): frugal does not know its attribute 'dilation_'");
    cr_expect_eq(changed("shapes", "CRD", "DRC"), FR_EFORMAT);
    EXPECT_SENTENCE("(DepthToSpace, 8 of ");
    EXPECT_SENTENCE("mode 'DRC' is none of ONNX's");
    cr_expect_eq(changed("convnext", "epsilon", "epsilom"), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("(LayerNormalization, 6 of 53): frugal does not know its attribute 'epsilom'");
    cr_expect_eq(changed_bytes("residual", "/conv1/Conv", "/conv1\0Conv", 11), FR_EFORMAT);
    EXPECT_SENTENCE("or a text in it holds a NUL");
    cr_expect_eq(changed("unet", "half_pixel", "half_pixes"), FR_EUNSUPPORTED);
    EXPECT_SENTENCE("coordinates 'half_pixes'");
}

/* Messages within messages, deeper than the parser's stack would go. */
Test(onnx, nesting_is_limited) {
    enum { DEEP = 200000 };
    unsigned char *b = malloc(8 * DEEP);
    size_t at = 8 * DEEP, n = 0;
    cr_assert_not_null(b);
    /* graph (7), then node (1), attribute (5), graph (6), node (1) ... from the inside out */
    static const unsigned char key[3] = {1 << 3 | 2, 6 << 3 | 2, 5 << 3 | 2};
    for (int i = 0; i <= DEEP; i++) {
        unsigned char length[5];
        int k = 0;
        for (size_t v = n; k == 0 || v > 0; v >>= 7) length[k++] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
        at -= (size_t)k + 1;
        b[at] = i == DEEP ? 7 << 3 | 2 : key[(DEEP - 1 - i) % 3 == 0 ? 0 : (DEEP - 1 - i) % 3 == 1 ? 2 : 1];
        memcpy(b + at + 1, length, (size_t)k);
        n += (size_t)k + 1;
    }
    write_bytes(in_folder("deep.onnx"), b + at, n);
    free(b);
    fr_module *m = NULL;
    cr_expect_eq(fr_onnx_load(in_folder("deep.onnx"), NULL, &m), FR_EFORMAT);
    EXPECT_SENTENCE("nest deeper than 32");
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Changes a few bytes or cuts the end; mostly within the graph, after the weights. */
static void damage(const char *file, uint64_t *seed) {
    size_t n = 0;
    unsigned char *b = read_bytes(tiny(file, "onnx"), &n);
    const int kind = (int)(next(seed) % 4);
    for (uint64_t k = 0; k <= next(seed) % 4 && kind < 3; k++)
        b[next(seed) % n] = kind == 0 ? (unsigned char)next(seed) : kind == 1 ? 255 : 0;
    write_bytes(in_folder("bad.onnx"), b, kind == 3 ? next(seed) % n : n);
    free(b);
}

Test(onnx, damaged_files_are_one_sentence) {
    uint64_t seed = 11;
    int fine = 0;
    for (int i = 0; i < 200; i++) {
        fr_module *m = NULL;
        damage(files[i % (int)COUNT(files)], &seed);
        const fr_status s = fr_onnx_load(in_folder("bad.onnx"), NULL, &m);
        cr_expect((s == FR_OK) == (m != NULL));
        fine += s == FR_OK;
        if (s < 0) EXPECT_SENTENCE("loading ONNX: file '");
        if (s < 0) cr_expect_null(strchr(fr_last_error(), '\n'), "%s", fr_last_error());
        fr_module_release(&m);
    }
    cr_expect_lt(fine, 150, "%d of 200 damaged files load", fine);
    cr_expect_gt(fine, 0);
    expect_nothing_left();
}
