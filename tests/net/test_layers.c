/* test_layers.c - every layer is its op with torch's defaults; parameters start as torch's; bad options are refused. */
#include <criterion/criterion.h>
#include <frugal/net.h>
#include "net/layers.h"
#include "net/module.h"
#include "ops/op.h"

#include <frugal/nn.h>
#include <frugal/optim.h>
#include <frugal/weights.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

static fr_tensor *image(void) {
    fr_tensor *x = NULL;
    must(fr_tensor_uniform(4, (int64_t[]){2, 7, 6, 4}, -1, 1, FR_F32, test_device(), &x));
    return x;
}

/* Same shape and bits; releases both. */
static void expect_same(const char *what, fr_tensor **a, fr_tensor **b) {
    cr_assert_eq(fr_tensor_rank(*a), fr_tensor_rank(*b), "%s: rank", what);
    for (int i = 0; i < fr_tensor_rank(*a); i++)
        cr_assert_eq(fr_tensor_dim(*a, i), fr_tensor_dim(*b, i), "%s: dimension %d", what, i);
    cr_expect_eq(memcmp(host_of(*a), host_of(*b), fr_tensor_nbytes(*a)), 0, "%s: values differ", what);
    fr_tensor_release(a);
    fr_tensor_release(b);
}

/* ---- layers without parameters ----------------------------------------------------------------------------- */

typedef fr_status layer_make(fr_module **m);
typedef fr_status layer_op(fr_tensor *x, fr_tensor **y);

/* A layer: its constructor, and the equal call of its op. */
#define LAYER(name, make, op)                                 \
    static fr_status name##_make(fr_module **m) {             \
        return make;                                          \
    }                                                         \
    static fr_status name##_op(fr_tensor *x, fr_tensor **y) { \
        return op;                                            \
    }
LAYER(relu, fri_nn_relu(m), fr_relu(x, y))
LAYER(relu6, fri_nn_relu6(m), fr_relu6(x, y))
LAYER(leaky_relu, fri_nn_leaky_relu(0.2, m), fr_leaky_relu(x, 0.2, y))
#define ACTIVATION(word, ...) LAYER(word, fri_nn_##word(m), fr_##word(x, y))
FRI_ACTIVATIONS(ACTIVATION)
LAYER(maxpool2d, fri_nn_maxpool2d(2, NULL, m), fr_maxpool2d(x, 2, FR_POOL2D_OPTS(.stride = 2), y))
LAYER(maxpool2d_options, fri_nn_maxpool2d(3, FR_POOL2D_OPTS(.stride = 2, .padding = 1), m),
      fr_maxpool2d(x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1), y))
LAYER(avgpool2d, fri_nn_avgpool2d(2, NULL, m), fr_avgpool2d(x, 2, NULL, y))
LAYER(adaptive_avgpool2d, fri_nn_adaptive_avgpool2d(3, 2, m), fr_adaptive_avgpool2d(x, 3, 2, y))
LAYER(flatten, fri_nn_flatten(1, m), fr_flatten(x, 1, y))
LAYER(nearest, fri_nn_upsample(2, FR_UPSAMPLE_NEAREST, m), fr_upsample(x, 14, 12, FR_UPSAMPLE_NEAREST, false, y))
LAYER(bilinear, fri_nn_upsample(3, FR_UPSAMPLE_BILINEAR, m), fr_upsample(x, 21, 18, FR_UPSAMPLE_BILINEAR, false, y))
LAYER(dropout, fri_nn_dropout(0.4, m), fr_dropout(x, 0.4, true, y))
LAYER(dropout2d, fri_nn_dropout2d(0.4, m), fr_dropout2d(x, 0.4, true, y))
LAYER(clamp, fri_nn_clamp(-0.25, 0.5, m), fr_clamp(x, -0.25, 0.5, y))
LAYER(softmax, fri_nn_softmax(m), fr_softmax(x, y))
LAYER(log_softmax, fri_nn_log_softmax(m), fr_log_softmax(x, y))
LAYER(stochastic_depth, fri_nn_stochastic_depth(0.4, m), fr_stochastic_depth(x, 0.4, true, y))
LAYER(zero_pad2d, fri_nn_zero_pad2d((int64_t[]){1, 2, 3, 4}, m),
      fr_pad(x, (int64_t[]){0, 3, 1, 0}, (int64_t[]){0, 4, 2, 0}, 0, y))
