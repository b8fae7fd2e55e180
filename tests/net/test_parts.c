/* test_parts.c - parts of a batch that advance together: gradients and running values of the whole batch, in fewer
 * bytes, whatever is kept or made again on the way. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/support.h"
#include "support/golden.h"
#include "support/kernels_run.h"

static const double bound = 1e-5; /* of a tensor's norm: two orders of summing, in f32 */

static fr_tensor *images(int64_t n, int64_t pixels, fr_dtype dtype) {
    fr_tensor *x = NULL;
    fr_seed(12);
    must(fr_tensor_uniform(4, (int64_t[]){n, pixels, pixels, 3}, -1, 1, FR_F32, test_device(), &x));
    if (dtype != FR_F32) must(fr_cast(x, dtype, &x));
    return x;
}

/* Nothing is drawn. */
static void calm(fr_module *m) {
    if (strcmp(fr_module_class_of(m)->name, "Dropout") == 0) fr_module_train(m, false);
    for (int i = 0; i < fr_module_children(m); i++) calm(fr_module_child(m, i));
}

/* Rows of part i of n. */
static fr_tensor *part_of(fr_tensor *x, int i, int n) {
    const int64_t all = fr_tensor_dim(x, 0), first = all * i / n;
    fr_tensor *part = NULL;
    must(fr_tensor_narrow0(x, first, all * (i + 1) / n - first, &part));
    return part;
}

/* *loss += the sum of *y times rows first .. of numbers as many as the images. */
static void add_products(fr_tensor **y, int part, int parts, int64_t all, fr_tensor **loss) {
    int64_t shape[FR_MAX_RANK] = {all};
    fr_tensor *numbers = NULL, *rows = NULL;
    for (int i = 1; i < fr_tensor_rank(*y); i++) shape[i] = fr_tensor_dim(*y, i);
    fr_seed(31);
    must(fr_tensor_uniform(fr_tensor_rank(*y), shape, -1, 1, FR_F32, test_device(), &numbers));
    rows = part_of(numbers, part, parts);
    must(fr_cast(*y, FR_F32, y));
    must(fr_mul(*y, rows, y));
    must(fr_sum(*y, y));
    fr_tensor_release(&rows);
    fr_tensor_release(&numbers);
    if (*loss != NULL) must(fr_add(*loss, *y, y));
    fr_tensor_release(loss);
    *loss = *y;
    *y = NULL;
}

enum { MOST = 8 };

/* Gradients of a loss of what m makes of the images; parts 0: of all at once. */
static void step(fr_module *m, fr_tensor *x, int parts) {
    fr_tensor *y[MOST] = {NULL}, *loss = NULL;
    const int n = parts > 0 ? parts : 1;
    for (int i = 0; i < n; i++) y[i] = part_of(x, i, n);
    if (parts == 0)
        must(fr_module_forward(m, y[0], &y[0]));
    else
        must(fr_module_forward_parts(m, y, parts, y));
    for (int i = 0; i < n; i++) add_products(&y[i], i, n, fr_tensor_dim(x, 0), &loss);
    must(fr_backward(loss, NULL));
    fr_tensor_release(&loss);
}

typedef struct comparison {
    fr_module *whole, *other;
    const char *what;
    int parts, compared;
    double bound;
} comparison;

/* The norm of the difference, or of a where b is NULL. */
static double distance(const fr_tensor *a, const fr_tensor *b) {
    double *u = values_of(a), *v = b != NULL ? values_of(b) : NULL, square = 0;
    for (int64_t i = 0; i < fr_tensor_numel(a); i++) {
        const double d = u[i] - (v != NULL ? v[i] : 0);
        square += d * d;
    }
    free(u);
    free(v);
    return sqrt(square);
}

static fr_tensor *of(fr_module *m, const char *path, bool gradient) {
    char layer[128];
    snprintf(layer, sizeof layer, "%s", path);
    *strrchr(layer, '.') = '\0';
    fr_tensor *t = fr_module_tensor(fr_module_find(m, layer), strrchr(path, '.') + 1);
    return t == NULL ? NULL : gradient ? fr_tensor_get_grad(t) : t;
}

