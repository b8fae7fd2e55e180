/* test_user_models.c - ResNet-18 and a U-Net as a user writes them: with the public headers alone they have the
 * library's parameters, initialization and results, in a bounded number of lines, counted by the test. */
#include <frugal/frugal.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { CLASSES = 10, SIDE = 64, UNET_SIDE = 16, UNET_DEPTH = 2 };

/* ---- resnet18 begins ---- */
static fr_value basic_block(fr_net *n, fr_value x, int64_t width, int64_t stride) {
    fr_value y = x;
    y = fr_net_conv2d(n, "conv1", y, width, 3, FR_CONV2D_OPTS(.stride = stride, .padding = 1), FR_NO_BIAS);
    y = fr_net_relu(n, "relu1", fr_net_batchnorm2d(n, "bn1", y, NULL));
    y = fr_net_conv2d(n, "conv2", y, width, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    y = fr_net_batchnorm2d(n, "bn2", y, NULL);
    if (stride > 1) {
        x = fr_net_conv2d(n, "downsample.0", x, width, 1, FR_CONV2D_OPTS(.stride = stride), FR_NO_BIAS);
        x = fr_net_batchnorm2d(n, "downsample.1", x, NULL);
    }
    return fr_net_relu(n, "relu", fr_net_add(n, "add", y, x));
}

static fr_status resnet18(int64_t side, int64_t classes, fr_device device, fr_module **m) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, side, side, 3});
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    x = fr_net_conv2d(n, "conv1", x, 64, 7, FR_CONV2D_OPTS(.stride = 2, .padding = 3), FR_NO_BIAS);
    x = fr_net_relu(n, "relu", fr_net_batchnorm2d(n, "bn1", x, NULL));
    x = fr_net_maxpool2d(n, "maxpool", x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            fr_net_scope_begin(n, "layer%d.%d", i + 1, k);
            x = basic_block(n, x, (int64_t)64 << i, i > 0 && k == 0 ? 2 : 1);
            fr_net_scope_end(n);
        }
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}
/* ---- resnet18 ends ---- */

/* ---- unet begins ---- */
static fr_value twice(fr_net *n, fr_value x, int64_t out) {
    for (int i = 0; i < 2; i++) {
        x = fr_net_conv2d(n, NULL, x, out, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    }
    fr_net_scope_end(n);
    return x;
}

static fr_status unet(int depth, int64_t side, int64_t classes, fr_device device, fr_module **m) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, side, side, 3}), skip[5];
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    for (int i = 0; i < depth; i++) {
        fr_net_scope_begin(n, "down%d", i);
        skip[i] = twice(n, x, (int64_t)32 << i);
        x = fr_net_maxpool2d(n, NULL, skip[i], 2, NULL);
    }
    fr_net_scope_begin(n, "bottom");
    x = twice(n, x, (int64_t)32 << depth);
    for (int i = depth - 1; i >= 0; i--) {
        x = fr_net_upsample_to(n, NULL, x, skip[i], FR_UPSAMPLE_NEAREST);
        x = fr_net_concat(n, NULL, (fr_value[]){skip[i], x}, 2);
        fr_net_scope_begin(n, "up%d", i);
        x = twice(n, x, (int64_t)32 << i);
    }
    fr_net_init(n, FR_NET_INIT_DEFAULT);
    x = fr_net_conv2d(n, "head", x, classes, 1, NULL, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}
/* ---- unet ends ---- */

/* Lines of this file between the markers of `model` that are neither blank nor a comment. */
static int lines_of(const char *model) {
    char path[1024], line[256], begins[64], ends[64];
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    int lines = 0;
    bool inside = false, ended = false;
    snprintf(path, sizeof path, "%s/tests/net/test_user_models.c", root != NULL ? root : ".");
    snprintf(begins, sizeof begins, "/* ---- %s begins ---- */\n", model);
    snprintf(ends, sizeof ends, "/* ---- %s ends ---- */\n", model);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    while (!ended && fgets(line, sizeof line, f) != NULL) {
        const char *text = line + strspn(line, " ");
        ended = inside && strcmp(line, ends) == 0;
        lines += inside && !ended && text[0] != '\n' && strncmp(text, "/*", 2) != 0;
        inside = inside || strcmp(line, begins) == 0;
    }
    fclose(f);
    cr_assert(ended, "no '%s' and '%s' in %s", begins, ends, path);
    return lines;
}