LAYER(pixel_shuffle, fri_nn_pixel_shuffle(2, m), fr_pixel_shuffle(x, 2, y))
LAYER(pixel_unshuffle, fri_nn_pixel_unshuffle(1, m), fr_pixel_unshuffle(x, 1, y))
LAYER(identity, fri_nn_identity(m), fr_scale(x, 1, y))
LAYER(scale, fri_nn_scale(-1.5, m), fr_scale(x, -1.5, y))
LAYER(add_scalar, fri_nn_add_scalar(0.5, m), fr_add_scalar(x, 0.5, y))
LAYER(constant_pad2d, fri_nn_constant_pad2d((int64_t[]){1, 2, 3, 4}, -7, m),
      fr_pad(x, (int64_t[]){0, 3, 1, 0}, (int64_t[]){0, 4, 2, 0}, -7, y))
LAYER(resize, fri_nn_resize(5, 3, FR_UPSAMPLE_BILINEAR, true, m), fr_upsample(x, 5, 3, FR_UPSAMPLE_BILINEAR, true, y))
LAYER(slice, fri_nn_slice(1, 1, INT64_MAX, 2, m), fr_slice(x, 1, 1, INT64_MAX, 2, y))
LAYER(narrow, fri_nn_narrow(1, 1, m), fr_narrow(x, 3, 1, 1, y))

static const struct {
    const char *name, *class_;
    layer_make *make;
    layer_op *op;
} layers[] = {
    {"relu", "ReLU", relu_make, relu_op},
    {"relu6", "ReLU6", relu6_make, relu6_op},
    {"leaky_relu", "LeakyReLU", leaky_relu_make, leaky_relu_op},
#define ACTIVATION_ROW(word, saves, class_name, ...) {#word, class_name, word##_make, word##_op},
    FRI_ACTIVATIONS(ACTIVATION_ROW){"maxpool2d", "MaxPool2d", maxpool2d_make, maxpool2d_op},
    {"maxpool2d with options", "MaxPool2d", maxpool2d_options_make, maxpool2d_options_op},
    {"avgpool2d", "AvgPool2d", avgpool2d_make, avgpool2d_op},
    {"adaptive_avgpool2d", "AdaptiveAvgPool2d", adaptive_avgpool2d_make, adaptive_avgpool2d_op},
    {"flatten", "Flatten", flatten_make, flatten_op},
    {"nearest", "Upsample", nearest_make, nearest_op},
    {"bilinear", "Upsample", bilinear_make, bilinear_op},
    {"dropout", "Dropout", dropout_make, dropout_op},
    {"dropout2d", "Dropout2d", dropout2d_make, dropout2d_op},
    {"clamp", "Clamp", clamp_make, clamp_op},
    {"softmax", "Softmax", softmax_make, softmax_op},
    {"log_softmax", "LogSoftmax", log_softmax_make, log_softmax_op},
    {"stochastic_depth", "StochasticDepth", stochastic_depth_make, stochastic_depth_op},
    {"zero_pad2d", "ZeroPad2d", zero_pad2d_make, zero_pad2d_op},
    {"pixel_shuffle", "PixelShuffle", pixel_shuffle_make, pixel_shuffle_op},
    {"pixel_unshuffle", "PixelUnshuffle", pixel_unshuffle_make, pixel_unshuffle_op},
    {"identity", "Identity", identity_make, identity_op},
    {"scale", "Scale", scale_make, scale_op},
    {"add_scalar", "AddScalar", add_scalar_make, add_scalar_op},
    {"constant_pad2d", "ConstantPad2d", constant_pad2d_make, constant_pad2d_op},
    {"resize", "Resize", resize_make, resize_op},
    {"slice", "Slice", slice_make, slice_op},
    {"narrow", "Narrow", narrow_make, narrow_op},
};

