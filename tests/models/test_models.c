/* test_models.c - parameter counts, names, bytes of a model on its device (equal to PyTorch's allocator), shapes. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <string.h>

#include "net/layers.h"
#include "memory/allocator.h"
#include "models/checks.h"

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

/* reference/PyTorch: the parameters, and torch.cuda.memory_allocated / _reserved after model.to("cuda"), caching
 * allocator. */
static const struct {
    const char *name;
    model_fn *make;
    int depth;
    int64_t parameters;
    size_t allocated, reserved;
} nets[] = {
    {"ResNet-18", fr_resnet, 18, 11689512, 46861312, 67108864},
    {"ResNet-34", fr_resnet, 34, 21797672, 88251392, 113246208},
    {"ResNet-50", fr_resnet, 50, 25557032, 102475264, 123731968},
    {"ResNet-101", fr_resnet, 101, 44549160, 178940928, 201326592},
    {"ResNet-152", fr_resnet, 152, 60192808, 241463808, 255852544},
    {"VGG-16", fr_vgg, 16, 138357544, 554741760, 559939584},
    {"VGG-19", fr_vgg, 19, 143667240, 575063040, 601882624},
    {"DenseNet-121", fr_densenet, 121, 7978856, 0, 0},
    {"MobileNetV2", fr_mobilenet, 2, 3504872, 0, 0},
};

static size_t live(fr_device d) {
    fr_memory_stats t;
    must(fr_memory_stats_get(d, &t));
    return t.requested;
}

Test(models, parameters_and_bytes_are_pytorchs) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        fr_module *m = NULL;
        fr_memory_stats t;
        must(fr_memory_empty_cache(FR_META));
        must(nets[i].make(nets[i].depth, FR_MODEL_OPTS(.device = FR_META), &m));
        cr_expect_eq(fr_module_parameter_count(m), nets[i].parameters, "%s has %lld parameters, not %lld", nets[i].name,
                     (long long)fr_module_parameter_count(m), (long long)nets[i].parameters);
        must(fr_memory_stats_get(FR_META, &t));
        if (nets[i].allocated > 0) {
            cr_expect_eq(t.allocated, nets[i].allocated, "%s: allocated %zu, not %zu", nets[i].name, t.allocated,
                         nets[i].allocated);
            cr_expect_eq(t.reserved, nets[i].reserved, "%s: reserved %zu, not %zu", nets[i].name, t.reserved,
                         nets[i].reserved);
        }
        cr_expect_eq(t.requested_by[FR_MEM_PARAMETER], t.requested);
        fr_module_release(&m);
        cr_expect_eq(live(FR_META), 0u);
    }
}

/* pytorch_memlab's README: Linear(100, 100) once, twice, three times. */
Test(models, linear_bytes) {
    fr_module *m[3] = {0};
    fr_memory_stats t;
    for (size_t i = 0; i < 3; i++) {
        must(fri_nn_linear(100, 100, true, FR_META, &m[i]));
        must(fr_memory_stats_get(FR_META, &t));
        cr_expect_eq(t.allocated, 40960 * (i + 1));
        cr_expect_eq(t.reserved, (size_t)2 << 20);
    }
    for (int i = 0; i < 3; i++) fr_module_release(&m[i]);
}

/* VGG-19's convolutions alone. */
Test(models, vgg19_features_bytes) {
    fr_module *m = NULL, *features = NULL;
    fr_memory_stats t;
    must(fr_vgg(19, FR_MODEL_OPTS(.device = FR_META), &m));
    features = fr_module_retain(fr_module_find(m, "features"));
    fr_module_release(&m);
    cr_expect_eq(fr_module_parameter_count(features), 20024384);
    must(fr_memory_stats_get(FR_META, &t));
    cr_expect_eq(t.requested, 80098304u, "%zu", t.requested);
    fr_module_release(&features);
}

/* The example net of a widely read memory guide: conv 3-64, relu, conv 64-64, relu, pool, conv 64-128. */
Test(models, guide_net) {
    fr_module *m = NULL;
    static const int64_t channels[] = {64, 64, 128};
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 32, 32, 3});
    for (int i = 0; i < 3; i++) {
        x = fr_net_conv2d(n, NULL, x, channels[i], 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        if (i < 2) x = fr_net_relu(n, NULL, x);
        if (i == 1) x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
    }
    must(fr_net_end(&n, &x, 1, &m));
    cr_expect_eq(fr_module_parameter_count(m), 112576);
    fr_module_release(&m);
}

/* The deepest network: its last concatenation has 65 inputs. */
Test(models, densenet_388_is_defined) {
    fr_module *m = NULL;
    fr_layer l;
    int widest = 0;
    must(fr_densenet(388, FR_MODEL_OPTS(.image_size = 8, .growth = 2, .classes = 10, .device = FR_META), &m));
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l));
        if (l.n_in > widest) widest = l.n_in;
    }
    cr_expect_eq(widest, 65);
    fr_module_release(&m);
}

