/* test_guide_nets.c - the networks of the guides: outputs, equal bits under checkpoints, and kept bytes. */
#include "../../benchmarks/guide_nets.h"

#include <criterion/criterion.h>

#include "support/golden.h"

static size_t rounded(int64_t bytes) {
    return (size_t)(bytes + 511) / 512 * 512;
}

static fr_tensor *images(int64_t n, int64_t side, fr_device device) {
    fr_tensor *x = NULL;
    fr_seed(3);
    must(fr_tensor_normal(4, (int64_t[]){n, side, side, 3}, 0, 1, FR_F32, device, &x));
    return x;
}

/* The taps are the result's channels, the image output the same everywhere. */
Test(guide_nets, three_outputs) {
    static const char *const names[] = {"fuse", "pixel", "image"};
    fr_module *m = NULL;
    fr_tensor *x = images(2, 32, FR_CPU), *y[4] = {NULL};
    must(guide_hyper_unet(8, 32, FR_CPU, &m));
    for (int i = 0; i < 3; i++) must(fr_module_tap(m, names[i]));
    must(fr_module_forward_n(m, &x, 1, y, 4));
    double *all = values_of(y[0]);
    for (int i = 0; i < 3; i++) {
        double *one = values_of(y[i + 1]);
        int64_t pixels = i < 2 ? 32 * 32 : 1, n = fr_tensor_numel(y[i + 1]);
        cr_assert_eq(n, 2 * pixels, "%s has %lld values", names[i], (long long)n);
        for (int64_t k = 0; k < 2 * 32 * 32; k++)
            cr_assert_eq(all[3 * k + i], one[i < 2 ? k : k / (32 * 32)], "%s differs at %lld", names[i], (long long)k);
        free(one);
    }
    free(all);
    for (int i = 0; i < 4; i++) fr_tensor_release(&y[i]);
    fr_tensor_release(&x);
    fr_module_release(&m);
}

static void step(fr_module *m, int how, fr_tensor *x, fr_tensor **y) {
    fr_tensor *loss = NULL;
    fr_module_zero_grad(m);
    if (how < 0)
        must(fr_module_forward(m, x, y));
    else
        must(fr_checkpoint_segments(m, (fr_segmentation)how, 2, NULL, x, y));
    must(fr_mul(*y, *y, &loss));
    must(fr_sum(loss, &loss));
    must(fr_backward(loss, NULL));
    fr_tensor_release(&loss);
}

/* Results and the first gradient, with checkpoints and without, to the bit. */
static void expect_same_under_checkpoints(fr_module *m, fr_tensor *x, const char *layer) {
    static const int ways[] = {-1, FR_SEGMENTS_COUNT, FR_SEGMENTS_SQRT, FR_SEGMENTS_LOG};
    fr_tensor *y = NULL, *dw = NULL, *first_y = NULL, *first_dw = NULL, *w = NULL;
    w = fr_module_tensor(fr_module_find(m, layer), "weight");
    cr_assert_not_null(w, "%s", layer);
    for (int i = 0; i < 4; i++) {
        step(m, ways[i], x, &y);
        dw = fr_tensor_retain(fr_tensor_get_grad(w));
        if (i == 0) {
            first_y = fr_tensor_retain(y);
            first_dw = fr_tensor_retain(dw);
        }
        expect_same_values(y, first_y, "result");
        expect_same_values(dw, first_dw, "gradient");
        fr_tensor_release(&y);
        fr_tensor_release(&dw);
    }
    fr_tensor_release(&first_y);
    fr_tensor_release(&first_dw);
    fr_module_zero_grad(m);
}

Test(guide_nets, checkpoints_change_nothing) {
    fr_module *m = NULL;
    fr_tensor *x = images(2, 32, FR_CPU), *words = NULL;
    must(guide_hyper_unet(8, 32, FR_CPU, &m));
    expect_same_under_checkpoints(m, x, "down0.0");
    fr_module_release(&m);
    fr_tensor_release(&x);
    must(guide_chain(100, FR_CPU, &m));
    must(fr_tensor_normal(2, (int64_t[]){4, 10}, 0, 1, FR_F32, FR_CPU, &x));
    expect_same_under_checkpoints(m, x, "0");
    fr_module_release(&m);
    must(guide_words(50, 3, FR_CPU, &m));
    must(fr_tensor_from_host((int64_t[]){3, 7, 3, 49, 0, 7}, 2, (int64_t[]){2, 3}, FR_I64, FR_CPU, &words));
    expect_same_under_checkpoints(m, words, "embedding");
    fr_tensor_release(&x);
    fr_tensor_release(&words);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Only the four features live after a forward pass in eval under no_grad; with a graph each layer's output does. */
Test(guide_nets, vgg19_features) {
    static const struct {
        int64_t side, channels;
    } relu[] = {{0}, {64, 64}, {64, 64}, {32, 128}, {32, 128}, {16, 256}, {16, 256}, {16, 256}, {16, 256}, {8, 512}};
    static const int result[] = {9, 1, 3, 5};
    fr_module *m = NULL;
    fr_tensor *x = images(2, 64, FR_META), *y[4] = {NULL};
    fr_memory_stats before, t;
    size_t features = 0, kept = 0;
    fr_switches_set(fr_switches_all_off());
    must(guide_vgg19_features(64, FR_META, &m));
    fr_module_train(m, false);
    for (int grad = 0; grad < 2; grad++) {
        bool was = grad ? false : fr_no_grad_begin();
        must(fr_memory_stats_get(FR_META, &before));
        must(fr_module_forward_n(m, &x, 1, y, 4));
        must(fr_memory_stats_get(FR_META, &t));
        if (!grad) fr_no_grad_end(was);
        features = kept = 0;
        for (int i = 0; i < 4; i++) {
            int64_t side = relu[result[i]].side, channels = relu[result[i]].channels;
            const int64_t *shape = fr_tensor_shape(y[i]);
            cr_expect(shape[1] == side && shape[3] == channels, "relu_%d: %lld x %lld", result[i], (long long)shape[1],
                      (long long)shape[3]);
            features += rounded(2 * side * side * channels * 4);
        }
        for (int k = 1; k <= 9; k++) kept += rounded(2 * relu[k].side * relu[k].side * relu[k].channels * 4);
        /* three pools keep their output and an index of 8 bytes */
        for (int k = 2; k <= 8; k += k == 2 ? 2 : 4)
            kept += rounded(2 * relu[k].side * relu[k].side / 4 * relu[k].channels * 4) +
                    rounded(2 * relu[k].side * relu[k].side / 4 * relu[k].channels * 8);
        size_t alive = t.requested - before.requested, want = grad ? kept : features;
        cr_expect_eq(alive, want, "grad %d: %zu bytes, not %zu", grad, alive, want);
        for (int i = 0; i < 4; i++) fr_tensor_release(&y[i]);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
}