Test(layers, are_their_ops) {
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        fr_module *m = NULL;
        fr_tensor *x = image(), *y = NULL, *want = NULL;
        must(layers[i].make(&m));
        cr_expect_str_eq(fr_module_class_of(m)->name, layers[i].class_);
        fr_seed(3);
        must(fr_module_forward(m, x, &y));
        fr_seed(3);
        must(layers[i].op(x, &want));
        expect_same(layers[i].name, &y, &want);
        fr_tensor_release(&x);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

Test(layers, dropout_is_the_identity_in_eval) {
    layer_make *const make[] = {dropout_make, dropout2d_make, stochastic_depth_make};
    for (int i = 0; i < 3; i++) {
        fr_module *m = NULL;
        fr_tensor *x = image(), *y = NULL;
        must(make[i](&m));
        fr_module_train(m, false);
        must(fr_module_forward(m, x, &y));
        expect_same("eval", &y, &x);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* ---- layers with parameters -------------------------------------------------------------------------------- */

Test(layers, conv2d_and_linear_are_their_ops) {
    fr_module *m = NULL;
    fr_tensor *x = image(), *y = NULL, *want = NULL;
    const fr_conv2d_opts *o = FR_CONV2D_OPTS(.stride = 2, .padding = 1, .groups = 2);
    must(fri_nn_conv2d(4, 6, 3, o, true, test_device(), &m));
    must(fr_module_forward(m, x, &y));
    must(fr_conv2d(x, fr_module_tensor(m, "weight"), fr_module_tensor(m, "bias"), o, &want));
    expect_same("conv2d", &y, &want);
    cr_expect_eq(fr_tensor_dim(fr_module_tensor(m, "weight"), 3), 2);
    must(fri_nn_conv2d(4, 6, 3, NULL, false, test_device(), &m)); /* replaces the old tensor in *m */
    cr_expect_null(fr_module_tensor(m, "bias"));
    must(fr_flatten(x, 1, &x));
    must(fri_nn_linear(168, 5, true, test_device(), &m));
    must(fr_module_forward(m, x, &y));
    must(fr_linear(x, fr_module_tensor(m, "weight"), fr_module_tensor(m, "bias"), &want));
    expect_same("linear", &y, &want);
    fr_module_release(&m);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(layers, conv_transpose2d_is_its_op) {
    fr_module *m = NULL;
    fr_tensor *x = image(), *y = NULL, *want = NULL;
    const fr_conv_transpose2d_opts *o =
        FR_CONV_TRANSPOSE2D_OPTS(.stride = 2, .padding = 1, .output_padding = 1, .groups = 2);
    must(fri_nn_conv_transpose2d(4, 6, 3, o, true, test_device(), &m));
    must(fr_module_forward(m, x, &y));
    fr_tensor *w = fr_module_tensor(m, "weight");
    must(fr_conv_transpose2d(x, w, fr_module_tensor(m, "bias"), o, &want));
    expect_same("conv_transpose2d", &y, &want);
    cr_expect(fr_tensor_dim(w, 0) == 4 && fr_tensor_dim(w, 3) == 3);
    must(fri_nn_conv_transpose2d(4, 6, 3, NULL, false, test_device(), &m));
    cr_expect_null(fr_module_tensor(m, "bias"));
    fr_module_release(&m);
    fr_tensor_release(&x);
    expect_nothing_left();
}

static fr_status path_of_first(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    cr_expect(is_parameter && fr_tensor_requires_grad(t));
    snprintf(ctx, 64, "%s", path);
    return FR_END;
}

/* Parameter of a layer scale: the layer's path and torchvision's shape; freezing the path freezes it. */
Test(layers, layer_scale_multiplies_channels) {
    const fr_device d = test_device();
    const float factor[4] = {1, -2, 0.5F, 0};
    fr_module *m = NULL;
    fr_tensor *x = image(), *y = NULL, *f = NULL;
    char path[64] = "";
    fr_net *n = fr_net_begin(d);
    fr_value v = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 7, 6, 4});
    v = fr_net_layer_scale(n, "block.scale", v, 0.25);
    must(fr_net_end(&n, &v, 1, &m));
    must(fr_module_each_tensor(m, path_of_first, path));
    cr_expect_str_eq(path, "block.scale");
    fr_tensor *t = fr_module_tensor(fr_module_find(m, "block.scale"), "");
    cr_assert(fr_tensor_rank(t) == 3 && fr_tensor_dim(t, 0) == 4 && fr_tensor_numel(t) == 4);
    cr_expect_eq(((float *)host_of(t))[3], 0.25F);
    must(fr_tensor_from_host(factor, 3, (int64_t[]){4, 1, 1}, FR_F32, d, &f));
    must(fr_tensor_copy(t, f));
    must(fr_module_forward(m, x, &y));
    const float *in = host_of(x), *out = host_of(y);
    for (int64_t i = 0; i < fr_tensor_numel(x); i++) cr_assert_eq(out[i], in[i] * factor[i % 4], "%d", (int)i);
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    cr_expect_eq(fr_tensor_rank(fr_tensor_get_grad(t)), 3);
    must(fr_module_freeze(m, "block.scale", true));
    cr_expect_eq(fr_module_trained_count(m), 0);
    must(fr_module_to_dtype(m, FR_F16));
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(fr_module_find(m, "block.scale"), "")), FR_F16);
    RELEASE_ALL(&x, &y, &f);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Rows of any number of dimensions: the bits and gradients of the rows in two dimensions. */
Test(layers, linear_takes_images) {
    fr_module *m = NULL;
    fr_tensor *x = image(), *flat = NULL, *y[2] = {NULL}, *g[2] = {NULL}, *sum = NULL;
    must(fri_nn_linear(4, 5, true, test_device(), &m));
    for (int i = 0; i < 2; i++) {
        fr_tensor *leaf = NULL;
        must(fr_reshape(x, i == 0 ? 4 : 2, i == 0 ? (int64_t[]){2, 7, 6, 4} : (int64_t[]){84, 4}, &flat));
        must(fr_tensor_clone(flat, &leaf));
        must(fr_tensor_set_requires_grad(leaf, true));
        must(fr_module_forward(m, leaf, &y[i]));
        must(fr_sum(y[i], &sum));
        must(fr_backward(sum, NULL));
        must(fr_tensor_clone(fr_tensor_get_grad(leaf), &g[i]));
        fr_tensor_release(&leaf);
    }
    cr_expect(fr_tensor_rank(y[0]) == 4 && fr_tensor_dim(y[0], 2) == 6 && fr_tensor_dim(y[0], 3) == 5);
    must(fr_reshape(y[0], 2, (int64_t[]){84, 5}, &y[0]));
    must(fr_reshape(g[0], 2, (int64_t[]){84, 4}, &g[0]));
    expect_same("result", &y[0], &y[1]);
    expect_same("gradient", &g[0], &g[1]);
    RELEASE_ALL(&x, &flat, &sum);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(layers, embedding_looks_up_and_learns) {
    static const int64_t rows[] = {2, 0, 2};
    static const float times[] = {1, 0, 2, 0};
    fr_module *m = NULL;
    fr_tensor *index = NULL, *y = NULL;
    float g[4 * 3];
    must(fri_nn_embedding(4, 3, test_device(), &m));
    fr_tensor *w = fr_module_tensor(m, "weight");
    const float *table = host_of(w);
    must(fr_tensor_from_host(rows, 1, (int64_t[]){3}, FR_I64, test_device(), &index));
    must(fr_module_forward(m, index, &y));
    cr_expect_eq(fr_tensor_rank(y), 2);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(memcmp((float *)host_of(y) + 3 * i, table + 3 * rows[i], 12), 0, "row %d", i);
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(w), g));
    for (int i = 0; i < 4; i++) cr_expect_eq(g[3 * i], times[i], "gradient of row %d", i);
    fr_module_release(&m);
    fr_tensor_release(&index);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* ---- how parameters start ---------------------------------------------------------------------------------- */

/* A sample of n values: the mean of U or N lies within 6 standard errors, and so does the standard deviation (its
 * error is at most std / sqrt(2 n) for N, less for U). */
static void expect_moments(const char *what, const fr_tensor *t, double std, double bound) {
    int64_t n = fr_tensor_numel(t);
    double *v = values_of(t), mean = 0, square = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += v[i] / (double)n;
        square += v[i] * v[i] / (double)n;
        largest = fmax(largest, fabs(v[i]));
    }
    cr_expect(fabs(mean) <= 6 * std / sqrt((double)n), "%s: mean %g", what, mean);
    cr_expect(fabs(sqrt(square) - std) <= 6 * std / sqrt(2.0 * (double)n), "%s: std %g, expected %g", what,
              sqrt(square), std);
    cr_expect(largest <= bound, "%s: |value| up to %g, bound %g", what, largest, bound);
    free(v);
}