/* ---- names --------------------------------------------------------------------------------------------------- */

/* Names of torchvision's state_dict, in its order. */
Test(models, names_are_torchvisions) {
    static const char *const vgg[] = {"features.0.weight",      "features.0.bias",
                                      "features.1.running_var", "features.1.num_batches_tracked",
                                      "features.41.bias",       "classifier.0.weight",
                                      "classifier.3.bias",      "classifier.6.weight"};
    static const char *const resnet[] = {"conv1.weight",
                                         "bn1.weight",
                                         "bn1.running_mean",
                                         "layer1.0.conv1.weight",
                                         "layer1.0.bn3.bias",
                                         "layer1.0.downsample.0.weight",
                                         "layer1.0.downsample.1.running_var",
                                         "layer4.2.conv3.weight",
                                         "fc.bias"};
    static const char *const densenet[] = {"features.conv0.weight",
                                           "features.norm0.bias",
                                           "features.denseblock1.denselayer1.norm1.weight",
                                           "features.denseblock1.denselayer1.conv2.weight",
                                           "features.transition1.conv.weight",
                                           "features.denseblock4.denselayer16.conv2.weight",
                                           "features.norm5.running_mean",
                                           "classifier.weight"};
    static const char *const mobilenet[] = {"features.0.0.weight",           "features.0.1.num_batches_tracked",
                                            "features.1.conv.0.0.weight",    "features.1.conv.1.weight",
                                            "features.1.conv.2.running_var", "features.2.conv.0.1.bias",
                                            "features.2.conv.1.0.weight",    "features.2.conv.2.weight",
                                            "features.17.conv.3.bias",       "features.18.1.running_mean",
                                            "classifier.1.weight",           "classifier.1.bias"};
    expect_names(fr_mobilenet, 2, FR_MODEL_OPTS(.device = FR_META), mobilenet, 12);
    expect_names(fr_vgg, 16, FR_MODEL_OPTS(.batch_norm = true, .device = FR_META), vgg, 8);
    expect_names(fr_resnet, 50, FR_MODEL_OPTS(.device = FR_META), resnet, 9);
    expect_names(fr_densenet, 121, FR_MODEL_OPTS(.device = FR_META), densenet, 8);
}

/* ---- shapes and refusals --------------------------------------------------------------------------------------- */

Test(models, shapes) {
    static const struct {
        model_fn *make;
        int depth;
        int64_t size;
        int rank;
    } rows[] = {{fr_vgg, 11, 32, 2},       {fr_vgg, 16, 224, 2},     {fr_resnet, 50, 64, 2}, {fr_densenet, 22, 32, 2},
                {fr_densenet, 121, 64, 2}, {fr_mobilenet, 2, 40, 2}, {fr_unet, 3, 40, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_module *m = NULL;
        fr_tensor *x = NULL, *y = NULL;
        must(rows[i].make(rows[i].depth, FR_MODEL_OPTS(.classes = 7, .image_size = rows[i].size, .device = FR_META),
                          &m));
        must(fr_tensor_empty(4, (int64_t[]){2, rows[i].size, rows[i].size, 3}, FR_F32, FR_META, &x));
        must(fr_module_forward(m, x, &y));
        cr_expect_eq(fr_tensor_rank(y), rows[i].rank);
        cr_expect_eq(fr_tensor_dim(y, 0), 2);
        cr_expect_eq(fr_tensor_dim(y, -1), 7);
        if (rows[i].rank == 4) cr_expect_eq(fr_tensor_dim(y, 1), rows[i].size);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_module_release(&m);
        cr_expect_eq(live(FR_META), 0u);
    }
}

Test(models, refuses) {
    static const struct {
        model_fn *make;
        int depth;
        int64_t size;
        const char *words[2];
    } rows[] = {{fr_mobilenet, 1, 224, {"version is 1", "2"}},
                {fr_mobilenet, 2, 31, {"31", "32"}},
                {fr_vgg, 12, 224, {"12", "19"}},
                {fr_vgg, 16, 16, {"16 pixels", "32"}},
                {fr_resnet, 20, 224, {"20", "152"}},
                {fr_resnet, 18, 31, {"31", "32"}},
                {fr_densenet, 23, 32, {"23", "6 n"}},
                {fr_unet, 3, 36, {"36", "8"}},
                {fr_unet, 9, 512, {"9", "1..5"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_module *m = NULL;
        cr_expect_eq(rows[i].make(rows[i].depth, FR_MODEL_OPTS(.image_size = rows[i].size, .device = FR_META), &m),
                     FR_EINVAL);
        cr_expect_null(m);
        for (int k = 0; k < 2; k++)
            cr_expect(strstr(fr_last_error(), rows[i].words[k]) != NULL, "case %zu: '%s' lacks '%s'", i,
                      fr_last_error(), rows[i].words[k]);
    }
    cr_expect_eq(live(FR_META), 0u);
}
