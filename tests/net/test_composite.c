/* test_composite.c - composite modules as units of a chain, and state unchanged by evaluation, conversion and
 * eval-mode batch norm. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <stdlib.h>
#include <string.h>

#include "net/layers.h"
#include "net/module.h"
#include "support/golden.h"

/* x + second(first(x)): children that are no chain. */
static fr_status residual_forward(fr_module *m, fr_tensor **x) {
    fr_tensor *identity = fr_tensor_retain(*x);
    fr_status s = FR_OK;
    FR_TRY(s, fr_module_run_child(m, 0, x));
    FR_TRY(s, fr_module_run_child(m, 1, x));
    FR_TRY(s, fr_add(*x, identity, x));
done:
    fr_tensor_release(&identity);
    return s;
}
static const fr_module_class residual_class = {.name = "Residual", .forward = residual_forward};

static fr_module *residual(void) {
    fr_module *m = NULL, *c = NULL;
    must(fr_module_create(&residual_class, 0, &m));
    must(fri_nn_linear(4, 4, true, test_device(), &c));
    must(fr_module_add_child(m, "first", &c));
    must(fri_nn_relu(&c));
    must(fr_module_add_child(m, "second", &c));
    return m;
}

/* Children of a composite are not a chain of units: that would be another function. */
Test(composite, without_units_is_one_unit) {
    fr_module *m = residual();
    fr_tensor *x = uniform_tensor(2, (int64_t[]){3, 4}), *y = NULL, *again = NULL;
    fr_layer l;
    int first[3] = {7, 7, 7};
    cr_expect_eq(fr_module_units(m, first, 3), 1);
    cr_expect(first[0] == 0 && first[1] == 7);
    cr_expect_eq(fr_module_layers(m), 1);
    must(fr_module_layer_get(m, 0, &l));
    cr_expect(l.module == m && l.n_in == 1 && l.n_out == 1);
    cr_expect_eq(fr_module_layer_get(m, 1, &l), FR_EINVAL);
    must(fr_module_forward(m, x, &y));
    for (int how = 0; how < 4; how++) {
        must(fr_checkpoint_segments(m, (fr_segmentation)how, 1, NULL, x, &again));
        expect_same_values(y, again, "checkpoint_segments");
    }
    fr_unit_plan plan = {.units = 1,
                         .option = (fr_unit_option[]){FR_UNIT_KEEP},
                         .ranges = 1,
                         .range = (fr_unit_range[]){{0, 1}}};
    must(fr_checkpoint_plan(m, &plan, x, &again));
    expect_same_values(y, again, "checkpoint_plan");
    must(fr_backward(again, y));
    fr_tensor_release(&again);
    expect_refused(fr_checkpoint_sequential(m, 2, x, &again), FR_EINVAL, "2 segments", "1 units", again);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

/* A composite is a layer of a network, and a unit. */
Test(composite, is_one_unit_of_a_network) {
    fr_module *chain = NULL, *c = NULL;
    fr_tensor *x = uniform_tensor(2, (int64_t[]){3, 4}), *y = NULL, *again = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 2, (int64_t[]){3, 4});
    for (int i = 0; i < 3; i++) {
        c = residual();
        fr_net_module(n, NULL, &c, &v, 1, &v, 1);
    }
    must(fr_net_end(&n, &v, 1, &chain));
    cr_expect_eq(fr_module_units(chain, NULL, 0), 3);
    must(fr_module_forward(chain, x, &y));
    for (int segments = 1; segments <= 3; segments++) {
        must(fr_checkpoint_sequential(chain, segments, x, &again));
        expect_same_values(y, again, "a chain of composites");
    }
    RELEASE_ALL(&x, &y, &again);
    fr_module_release(&chain);
    expect_nothing_left();
}

/* ---- evaluation, conversion ------------------------------------------------------------------------------------- */

