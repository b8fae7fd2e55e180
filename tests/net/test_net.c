/* test_net.c - networks as lists (net.h): what a definition infers, refuses and leaves alone; sharing, replacing and
 * tapping of layers; several inputs and results; cuts. */
#include "autograd/run.h"
#include "net/units.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <stdlib.h>
#include <string.h>

#include "net/layers.h"
#include "autograd/node.h"
#include "base/rng.h"
#include "memory/event.h"
#include "meta/calls.h"
#include "net/list.h"
#include "support/golden.h"

static fr_value image(fr_net *n, int64_t side, int64_t channels) {
    return fr_net_input(n, FR_F32, 4, (int64_t[]){1, side, side, channels});
}

static fr_module *end(fr_net *n, fr_value x) {
    fr_module *m = NULL;
    must(fr_net_end(&n, &x, 1, &m));
    cr_assert_null(n);
    return m;
}

/* relu(norm(conv(relu(norm(conv(x))))) + x), 6 channels; "head" behind it. */
static fr_module *residual_net(void) {
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_conv2d(n, "stem", image(n, 8, 3), 6, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS), y = x;
    fr_net_scope_begin(n, "layer%d.%d", 1, 0);
    for (int i = 0; i < 2; i++) {
        fr_net_scope_begin(n, "part%d", i);
        y = fr_net_conv2d(n, "conv", y, 6, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        y = fr_net_batchnorm2d(n, "bn", y, NULL);
        if (i == 0) y = fr_net_relu(n, "relu", y);
        fr_net_scope_end(n);
    }
    x = fr_net_relu(n, "relu", fr_net_add(n, "add", y, x));
    fr_net_scope_end(n);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "pool", x, 2, 2), 1);
    return end(n, fr_net_linear(n, "head", x, 3, FR_BIAS));
}

/* product and sum of two inputs, as a network. */
static fr_module *two_results(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value a = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4}), b = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4});
    const fr_value out[] = {fr_net_mul(n, "product", a, b), fr_net_add(n, "sum", a, b)};
    must(fr_net_end(&n, out, 2, &m));
    return m;
}

/* ---- defining ------------------------------------------------------------------------------------------------- */

Test(net, names_and_sizes_follow_from_the_values) {
    fr_module *m = residual_net();
    fr_layer l;
    cr_expect_not_null(fr_module_find(m, "layer1.0.part1.bn"));
    cr_expect_null(fr_module_find(m, "layer1.0.part2"));
    cr_expect_eq(fr_tensor_dim(fr_module_tensor(fr_module_find(m, "layer1.0.part1.conv"), "weight"), 3), 6);
    cr_expect_eq(fr_tensor_dim(fr_module_tensor(fr_module_find(m, "head"), "weight"), 1), 2 * 2 * 6);
    cr_expect_eq(fr_module_layers(m), 11);
    cr_expect_null(fr_module_find(m, "layer"), "a part of a name is no name");
    cr_expect_str_eq(fri_module_head(m), "head");
    cr_expect_null(fri_module_head(fr_module_find(m, "head")), "no network");
    must(fr_module_layer_get(m, 6, &l));
    cr_expect_str_eq(l.name, "layer1.0.add");
    cr_expect(l.n_in == 2 && l.n_out == 1);
    must(fr_module_layer_get(m, 10, &l));
    cr_expect(l.pieces == 1 && l.piece[0].spatial == 4 && l.piece[0].channels == 6, "channels behind the flatten");
    fr_module_release(&m);
    expect_nothing_left();
}

Test(net, channels_are_known_behind_dropout_and_concat) {
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = image(n, 4, 3), both[2];
    fr_layer l;
    both[0] = fr_net_dropout(n, NULL, fr_net_flatten(n, NULL, x, 1), 0.5);
    both[1] = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 2), 1);
    x = fr_net_linear(n, "fc", fr_net_concat(n, NULL, both, 2), 2, FR_BIAS);
    fr_module *m = end(n, x);
    must(fr_module_layer_get(m, fr_module_layers(m) - 1, &l));
    cr_assert_eq(l.pieces, 2);
    cr_expect(l.piece[0].spatial == 16 && l.piece[0].channels == 3 && l.piece[1].spatial == 2 &&
              l.piece[1].channels == 3);
    fr_module_release(&m);
}

