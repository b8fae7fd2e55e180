/* test_prefix_parts.c - a frozen prefix in parts of the batch: equal bits in fewer bytes. */
#include "net/units.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <string.h>

#include "net/layers.h"
#include "io/support.h"
#include "meta/meta.h"
#include "net/module.h"
#include "support/golden.h"

enum { IMAGES = 7, PIXELS = 12 };

/* stem; two branches that meet in a sum, of which the second is alive across the first; head with dropout. */
static fr_module *branched(fr_device device) {
    const fr_conv2d_opts *same = FR_CONV2D_OPTS(.padding = 1);
    fr_net *n = fr_net_begin(device);
    fr_module *m = NULL;
    fr_seed(6);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, PIXELS, PIXELS, 3}), a, b;
    x = fr_net_relu(n, "stem.relu",
                    fr_net_batchnorm2d(n, "stem.bn", fr_net_conv2d(n, "stem.conv", x, 16, 3, same, false), NULL));
    a = fr_net_batchnorm2d(n, "a.bn", fr_net_conv2d(n, "a.conv", x, 16, 3, same, false), NULL);
    b = fr_net_conv2d(n, "b.conv", x, 16, 1, NULL, true);
    x = fr_net_relu(n, "relu", fr_net_add(n, "add", a, b));
    x = fr_net_concat(n, "concat",
                      (fr_value[]){x, fr_net_maxpool2d(n, "pool", x, 3, FR_POOL2D_OPTS(.stride = 1, .padding = 1))}, 2);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 2, 2), 1);
    x = fr_net_dropout(n, "dropout", fr_net_linear(n, "fc1", x, 9, true), 0.5);
    x = fr_net_linear(n, "fc2", x, 5, true);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static fr_tensor *images(fr_device device) {
    fr_tensor *x = NULL;
    fr_seed(12);
    must(fr_tensor_uniform(4, (int64_t[]){IMAGES, PIXELS, PIXELS, 3}, -1, 1, FR_F32, device, &x));
    return x;
}

typedef enum form { PLAIN, EACH, TWO, PLANNED, EVALUATED, FORMS } form;

/* Forward and, but for EVALUATED, backward of the sum of squares. Returns the forward's peak above the bytes before;
 * *held, if not NULL: bytes alive afterwards. */
static size_t step(fr_module *m, form how, fr_tensor **y, size_t *held) {
    static const fr_unit_option option[] = {FR_UNIT_REBUILD, FR_UNIT_KEEP};
    static const int first[] = {0, 5};
    fr_device device = test_device();
    fr_tensor *x = images(device), *loss = NULL;
    fr_memory_stats before, after;
    const bool grad = how == EVALUATED ? fr_no_grad_begin() : false;
    if (how == EVALUATED) fr_module_evaluation_begin(m);
    must(fr_memory_reset_peak(device));
    must(fr_memory_stats_get(device, &before));
    if (how == EACH || how == TWO)
        must(fr_checkpoint_segments(m, how == EACH ? FR_SEGMENTS_EACH : FR_SEGMENTS_COUNT, 2, NULL, x, y));
    else if (how == PLANNED)
        must(fr_checkpoint_plan(
            m,
            &(fr_unit_plan){.units = 2, .option = option, .first = first, .ranges = 1, .range = &(fr_unit_range){0, 2}},
            x, y));
    else
        must(fr_module_forward(m, x, y));
    must(fr_memory_stats_get(device, &after));
    if (held != NULL) *held = after.requested - before.requested;
    fr_tensor_release(&x);
    if (how == EVALUATED) {
        fr_module_evaluation_end(m);
        fr_no_grad_end(grad);
    } else {
        must(fr_mul(*y, *y, &loss));
        must(fr_sum(loss, &loss));
        must(fr_backward(loss, NULL));
        fr_tensor_release(&loss);
    }
    return after.peak_requested - before.requested;
}

