/* test_variants.c - networks not in test_models.c: torchvision's other depths, small images, U-Net, initial values
 * per family. Counts are len/sum over torchvision's named_parameters(). */
#include <criterion/criterion.h>
#include <frugal/models.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/checks.h"
#include "support/golden.h"

/* Small images: the counts are sums by hand of the layers named. */
static const struct {
    const char *name;
    model_fn *make;
    int depth;
    fr_model_opts o;
    int64_t parameters;
} nets[] = {
    {"VGG-11", fr_vgg, 11, {FR_MODEL_DEFAULTS}, 132863336},
    {"VGG-11 batch norm", fr_vgg, 11, {FR_MODEL_DEFAULTS, .batch_norm = true}, 132868840},
    {"VGG-13", fr_vgg, 13, {FR_MODEL_DEFAULTS}, 133047848},
    {"VGG-13 batch norm", fr_vgg, 13, {FR_MODEL_DEFAULTS, .batch_norm = true}, 133053736},
    {"VGG-16 batch norm", fr_vgg, 16, {FR_MODEL_DEFAULTS, .batch_norm = true}, 138365992},
    {"VGG-19 batch norm", fr_vgg, 19, {FR_MODEL_DEFAULTS, .batch_norm = true}, 143678248},
    {"DenseNet-169", fr_densenet, 169, {FR_MODEL_DEFAULTS}, 14149480},
    {"DenseNet-201", fr_densenet, 201, {FR_MODEL_DEFAULTS}, 20013928},
    /* features 9,220,480; Linear 512 -> 10 */
    {"VGG-11, 32 pixels", fr_vgg, 11, {FR_MODEL_DEFAULTS, .image_size = 32, .classes = 10}, 9220480 + 5130},
    /* the same head on large images, and torchvision's on small ones: 132,863,336 - 4096 * 990 - 990 */
    {"VGG-11, global", fr_vgg, 11, {FR_MODEL_DEFAULTS, .head = FR_HEAD_GLOBAL, .classes = 10}, 9220480 + 5130},
    {"VGG-11, 32 pixels, torchvision's head",
     fr_vgg,
     11,
     {FR_MODEL_DEFAULTS, .image_size = 32, .head = FR_HEAD_TORCHVISION, .classes = 10},
     128807306},
    /* 11,689,512 - 513 * 990; the 3x3 stem has 64 * 3 * (49 - 9) weights less */
    {"ResNet-18, 10 classes", fr_resnet, 18, {FR_MODEL_DEFAULTS, .classes = 10}, 11181642},
    {"ResNet-18, small stem",
     fr_resnet,
     18,
     {FR_MODEL_DEFAULTS, .classes = 10, .image_size = 32, .small_stem = true},
     11173962},
    /* 3,504,872 - 1281 * 990 */
    {"MobileNetV2, small stem",
     fr_mobilenet,
     2,
     {FR_MODEL_DEFAULTS, .classes = 10, .image_size = 32, .small_stem = true},
     2236682},
    {"MobileNetV2 0.35", fr_mobilenet, 2, {FR_MODEL_DEFAULTS, .width = 0.35}, 1677128},
    {"MobileNetV2 0.75", fr_mobilenet, 2, {FR_MODEL_DEFAULTS, .width = 0.75}, 2636424},
    {"MobileNetV2 1.4", fr_mobilenet, 2, {FR_MODEL_DEFAULTS, .width = 1.4}, 6108776},
    /* Huang et al.: 0.8M for L = 100, k = 12 */
    {"DenseNet-BC-100 k = 12", fr_densenet, 100, {FR_MODEL_DEFAULTS, .classes = 10, .image_size = 32}, 769162},
};

Test(variants, parameters) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        fr_module *m = NULL;
        fr_model_opts o = nets[i].o;
        o.device = FR_META;
        must(nets[i].make(nets[i].depth, &o, &m));
        cr_expect_eq(fr_module_parameter_count(m), nets[i].parameters, "%s has %lld parameters, not %lld", nets[i].name,
                     (long long)fr_module_parameter_count(m), (long long)nets[i].parameters);
        fr_module_release(&m);
    }
}

/* ---- widths --------------------------------------------------------------------------------------------------- */