/* A part that was set to eval for good is so afterwards; one that stands in two places, too. */
Test(composite, evaluation_leaves_each_mode) {
    fr_module *m = residual(), *outer = NULL;
    fr_module *first = fr_module_child(m, 0), *second = fr_module_child(m, 1);
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 2, (int64_t[]){3, 4});
    for (int i = 0; i < 2; i++) {
        fr_module *shared = fr_module_retain(m);
        fr_net_module(n, NULL, &shared, &v, 1, &v, 1);
    }
    must(fr_net_end(&n, &v, 1, &outer));
    fr_module_train(first, false);
    fr_module_evaluation_begin(outer);
    cr_expect(!fr_module_training(outer) && !fr_module_training(first) && !fr_module_training(second));
    fr_module_evaluation_begin(m); /* within an outer evaluation */
    fr_module_evaluation_end(m);
    cr_expect(!fr_module_training(second));
    fr_module_evaluation_end(outer);
    cr_expect(fr_module_training(outer) && fr_module_training(m) && fr_module_training(second));
    cr_expect(!fr_module_training(first), "a frozen part trains after an evaluation");
    fr_module_release(&outer);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(composite, conversion_leaves_what_is_frozen) {
    fr_module *m = residual(), *linear = fr_module_child(m, 0);
    must(fr_tensor_set_requires_grad(fr_module_tensor(linear, "weight"), false));
    must(fr_module_to_dtype(m, FR_BF16));
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(linear, "weight")), FR_BF16);
    cr_expect(!fr_tensor_requires_grad(fr_module_tensor(linear, "weight")), "a frozen weight trains after conversion");
    cr_expect(fr_tensor_requires_grad(fr_module_tensor(linear, "bias")));
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- batch norm in eval mode ------------------------------------------------------------------------------------ */

enum { BATCH = 2, SIDE = 16, CHANNELS = 8, BYTES = BATCH * SIDE * SIDE * CHANNELS * 4 };

/* conv, norm in eval mode, and the gradient of the convolution's weight; y and the gradient as values. */
static void through_norm(bool gamma_wants, bool inplace, size_t *live, double **y_values, double **dw) {
    fr_module *conv = NULL, *norm = NULL;
    fr_tensor *x = NULL, *y = NULL;
    fr_memory_stats before, after;
    fr_switches s = fr_switches_default();
    fr_seed(3);
    must(fri_nn_conv2d(3, CHANNELS, 3, FR_CONV2D_OPTS(.padding = 1), true, test_device(), &conv));
    must(fri_nn_batchnorm2d(CHANNELS, NULL, test_device(), &norm));
    must(fr_init_uniform(fr_module_tensor(norm, "weight"), 0.5, 1.5));
    must(fr_init_uniform(fr_module_tensor(norm, "running_mean"), -1, 1));
    must(fr_init_uniform(fr_module_tensor(norm, "running_var"), 0.5, 2));
    must(fr_tensor_set_requires_grad(fr_module_tensor(norm, "weight"), gamma_wants));
    fr_module_train(norm, false);
    x = uniform_tensor(4, (int64_t[]){BATCH, SIDE, SIDE, 3});
    must(fr_memory_stats_get(test_device(), &before));
    s.inplace = inplace;
    fr_switches_set(s);
    must(fr_module_forward(conv, x, &y));
    must(fr_module_forward(norm, y, &y)); /* not over y: its old value has a handle while the module runs */
    must(fr_memory_stats_get(test_device(), &after));
    *live = after.requested - before.requested;
    *y_values = values_of(y);
    must(fr_backward(y, y));
    *dw = values_of(fr_tensor_get_grad(fr_module_tensor(conv, "weight")));
    cr_expect_eq(fr_tensor_get_grad(fr_module_tensor(norm, "weight")) != NULL, gamma_wants);
    cr_expect_not_null(fr_tensor_get_grad(fr_module_tensor(norm, "bias")));
    fr_switches_set(fr_switches_default());
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&conv);
    fr_module_release(&norm);
}

/* Inputs of an eval batch norm are kept for gamma's gradient only: a tensor of x's size less where gamma is frozen,
 * and equal bits. */
Test(composite, eval_batch_norm_keeps_its_input_for_gamma_only) {
    double *y[2], *dw[2];
    size_t live[2];
    for (int k = 0; k < 2; k++) through_norm(k == 1, true, &live[k], &y[k], &dw[k]);
    cr_expect_eq(live[1] - live[0], (size_t)BYTES, "a frozen gamma saves %zu bytes", live[1] - live[0]);
    cr_expect_eq(memcmp(y[0], y[1], BYTES / 4 * sizeof(double)), 0);
    cr_expect_eq(memcmp(dw[0], dw[1], CHANNELS * 27 * sizeof(double)), 0);
    for (int k = 0; k < 2; k++) {
        free(y[k]);
        free(dw[k]);
    }
    expect_nothing_left();
}