Test(net, the_first_failure_is_told_at_the_end_with_its_layer) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = image(n, 8, 3), y;
    fr_rng before = fr_rng_get();
    fr_net_scope_begin(n, "features");
    y = fr_net_maxpool2d(n, "pool", fr_net_relu(n, "relu", x), 9, NULL);
    cr_expect_eq(y.id, -1);
    cr_expect_eq(fr_net_conv2d(n, "conv", y, 4, 3, NULL, FR_BIAS).id, -1);
    cr_expect_eq(fr_net_conv2d(n, "conv", x, 4, 3, NULL, FR_BIAS).id, -1, "a call after a failure does something");
    cr_expect(fr_net_status(n) < 0);
    cr_expect_eq(fr_rng_get().next_stream, before.next_stream, "a definition that failed draws numbers");
    expect_refused(fr_net_end(&n, &x, 1, &m), FR_ESHAPE, "features.pool (MaxPool2d): maxpool2d: ", "8", NULL);
    cr_expect(n == NULL && m == NULL);
    cr_expect_eq(fr_net_status(NULL), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), "out of host memory"), "%s", fr_last_error());
    expect_nothing_left();
}

static fr_status refused(void (*define)(fr_net *n, fr_value *x)) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = image(n, 8, 3);
    define(n, &x);
    fr_status s = fr_net_end(&n, &x, 1, &m);
    cr_expect_null(m);
    return s;
}

static void twice_the_same_name(fr_net *n, fr_value *x) {
    *x = fr_net_relu(n, "a", fr_net_relu(n, "a", *x));
}
static void no_such_layer(fr_net *n, fr_value *x) {
    fr_net_again(n, "a.b", x, 1, x, 1);
}
static void open_scope(fr_net *n, fr_value *x) {
    (void)x;
    fr_net_scope_begin(n, "left.%s", "open");
}
static void late_input(fr_net *n, fr_value *x) {
    *x = fr_net_relu(n, NULL, *x);
    (void)image(n, 8, 3);
}
static void no_result(fr_net *n, fr_value *x) {
    (void)n;
    x->id = 7;
}
static void no_layer(fr_net *n, fr_value *x) {
    (void)n, (void)x;
}

Test(net, refusals) {
    expect_refused(refused(twice_the_same_name), FR_EINVAL, "'a'", "already", NULL);
    expect_refused(refused(no_such_layer), FR_EINVAL, "'a.b'", "no layer", NULL);
    expect_refused(refused(open_scope), FR_EINVAL, "left.open", "fr_net_scope_end", NULL);
    expect_refused(refused(late_input), FR_EINVAL, "input", "after a layer", NULL);
    expect_refused(refused(no_result), FR_EINVAL, "result 0", "not a value", NULL);
    expect_refused(refused(no_layer), FR_EINVAL, "network", "no layer", NULL);
}

static void count_event(void *ctx, const fr_event *e) {
    *(int *)ctx += e->device == FR_META;
}
static void count_call(void *ctx, const fri_kernel_call *c) {
    (void)c;
    ++*(int *)ctx;
}

