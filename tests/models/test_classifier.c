/* test_classifier.c - networks by name, facts in a weights file, predictions that need only the file. */
#include "models/checks.h"

#include <criterion/criterion.h>
#include <frugal/models.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/support.h"
#include "io/weights_info.h"
#include "support/golden.h"

TestSuite(classifier, .init = make_folder, .fini = remove_folder);

/* ---- names ----------------------------------------------------------------------------------------------- */

Test(classifier, a_name_is_the_network_of_its_family) {
    static const struct {
        const char *name;
        fr_status (*make)(int depth, const fr_model_opts *opts, fr_module **m);
        int depth;
        fr_model_opts o;
    } cases[] = {
        {"vgg11", fr_vgg, 11, {0}},
        {"vgg13_bn", fr_vgg, 13, {.batch_norm = true}},
        {"vgg11_abn", fr_vgg, 11, {.batch_norm = true, .abn_slope = FR_ABN_SLOPE}},
        {"resnet18", fr_resnet, 18, {0}},
        {"resnet50_small_abn", fr_resnet, 50, {.small_stem = true, .abn_slope = FR_ABN_SLOPE}},
        {"densenet121", fr_densenet, 121, {0}},
        {"densenet_bc22_k5", fr_densenet, 22, {.growth = 5}},
        {"densenet_bc40_k12_abn", fr_densenet, 40, {.growth = 12, .abn_slope = FR_ABN_SLOPE}},
        {"mobilenet_v2_small", fr_mobilenet, 2, {.small_stem = true}},
        {"unet3", fr_unet, 3, {0}},
        {"unet3_w0.5", fr_unet, 3, {.width = 0.5}},
        {"mobilenet_v2_small_w0.35", fr_mobilenet, 2, {.small_stem = true, .width = 0.35}},
        {"densenet_bc22_k5_w2", fr_densenet, 22, {.growth = 5, .width = 2}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fr_model_opts o = *FR_MODEL_OPTS(.classes = 7, .image_size = 32, .device = FR_META), given = o;
        fr_module *m[2] = {NULL};
        o.batch_norm = cases[i].o.batch_norm;
        o.small_stem = cases[i].o.small_stem;
        o.abn_slope = cases[i].o.abn_slope;
        if (cases[i].o.growth > 0) o.growth = cases[i].o.growth;
        if (cases[i].o.width > 0) o.width = cases[i].o.width;
        must(cases[i].make(cases[i].depth, &o, &m[0]));
        must(fr_model(cases[i].name, &given, &m[1]));
        cr_expect(same_tree(m[0], m[1]), "%s", cases[i].name);
        for (int k = 0; k < 2; k++) fr_module_release(&m[k]);
    }
}

Test(classifier, another_name_is_refused) {
    static const char *const names[] = {"",
                                        "vgg",
                                        "own3",
                                        "resnet",
                                        "resnet18x",
                                        "resnet18_",
                                        "resnet18_smal",
                                        "densenet_bc22_k",
                                        "vgg11_bnn",
                                        "vgg11__bn",
                                        "resnet18_w",
                                        "resnet18_w.5",
                                        "resnet18_w0x1",
                                        "resnet18_w1e1",
                                        "resnet18_w0.5.5",
                                        "resnet18_w0.5_w0.5",
                                        "resnet18_w0.5_small",
                                        "resnet18_v0.5",
                                        "_w0.5",
                                        "resnet99999999999"};
    fr_module *m = NULL;
    for (size_t i = 0; i < COUNT(names); i++)
        expect_refused(fr_model(names[i], NULL, &m), FR_EINVAL, names[i], "resnet18", NULL);
    expect_refused(fr_model("resnet18_w17", NULL, &m), FR_EINVAL, "width is 17", "0.01..16", NULL);
    expect_refused(fr_model("vgg12", NULL, &m), FR_EINVAL, "12", "VGG", NULL);
    expect_refused(fr_model("densenet_bc22_k9223372036854775807", NULL, &m), FR_EINVAL, "growth", "4096", NULL);
    cr_expect_null(m);
}

/* ---- facts in a file ----------------------------------------------------------------------------------------- */

static char *two_names[] = {"cat", "d\"o\ng \xc3\xa9"}, *no_utf8[] = {"cat", "do\xe9g"};

static fr_weights_info small_info(void) {
    return (fr_weights_info){.model = "densenet_bc10_k4",
                             .classes = 2,
                             .channels = 3,
                             .height = 8,
                             .width = 8,
                             .mean = {0.1, 1.0 / 3, -0.0},
                             .std = {0.2, 1e-9, 3},
                             .class_name = two_names};
}

Test(classifier, what_is_written_is_read_back) {
    fr_weights_info info = small_info(), back = {0};
    char *text = NULL;
    must(fr_weights_info_text(&info, &text));
    for (int turn = 0; turn < 2; turn++) must(fri_weights_info_parse("f", text, &back)); /* twice: no fact is lost */
    cr_expect_str_eq(back.model, info.model);
    cr_expect_str_eq(back.head, "");
    cr_expect(back.classes == 2 && back.channels == 3 && back.height == 8 && back.width == 8);
    cr_expect_eq(memcmp(back.mean, info.mean, sizeof info.mean), 0);
    cr_expect_eq(memcmp(back.std, info.std, sizeof info.std), 0);
    cr_assert_not_null(back.class_name);
    cr_expect_str_eq(back.class_name[0], "cat");
    cr_expect_str_eq(back.class_name[1], two_names[1]);
    free(text);
    info.class_name = no_utf8;
    must(fr_weights_info_text(&info, &text));
    must(fri_weights_info_parse("f", text, &back));
    cr_expect_str_eq(back.class_name[1], "do?g");
    fr_weights_info_clear(&back);
    cr_expect(back.classes == 0 && back.class_name == NULL);
    free(text);
}

Test(classifier, nonsense_is_refused_and_named) {
    static const struct {
        const char *was, *is, *word;
    } cases[] = {{"\"model\":\"densenet_bc10_k4\"", "\"model\":5", "model"},
                 {"\"model\":\"densenet_bc10_k4\",", "", "model"},
                 {"densenet_bc10_k4", "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd", "model"},
                 {"\"head\":\"\"", "\"head\":null", "head"},
                 {"\"classes\":2", "\"classes\":0", "classes"},
                 {"\"classes\":2", "\"classes\":3", "class_names"},
                 {"\"classes\":2", "\"classes\":1e300", "classes"},
                 {"\"classes\":2", "\"classes\":1.5", "classes"},
                 {"\"channels\":3", "\"channels\":17", "channels"},
                 {"\"channels\":3", "\"channels\":2", "mean"},
                 {"\"height\":8", "\"height\":-8", "height"},
                 {"\"width\":8", "\"width\":\"8\"", "width"},
                 {"\"std\":[0.2", "\"std\":[0", "std"},
                 {"\"mean\":[0.1", "\"mean\":[true", "mean"},
                 {"\"cat\"", "7", "class_names"},
                 {"{", "[", "JSON"}};
    fr_weights_info info = small_info(), back = {0};
    char *text = NULL, damaged[1024];
    must(fr_weights_info_text(&info, &text));
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *at = strstr(text, cases[i].was);
        cr_assert_not_null(at, "%s is not in %s", cases[i].was, text);
        snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - text), text, cases[i].is, at + strlen(cases[i].was));
        expect_refused(fri_weights_info_parse("the file", damaged, &back), FR_EFORMAT, "the file", cases[i].word, NULL);
        cr_expect(back.classes == 0 && back.class_name == NULL);
    }
    free(text);
    info.std[1] = 0;
    expect_refused(fr_weights_info_text(&info, &text), FR_EINVAL, "channel 1", "std 0", NULL);
    info = small_info();
    info.channels = 17;
    expect_refused(fr_weights_info_text(&info, &text), FR_EINVAL, "17 channels", "1..16", NULL);
}