/* torch: Conv2d and Linear U(-1/sqrt(fan_in), 1/sqrt(fan_in)); Embedding N(0, 1); kaiming_normal N(0, sqrt(2/fan)). */
Test(layers, start_as_torchs) {
    fr_module *m = NULL;
    fr_seed(11);
    must(fri_nn_conv2d(8, 64, 3, FR_CONV2D_OPTS(.groups = 2), true, test_device(), &m)); /* fan_in 3 * 3 * 4 */
    expect_moments("conv2d weight", fr_module_tensor(m, "weight"), 1 / sqrt(36 * 3), 1 / sqrt(36));
    expect_moments("conv2d bias", fr_module_tensor(m, "bias"), 1 / sqrt(36 * 3), 1 / sqrt(36));
    must(fri_init_kaiming_normal(fr_module_tensor(m, "weight"), true));
    expect_moments("kaiming fan_out", fr_module_tensor(m, "weight"), sqrt(2.0 / (9 * 64)), INFINITY);
    must(fri_init_kaiming_normal(fr_module_tensor(m, "weight"), false));
    expect_moments("kaiming fan_in", fr_module_tensor(m, "weight"), sqrt(2.0 / 36), INFINITY);
    must(fri_nn_linear(100, 300, true, test_device(), &m));
    expect_moments("linear weight", fr_module_tensor(m, "weight"), 1 / sqrt(300), 0.1);
    expect_moments("linear bias", fr_module_tensor(m, "bias"), 1 / sqrt(300), 0.1);
    cr_expect_eq(fri_init_kaiming_normal(fr_module_tensor(m, "bias"), true), FR_ESHAPE);
    must(fri_nn_conv_transpose2d(64, 8, 3, FR_CONV_TRANSPOSE2D_OPTS(.groups = 2), true, test_device(), &m));
    expect_moments("transposed weight", fr_module_tensor(m, "weight"), 1 / sqrt(36 * 3), 1 / sqrt(36)); /* 3 * 3 * 4 */
    must(fri_nn_embedding(200, 50, test_device(), &m));
    expect_moments("embedding", fr_module_tensor(m, "weight"), 1, INFINITY);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(layers, the_seed_decides) {
    fr_module *m[3] = {0};
    fr_tensor *w[3];
    for (int i = 0; i < 3; i++) {
        fr_seed(i == 2 ? 6 : 5);
        must(fri_nn_linear(9, 9, true, test_device(), &m[i]));
        w[i] = fr_module_tensor(m[i], "weight");
    }
    cr_expect_eq(memcmp(host_of(w[0]), host_of(w[1]), fr_tensor_nbytes(w[0])), 0);
    cr_expect_neq(memcmp(host_of(w[0]), host_of(w[2]), fr_tensor_nbytes(w[0])), 0);
    for (int i = 0; i < 3; i++) fr_module_release(&m[i]);
    expect_nothing_left();
}

Test(layers, batchnorm2d_starts_as_torchs) {
    static const struct {
        const char *name;
        double value;
    } parts[] = {{"weight", 1}, {"bias", 0}, {"running_mean", 0}, {"running_var", 1}, {"num_batches_tracked", 0}};
    fr_module *m = NULL;
    must(fri_nn_batchnorm2d(3, NULL, test_device(), &m));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        fr_tensor *t = fr_module_tensor(m, parts[i].name);
        cr_assert_not_null(t, "%s", parts[i].name);
        double *v = values_of(t);
        cr_expect_eq(v[0], parts[i].value, "%s is %g", parts[i].name, v[0]);
        cr_expect_eq(fr_tensor_requires_grad(t), i < 2, "%s", parts[i].name);
        free(v);
    }
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(m, "num_batches_tracked")), FR_I64);
    cr_expect_eq(fr_tensor_rank(fr_module_tensor(m, "num_batches_tracked")), 0);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Weight 1 and bias 0; in a half network they stay f32, and the norm reads half images. */