/* Parameters are on the device; a shape run leaves no events. */
Test(net, a_shape_run_leaves_no_trace) {
    int events = 0, calls = 0;
    fr_memory_stats t, before;
    must(fr_memory_stats_get(FR_META, &before));
    must(fr_event_subscribe(count_event, &events));
    fri_call_listener was = fri_meta_listen((fri_call_listener){count_call, &calls});
    fr_graph_stats graph = fr_graph_stats_get();
    fr_module *m = residual_net();
    fr_event_unsubscribe(count_event, &events);
    (void)fri_meta_listen(was);
    must(fr_memory_stats_get(FR_META, &t));
    cr_expect_eq(memcmp(&t, &before, sizeof t), 0, "memory of meta is counted");
    cr_expect_eq(events, 0);
    cr_expect_eq(calls, 0);
    cr_expect_eq(fr_graph_stats_get().nodes, graph.nodes);
    double *batches = values_of(fr_module_tensor(fr_module_find(m, "layer1.0.part0.bn"), "num_batches_tracked"));
    cr_expect_eq(batches[0], 0);
    cr_expect(fr_module_training(fr_module_find(m, "layer1.0.part0.bn")));
    free(batches);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- running -------------------------------------------------------------------------------------------------- */

/* The list's forward is that of its ops; every kernel for a sum and a relu is in a batch norm's pass or not, the bits
 * are the same. */
Test(net, equals_its_ops_written_by_hand) {
    fr_module *m = residual_net(), *b = fr_module_find(m, "layer1.0");
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL, *h = NULL, *skip = NULL;
    must(fr_module_forward(fr_module_find(m, "stem"), x, &skip));
    must(fr_module_forward(fr_module_find(b, "part0.conv"), skip, &h));
    must(fr_module_forward(fr_module_find(b, "part0.bn"), h, &h));
    must(fr_relu(h, &h));
    must(fr_module_forward(fr_module_find(b, "part1.conv"), h, &h));
    must(fr_module_forward(fr_module_find(b, "part1.bn"), h, &h));
    must(fr_add(h, skip, &h));
    must(fr_relu(h, &h));
    must(fr_adaptive_avgpool2d(h, 2, 2, &h));
    must(fr_flatten(h, 1, &h));
    must(fr_module_forward(fr_module_find(m, "head"), h, &h));
    must(fr_module_forward(m, x, &y));
    expect_same_values(y, h, "the network");
    RELEASE_ALL(&x, &y, &h, &skip);
    fr_module_release(&m);
    expect_nothing_left();
}

static void gradient(fr_module *m, const fr_unit_plan *plan, fr_tensor *x, double **dw) {
    fr_tensor *y = NULL;
    must(plan == NULL ? fr_module_forward(m, x, &y) : fr_checkpoint_plan(m, plan, x, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    *dw = values_of(fr_tensor_get_grad(fr_module_tensor(fr_module_find(m, "stem"), "weight")));
    fr_module_zero_grad(m);
    fr_tensor_release(&y);
}

/* Every cut, also within the block, where two values are handed on. */
Test(net, may_be_cut_between_any_two_layers) {
    fr_module *m = residual_net();
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3});
    const size_t bytes = 6 * 27 * sizeof(double);
    double *plain = NULL, *cut = NULL;
    gradient(m, NULL, x, &plain);
    for (int at = 1; at < fr_module_layers(m); at++) {
        const int first[] = {0, at};
        const fr_unit_range range[] = {{0, 1}, {1, 2}};
        uint64_t before = fr_graph_stats_get().recomputed_segments;
        gradient(m, &(fr_unit_plan){.units = 2, .ranges = 2, .range = range, .first = first}, x, &cut);
        cr_expect_eq(memcmp(plain, cut, bytes), 0, "cut before layer %d: another gradient", at);
        cr_expect_geq(fr_graph_stats_get().recomputed_segments, before + 1, "cut before layer %d", at);
        free(cut);
    }
    free(plain);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(net, plans_that_do_not_fit_the_list_are_refused) {
    fr_module *m = residual_net(), *two = two_results();
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL;
    const fr_unit_plan late = {.units = 1, .first = (const int[]){1}}, one = {.units = 1, .first = (const int[]){0}};
    expect_refused(fr_checkpoint_plan(m, &late, x, &y), FR_EINVAL, "unit 0", "layer 1", y);
    const fr_unit_plan none = {.units = 1,
                               .first = (const int[]){0},
                               .option = (const fr_unit_option[]){FR_UNIT_OPTIONS}};
    expect_refused(fr_checkpoint_plan(m, &none, x, &y), FR_EINVAL, "unit 0", "option 7", y);
    const fr_unit_plan empty = {.units = 0, .first = (const int[]){0}};
    expect_refused(fr_checkpoint_plan(m, &empty, x, &y), FR_EINVAL, "0 units", "at least 1", y);
    expect_refused(fr_checkpoint_plan(two, &one, x, &y), FR_EINVAL, "2 inputs", "1 is needed", y);
    fr_tensor_release(&x);
    fr_module_release(&m);
    fr_module_release(&two);
    expect_nothing_left();
}

Test(net, a_plan_leaves_the_switches_as_they_were) {
    fr_module *m = residual_net();
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL;
    const fr_switches before = fr_switches_get();
    const fr_unit_plan keep = {.units = 1, .first = (const int[]){0}, .option = (const fr_unit_option[]){FR_UNIT_KEEP}};
    must(fr_checkpoint_plan(m, &keep, x, &y));
    cr_expect(before.encode && fr_switches_get().encode, "encode stays off behind the plan");
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(net, without_borders_the_narrowest_cuts_are_the_units) {
    int first[16];
    fr_net *n = fr_net_begin(FR_META);
    fr_value a = image(n, 4, 3), b = fr_net_conv2d(n, "b", a, 3, 1, NULL, FR_BIAS), c = a, all[3];
    for (int i = 0; i < 3; i++)
        c = fr_net_conv2d(n, NULL, c, 3, 1, NULL, FR_BIAS); /* a, b and c, then b and c, alive */
    all[0] = b;
    all[1] = c;
    fr_module *m = end(n, fr_net_concat(n, "all", all, 2));
    int units = fr_module_units(m, first, 16);
    cr_assert_eq(units, 5, "%d units", units);
    for (int i = 0; i < units; i++) cr_expect_eq(first[i], i);
    fr_module_release(&m);
}

/* A single border is too few for segments. */
Test(net, with_a_single_border_the_narrowest_cuts_are_units_too) {
    int first[8];
    fr_net *n = fr_net_begin(FR_META);
    fr_value x = fr_net_conv2d(n, "stem", image(n, 4, 3), 3, 1, NULL, FR_BIAS), y = x;
    for (int i = 0; i < 2; i++) y = fr_net_conv2d(n, NULL, y, 3, 1, NULL, FR_BIAS);
    fr_module *m = end(n, fr_net_concat(n, "both", (fr_value[]){x, y}, 2));
    cr_expect_eq(fr_module_units(m, first, 8), 4);
    fr_module_release(&m);
}

/* The node carries the path of the first layer. */
Test(net, a_fused_call_is_one_node) {
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_batchnorm2d(n, "bn", fr_net_conv2d(n, "conv", image(n, 4, 3), 3, 1, NULL, FR_BIAS), NULL);
    fr_module *m = end(n, fr_net_relu(n, "relu", v));
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 4, 4, 3}), *y = NULL;
    must(fr_module_forward(m, x, &y));
    cr_expect_str_eq(fri_node_of(y)->module, "bn");
    cr_expect_str_eq(fri_node_of(y)->edges[0].node->module, "conv");
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Values that no layer reads die at once, and a checkpoint's inputs with their last reader: two maps at most, here. */
Test(net, nothing_outlives_its_last_reader) {
    enum { MAP = 64 * 64 * 4 * 4 };
    const int first[] = {0, 1, 2, 3};
    const fr_unit_range range[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}};
    const fr_unit_plan plan = {.units = 4, .ranges = 4, .range = range, .first = first};
    fr_memory_stats before, t;
    fr_tensor *x = NULL, *y = NULL;
    fr_net *n = fr_net_begin(FR_META);
    fr_value v = image(n, 64, 4), unread = fr_net_maxpool2d(n, "unread", v, 1, NULL);
    (void)unread;
    for (int i = 0; i < 3; i++) v = fr_net_maxpool2d(n, NULL, v, 1, NULL);
    fr_module *m = end(n, v);
    must(fr_tensor_empty(4, (int64_t[]){1, 64, 64, 4}, FR_F32, FR_META, &x));
    for (int cut = 0; cut < 2; cut++) {
        must(fr_memory_reset_peak(FR_META));
        must(fr_memory_stats_get(FR_META, &before));
        must(cut ? fr_checkpoint_plan(m, &plan, x, &y) : fr_module_forward(m, x, &y));
        must(fr_memory_stats_get(FR_META, &t));
        cr_expect_eq(t.peak_requested - before.requested, 2u * MAP, "%s: %zu", cut ? "cut" : "plain",
                     t.peak_requested - before.requested);
        fr_tensor_release(&y);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
}

/* ---- several inputs and results, sharing ---------------------------------------------------------------------- */

Test(net, several_inputs_and_results) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value a = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4}), b = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4});
    const fr_value out[] = {fr_net_mul(n, "product", a, b), fr_net_add(n, "sum", a, b)};
    must(fr_net_end(&n, out, 2, &m));
    fr_tensor *x[2] = {uniform_tensor(2, (int64_t[]){3, 4}), uniform_tensor(2, (int64_t[]){3, 4})}, *y[2] = {NULL},
              *want = NULL;
    must(fr_module_forward_n(m, x, 2, y, 2));
    must(fr_mul(x[0], x[1], &want));
    expect_same_values(y[0], want, "product");
    must(fr_add(x[0], x[1], &want));
    expect_same_values(y[1], want, "sum: the inputs are the caller's, nothing may be written over them");
    expect_refused(fr_module_forward(m, x[0], &y[0]), FR_EINVAL, "1 inputs", "2 inputs", NULL);
    expect_refused(fr_module_forward_n(m, x, 2, y, 3), FR_EINVAL, "3 results", "2 results", NULL);
    for (int i = 0; i < 2; i++) {
        fr_tensor_release(&x[i]);
        fr_tensor_release(&y[i]);
    }
    fr_tensor_release(&want);
    fr_module_release(&m);
    expect_nothing_left();
}