static fr_status same_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    fr_module *other = ctx;
    char layer[64];
    snprintf(layer, sizeof layer, "%s", path);
    *strrchr(layer, '.') = '\0';
    fr_tensor *u = fr_module_tensor(fr_module_find(other, layer), strrchr(path, '.') + 1);
    fr_tensor *a = is_parameter ? fr_tensor_get_grad(t) : t, *b = is_parameter ? fr_tensor_get_grad(u) : u;
    cr_assert_eq(a == NULL, b == NULL, "%s", path);
    if (a != NULL) cr_expect_eq(memcmp(host_of(a), host_of(b), fr_tensor_nbytes(a)), 0, "%s differs", path);
    return FR_OK;
}

/* Layers that train, and the end of the prefix: the dropout stands before fc2. */
static const struct {
    const char *thawed;
    int prefix;
} choices[] = {{"fc2", 13}, {"fc1", 12}, {"b", 5}, {"a", 3}, {"stem", 0}};

Test(prefix_parts, every_size_of_part_gives_the_bits_of_the_whole) {
    cpu_only("cuDNN chooses an engine by the batch, so the last bits of a part may differ");
    for (size_t c = 0; c < COUNT(choices); c++)
        for (form how = 0; how < FORMS; how++)
            for (int64_t part = 1; part <= IMAGES + 1; part += part < 4 ? 1 : 3) {
                fr_module *m[2] = {branched(test_device()), branched(test_device())};
                fr_tensor *y[2] = {NULL};
                size_t held[2];
                for (int k = 0; k < 2; k++) {
                    must(fr_module_freeze(m[k], NULL, true));
                    must(fr_module_freeze(m[k], choices[c].thawed, false));
                    cr_expect_eq(fri_module_frozen_prefix(m[k]), choices[c].prefix, "%s: %d layers", choices[c].thawed,
                                 fri_module_frozen_prefix(m[k]));
                    if (k == 1) must(fri_module_prefix_parts(m[k], part));
                    fr_seed(77); /* of the dropout */
                    (void)step(m[k], how, &y[k], &held[k]);
                }
                cr_expect_eq(memcmp(host_of(y[0]), host_of(y[1]), fr_tensor_nbytes(y[0])), 0,
                             "%s, form %d, parts of %lld: other results", choices[c].thawed, how, (long long)part);
                /* A range across the prefix's end keeps the same bytes. */
                if (how == PLANNED) cr_expect_eq(held[1], held[0], "%s: %zu, %zu", choices[c].thawed, held[1], held[0]);
                must(fr_module_each_tensor(m[0], same_gradient, m[1]));
                for (int k = 0; k < 2; k++) {
                    fr_tensor_release(&y[k]);
                    fr_module_release(&m[k]);
                }
            }
    expect_nothing_left();
}

/* A part's activations and all of the pooled features; in evaluation up to the dropout. Workspace grows with threads:
 * with many threads the workspace would be the peak. */
Test(prefix_parts, less_is_alive_the_smaller_the_part) {
    static const form forms[] = {PLAIN, EVALUATED};
    must(fr_threads_set(1));
    for (size_t f = 0; f < COUNT(forms); f++) {
        size_t peak[3];
        for (int k = 0; k < 3; k++) {
            fr_module *m = branched(test_device());
            fr_tensor *y = NULL;
            must(fr_module_freeze(m, NULL, true));
            must(fr_module_freeze(m, "fc2", false));
            must(fri_module_prefix_parts(m, (int64_t[]){1, 4, 0}[k]));
            peak[k] = step(m, forms[f], &y, NULL);
            fr_tensor_release(&y);
            fr_module_release(&m);
        }
        const size_t map = (size_t)PIXELS * PIXELS * 16 * sizeof(float); /* of an image; three at least are alive */
        cr_expect_gt(peak[2], 3 * IMAGES * map);
        cr_expect_lt(peak[1], peak[2] - 2 * 3 * map, "form %d: %zu, %zu", forms[f], peak[1], peak[2]);
        cr_expect_lt(peak[0], peak[1] - 2 * 3 * map, "form %d: %zu, %zu", forms[f], peak[0], peak[1]);
    }
    expect_nothing_left();
}