/* ---- a file alone ---------------------------------------------------------------------------------------- */

static void predict(fr_module *m, const fr_loader_opts *as, double p[2]) {
    uint8_t pixels[8 * 8 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37);
    const fr_image image = {.pixels = pixels, .height = 8, .width = 8, .channels = 3};
    must(fr_predict(m, &image, as, p, 2));
}

Test(classifier, a_file_is_all_that_a_prediction_needs) {
    const fr_weights_info info = small_info();
    fr_module *m = NULL;
    fr_classifier c = {0};
    double p[2][2];
    fr_seed(4);
    must(fr_model("densenet_bc10_k4", FR_MODEL_OPTS(.classes = 2, .image_size = 8, .device = test_device()), &m));
    must(fr_weights_save(m, in_folder("w"), FR_WEIGHTS_OPTS(.info = &info)));
    for (int turn = 0; turn < 2; turn++) must(fr_classifier_load(in_folder("w"), test_device(), &c));
    cr_expect_str_eq(c.info.class_name[0], "cat");
    fr_loader_opts as = *FR_LOADER_OPTS(.height = 8, .width = 8, .channels = 3);
    for (int k = 0; k < 3; k++) as.mean[k] = info.mean[k], as.std[k] = info.std[k];
    predict(m, &as, p[0]);
    predict(c.model, &c.input, p[1]);
    cr_expect_lt(fabs(p[0][0] - p[1][0]), 1e-5, "%.9g, from the file %.9g", p[0][0], p[1][0]);
    cr_expect_gt(fabs(p[0][0] - 0.5), 1e-3, "the image says something");

    fr_module *kept = c.model;
    must(fr_weights_save(m, in_folder("plain"), NULL));
    expect_refused(fr_classifier_load(in_folder("plain"), test_device(), &c), FR_EFORMAT, "plain",
                   "does not describe its network", NULL);
    fr_weights_info other = info;
    strcpy(other.model, "resnet152"); /* 240 MB: refused before any allocation */
    other.height = other.width = 32;
    must(fr_weights_save(m, in_folder("large"), FR_WEIGHTS_OPTS(.info = &other)));
    expect_refused(fr_classifier_load(in_folder("large"), test_device(), &c), FR_EFORMAT, "parameters", "bytes", NULL);
    other = info;
    strcpy(other.model, "own3");
    must(fr_weights_save(m, in_folder("own"), FR_WEIGHTS_OPTS(.info = &other)));
    expect_refused(fr_classifier_load(in_folder("own"), test_device(), &c), FR_EINVAL, "own3", "not known", NULL);
    other = info;
    strcpy(other.head, "round");
    must(fr_weights_save(m, in_folder("head"), FR_WEIGHTS_OPTS(.info = &other)));
    expect_refused(fr_classifier_load(in_folder("head"), test_device(), &c), FR_EFORMAT, "round", "head", NULL);
    cr_expect_eq(c.model, kept, "a failure leaves what is there");
    fr_classifier_clear(&c);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- masks ----------------------------------------------------------------------------------------------- */

/* Class of a pixel: the channel with the largest value, as the image shows. */
static fr_module *identity(void) {
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 3});
    x = fr_net_conv2d(n, "c", x, 3, 1, NULL, FR_NO_BIAS);
    fr_module *m = NULL;
    must(fr_net_end(&n, &x, 1, &m));
    float w[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    fr_tensor *t = NULL;
    must(fr_tensor_from_host(w, 4, fr_tensor_shape(fr_module_tensor(fr_module_find(m, "c"), "weight")), FR_F32,
                             test_device(), &t));
    must(fr_tensor_copy(fr_module_tensor(fr_module_find(m, "c"), "weight"), t));
    fr_tensor_release(&t);
    return m;
}