static fr_status count_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path, (void)t, (void)is_parameter;
    ++*(int *)ctx;
    return FR_OK;
}

Test(net, a_layer_that_runs_again_has_its_parameters_once) {
    int tensors = 0;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4});
    fr_net_scope_begin(n, "shared");
    v = fr_net_linear(n, "fc", v, 4, FR_BIAS);
    fr_net_again(n, "fc", &v, 1, &v, 1);
    fr_net_scope_end(n);
    fr_module *m = end(n, v), *fc = fr_module_find(m, "shared.fc");
    fr_tensor *x = uniform_tensor(2, (int64_t[]){2, 4}), *y = NULL, *want = NULL;
    must(fr_module_each_tensor(m, count_tensor, &tensors));
    cr_expect_eq(tensors, 2);
    must(fr_module_forward(m, x, &y));
    must(fr_module_forward(fc, x, &want));
    must(fr_module_forward(fc, want, &want));
    expect_same_values(y, want, "twice the layer");
    RELEASE_ALL(&x, &y, &want);
    fr_module_release(&m);
    expect_nothing_left();
}

/* The layers of an inner network are layers of the outer: found, cut and replaced like its own. */
Test(net, a_network_may_be_a_layer) {
    fr_module *inner = residual_net(), *kept = fr_module_retain(inner), *fresh = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = image(n, 8, 3);
    fr_net_module(n, "body", &inner, &v, 1, &v, 1);
    fr_module *m = end(n, fr_net_relu(n, "last", v));
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL, *want = NULL;
    cr_expect_eq(fr_module_layers(m), 12);
    cr_expect_not_null(fr_module_find(m, "body.layer1.0.part0.conv"));
    must(fr_module_forward(m, x, &y));
    must(fr_module_forward(kept, x, &want));
    must(fr_relu(want, &want));
    expect_same_values(y, want, "the network within");
    fr_tensor_release(&y);
    fr_tensor_release(&want);
    must(fri_nn_linear(24, 5, true, test_device(), &fresh));
    must(fr_module_replace(m, "body.head", &fresh));
    must(fr_module_forward(m, x, &y));
    must(fr_module_forward(kept, x, &want));
    cr_expect(fr_tensor_dim(y, 1) == 5 && fr_tensor_dim(want, 1) == 5, "both lists run the new layer");
    RELEASE_ALL(&x, &y, &want);
    fr_module_release(&kept);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Each result of the inner network is a result of its own, also in a second run; asking for more results is
 * refused. */
Test(net, a_network_with_several_results_may_be_a_layer) {
    fr_module *inner = two_results(), *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v[2] = {fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4}), fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4})};
    fr_net_module(n, "pair", &inner, v, 2, v, 2);
    fr_net_again(n, "pair", v, 2, v, 2);
    must(fr_net_end(&n, v, 2, &m));
    cr_expect_eq(fr_module_layers(m), 4, "the second run is two layers, as the first");
    fr_tensor *x[2] = {uniform_tensor(2, (int64_t[]){3, 4}), uniform_tensor(2, (int64_t[]){3, 4})}, *y[2] = {NULL},
              *h[2] = {NULL}, *want = NULL;
    must(fr_module_forward_n(m, x, 2, y, 2));
    must(fr_mul(x[0], x[1], &h[0]));
    must(fr_add(x[0], x[1], &h[1]));
    must(fr_mul(h[0], h[1], &want));
    expect_same_values(y[0], want, "product");
    must(fr_add(h[0], h[1], &want));
    expect_same_values(y[1], want, "sum");
    for (int i = 0; i < 2; i++) {
        fr_tensor_release(&x[i]);
        fr_tensor_release(&y[i]);
        fr_tensor_release(&h[i]);
    }
    fr_tensor_release(&want);
    fr_module_release(&m);
    inner = two_results();
    n = fr_net_begin(test_device());
    fr_value in[2], out[3];
    for (int i = 0; i < 2; i++) in[i] = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 4});
    fr_net_module(n, "pair", &inner, in, 2, out, 3);
    expect_refused(fr_net_end(&n, out, 1, &m), FR_EINVAL, "3 results", "2 results", NULL);
    expect_nothing_left();
}