static double size_of(fr_module *m, const char *path, const char *name, bool gradient) {
    char sibling[128];
    snprintf(sibling, sizeof sibling, "%.*s.%s", (int)(strrchr(path, '.') - path), path, name);
    fr_tensor *t = of(m, sibling, gradient);
    return t != NULL ? distance(t, NULL) : 0;
}

/* A gradient is measured by all of its layer, a mean by the deviation: where a batch norm undoes what a bias, or the
 * weight of the batch norm before it, does, that one's gradient is 0 but for rounding. */
static fr_status compare(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    comparison *c = ctx;
    fr_tensor *a = is_parameter ? fr_tensor_get_grad(t) : t, *b = of(c->other, path, is_parameter);
    cr_assert_eq(a == NULL, b == NULL, "%s", path);
    if (a == NULL) return FR_OK;
    const double apart = distance(a, b),
                 size = is_parameter ? size_of(c->whole, path, "weight", true) + size_of(c->whole, path, "bias", true)
                                     : size_of(c->whole, path, "running_var", false);
    cr_expect(apart <= c->bound * size, "%s in %d parts, %s: %g apart from %g", c->what, c->parts, path, apart, size);
    c->compared++;
    return FR_OK;
}

/* MobileNetV2's blocks, and one in which a batch norm's input goes round it, too. */
static fr_module *inverted(int64_t pixels) {
    fr_net *n = fr_net_begin(test_device());
    fr_module *m = NULL;
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, pixels, pixels, 3}), y;
    x = fr_net_conv2d(n, "stem", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    for (int i = 0; i < 3; i++) {
        fr_net_scope_begin(n, "block%d", i);
        y = i < 2 ? x : fr_net_relu(n, "first.relu", fr_net_batchnorm2d(n, "first", x, NULL));
        y = fr_net_conv2d(n, "expand", y, 24, 1, NULL, FR_NO_BIAS);
        y = fr_net_relu6(n, "relu6a", fr_net_batchnorm2d(n, "bn1", y, NULL));
        y = fr_net_conv2d(n, "depthwise", y, 24, 3, FR_CONV2D_OPTS(.padding = 1, .groups = 24), FR_NO_BIAS);
        y = fr_net_batchnorm2d(n, "bn2", y, NULL);
        y = i == 0 ? fr_net_silu(n, "silu", y) : fr_net_relu6(n, "relu6b", y);
        y = fr_net_conv2d(n, "project", y, 8, 1, NULL, FR_NO_BIAS);
        x = fr_net_add(n, "add", x, fr_net_batchnorm2d(n, "bn3", y, NULL));
        fr_net_scope_end(n);
    }
    x = fr_net_flatten(n, "flatten", fr_net_maxpool2d(n, "pool", x, 4, NULL), 1);
    x = fr_net_linear(n, "fc", x, 5, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static fr_module *by_name(const char *name, int64_t pixels) {
    fr_module *m = NULL;
    fr_seed(3);
    if (strcmp(name, "inverted") == 0) return inverted(pixels);
    must(fr_model(name,
                  FR_MODEL_OPTS(.classes = 5, .image_size = pixels, .head = FR_HEAD_GLOBAL, .growth = 4,
                                .device = test_device()),
                  &m));
    calm(m);
    return m;
}

/* m[1] in parts does what m[0] does at once. Both go. */
static void expect_whole(const char *what, fr_module *m[2], fr_tensor *x, int parts, double within) {
    comparison c = {.whole = m[0], .other = m[1], .what = what, .parts = parts, .bound = within};
    step(m[0], x, 0);
    step(m[1], x, parts);
    must(fr_module_each_tensor(m[0], compare, &c));
    cr_expect_gt(c.compared, 5);
    for (int i = 0; i < 2; i++) fr_module_release(&m[i]);
}

/* ---- what it makes ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t pixels, images;
    bool large;
} networks[] = {{"inverted", 16, 7, false}, {"unet2", 16, 5, false},         {"densenet_bc22_k4", 16, 7, false},
                {"vgg11_bn", 32, 8, true},  {"resnet18_small", 16, 7, true}, {"mobilenet_v3_small", 48, 7, true}};

static void make_two(size_t network, fr_module *m[2], fr_tensor **x) {
    const int64_t pixels = networks[network].pixels;
    for (int k = 0; k < 2; k++) m[k] = by_name(networks[network].name, pixels);
    *x = images(networks[network].images, pixels, FR_F32);
}

Test(parts, gradients_and_running_values_are_the_whole_batchs) {
    cpu_only("parts meet on the CPU");
    fr_exact_convolutions_set(true);
    for (size_t i = 0; i < COUNT(networks); i++)
        for (int parts = networks[i].large ? 3 : 2; parts <= (networks[i].large ? 3 : 4); parts++) {
            fr_module *m[2];
            fr_tensor *x = NULL;
            make_two(i, m, &x);
            expect_whole(networks[i].name, m, x, parts, bound);
            fr_tensor_release(&x);
        }
    fr_exact_convolutions_set(false);
    expect_nothing_left();
}

/* Under every switch that decides what lies between two norms. */
Test(parts, whatever_is_kept_the_bits_are_the_same) {
    cpu_only("parts meet on the CPU");
    const fr_switches was = fr_switches_get();
    for (size_t i = 0; i < 3; i++) {
        fr_module *m[2] = {by_name(networks[i].name, networks[i].pixels), NULL};
        fr_tensor *x = images(networks[i].images, networks[i].pixels, FR_F32);
        step(m[0], x, 3);
        for (int k = 0; k < 4; k++) {
            fr_switches other = was;
            other.rebuild = k == 0;
            other.encode = k != 1;
            other.early_release = k != 2;
            other.inplace = k != 3;
            fr_switches_set(other);
            m[1] = by_name(networks[i].name, networks[i].pixels);
            step(m[1], x, 3);
            comparison c = {.whole = m[0], .other = m[1], .what = networks[i].name, .parts = 3, .bound = 0};
            must(fr_module_each_tensor(m[0], compare, &c));
            fr_module_release(&m[1]);
        }
        fr_switches_set(was);
        fr_tensor_release(&x);
        fr_module_release(&m[0]);
    }
    expect_nothing_left();
}

static size_t peak_of(const char *name, int parts, bool rebuild) {
    const fr_switches was = fr_switches_get();
    fr_switches with = was;
    fr_memory_stats before, after;
    with.rebuild = rebuild;
    fr_module *m = by_name(name, 32);
    fr_tensor *x = images(8, 32, FR_F32);
    fr_switches_set(with);
    must(fr_memory_reset_peak(test_device()));
    must(fr_memory_stats_get(test_device(), &before));
    step(m, x, parts);
    must(fr_memory_stats_get(test_device(), &after));
    fr_switches_set(was);
    fr_tensor_release(&x);
    fr_module_release(&m);
    return after.peak_requested - before.requested;
}

Test(parts, less_is_alive_than_of_the_whole_batch) {
    cpu_only("parts meet on the CPU");
    must(fr_threads_set(2)); /* each has workspace: of many, that would be the peak */
    static const char *const names[] = {"inverted", "unet2", "densenet_bc22_k4", "resnet18_small"};
    for (size_t i = 0; i < COUNT(names); i++)
        for (int rebuild = 0; rebuild < 2; rebuild++) {
            const size_t whole = peak_of(names[i], 0, rebuild), parts = peak_of(names[i], 4, rebuild);
            cr_expect_lt(parts, whole, "%s, rebuild %d: %zu in parts, %zu at once", names[i], rebuild, parts, whole);
        }
    expect_nothing_left();
}

/* Each part's norm sums once and makes dx once, also behind a sum with a relu, where two gradients meet. */
Test(parts, each_sum_is_made_once) {
    cpu_only("parts meet on the CPU");
    fr_module *m = by_name("resnet18_small", 16);
    const int norms = fr_module_batch_norms(m);
    fr_tensor *x = images(4, 16, FR_F32);
    kernels_watch();
    step(m, x, 2);
    kernels_unwatch();
    cr_expect_eq(kernels_run("batchnorm2d_backward"), 2 * norms);
    cr_expect_eq(kernels_run("batchnorm2d_backward_sums"), 0);
    cr_expect_eq(kernels_run("batchnorm2d_backward_rest"), 2 * norms);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- at the edges ------------------------------------------------------------------------------------------ */

/* Its parts hold one number per channel each. */
Test(parts, a_part_may_be_one_row) {
    cpu_only("parts meet on the CPU");
    fr_module *m[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        fr_net *n = fr_net_begin(test_device());
        fr_seed(5);
        fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, 1, 1, 3});
        x = fr_net_batchnorm2d(n, "bn1", fr_net_conv2d(n, "conv1", x, 4, 1, NULL, FR_NO_BIAS), NULL);
        x = fr_net_batchnorm2d(n, "bn2", fr_net_conv2d(n, "conv2", x, 4, 1, NULL, FR_NO_BIAS), NULL);
        must(fr_net_end(&n, &x, 1, &m[k]));
    }
    fr_tensor *x = images(4, 1, FR_F32);
    expect_whole("rows", m, x, 4, bound);
    fr_tensor_release(&x);
    expect_nothing_left();
}

/* A frozen norm is passed by; one in front of which nothing trains has no gradient to hand on. */
Test(parts, frozen_layers) {
    cpu_only("parts meet on the CPU");
    static const char *const frozen[] = {"block1", "stem", "block0.bn1"};
    static const int norms[] = {7, 10, 9};
    for (size_t i = 0; i < COUNT(frozen); i++) {
        fr_module *m[2] = {by_name("inverted", 16), by_name("inverted", 16)};
        fr_tensor *x = images(7, 16, FR_F32);
        for (int k = 0; k < 2; k++) must(fr_module_freeze(m[k], frozen[i], true));
        must(fr_module_prefix_parts(m[1], 1));
        cr_expect_eq(fr_module_batch_norms(m[0]), norms[i]);
        expect_whole(frozen[i], m, x, 3, bound);
        fr_tensor_release(&x);
    }
    expect_nothing_left();
}

Test(parts, refused) {
    cpu_only("parts meet on the CPU");
    fr_module *m = by_name("inverted", 16);
    fr_tensor *x = images(4, 16, FR_F32), *y[2] = {NULL}, *loss = NULL;
    for (int i = 0; i < 2; i++) y[i] = part_of(x, i, 2);
    must(fr_module_forward_parts(m, y, 2, y));
    must(fr_sum(y[1], &loss));
    cr_expect_eq(fr_backward(loss, NULL), FR_EUSAGE);
    EXPECT_SENTENCE("backward reached 1 of the 2 parts that were normalized together");
    fr_tensor_release(&loss);
    for (int i = 0; i < 2; i++) fr_tensor_release(&y[i]);
    cr_expect_eq(fr_module_forward_parts(m, y, 2, y), FR_EINVAL);
    EXPECT_SENTENCE("part 0 of 2 is NULL");
    cr_expect_eq(fr_module_forward_parts(m, y, 0, y), FR_EINVAL);
    EXPECT_SENTENCE("0 parts; at least 1");
    fr_module_release(&m);
    must(fr_model("resnet18_abn", FR_MODEL_OPTS(.image_size = 32, .device = test_device()), &m));
    y[0] = fr_tensor_retain(x);
    cr_expect_eq(fr_module_forward_parts(m, y, 1, y), FR_EINVAL);
    EXPECT_SENTENCE("InPlaceABN overwrites what its parts would wait with");
    cr_expect_null(y[0], "taken on failure, too");
    cr_expect_gt(fr_module_batch_norms(m), 0);
    fr_module_train(m, false);
    cr_expect_eq(fr_module_batch_norms(m), 0);
    fr_module_release(&m);
    fr_tensor_release(&x);
    expect_nothing_left();
}