Test(layers, group_norm_and_layer_norm_are_their_ops) {
    for (int layer = 0; layer < 2; layer++)
        for (int half = 0; half < 2; half++) {
            fr_module *m = NULL;
            fr_tensor *x = image(), *y = NULL, *want = NULL, *one = NULL, *zero = NULL;
            const int64_t c = fr_tensor_dim(x, 3);
            must(layer ? fri_nn_layer_norm(c, 1e-3, test_device(), &m)
                       : fri_nn_group_norm(c, 1, 1e-3, test_device(), &m));
            cr_expect_str_eq(fr_module_class_of(m)->name, layer ? "LayerNorm" : "GroupNorm");
            if (half) {
                must(fr_module_to_dtype(m, FR_F16));
                must(fr_cast(x, FR_F16, &x));
            }
            must(fr_module_forward(m, x, &y));
            must(fr_tensor_full(1, &c, 1, FR_F32, test_device(), &one));
            must(fr_tensor_zeros(1, &c, FR_F32, test_device(), &zero));
            must(layer ? fr_layer_norm(x, one, zero, 1e-3, &want) : fr_group_norm(x, 1, one, zero, 1e-3, &want));
            cr_expect_eq(fr_module_parameter_count(m), 2 * c);
            expect_same(layer ? "layer norm" : "group norm", &y, &want);
            RELEASE_ALL(&x, &one, &zero);
            fr_module_release(&m);
        }
    expect_nothing_left();
}