/* A value read twice by a layer has two readers: neither the call nor a fused call may take the value away. */
Test(net, a_layer_may_read_a_value_twice) {
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_batchnorm2d(n, "bn", image(n, 4, 3), NULL);
    fr_module *m = end(n, fr_net_relu(n, "relu", fr_net_add(n, "double", v, v)));
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 4, 4, 3}), *y = NULL, *h = NULL, *want = NULL;
    must(fr_module_forward(fr_module_find(m, "bn"), x, &h));
    must(fr_add(h, h, &want));
    must(fr_relu(want, &want));
    must(fr_module_forward(m, x, &y));
    expect_same_values(y, want, "the norm, doubled");
    RELEASE_ALL(&x, &y, &h, &want);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(net, a_name_may_begin_another) {
    fr_net *n = fr_net_begin(FR_META);
    fr_value v = fr_net_relu(n, "layer10", image(n, 4, 3));
    fr_module *m = end(n, fr_net_relu(n, "layer1", v));
    cr_expect(fr_module_child(m, 1) != NULL && fr_module_child(m, 2) == NULL);
    cr_expect_neq(fr_module_find(m, "layer1"), fr_module_find(m, "layer10"));
    cr_expect_null(fr_module_find(m, "layer"));
    fr_module_release(&m);
}