Test(user_models, fit_into_their_lines) {
    int resnet_lines = lines_of("resnet18"), unet_lines = lines_of("unet");
    cr_log_info("ResNet-18 %d lines, U-Net %d\n", resnet_lines, unet_lines);
    cr_expect(resnet_lines > 0 && resnet_lines <= 45, "ResNet-18 takes %d lines", resnet_lines);
    cr_expect(unet_lines > 0 && unet_lines <= 35, "U-Net takes %d lines", unet_lines);
}

/* ---- against the library's -------------------------------------------------------------------------------------- */

enum { MOST = 256 };
typedef struct tensors {
    char path[MOST][64];
    fr_tensor *tensor[MOST];
    bool parameter[MOST];
    int n;
} tensors;

static fr_status note(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    tensors *all = ctx;
    cr_assert(all->n < MOST);
    snprintf(all->path[all->n], sizeof all->path[0], "%s", path);
    all->tensor[all->n] = t;
    all->parameter[all->n++] = is_parameter;
    return FR_OK;
}

static void expect_same_bits(fr_tensor *a, fr_tensor *b, const char *what) {
    cr_assert_eq(fr_tensor_rank(a), fr_tensor_rank(b), "%s: other ranks", what);
    for (int i = 0; i < fr_tensor_rank(a); i++)
        cr_assert_eq(fr_tensor_dim(a, i), fr_tensor_dim(b, i), "%s: another shape", what);
    double *x = values_of(a), *y = values_of(b);
    cr_expect_eq(memcmp(x, y, (size_t)fr_tensor_numel(a) * sizeof *x), 0, "%s: other values", what);
    free(x);
    free(y);
}

/* Compares two networks made after equal seeds: names in order, shapes, bits, and outputs for an image. Takes
 * both. */
static void expect_same(fr_module **own, fr_module **library, int64_t side) {
    static tensors a, b;
    fr_tensor *x = NULL, *y = NULL, *want = NULL;
    a.n = b.n = 0;
    must(fr_module_each_tensor(*own, note, &a));
    must(fr_module_each_tensor(*library, note, &b));
    cr_assert_eq(a.n, b.n, "%d tensors, the library's has %d", a.n, b.n);
    cr_expect_eq(fr_module_parameter_count(*own), fr_module_parameter_count(*library));
    for (int i = 0; i < a.n; i++) {
        cr_assert_str_eq(a.path[i], b.path[i]);
        cr_expect_eq(a.parameter[i], b.parameter[i], "%s", a.path[i]);
        expect_same_bits(a.tensor[i], b.tensor[i], a.path[i]);
    }
    must(fr_tensor_uniform(4, (int64_t[]){2, side, side, 3}, -1, 1, FR_F32, test_device(), &x));
    must(fr_module_forward(*own, x, &y));
    must(fr_module_forward(*library, x, &want));
    expect_same_bits(y, want, "the results");
    RELEASE_ALL(&x, &y, &want);
    fr_module_release(own);
    fr_module_release(library);
    expect_nothing_left();
}

Test(user_models, resnet18_equals_the_library_s) {
    fr_module *own = NULL, *library = NULL;
    fr_seed(3);
    must(resnet18(SIDE, CLASSES, test_device(), &own));
    fr_seed(3);
    must(fr_resnet(18, FR_MODEL_OPTS(.classes = CLASSES, .image_size = SIDE, .device = test_device()), &library));
    cr_expect_eq(fr_module_parameter_count(own), 11181642, "torchvision's resnet18 with 10 classes");
    expect_same(&own, &library, SIDE);
}

Test(user_models, unet_equals_the_library_s) {
    fr_module *own = NULL, *library = NULL;
    fr_seed(4);
    must(unet(UNET_DEPTH, UNET_SIDE, CLASSES, test_device(), &own));
    fr_seed(4);
    must(fr_unet(UNET_DEPTH, FR_MODEL_OPTS(.classes = CLASSES, .image_size = UNET_SIDE, .device = test_device()),
                 &library));
    expect_same(&own, &library, UNET_SIDE);
}