typedef fr_value list_layers(fr_net *n, fr_value v);

static fr_value norms_by_groups(fr_net *n, fr_value v) {
    v = fr_net_conv2d(n, "conv1", v, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    v = fr_net_relu(n, "relu1", fr_net_group_norm(n, "norm1", v, 2, 1e-5));
    return fr_net_gelu(n, "act", fr_net_layer_norm(n, "norm2", v, 1e-6));
}

static fr_value slopes(fr_net *n, fr_value v) {
    v = fr_net_conv2d(n, "conv1", v, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    v = fr_net_prelu(n, "one", fr_net_batchnorm2d(n, "norm", v, NULL), 1, 0.25);
    return fr_net_prelu(n, "each", fr_net_softplus(n, "plus", fr_net_elu(n, "elu", v)), 8, 0.25);
}

static fr_value shapes_and_shares(fr_net *n, fr_value v) {
    v = fr_net_zero_pad2d(n, "pad", v, (int64_t[]){1, 0, 0, 1});
    v = fr_net_conv_transpose2d(n, "up", v, 8, 2, FR_CONV_TRANSPOSE2D_OPTS(.stride = 2), FR_BIAS);
    v = fr_net_clamp(n, "clamp", fr_net_pixel_unshuffle(n, "fold", v, 2), -0.6, 0.6);
    v = fr_net_layer_shift(n, "shift", fr_net_channel_shuffle(n, "shuffle", v, 4), 0.1);
    v = fr_net_concat(n, "swap", (fr_value[]){fr_net_narrow(n, "end", v, 20, 12), fr_net_narrow(n, "begin", v, 0, 20)},
                      2);
    fr_value y = fr_net_linear(n, "mix", fr_net_softmax(n, "soft", v), 32, FR_BIAS);
    y = fr_net_stochastic_depth(n, "drop", fr_net_layer_scale(n, "scale", y, 0.5), 0.2);
    v = fr_net_pixel_shuffle(n, "unfold", fr_net_add(n, "add", y, v), 2);
    return fr_net_log_softmax(n, "log", v);
}

/* Lists with the layer: sizes follow, and a checkpointed step has the bits of the plain step. */
static void train_in_a_list(list_layers *layers_of) {
    double loss[2][3];
    for (int way = 0; way < 2; way++) {
        fr_module *m = NULL;
        fr_optimizer *o = NULL;
        fr_tensor *x = NULL, *y = NULL, *target = NULL, *l = NULL;
        fr_seed(4);
        fr_net *n = fr_net_begin(test_device());
        fr_value v = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 6, 6, 3});
        v = layers_of(n, v);
        v = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "pool", v, 1, 1), 1);
        v = fr_net_linear(n, "fc", v, 2, FR_BIAS);
        must(fr_net_end(&n, &v, 1, &m));
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
        must(fr_tensor_empty(4, (int64_t[]){4, 6, 6, 3}, FR_F32, test_device(), &x));
        must(fr_init_uniform(x, -1, 1));
        must(fr_tensor_full(1, (int64_t[]){4}, 1, FR_I64, test_device(), &target));
        for (int i = 0; i < 3; i++) {
            must(way == 0 ? fr_module_forward(m, x, &y) : fr_checkpoint_sequential(m, 3, x, &y));
            must(fr_cross_entropy(y, target, NULL, &l));
            must(fr_tensor_item(l, &loss[way][i]));
            must(fr_backward(l, NULL));
            must(fr_optimizer_step(o));
            fr_optimizer_zero_grad(o);
        }
        cr_expect(loss[way][2] < loss[way][0]);
        RELEASE_ALL(&x, &y, &target, &l);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    cr_expect_eq(memcmp(loss[0], loss[1], sizeof loss[0]), 0);
    expect_nothing_left();
}