/* More values than fit on the stack of a run; the last value counts. */
Test(net, a_layer_may_read_many_values) {
    enum { MANY = 20 };
    fr_value all[MANY];
    fr_net *n = fr_net_begin(test_device());
    for (int i = 0; i < MANY; i++) all[i] = image(n, 2, 1);
    fr_module *m = end(n, fr_net_concat(n, "all", all, MANY));
    fr_tensor *x[MANY], *y = NULL, *want = NULL;
    for (int i = 0; i < MANY; i++) x[i] = uniform_tensor(4, (int64_t[]){1, 2, 2, 1});
    must(fr_concat(x, MANY, &want));
    must(fr_module_forward_n(m, x, MANY, &y, 1));
    expect_same_values(y, want, "concat");
    for (int i = 0; i < MANY; i++) fr_tensor_release(&x[i]);
    fr_tensor_release(&y);
    fr_tensor_release(&want);
    fr_module_release(&m);
    expect_nothing_left();
}

/* The example's type is the layers' type, not the type of an autocast around the definition, which stays. */
Test(net, autocast_around_a_definition_is_left_alone) {
    fr_autocast_state was;
    must(fr_autocast_begin(FR_BF16, &was));
    fr_module *m = residual_net();
    cr_expect(fri_autocast_get().enabled && fri_autocast_get().dtype == FR_BF16, "the definition ended it");
    for (int i = 0; i < fri_list_edit(m)->values; i++) cr_expect_eq(fri_list_edit(m)->value[i].dtype, FR_F32);
    fr_autocast_end(was);
    fr_module_release(&m);
    expect_nothing_left();
}