/* ---- where the prefix ends --------------------------------------------------------------------------------- */

static fr_status shuffle(fr_module *m, fr_tensor **x) { /* may mix images: its class promises nothing */
    (void)m;
    return fr_scale(*x, 2, x);
}

static int prefix_with(bool freeze, bool train, const fr_module_class *class_) {
    fr_net *n = fr_net_begin(FR_META);
    fr_module *m = NULL;
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, PIXELS, PIXELS, 3});
    x = fr_net_relu(n, "relu", x);
    if (class_ != NULL) fr_net_op(n, "own", class_, NULL, 0, &x, 1, &x, 1);
    x = fr_net_batchnorm2d(n, "bn", x, NULL);
    x = fr_net_conv2d(n, "conv", x, 4, 1, NULL, true);
    must(fr_net_end(&n, &x, 1, &m));
    fr_module_train(m, train);
    must(fr_module_freeze(m, freeze ? "bn" : "bn.weight", true));
    must(fr_module_freeze(m, "bn.bias", true));
    const int layers = fri_module_frozen_prefix(m);
    fr_module_release(&m);
    return layers;
}

Test(prefix_parts, the_prefix_ends_where_images_meet) {
    static const fr_module_class own = {.name = "Own", .forward = shuffle},
                                 each = {.name = "Each", .forward = shuffle, .traits = FR_LAYER_PER_IMAGE};
    cr_expect_eq(prefix_with(true, true, NULL), 2, "a frozen norm uses its running values");
    cr_expect_eq(prefix_with(false, true, NULL), 1, "a norm without gradients still normalizes by its batch");
    cr_expect_eq(prefix_with(false, false, NULL), 2, "but not in eval mode");
    cr_expect_eq(prefix_with(true, true, &own), 1);
    cr_expect_eq(prefix_with(true, true, &each), 3);
}

/* An input that wants a gradient has a graph. */
Test(prefix_parts, a_gradient_of_the_input_is_that_of_the_whole) {
    fr_tensor *g[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        fr_module *m = branched(test_device());
        fr_tensor *x = images(test_device()), *y = NULL;
        must(fr_module_freeze(m, NULL, true));
        must(fri_module_prefix_parts(m, k));
        must(fr_tensor_set_requires_grad(x, true));
        fr_seed(77);
        must(fr_module_forward(m, x, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        cr_assert_not_null(fr_tensor_get_grad(x));
        must(fr_tensor_clone(fr_tensor_get_grad(x), &g[k]));
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_module_release(&m);
    }
    expect_same_values(g[0], g[1], "the input's gradient");
    for (int k = 0; k < 2; k++) fr_tensor_release(&g[k]);
    expect_nothing_left();
}

Test(prefix_parts, refuses_what_it_cannot_do) {
    fr_module *m = branched(FR_META), *relu = NULL;
    must(fri_nn_relu(&relu));
    expect_refused(fri_module_prefix_parts(m, -1), FR_EINVAL, "-1", "at least 1", NULL);
    expect_refused(fri_module_prefix_parts(relu, 1), FR_EINVAL, "ReLU", "network", NULL);
    cr_expect_eq(fri_module_frozen_prefix(relu), 0);
    fr_module_release(&m);
    fr_module_release(&relu);
}

/* An evaluation draws no random numbers, so neither dropout nor a norm binds images together. */
Test(prefix_parts, images_are_independent_in_an_evaluation) {
    fr_module *m = branched(test_device());
    cr_expect_not(fri_module_is_per_image(m));
    fr_module_evaluation_begin(m);
    cr_expect(fri_module_is_per_image(m));
    fr_module_evaluation_end(m);
    cr_expect_not(fri_module_is_per_image(m));
    fr_module_release(&m);
}