/* Channels of each family double (checks.h). */
Test(variants, width_two_doubles_every_channel) {
    static const char *const names[] = {"vgg11_bn", "resnet18",         "resnet50_small", "densenet121",
                                        "unet2",    "densenet_bc22_k8", "mobilenet_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) expect_doubled(names[i]);
}

/* torchvision's _make_divisible: to the nearest multiple of 8, at least 8, never below 90 %. */
Test(variants, widths_are_rounded_as_torchvision_does) {
    static const struct {
        double width;
        int64_t channels; /* of 64 */
    } rows[] = {{1, 64},    {0.01, 8},    {0.125, 8}, {0.17, 16},   {0.2, 16},  {0.31, 24},
                {0.29, 24}, {0.3125, 24}, {0.5, 32},  {1.0625, 72}, {1.06, 64}, {16, 1024}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_module *m = NULL;
        must(fr_resnet(18, FR_MODEL_OPTS(.width = rows[i].width, .device = FR_META), &m));
        cr_expect_eq(fr_tensor_dim(fr_module_tensor(fr_module_find(m, "conv1"), "weight"), 0), rows[i].channels,
                     "width %g", rows[i].width);
        fr_module_release(&m);
    }
    static const double none[] = {0, -1, 0.0099, 16.1, NAN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        fr_module *m = NULL;
        cr_expect_eq(fr_resnet(18, FR_MODEL_OPTS(.width = none[i], .device = FR_META), &m), FR_EINVAL);
        cr_expect_not_null(strstr(fr_last_error(), "ResNet: width is "), "%s", fr_last_error());
    }
}

/* conv 3x3 a -> b without bias has 9 a b parameters, its norm 2 b: 32 and 64 channels, one pooling, 3 classes. */
Test(variants, unet_parameters) {
    static const int64_t pairs[][2] = {{3, 32}, {32, 32}, {32, 64}, {64, 64}, {64 + 32, 32}, {32, 32}};
    fr_module *m = NULL;
    int64_t want = 32 * 3 + 3;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) want += 9 * pairs[i][0] * pairs[i][1] + 2 * pairs[i][1];
    must(fr_unet(1, FR_MODEL_OPTS(.classes = 3, .image_size = 32, .device = FR_META), &m));
    cr_expect_eq(fr_module_parameter_count(m), want);
    fr_module_release(&m);
}

/* Stride 2 five times, or three times with the small stem; a sum in each block but the first of a stage. */
Test(variants, mobilenet_strides_and_sums) {
    for (int small = 0; small < 2; small++) {
        fr_module *m = NULL;
        fr_tensor *x = NULL, *y[3] = {NULL};
        int sums = 0;
        fr_layer l;
        must(fr_mobilenet(2, FR_MODEL_OPTS(.image_size = 64, .small_stem = small, .device = FR_META), &m));
        must(fr_module_tap(m, "features.3"));
        must(fr_module_tap(m, "features.18"));
        must(fr_tensor_empty(4, (int64_t[]){1, 64, 64, 3}, FR_F32, FR_META, &x));
        must(fr_module_forward_n(m, &x, 1, y, 3));
        cr_expect_eq(fr_tensor_dim(y[1], 1), small ? 64 : 16);
        cr_expect_eq(fr_tensor_dim(y[2], 1), small ? 8 : 2);
        for (int i = 0; i < fr_module_layers(m); i++) {
            must(fr_module_layer_get(m, i, &l));
            sums += l.n_in == 2;
        }
        cr_expect_eq(sums, 10);
        for (int i = 0; i < 3; i++) fr_tensor_release(&y[i]);
        fr_tensor_release(&x);
        fr_module_release(&m);
    }
}

/* ---- initial values --------------------------------------------------------------------------------------- */

/* torchvision: VGG kaiming fan_out, bias 0, Linear N(0, 0.01); ResNet kaiming fan_out, fc torch's default; DenseNet
 * kaiming fan_in, classifier weight torch's default, bias 0; norms 1 and 0. */
Test(variants, initial_values) {
    struct wanted vgg[] = {{.path = "features.0.weight", .std = sqrt(2.0 / (64 * 9))},
                           {.path = "features.0.bias"},
                           {.path = "features.1.weight", .mean = 1},
                           {.path = "classifier.weight", .std = 0.01},
                           {.path = "classifier.bias"}};
    struct wanted resnet[] = {{.path = "conv1.weight", .std = sqrt(2.0 / (64 * 49))},
                              {.path = "layer2.0.conv1.weight", .std = sqrt(2.0 / (128 * 9))},
                              {.path = "layer2.0.downsample.0.weight", .std = sqrt(2.0 / 128)},
                              {.path = "layer1.0.bn2.weight", .mean = 1},
                              {.path = "fc.weight", .std = 1 / sqrt(512 * 3)}};
    struct wanted densenet[] = {{.path = "features.conv0.weight", .std = sqrt(2.0 / (3 * 9))},
                                {.path = "features.denseblock1.denselayer2.conv1.weight", .std = sqrt(2.0 / 36)},
                                {.path = "features.denseblock1.denselayer1.conv2.weight", .std = sqrt(2.0 / (48 * 9))},
                                {.path = "features.norm5.bias"},
                                {.path = "classifier.bias"}};
    struct wanted mobilenet[] = {{.path = "features.0.0.weight", .std = sqrt(2.0 / (32 * 9))},
                                 {.path = "features.2.conv.1.0.weight", .std = sqrt(2.0 / (96 * 9))},
                                 {.path = "features.18.0.weight", .std = sqrt(2.0 / 1280)},
                                 {.path = "features.1.conv.2.weight", .mean = 1},
                                 {.path = "classifier.1.weight", .std = 0.01},
                                 {.path = "classifier.1.bias"}};
    expect_initial(fr_mobilenet, 2, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .device = test_device()), mobilenet,
                   6);
    expect_initial(fr_vgg, 11,
                   FR_MODEL_OPTS(.classes = 10, .image_size = 32, .batch_norm = true, .device = test_device()), vgg, 5);
    expect_initial(fr_resnet, 18, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .device = test_device()), resnet, 5);
    expect_initial(fr_densenet, 22, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .device = test_device()), densenet,
                   5);
}