Test(layers, norms_by_groups_train_in_a_list) {
    train_in_a_list(norms_by_groups);
}

Test(layers, slopes_train_in_a_list) {
    train_in_a_list(slopes);
}

Test(layers, shapes_and_shares_train_in_a_list) {
    train_in_a_list(shapes_and_shares);
}

static void expect_floats(const char *what, fr_tensor *t, const float *want, int n) {
    const float *have = host_of(t);
    for (int i = 0; i < n; i++) cr_expect(have[i] == want[i], "%s[%d]: %g, not %g", what, i, have[i], want[i]);
}

/* Values and gradients are PyTorch's, at 0 and for infinite x, too. */
Test(layers, prelu_has_one_slope_or_one_per_channel) {
    static const float in[6] = {-2, 3, 0, -INFINITY, INFINITY, -1};
    static const struct {
        int64_t slopes;
        float slope[2], y[6], dx[6], dw[2];
    } cases[] = {
        {1, {0.5F}, {-1, 3, 0, -INFINITY, INFINITY, -0.5F}, {0.5F, 1, 0.5F, 0.5F, 1, 0.5F}, {-INFINITY}},
        {2, {2, 0.25F}, {-4, 3, 0, -INFINITY, INFINITY, -0.25F}, {2, 1, 2, 0.25F, 1, 0.25F}, {-2, -INFINITY}},
    };
    for (int k = 0; k < 2; k++) {
        fr_module *m = NULL;
        fr_tensor *x = NULL, *y = NULL;
        must(fr_tensor_from_host(in, 2, (int64_t[]){3, 2}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fri_nn_prelu(2, cases[k].slopes, 0.25, test_device(), &m));
        fr_tensor *w = fr_module_tensor(m, "weight");
        cr_assert_eq(fr_tensor_numel(w), cases[k].slopes);
        cr_expect_eq(((float *)host_of(w))[0], 0.25F);
        must(fr_tensor_upload(cases[k].slope, w));
        must(fr_module_forward(m, x, &y));
        expect_floats("y", y, cases[k].y, 6);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        expect_floats("dx", fr_tensor_get_grad(x), cases[k].dx, 6);
        expect_floats("dw", fr_tensor_get_grad(w), cases[k].dw, (int)cases[k].slopes);
        RELEASE_ALL(&x, &y);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

static void refused(fr_status s, fr_module *m, const char *word1, const char *word2) {
    expect_refused(s, FR_EINVAL, word1, word2, NULL);
    cr_expect_null(m, "a refused layer was made");
}

/* Options that the op checks: in the shape run of a definition, so that the network is refused. */
Test(layers, refuse_options_of_their_op) {
    static const int64_t pad[4] = {0, 0, -2, 0};
    for (int i = 0; i < 13; i++) {
        FRI_OWNED(fr_module_release) fr_module *m = NULL;
        fr_net *n = fr_net_begin(test_device());
        const fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, 4, 4, 6});
        fr_value y = {0};
        const char *text[2] = {NULL, NULL};
#define ROW(number, call, a, b) \
    if (i == number) y = (call), text[0] = (a), text[1] = (b);
        ROW(0, fr_net_clamp(n, "l", x, 1, NAN), "l (Clamp): clamp: low is 1", "nan")
        ROW(1, fr_net_zero_pad2d(n, "l", x, pad), "l (ZeroPad2d): pad: padding -2 x 0", "-1..2147483647")
        ROW(2, fr_net_pixel_shuffle(n, "l", x, 0), "l (PixelShuffle): pixel_shuffle", "factor is 0")
        ROW(3, fr_net_channel_shuffle(n, "l", x, 0), "l (ChannelShuffle): 6 channels", "0 groups")
        ROW(4, fr_net_narrow(n, "l", x, 3, 0), "l (Narrow)", "length is 0")
        ROW(5, fr_net_pixel_unshuffle(n, "l", x, -1), "l (PixelUnshuffle): pixel_unshuffle", "factor is -1")
        ROW(6, fr_net_dropout(n, "l", x, 1.5), "l (Dropout): dropout", "1.5")
        ROW(7, fr_net_dropout2d(n, "l", x, NAN), "l (Dropout2d): dropout2d", "nan")
        ROW(8, fr_net_leaky_relu(n, "l", x, -0.1), "l (LeakyReLU): leaky_relu", "-0.1")
        ROW(9, fr_net_upsample(n, "l", x, 0, FR_UPSAMPLE_NEAREST), "l (Upsample)", "factor 0")
        ROW(10, fr_net_resize(n, "l", x, 0, 3, FR_UPSAMPLE_NEAREST, false), "l (Resize): upsample", "0 x 3")
        ROW(11, fr_net_constant_pad2d(n, "l", x, NULL, 1), "l (ConstantPad2d)", "pad is NULL")
        ROW(12, fr_net_slice(n, "l", x, 3, 0, 1, 1), "l (Slice): dim is 3", "1 (height) or 2 (width)")
        const fr_status s = fr_net_end(&n, &y, 1, &m);
        expect_refused(s, i == 3 ? FR_ESHAPE : FR_EINVAL, text[0], text[1], NULL);
        cr_expect_null(m, "row %d: a refused network was made", i);
    }
    expect_nothing_left();
}

Test(layers, refuse_impossible_options) {
    fr_module *m = NULL;
    fr_status s = fri_nn_conv2d(0, 4, 3, NULL, true, test_device(), &m);
    refused(s, m, "0 -> 4", ">= 1");
    s = fri_nn_conv2d(3, 4, 3, FR_CONV2D_OPTS(.groups = 2), true, test_device(), &m);
    refused(s, m, "3 -> 4", "groups 2");
    s = fri_nn_conv_transpose2d(4, 3, 3, FR_CONV_TRANSPOSE2D_OPTS(.groups = 2), true, test_device(), &m);
    refused(s, m, "ConvTranspose2d: 4 -> 3", "groups 2");
    s = fri_nn_layer_scale(0, 1e-6, test_device(), &m);
    refused(s, m, "LayerScale: 0 channels", "1e-06");
    s = fri_nn_prelu(4, 2, 0.25, test_device(), &m);
    refused(s, m, "PReLU: 4 channels, 2 numbers", "1 or one per channel");
    s = fri_nn_linear(-1, 4, true, test_device(), &m);
    refused(s, m, "Linear", "-1 -> 4");
    s = fri_nn_embedding(5, 0, test_device(), &m);
    refused(s, m, "Embedding", "5 rows of 0");
    s = fri_nn_batchnorm2d(0, NULL, test_device(), &m);
    refused(s, m, "BatchNorm2d", "0 channels");
    s = fri_nn_group_norm(6, 4, 1e-5, test_device(), &m);
    refused(s, m, "GroupNorm: 4 groups", "6 channels");
    s = fri_nn_group_norm(6, 0, 1e-5, test_device(), &m);
    refused(s, m, "GroupNorm: 0 groups", "6 channels");
    s = fri_nn_layer_norm(0, 1e-5, test_device(), &m);
    refused(s, m, "LayerNorm", "0 channels");
    expect_nothing_left();
}