/* Batch norm runs over its input without a graph, or with a graph that needs no x: never two tensors of x's size. */
Test(composite, batch_norm_runs_in_place_where_nothing_needs_its_input) {
    for (int graph = 0; graph < 2; graph++)
        for (int inplace = 0; inplace < 2; inplace++) {
            fr_tensor *c[4], *x = uniform_tensor(4, (int64_t[]){BATCH, SIDE, SIDE, CHANNELS}), *leaf = NULL,
                             *ones = NULL;
            fr_memory_stats before, peak;
            fr_switches s = fr_switches_default();
            for (int i = 0; i < 4; i++) {
                c[i] = NULL;
                must(fr_tensor_full(1, (int64_t[]){CHANNELS}, 0.5 + i, FR_F32, test_device(), &c[i]));
            }
            s.inplace = inplace;
            fr_switches_set(s);
            if (graph) { /* x = 2 leaf, and scale saves no tensor */
                leaf = x;
                x = NULL;
                must(fr_tensor_set_requires_grad(leaf, true));
                must(fr_scale(leaf, 2, &x));
            }
            const fr_tensor *was = x;
            double *expected = values_of(x), *got = NULL;
            must(fr_memory_stats_get(test_device(), &before));
            must(fr_memory_reset_peak(test_device()));
            must(fr_batchnorm2d(x, c[0], c[1], c[2], c[3], FR_BATCHNORM2D_OPTS(.train = false), &x));
            must(fr_memory_stats_get(test_device(), &peak));
            cr_expect_eq(peak.peak_requested - before.requested >= BYTES, !inplace, "graph %d, inplace %d", graph,
                         inplace);
            cr_expect(graph || !inplace || x == was);
            got = values_of(x);
            for (int64_t i = 0; i < fr_tensor_numel(x); i += 37) { /* (x - 2.5) / sqrt(3.5 + 1e-5) * 0.5 + 1.5 */
                const double y = (expected[i] - 2.5) / 1.870831 * 0.5 + 1.5;
                cr_expect(got[i] - y < 1e-5 && y - got[i] < 1e-5, "%.9g, not %.9g", got[i], y);
            }
            if (graph) {
                must(fr_tensor_full(4, fr_tensor_shape(x), 1, FR_F32, test_device(), &ones));
                must(fr_backward(x, ones));
                double *dx = values_of(fr_tensor_get_grad(leaf));
                cr_expect(dx[5] - 2 * 0.5 / 1.870831 < 1e-6 && 2 * 0.5 / 1.870831 - dx[5] < 1e-6, "dx is %.9g", dx[5]);
                free(dx);
            }
            fr_switches_set(fr_switches_default());
            free(expected);
            free(got);
            RELEASE_ALL(&ones, &leaf, &x);
            for (int i = 0; i < 4; i++) fr_tensor_release(&c[i]);
        }
    expect_nothing_left();
}

/* Saved inputs are not written over: equal gradients with the in-place switch and without. */
Test(composite, batch_norm_spares_the_input_that_it_saved) {
    for (int train = 0; train < 2; train++) {
        double *got[2][3];
        for (int inplace = 0; inplace < 2; inplace++) {
            fr_tensor *c[4], *x = NULL, *dy = NULL, *leaf = NULL;
            fr_switches s = fr_switches_default();
            fr_seed(4);
            leaf = uniform_tensor(4, (int64_t[]){BATCH, SIDE, SIDE, CHANNELS});
            dy = uniform_tensor(4, (int64_t[]){BATCH, SIDE, SIDE, CHANNELS});
            for (int i = 0; i < 4; i++) {
                c[i] = NULL;
                must(fr_tensor_full(1, (int64_t[]){CHANNELS}, 0.5 + i, FR_F32, test_device(), &c[i]));
                if (i < 2) must(fr_tensor_set_requires_grad(c[i], true));
            }
            s.inplace = inplace;
            fr_switches_set(s);
            must(fr_tensor_set_requires_grad(leaf, true));
            must(fr_scale(leaf, 2, &x));
            must(fr_batchnorm2d(x, c[0], c[1], c[2], c[3], FR_BATCHNORM2D_OPTS(.train = train), &x));
            must(fr_backward(x, dy));
            fr_tensor *const from[] = {leaf, c[0], c[1]};
            for (int i = 0; i < 3; i++) got[inplace][i] = values_of(fr_tensor_get_grad(from[i]));
            fr_switches_set(fr_switches_default());
            RELEASE_ALL(&x, &dy, &leaf);
            for (int i = 0; i < 4; i++) fr_tensor_release(&c[i]);
        }
        for (int i = 0; i < 3; i++) {
            const size_t n = i == 0 ? BYTES / 4 : CHANNELS;
            cr_expect_eq(memcmp(got[0][i], got[1][i], n * sizeof(double)), 0, "train %d: gradient %d", train, i);
            free(got[0][i]);
            free(got[1][i]);
        }
    }
    expect_nothing_left();
}
