/* test_freeze.c - frozen parts have no gradient, keep no tensors, cost no state and do not change. */
#include <criterion/criterion.h>
#include <frugal/io.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <frugal/optim.h>
#include <stdio.h>
#include <string.h>

#include "io/support.h"
#include "net/module.h"
#include "optim/optimizer.h"
#include "support/golden.h"

/* ---- names ------------------------------------------------------------------------------------------------------ */

static fr_module *resnet(int depth, int64_t classes) {
    fr_module *m = NULL;
    must(fr_resnet(depth, FR_MODEL_OPTS(.device = FR_META, .classes = classes), &m));
    return m;
}

static fr_status count_below(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const char *const *prefix = ctx;
    const size_t n = strlen(*prefix);
    const bool below = n == 0 || (strncmp(path, *prefix, n) == 0 && (path[n] == '.' || path[n] == '\0'));
    if (is_parameter) cr_expect_eq(fr_tensor_requires_grad(t), !below, "'%s': %s", *prefix, path);
    return FR_OK;
}

Test(freeze, a_prefix_names_a_layer_a_stage_a_parameter_or_all) {
    static const struct {
        const char *prefix, *means;
        int64_t elements;
    } cases[] = {{"fc", "fc", 513000},
                 {"fc.", "fc", 513000},
                 {"fc.bias", "fc.bias", 1000},
                 {"layer1", "layer1", 147968},
                 {"layer1.0", "layer1.0", 73984},
                 {"layer1.0.bn1", "layer1.0.bn1", 128},
                 {"layer1.0.bn1.weight", "layer1.0.bn1.weight", 64},
                 {"", "", 11689512},
                 {NULL, "", 11689512}};
    fr_module *m = resnet(18, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *means = cases[i].means;
        must(fr_module_freeze(m, cases[i].prefix, true));
        cr_expect_eq(fr_module_trained_count(m), 11689512 - cases[i].elements, "%s: %lld elements train",
                     cases[i].prefix, (long long)fr_module_trained_count(m));
        must(fr_module_each_tensor(m, count_below, &means));
        must(fr_module_freeze(m, cases[i].prefix, false));
        cr_expect_eq(fr_module_trained_count(m), 11689512);
    }
    fr_module_release(&m);
}

Test(freeze, an_unknown_prefix_is_refused_with_near_names) {
    fr_module *m = resnet(18, 10);
    expect_refused(fr_module_freeze(m, "layer1.0.bn3", true), FR_EINVAL, "'layer1.0.bn3'", "layer1.0.bn1", NULL);
    expect_refused(fr_module_freeze(m, "layer", true), FR_EINVAL, "'layer'", "layer1", NULL);
    expect_refused(fr_module_freeze(m, "fc.weights", false), FR_EINVAL, "near it", "fc.weight", NULL);
    expect_refused(fr_module_freeze(m, "bn1.running_mean", true), FR_EINVAL, "near it", "bn1", NULL);
    cr_expect_eq(fr_module_trained_count(m), fr_module_parameter_count(m));
    fr_module_release(&m);
}

/* ---- unchanged state ----------------------------------------------------------------------------------------- */