static void count_module(void *ctx, const fr_module *m, const fr_tensor *x) {
    (void)m, (void)x;
    ++*(int *)ctx;
}

/* Watches of modules see no shape run of a definition, and see the runs after the definition. */
Test(net, a_watch_survives_a_definition) {
    int seen = 0;
    fri_module_watch was = fri_module_watch_set((fri_module_watch){count_module, &seen});
    fr_module *m = residual_net();
    cr_expect_eq(seen, 0, "%d runs for shapes were told", seen);
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL;
    must(fr_module_forward(m, x, &y));
    cr_expect_eq(seen, 1 + fr_module_layers(m), "%d told", seen);
    (void)fri_module_watch_set(was);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(net, replace_refuses_what_it_cannot_do) {
    fr_module *m = residual_net(), *fresh = NULL;
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *y = NULL;
    must(fri_nn_relu(&fresh));
    expect_refused(fr_module_replace(m, "layer1", &fresh), FR_EINVAL, "'layer1'", "not a layer", NULL);
    cr_expect_null(fresh);
    must(fri_nn_relu(&fresh));
    expect_refused(fr_module_replace(m, "layer9", &fresh), FR_EINVAL, "'layer9'", "no layer", NULL);
    must(fr_module_forward(m, x, &y));
    must(fri_nn_relu(&fresh));
    expect_refused(fr_module_replace(m, "pool", &fresh), FR_EUSAGE, "'pool'", "graph", NULL);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

/* A tap is a reader: a fused call makes the tapped value too, and all bits stay. */
Test(net, a_tapped_layer_is_a_further_result) {
    fr_module *m = residual_net();
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 8, 8, 3}), *plain = NULL, *y[3] = {NULL}, *h = NULL;
    must(fr_module_forward(m, x, &plain));
    must(fr_module_tap(m, "layer1.0.part0.bn"));
    must(fr_module_tap(m, "layer1"));
    must(fr_module_forward_n(m, &x, 1, y, 3));
    expect_same_values(y[0], plain, "the result");
    must(fr_module_forward(fr_module_find(m, "stem"), x, &h));
    must(fr_module_forward(fr_module_find(m, "layer1.0.part0.conv"), h, &h));
    must(fr_module_forward(fr_module_find(m, "layer1.0.part0.bn"), h, &h));
    expect_same_values(y[1], h, "the norm before its relu");
    double *v = values_of(y[2]);
    for (int64_t i = 0; i < fr_tensor_numel(y[2]); i++) cr_assert(v[i] >= 0, "the last layer below layer1 is a relu");
    free(v);
    expect_refused(fr_module_tap(m, "layer2"), FR_EINVAL, "'layer2'", "no layer", NULL);
    for (int i = 0; i < 3; i++) fr_tensor_release(&y[i]);
    RELEASE_ALL(&plain, &h, &x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Prefixes stand where children stood. */
Test(net, modes_and_types_go_by_prefix) {
    fr_module *m = residual_net();
    fr_module_train(fr_module_find(m, "layer1.0.part0"), false);
    cr_expect(!fr_module_training(fr_module_find(m, "layer1.0.part0.bn")));
    cr_expect(fr_module_training(fr_module_find(m, "layer1.0.part1.bn")));
    must(fr_module_to_dtype(fr_module_find(m, "layer1"), FR_BF16));
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(fr_module_find(m, "layer1.0.part1.conv"), "weight")), FR_BF16);
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(fr_module_find(m, "layer1.0.part1.bn"), "weight")), FR_F32);
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(fr_module_find(m, "stem"), "weight")), FR_F32);
    fr_module_release(&m);
    expect_nothing_left();
}