/* ---- training ----------------------------------------------------------------------------------------------- */

static fr_status expect_grad(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    int64_t *n = ctx;
    if (!is_parameter) return FR_OK;
    cr_assert_not_null(fr_tensor_get_grad(t), "%s has no gradient", path);
    double *v = values_of(fr_tensor_get_grad(t)), square = 0;
    for (int64_t i = 0; i < fr_tensor_numel(t); i++) square += v[i] * v[i];
    cr_expect(isfinite(square), "%s: the gradient is not finite", path);
    if (square > 0) ++*n;
    free(v);
    return FR_OK;
}

static fr_status count(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    (void)t;
    if (is_parameter) ++*(int64_t *)ctx;
    return FR_OK;
}

/* Skips reach every parameter: all gradients are nonzero. */
Test(variants, unet_trains_every_parameter, .timeout = 60) {
    fr_module *m = NULL;
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    int64_t moved = 0, parameters = 0;
    fr_seed(8);
    must(fr_unet(2, FR_MODEL_OPTS(.classes = 3, .image_size = 16, .device = test_device()), &m));
    must(fr_tensor_uniform(4, (int64_t[]){2, 16, 16, 3}, -1, 1, FR_F32, test_device(), &x));
    must(fr_tensor_full(3, (int64_t[]){2, 16, 16}, 1, FR_I64, test_device(), &target));
    must(fr_module_forward(m, x, &x));
    must(fr_cross_entropy(x, target, NULL, &loss));
    must(fr_backward(loss, NULL));
    must(fr_module_each_tensor(m, expect_grad, &moved));
    must(fr_module_each_tensor(m, count, &parameters));
    cr_expect_eq(moved, parameters, "%d of %d gradients are not 0", (int)moved, (int)parameters);
    fr_module_zero_grad(m);
    RELEASE_ALL(&x, &target, &loss);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- in place, by module ------------------------------------------------------------------------------------ */

/* One call turns every activation of a network in place or out of it, layers and functions, against the thread's
 * switch, and changes no bit. */
Test(variants, one_call_turns_all_activations_in_place) {
    fr_switches s = fr_switches_default();
    fr_tensor *x = NULL, *y[2] = {0};
    fr_module *m = NULL;
    fr_seed(1);
    must(
        fr_resnet(18, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .small_stem = true, .device = test_device()), &m));
    must(fr_tensor_normal(4, (int64_t[]){2, 32, 32, 3}, 0, 1, FR_F32, test_device(), &x));
    for (int on = 0; on < 2; on++) {
        s.inplace = !on;
        fr_switches_set(s);
        fr_module_inplace(m, on);
        uint64_t before = fr_graph_stats_get().inplace;
        must(fr_module_forward(m, x, &y[on]));
        uint64_t ran = fr_graph_stats_get().inplace - before;
        /* 3 of 8 sums go over a downsampled map; a convolution saves the other addends */
        if (on)
            cr_expect_eq(ran, 3, "%d ops ran in place", (int)ran);
        else
            cr_expect_eq(ran, 0, "%d ops ran in place", (int)ran);
        cr_expect_eq(fr_switches_get().inplace, !on, "the thread's switch is as before");
    }
    double *a = values_of(y[0]), *b = values_of(y[1]);
    cr_expect_eq(memcmp(a, b, (size_t)fr_tensor_numel(y[0]) * sizeof *a), 0);
    free(a);
    free(b);
    fr_tensor_release(&x);
    fr_tensor_release(&y[0]);
    fr_tensor_release(&y[1]);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(variants, a_suffix_stands_once) {
    static const char *const names[] = {"vgg16_bn_bn", "resnet18_small_small", "vgg16_abn_abn", "vgg11_bn_small_bn"};
    fr_module *m = NULL;
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(fr_model(names[i], NULL, &m), FR_EINVAL, "%s", names[i]);
        cr_expect_null(m);
    }
}