/* conv, norm, relu, conv, norm, pool, linear, on the test's device, with statistics as after a training. */
static fr_module *net(void) {
    fr_net *n = fr_net_begin(test_device());
    fr_module *m = NULL;
    fr_seed(5);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, 8, 6, 3});
    x = fr_net_conv2d(n, "conv1", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, "relu", fr_net_batchnorm2d(n, "bn1", x, NULL));
    x = fr_net_conv2d(n, "conv2", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_adaptive_avgpool2d(n, "pool", fr_net_batchnorm2d(n, "bn2", x, NULL), 1, 1);
    x = fr_net_linear(n, "fc", fr_net_flatten(n, "flatten", x, 1), 5, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    for (int i = 1; i <= 2; i++) {
        fr_module *bn = fr_module_find(m, i == 1 ? "bn1" : "bn2");
        must(fr_init_uniform(fr_module_tensor(bn, "running_mean"), -0.3, 0.3));
        must(fr_init_uniform(fr_module_tensor(bn, "running_var"), 0.5, 2));
        must(fr_init_uniform(fr_module_tensor(bn, "weight"), 0.5, 1.5));
    }
    return m;
}

static fr_tensor *tensor_at(fr_module *m, const char *layer, const char *name) {
    return fr_module_tensor(fr_module_find(m, layer), name);
}

/* A forward and backward; the loss is the sum of squares. */
static void forward_backward(fr_module *m, fr_dtype dtype, uint64_t seed, fr_tensor **y) {
    fr_tensor *x = NULL, *loss = NULL;
    fr_seed(seed);
    must(fr_tensor_uniform(4, (int64_t[]){2, 8, 6, 3}, -1, 1, FR_F32, test_device(), &x));
    must(fr_cast(x, dtype, &x));
    must(fr_module_forward(m, x, y));
    fr_tensor_release(&x);
    must(fr_mul(*y, *y, &loss));
    must(fr_sum(loss, &loss));
    must(fr_backward(loss, NULL));
    fr_tensor_release(&loss);
}

static void expect_same(fr_tensor *a, fr_tensor *b, const char *what) {
    cr_assert_eq(fr_tensor_nbytes(a), fr_tensor_nbytes(b));
    cr_expect_eq(memcmp(host_of(a), host_of(b), fr_tensor_nbytes(a)), 0, "%s differs", what);
}

/* Frozen batch norms give the bits of eval mode, in the result and in every gradient, fused with relu and alone. */
Test(freeze, a_frozen_batch_norm_uses_its_running_values) {
    for (int inplace = 0; inplace < 2; inplace++) {
        fr_module *frozen = net(), *eval = net();
        fr_tensor *y[2] = {NULL};
        fr_switches s = fr_switches_default();
        s.inplace = inplace;
        fr_switches_set(s);
        for (int i = 1; i <= 2; i++) {
            const char *bn = i == 1 ? "bn1" : "bn2";
            must(fr_module_freeze(frozen, bn, true));
            must(fr_tensor_set_requires_grad(tensor_at(eval, bn, "weight"), false));
            must(fr_tensor_set_requires_grad(tensor_at(eval, bn, "bias"), false));
            fr_module_train(fr_module_find(eval, bn), false);
        }
        fr_module_train(frozen, false);
        fr_module_train(frozen, true);
        forward_backward(frozen, FR_F32, 9, &y[0]);
        forward_backward(eval, FR_F32, 9, &y[1]);
        expect_same(y[0], y[1], "the result");
        expect_same(fr_tensor_get_grad(tensor_at(frozen, "conv1", "weight")),
                    fr_tensor_get_grad(tensor_at(eval, "conv1", "weight")), "conv1's gradient");
        expect_same(tensor_at(frozen, "bn1", "running_mean"), tensor_at(eval, "bn1", "running_mean"), "the mean");
        cr_expect_null(fr_tensor_get_grad(tensor_at(frozen, "bn1", "weight")));
        cr_expect(fr_module_training(fr_module_find(frozen, "bn1")), "freezing is no mode");
        for (int k = 0; k < 2; k++) fr_tensor_release(&y[k]);
        fr_module_release(&frozen);
        fr_module_release(&eval);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* A layer frozen by name uses its running values, whichever of its parameters train; freezing a parameter by name
 * does not. */
Test(freeze, only_a_layers_name_stops_its_statistics) {
    static const struct {
        const char *first, *second;
        bool second_on, moves;
    } cases[] = {{"bn1.weight", "bn1.bias", true, true},
                 {"bn1", "bn1.weight", false, false},
                 {"bn1", "bn1.bias", false, false},
                 {"", "bn1", false, true},
                 {"", "conv1", false, false},
                 {"conv1", "fc", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_module *m = net(), *same = net();
        fr_tensor *y = NULL;
        int64_t batches = -1;
        must(fr_module_freeze(m, cases[i].first, true));
        must(fr_module_freeze(m, cases[i].second, cases[i].second_on));
        forward_backward(m, FR_F32, 2, &y);
        const bool moved =
            memcmp(host_of(tensor_at(m, "bn1", "running_mean")), host_of(tensor_at(same, "bn1", "running_mean")), 32);
        must(fr_tensor_to_host(tensor_at(m, "bn1", "num_batches_tracked"), &batches));
        cr_expect_eq(moved, cases[i].moves, "case %zu: the mean %s", i, moved ? "moved" : "stayed");
        cr_expect_eq(batches, cases[i].moves, "case %zu: %lld batches", i, (long long)batches);
        fr_tensor_release(&y);
        fr_module_release(&m);
        fr_module_release(&same);
    }
    expect_nothing_left();
}

Test(freeze, conversion_and_evaluation_leave_it) {
    fr_module *m = net(), *same = net();
    fr_optimizer *o = NULL;
    fr_tensor *y = NULL;
    must(fr_module_freeze(m, "conv1", true));
    must(fr_module_freeze(m, "bn1", true));
    fr_module_evaluation_begin(m);
    fr_module_evaluation_end(m);
    must(fr_module_to_dtype(m, FR_BF16));
    must(fr_module_to_dtype(m, FR_F32));
    must(fr_module_to_dtype(m, FR_BF16));
    must(fr_sgd(m, NULL, &o));
    must(fr_optimizer_fuse(o, true));
    must(fr_optimizer_fuse(o, false));
    forward_backward(m, FR_BF16, 2, &y);
    cr_expect_null(fr_tensor_get_grad(tensor_at(m, "conv1", "weight")));
    cr_expect_not_null(fr_tensor_get_grad(tensor_at(m, "conv2", "weight")));
    expect_same(tensor_at(m, "bn1", "running_var"), tensor_at(same, "bn1", "running_var"), "the variance");
    must(fr_module_freeze(m, NULL, false));
    forward_backward(m, FR_BF16, 2, &y);
    cr_expect_not_null(fr_tensor_get_grad(tensor_at(m, "conv1", "weight")));
    fr_optimizer_release(&o);
    fr_tensor_release(&y);
    fr_module_release(&m);
    fr_module_release(&same);
    expect_nothing_left();
}

Test(freeze, a_gradient_dies_and_a_graph_forbids_it) {
    fr_module *m = net();
    fr_tensor *x = NULL, *y = NULL;
    forward_backward(m, FR_F32, 1, &y);
    must(fr_module_freeze(m, "conv1", true));
    must(fr_module_freeze(m, "conv1", false));
    cr_expect_null(fr_tensor_get_grad(tensor_at(m, "conv1", "weight")), "a gradient outlives the freezing");
    must(fr_tensor_uniform(4, (int64_t[]){2, 8, 6, 3}, -1, 1, FR_F32, test_device(), &x));
    must(fr_module_freeze(m, "conv2", true));
    must(fr_module_forward(m, x, &y));
    expect_refused(fr_module_freeze(m, "conv1", true), FR_EUSAGE, "graph", "weight", NULL);
    expect_refused(fr_module_freeze(m, "", true), FR_EUSAGE, "graph", "weight", NULL);
    cr_expect(fr_tensor_requires_grad(tensor_at(m, "fc", "weight")), "half of it is frozen");
    must(fr_module_freeze(m, "conv2", true)); /* the graph does not lead to conv2 */
    fr_tensor_release(&y);
    must(fr_module_freeze(m, "", true));
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static fr_status thaw_bias(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const size_t n = strlen(path);
    (void)t;
    return is_parameter && strcmp(path + n - 5, ".bias") == 0 ? fr_module_freeze(ctx, path, false) : FR_OK;
}

static fr_status freeze_norm(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    char layer[256];
    (void)t;
    (void)is_parameter;
    snprintf(layer, sizeof layer, "%s", path);
    char *name = strstr(layer, ".running_mean");
    if (name == NULL) return FR_OK;
    *name = '\0';
    return fr_module_freeze(ctx, layer, true);
}

static fr_status momentum_bytes(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (is_parameter && fr_tensor_requires_grad(t)) *(size_t *)ctx += (fr_tensor_nbytes(t) + 511) / 512 * 512;
    return FR_OK;
}

/* The second step of ResNet-50, batch 64, 224 px: bytes saved when backward begins, and the optimizer's state. */
static size_t saved_by_resnet50(fr_module *m) {
    fr_optimizer *o = NULL;
    fr_memory_stats stats;
    size_t saved = 0, state = 0;
    must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
    for (int i = 0; i < 2; i++) {
        fr_tensor *x = NULL, *target = NULL, *loss = NULL;
        must(fr_tensor_empty(4, (int64_t[]){64, 224, 224, 3}, FR_F32, FR_META, &x));
        must(fr_tensor_empty(1, (int64_t[]){64}, FR_I64, FR_META, &target));
        must(fr_module_forward(m, x, &x));
        must(fr_cross_entropy(x, target, NULL, &loss));
        fr_tensor_release(&x);
        must(fr_memory_stats_get(FR_META, &stats));
        saved = stats.requested_by[FR_MEM_ACTIVATION];
        must(fr_backward(loss, NULL));
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        fr_tensor_release(&loss);
        fr_tensor_release(&target);
    }
    must(fr_memory_stats_get(FR_META, &stats));
    must(fr_module_each_tensor(m, momentum_bytes, &state));
    cr_expect_eq(stats.requested_by[FR_MEM_OPTIMIZER], state, "state of %zu bytes, not %zu",
                 stats.requested_by[FR_MEM_OPTIMIZER], state);
    fr_optimizer_release(&o);
    return saved;
}

/* PyTorch's saved-tensor hooks count 5,468,334,084, 2,661,583,108 and 780,804 bytes. */
Test(freeze, resnet50_keeps_what_its_trained_parts_need) {
    fr_module *m = resnet(50, 1000);
    must(fr_module_freeze(m, "", true));
    must(fr_module_each_tensor(m, thaw_bias, m));
    must(fr_module_freeze(m, "fc", false));
    cr_expect_eq(saved_by_resnet50(m), 84290048u, "biases and fc: %zu", saved_by_resnet50(m));
    must(fr_module_freeze(m, "", false));
    must(fr_module_each_tensor(m, freeze_norm, m));
    cr_expect_eq(saved_by_resnet50(m), 2333178368u, "frozen norms: %zu", saved_by_resnet50(m));
    must(fr_module_freeze(m, "", true));
    must(fr_module_freeze(m, "fc", false));
    cr_expect_eq(saved_by_resnet50(m), 781824u, "head only: %zu", saved_by_resnet50(m));
    fr_module_release(&m);
}

/* ---- optimizers ------------------------------------------------------------------------------------------------- */

static size_t state_bytes(void) {
    fr_memory_stats stats;
    must(fr_memory_stats_get(test_device(), &stats));
    return stats.requested_by[FR_MEM_OPTIMIZER];
}

static fr_status make_sgd(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.003, .momentum = 0.9, .dampening = 0.5), o);
}
static fr_status make_adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, NULL, o);
}
static fr_status make_adam8(fr_module *m, fr_optimizer **o) {
    return fr_adam8(m, NULL, o);
}
static fr_status make_rmsprop(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 0.003), o);
}
static const struct {
    const char *name;
    fr_status (*make)(fr_module *m, fr_optimizer **o);
    size_t counts, per_parameter; /* bytes */
} optimizers[] = {{"sgd", make_sgd, 0, 512},
                  {"adam", make_adam, 512, 1024},
                  {"adam8", make_adam8, 2560, 1024},
                  {"rmsprop", make_rmsprop, 0, 512}};

enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static fr_module *two_linears(void) {
    fr_net *n = fr_net_begin(test_device());
    fr_module *m = NULL;
    fr_seed(8);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){4, 6});
    x = fr_net_linear(n, "b", fr_net_linear(n, "a", x, 6, FR_NO_BIAS), 3, FR_NO_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static void one_step(fr_module *m, fr_optimizer *o, uint64_t seed) {
    fr_tensor *x = NULL;
    fr_step_scope scope;
    fr_seed(seed);
    must(fr_step_begin(&scope));
    must(fr_tensor_uniform(2, (int64_t[]){4, 6}, -1, 1, FR_F32, test_device(), &x));
    must(fr_module_forward(m, x, &x));
    must(fr_sum(x, &x));
    must(fr_backward(x, NULL));
    fr_tensor_release(&x);
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    must(fr_step_end(&scope));
}

static void copy_to(fr_module *from, fr_module *to, const char *layer) {
    host_to(tensor_at(to, layer, "weight"), host_of(tensor_at(from, layer, "weight")));
}

/* b took part in all steps, so no parameter needs its own count. */
static fr_status no_count(void *ctx, const char *name, fr_tensor *t) {
    (void)t;
    cr_expect_null(strstr(name, ".step"), "%s: %s", (const char *)ctx, name);
    return FR_OK;
}

/* Frozen: no state. Frozen later: its state goes. Training again: as a parameter of a new optimizer. */
Test(freeze, an_optimizer_keeps_state_for_what_trains) {
    for (int i = 0; i < OPTIMIZERS; i++)
        for (int fused = 0; fused < 2; fused++) {
            const char *name = optimizers[i].name;
            const size_t shared = optimizers[i].counts, each = optimizers[i].per_parameter;
            fr_module *m = two_linears(), *fresh = two_linears();
            fr_optimizer *o = NULL, *of_fresh = NULL;
            must(fr_module_freeze(m, "a", true));
            must(optimizers[i].make(m, &o));
            must(fr_optimizer_fuse(o, fused));
            for (int k = 0; k < 3; k++) one_step(m, o, 1);
            cr_expect_eq(state_bytes(), shared + each, "%s: %zu bytes for b", name, state_bytes());
            must(fr_module_freeze(m, "a", false));
            one_step(m, o, 1);
            cr_expect_eq(state_bytes(), shared + 2 * each, "%s: %zu bytes for both", name, state_bytes());
            must(fr_module_freeze(m, "a", true));
            one_step(m, o, 1);
            cr_expect_eq(state_bytes(), shared + each, "%s: %zu bytes after freezing a", name, state_bytes());
            must(fri_optimizer_each_state(o, no_count, (void *)(uintptr_t)name));
            must(fr_module_freeze(m, "a", false));
            for (int k = 0; k < 2; k++) copy_to(m, fresh, k == 0 ? "a" : "b");
            must(optimizers[i].make(fresh, &of_fresh));
            must(fr_module_freeze(fresh, "b", true));
            must(fr_module_freeze(m, "b", true));
            for (int k = 0; k < 3; k++) {
                one_step(m, o, 2 + (uint64_t)k);
                one_step(fresh, of_fresh, 2 + (uint64_t)k);
            }
            expect_same(tensor_at(m, "a", "weight"), tensor_at(fresh, "a", "weight"), name);
            expect_same(tensor_at(m, "b", "weight"), tensor_at(fresh, "b", "weight"), name);
            fr_optimizer_release(&o);
            fr_optimizer_release(&of_fresh);
            fr_module_release(&m);
            fr_module_release(&fresh);
        }
    expect_nothing_left();
}

static fr_status zero(void *ctx, const char *name, fr_tensor *t) {
    (void)ctx;
    (void)name;
    return fr_tensor_fill(t, 0);
}

Test(freeze, a_state_gives_a_frozen_parameter_none) {
    for (int i = 0; i < OPTIMIZERS; i++) {
        fr_module *m = two_linears();
        fr_optimizer *o = NULL;
        must(optimizers[i].make(m, &o));
        must(fr_module_freeze(m, "a", true));
        must(fri_optimizer_set_state(o, 0, zero, NULL));
        cr_expect_eq(state_bytes(), optimizers[i].per_parameter, "%s: %zu bytes", optimizers[i].name, state_bytes());
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* ---- 100 steps, saved and resumed ------------------------------------------------------------------------------- */

enum { THAW = 80, END = 100 };

/* Opens a run in half precision; conv1 and bn1 are frozen until step THAW, then conv1 trains. */
static void open_run(int kind, uint64_t step, fr_module **m, fr_optimizer **o) {
    *m = net();
    must(fr_module_to_dtype(*m, FR_BF16));
    must(fr_module_freeze(*m, "conv1", step < THAW));
    must(fr_module_freeze(*m, "bn1", true));
    must(optimizers[kind].make(*m, o));
}

/* Steps first .. END - 1, an evaluation after each tenth; saves before step `save`. */
static void run_on(fr_module *m, fr_optimizer *o, uint64_t first, uint64_t save, char *path) {
    for (uint64_t i = first; i < END; i++) {
        fr_tensor *y = NULL;
        const fr_state state = {.model = m, .optimizer = o, .step = (int64_t)i};
        if (i == save) must(fr_state_save(in_folder("states"), &state, 0, path));
        if (i == THAW) must(fr_module_freeze(m, "conv1", false));
        forward_backward(m, FR_BF16, 100 + i, &y);
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        fr_tensor_release(&y);
        if (i % 10 != 9) continue;
        fr_module_evaluation_begin(m);
        const bool grad = fr_no_grad_begin();
        must(fr_tensor_full(4, (int64_t[]){2, 8, 6, 3}, 0.5, FR_BF16, test_device(), &y));
        must(fr_module_forward(m, y, &y));
        fr_no_grad_end(grad);
        fr_module_evaluation_end(m);
        fr_tensor_release(&y);
    }
}

Test(freeze, frozen_parts_stay_through_evaluations_half_save_and_resume, .init = make_folder, .fini = remove_folder) {
    static const uint64_t saves[] = {50, THAW + 10};
    for (int i = 0; i < 2 * OPTIMIZERS; i++) {
        const uint64_t save = saves[i % 2];
        fr_module *start = NULL, *m = NULL, *resumed = NULL;
        fr_optimizer *of_start = NULL, *o = NULL, *of_resumed = NULL;
        char path[FR_STATE_PATH_BYTES];
        open_run(i / 2, 0, &start, &of_start);
        open_run(i / 2, 0, &m, &o);
        run_on(m, o, 0, save, path);
        open_run(i / 2, save, &resumed, &of_resumed);
        must(fr_init_uniform(tensor_at(resumed, "conv1", "weight"), -1, 1)); /* the state has the weights */
        fr_state state = {.model = resumed, .optimizer = of_resumed};
        must(fr_state_load(path, &state));
        fr_tensor *w[3] = {tensor_at(start, "conv1", "weight"), tensor_at(m, "conv1", "weight"),
                           tensor_at(resumed, "conv1", "weight")};
        if (save < THAW) expect_same(w[0], w[2], "conv1 when it was saved");
        run_on(resumed, of_resumed, save, END, NULL);
        expect_same(w[1], w[2], "conv1 of the resumed run");
        cr_expect_neq(memcmp(host_of(w[0]), host_of(w[1]), fr_tensor_nbytes(w[0])), 0, "what thawed does not train");
        expect_same(tensor_at(m, "fc", "weight"), tensor_at(resumed, "fc", "weight"), "fc of the resumed run");
        static const char *const parts[] = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"};
        for (int k = 0; k < 5; k++) {
            expect_same(tensor_at(start, "bn1", parts[k]), tensor_at(m, "bn1", parts[k]), parts[k]);
            expect_same(tensor_at(start, "bn1", parts[k]), tensor_at(resumed, "bn1", parts[k]), parts[k]);
        }
        fr_optimizer_release(&of_start);
        fr_optimizer_release(&o);
        fr_optimizer_release(&of_resumed);
        fr_module_release(&start);
        fr_module_release(&m);
        fr_module_release(&resumed);
    }
    expect_nothing_left();
}