Test(classifier, a_mask_has_the_class_of_each_pixel) {
    enum { H = 3, W = 5 };
    static const uint8_t fine[H * W] = {0, 1, 2, 2, 1, 1, 0, 0, 2, 1, 2, 2, 2, 0, 0};
    static const uint8_t coarse[H * W] = {0, 0, 1, 1, 1, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0}; /* 2 x 2 by nearest neighbour */
    fr_module *m = identity();
    for (int k = 0; k < 2; k++) {
        const uint8_t *expected = k == 0 ? fine : coarse;
        uint8_t rgb[3 * H * W] = {0}, mask[H * W + 1] = {[H * W] = 77};
        for (int i = 0; i < H * W; i++) rgb[3 * i + expected[i]] = 200;
        const fr_image image = {.pixels = rgb, .height = H, .width = W, .channels = 3};
        must(fr_predict_mask(m, &image, k == 0 ? NULL : FR_LOADER_OPTS(.height = 2, .width = 2), 3, mask));
        cr_expect_arr_eq(mask, expected, H * W, "%d", k);
        cr_expect_eq(mask[H * W], 77);
        expect_refused(fr_predict_mask(m, &image, NULL, 4, mask), FR_ESHAPE, "45 results", "4 classes", NULL);
        expect_refused(fr_predict_mask(m, &image, NULL, 256, mask), FR_EINVAL, "256", "1..255", NULL);
        expect_refused(fr_predict_mask(m, &image, FR_LOADER_OPTS(.height = 2, .resize_height = 4), 3, mask), FR_EINVAL,
                       "height 2", "out of 4", NULL);
        expect_refused(fr_predict_mask(m, &image,
                                       FR_LOADER_OPTS(.width = 4, .resize_height = FR_LOADER_NATIVE,
                                                      .resize_width = FR_LOADER_NATIVE),
                                       3, mask),
                       FR_EINVAL, "width 4", "out of 5", NULL);
    }
    fr_module_release(&m);
}
