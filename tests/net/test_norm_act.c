/* test_norm_act.c - relu?(batch norm(x) + addend) and act(batch norm(x)) as a single call: the bits of the separate
 * ops, at most their bytes, one pass instead of three, and only where no reader can tell (fri_norm_act). */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <math.h>
#include <string.h>

#include "net/layers.h"
#include "backend/backend.h"
#include "net/module.h"
#include "support/golden.h"
#include "support/kernels_run.h"
#include "tensor/tensor.h"

enum { N = 3, H = 5, W = 7, C = 8, COUNT = N * H * W * C };

/* ---- kernels run --------------------------------------------------------------------------------------------- */

static int adds(void) {
    return kernels_run("add");
}

static int relus(void) {
    return kernels_run("relu_forward") + kernels_run("relu6_forward") + kernels_run("hardswish_forward") +
           kernels_run("silu_forward");
}

/* ---- inputs -------------------------------------------------------------------------------------------------- */

/* Both signs, zeros of both signs, subnormals, and with `special` infinities and NaN. */
static fr_tensor *image(fr_dtype t, int seed, bool special) {
    static const float odd[] = {0.0f, -0.0f, 1e-7f, -1e-7f, 6e-8f, -3e-8f, 1e-40f, -1e-40f};
    static const float wild[] = {INFINITY, -INFINITY, NAN, -INFINITY};
    float v[COUNT];
    fr_tensor *f = NULL, *x = NULL;
    for (int i = 0; i < COUNT; i++) v[i] = (float)(((i + seed) * 2654435761u >> 12) % 2001) / 500.0f - 2.0f;
    for (int i = 0; i < 8; i++) v[i * 37 + seed % 5] = odd[i];
    for (int i = 0; special && i < 4; i++) v[i * 101 + 3 * seed] = wild[i];
    must(fr_tensor_from_host(v, 4, (int64_t[]){N, H, W, C}, FR_F32, test_device(), &f));
    must(fr_cast(f, t, &x));
    fr_tensor_release(&f);
    return x;
}

static void expect_equal(const fr_tensor *a, const fr_tensor *b, const char *what) {
    size_t n = fri_nbytes(a);
    char *p = malloc(n), *q = malloc(n);
    cr_assert_eq(n, fri_nbytes(b));
    must(fr_tensor_to_host(a, p));
    must(fr_tensor_to_host(b, q));
    cr_expect_eq(memcmp(p, q, n), 0, "%s differs (%s)", what, fr_dtype_name(a->dtype));
    free(p);
    free(q);
}

/* ---- one call, and the separate ops ------------------------------------------------------------------------------ */

enum { NONE, OTHER, OTHER_CONSTANT, ITSELF, OVER, ADDENDS }; /* a tensor with or without a gradient, x; written over */

typedef struct setting {
    fr_dtype dtype;
    int addend;
    fri_activation act;
    bool fused, eval, no_grad, special;
    bool either; /* OVER: the add's operands are swapped, so its result goes over the norm's */
    fr_switches switches;
} setting;

typedef struct result {
    fr_tensor *y, *grad[4]; /* of x, the addend, gamma, beta; NULL: none */
    size_t peak, allocated; /* by this run */
    uint64_t inplace, nodes;
} result;

static void release(result *r) {
    fr_tensor_release(&r->y);
    for (int i = 0; i < 4; i++) fr_tensor_release(&r->grad[i]);
}

/* Separate calls, equal to the fused call. */
static fr_status separate(fr_module *bn, fr_tensor **addend, bool over, fri_activation act, fr_tensor **x) {
    static fr_status (*const ops[])(fr_tensor *, fr_tensor **) = {NULL, fr_relu, fr_relu6, fr_hardswish, fr_silu};
    fr_status s = FR_OK;
    FR_TRY(s, fr_module_forward(bn, *x, x));
    if (*addend != NULL && over) {
        FR_TRY(s, fr_add(*addend, *x, addend));
        fri_tensor_put(addend, x);
    } else if (*addend != NULL) {
        FR_TRY(s, fr_add(*x, *addend, x));
        fr_tensor_release(addend);
    }
    if (act) FR_TRY(s, ops[act](*x, x));
done:
    return s;
}

static fr_status fused(fr_module *bn, fr_tensor **addend, bool over, fri_activation act, fr_tensor **x) {
    if (!fri_norm_fuses(*x, *addend)) return separate(bn, addend, over, act, x);
    return fri_layer_run(bn, NULL, &(fri_layer_args){.addend = *addend != NULL ? addend : NULL, .act = act}, x);
}

/* Forward and backward. Gamma and beta have both signs. */
static result run(setting c) {
    result r = {0};
    fr_module *bn = NULL;
    fr_memory_stats m;
    fr_tensor *addend = NULL;
    fr_switches was = fr_switches_get();
    fr_switches_set(c.switches);
    must(fri_nn_batchnorm2d(C, NULL, test_device(), &bn));
    fr_tensor *x = image(c.dtype, 1, false), *dy = image(c.dtype, 7, false), *other = image(c.dtype, 4, c.special);
    fr_tensor *leaf[4] = {x, other, fr_module_tensor(bn, "weight"), fr_module_tensor(bn, "bias")};
    fr_seed(3);
    const double gamma = c.act > FRI_ACTIVATION_RELU ? 8 : 1; /* results on both sides of 6, and of 3 */
    must(fr_init_uniform(leaf[2], -gamma, gamma));
    must(fr_init_uniform(leaf[3], -0.5, 0.5));
    fr_module_train(bn, !c.eval);
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(other, c.addend == OTHER || c.addend == OVER));
    bool grad = c.no_grad ? fr_no_grad_begin() : false;
    if (c.addend == OVER) must(fr_scale(other, 1, &addend));
    if (c.addend == OTHER || c.addend == OTHER_CONSTANT) addend = fr_tensor_retain(other);
    if (c.addend == ITSELF) addend = fr_tensor_retain(x);
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.requested;
    r.allocated = m.allocated;
    const uint64_t inplace = fr_graph_stats_get().inplace, nodes = fr_graph_stats_get().nodes;
    r.y = fr_tensor_retain(x);
    kernels_watch();
    must((c.fused ? fused : separate)(bn, &addend, c.addend == OVER && !c.either, c.act, &r.y));
    kernels_unwatch();
    r.nodes = fr_graph_stats_get().nodes - nodes;
    cr_expect_null(addend, "its reference is taken");
    if (c.no_grad)
        fr_no_grad_end(grad);
    else
        must(fr_backward(r.y, dy));
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.peak_requested - r.peak;
    r.allocated = m.peak_allocated - r.allocated;
    r.inplace = fr_graph_stats_get().inplace - inplace;
    for (int i = 0; i < 4; i++) r.grad[i] = fr_tensor_retain(fr_tensor_get_grad(leaf[i]));
    fr_switches_set(was);
    RELEASE_ALL(&x, &dy, &other);
    fr_module_release(&bn);
    return r;
}

/* fewer: the fused call needs fewer bytes. */
static void expect_same(const result *one, const result *two, bool fewer) {
    static const char *const names[] = {"dx", "the addend's gradient", "dgamma", "dbeta"};
    expect_equal(one->y, two->y, "y");
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(one->grad[i] == NULL, two->grad[i] == NULL, "%s", names[i]);
        if (one->grad[i] != NULL) expect_equal(one->grad[i], two->grad[i], names[i]);
    }
    cr_expect(fewer ? one->peak <= two->peak : one->peak == two->peak, "peak of %zu bytes, %zu by separate ops",
              one->peak, two->peak);
    cr_expect_leq(one->allocated, two->allocated, "%zu bytes allocated, %zu by separate ops", one->allocated,
                  two->allocated);
}

static void compare(setting c) {
    result two = run(c);
    cr_expect_eq(adds(), c.addend != NONE, "separate ops: the add runs");
    c.fused = true;
    result one = run(c);
    cr_expect_eq(kernels_run("batchnorm2d_apply"), 1);
    cr_expect_eq(adds(), 0, "%d add kernels", adds());
    cr_expect_eq(relus(), 0, "%d relu kernels", relus());
    const bool one_node = c.addend != NONE || c.act;
    expect_same(&one, &two, one_node);
    if (!c.no_grad) cr_expect_eq(one.nodes, two.nodes - (c.addend != NONE) - !!c.act, "%d nodes", (int)one.nodes);
    if (c.act > FRI_ACTIVATION_RELU)
        cr_expect_eq(kernels_run("relu_encode") + kernels_run("relu_backward_bits") + kernels_run("relu6_backward") +
                         kernels_run("hardswish_backward") + kernels_run("silu_backward"),
                     0, "the norm leaves the gradient to the activation");
    release(&one);
    release(&two);
}

static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};

Test(norm_act, every_bit_and_byte_is_that_of_the_separate_ops) {
    for (int i = 0; i < 3 * (ADDENDS + 1) * 16; i++) {
        const int k = i / (3 * (ADDENDS + 1)), addend = i / 3 % (ADDENDS + 1);
        compare((setting){.dtype = types[i % 3],
                          .addend = addend < ADDENDS ? addend : OVER,
                          .either = addend == ADDENDS,
                          .act = k & 1,
                          .eval = k >> 1 & 1,
                          .no_grad = k >> 2 & 1,
                          .special = k >> 3 & 1,
                          .switches = fr_switches_default()});
    }
    expect_nothing_left();
}

Test(norm_act, other_activations_are_part_of_the_call) {
    for (int i = 0; i < 3 * 64 * 3; i++) {
        fr_switches s = fr_switches_default();
        const int k = i / 3;
        s.encode = k >> 2 & 1;
        s.rebuild = k >> 3 & 1;
        s.early_release = k >> 4 & 1;
        s.offload = k >> 5 & 1;
        compare((setting){.dtype = types[i % 3],
                          .act = (fri_activation)(FRI_ACTIVATION_RELU6 + k / 64),
                          .eval = k & 1,
                          .no_grad = k >> 1 & 1,
                          .switches = s});
    }
    expect_nothing_left();
}

/* relu, relu6, hardswish or silu behind a batch norm, and a tanh before it where `inner`. */
static fr_module *norm_and(fri_activation act, bool inner) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 1, 1, C});
    v = fr_net_batchnorm2d(n, "bn", inner ? fr_net_tanh(n, "inner", v) : v, NULL);
    v = act == FRI_ACTIVATION_RELU    ? fr_net_relu(n, "act", v)
        : act == FRI_ACTIVATION_RELU6 ? fr_net_relu6(n, "act", v)
        : act == FRI_ACTIVATION_SILU  ? fr_net_silu(n, "act", v)
                                      : fr_net_hardswish(n, "act", v);
    must(fr_net_end(&n, &v, 1, &m));
    fr_seed(3);
    must(fr_init_uniform(fr_module_tensor(fr_module_find(m, "bn"), "weight"), -8, 8));
    return m;
}

/* A network makes the fused call of a norm and the activation behind it. A sum or a relu of the result is no tail. */
Test(norm_act, an_activation_behind_a_batch_norm_is_its_tail) {
    for (int j = 0; j < 12; j++) {
        const int act = FRI_ACTIVATION_RELU + j % 4;
        fr_tensor *x = image(FR_F32, 1, false), *y = NULL, *z = NULL, *want = NULL;
        fr_module *m = norm_and((fri_activation)act, false);
        must(fr_module_forward(fr_module_find(m, "bn"), x, &want));
        must(fr_module_forward(fr_module_find(m, "act"), want, &want));
        kernels_watch();
        must(fr_module_forward(m, x, &y));
        kernels_unwatch();
        cr_expect_eq(kernels_run("batchnorm2d_apply"), 1);
        cr_expect_eq(relus(), 0, "%d activations", relus());
        expect_equal(y, want, "the result");
        fr_tensor *grad[2] = {NULL}, *w = image(FR_F32, 2, false); /* a factor's gradient is the result, made again */
        must(fr_tensor_set_requires_grad(w, true));
        for (int rebuild = 0; rebuild < 2; rebuild++) {
            fr_switches s = rebuild ? fr_switches_default() : fr_switches_all_off();
            s.rebuild = rebuild;
            fr_switches_set(s);
            must(fr_module_forward(m, x, &y));
            must(fr_relu(w, &z));
            if (j / 4 == 1) must(fr_add(y, z, &y));
            if (j / 4 == 2) must(fr_relu(y, &y));
            must(fr_mul(y, w, &y));
            must(fr_sum(y, &y));
            kernels_watch();
            must(fr_backward(y, NULL));
            kernels_unwatch();
            cr_expect_eq(kernels_run("batchnorm2d_apply"), rebuild, "one pass makes the result again");
            grad[rebuild] = fr_tensor_retain(fr_tensor_get_grad(w));
            must(fr_tensor_set_grad(w, NULL));
        }
        expect_equal(grad[1], grad[0], "a factor's gradient");
        fr_tensor_release(&w);
        for (int i = 0; i < 2; i++) fr_tensor_release(&grad[i]);
        fr_switches_set(fr_switches_default());
        RELEASE_ALL(&x, &y, &z, &want);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* Backward of a smooth activation: no tensor is saved, and no pass is added. */
Test(norm_act, a_smooth_activation_leaves_its_gradient_to_the_norm) {
    for (int frozen = 0; frozen < 2; frozen++)
        for (int act = FRI_ACTIVATION_HARDSWISH; act <= FRI_ACTIVATION_SILU; act++) {
            fr_module *m = norm_and((fri_activation)act, false);
            fr_tensor *x = image(FR_F32, 1, false), *y = NULL;
            fr_memory_stats before, after;
            must(fr_tensor_set_requires_grad(x, true));
            if (frozen) must(fr_module_freeze(m, "bn", true));
            must(fr_memory_stats_get(test_device(), &before));
            must(fr_module_forward(m, x, &y));
            must(fr_memory_stats_get(test_device(), &after));
            const size_t map = (COUNT * sizeof(float) + 511) / 512 * 512;
            cr_expect_lt(after.requested - before.requested, 2 * map, "%zu bytes", after.requested - before.requested);
            must(fr_sum(y, &y));
            kernels_watch();
            must(fr_backward(y, NULL));
            kernels_unwatch();
            cr_expect_eq(kernels_run("batchnorm2d_backward"), 1);
            cr_expect_eq(kernels_run("batchnorm2d_apply"), 0, "nothing is made again");
            cr_expect_eq(kernels_run("hardswish_backward") + kernels_run("silu_backward"), 0);
            fr_tensor_release(&x);
            fr_tensor_release(&y);
            fr_module_release(&m);
        }
    expect_nothing_left();
}

/* The gradients of x, weight and bias of a checkpointed norm_and; anomalies are looked for in forward, backward. */
static void checkpointed(fri_activation act, bool inner, bool frozen, bool forward, bool backward, fr_tensor *grad[3]) {
    fr_module *m = norm_and(act, inner), *bn = fr_module_find(m, "bn");
    fr_tensor *x = image(FR_F32, 1, false), *y = NULL;
    must(fr_tensor_set_requires_grad(x, true));
    if (frozen) must(fr_module_freeze(m, "bn", true));
    fr_detect_anomaly(forward);
    must(fr_checkpoint_sequential(m, 1, x, &y));
    fr_detect_anomaly(backward);
    must(fr_mul(y, y, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    fr_detect_anomaly(false);
    grad[0] = fr_tensor_retain(fr_tensor_get_grad(x));
    grad[1] = fr_tensor_retain(fr_tensor_get_grad(fr_module_tensor(bn, "weight")));
    grad[2] = fr_tensor_retain(fr_tensor_get_grad(fr_module_tensor(bn, "bias")));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
}

/* The first run of a segment fuses and the second does not, or the other way round. */
Test(norm_act, anomaly_detection_may_begin_and_end_between_forward_and_backward) {
    for (int i = 0; i < 4 * 16; i++) {
        const fri_activation act = (fri_activation)(FRI_ACTIVATION_RELU + i / 16);
        fr_tensor *want[3] = {NULL}, *got[3] = {NULL};
        checkpointed(act, i >> 1 & 1, i & 1, true, true, want);
        checkpointed(act, i >> 1 & 1, i & 1, i >> 2 & 1, i >> 3 & 1, got);
        for (int k = 0; k < 3; k++) {
            cr_assert_eq(want[k] == NULL, got[k] == NULL);
            if (want[k] != NULL) expect_equal(got[k], want[k], "a gradient");
            fr_tensor_release(&want[k]);
            fr_tensor_release(&got[k]);
        }
    }
    expect_nothing_left();
}

Test(norm_act, rebuild_encodings_and_early_release_see_no_difference) {
    for (int i = 0; i < 3 * 16 * 3; i++) {
        fr_switches s = fr_switches_default();
        s.encode = i / 3 & 1;
        s.rebuild = i / 6 & 1;
        s.early_release = i / 12 & 1;
        s.offload = i / 24 & 1;
        compare((setting){.dtype = types[i % 3],
                          .addend = (int[]){NONE, OTHER, OVER}[i / 48],
                          .act = FRI_ACTIVATION_RELU,
                          .switches = s});
    }
    expect_nothing_left();
}

/* The sum over the addend needs no bytes for batch norm's own result; nor does a sum over the norm, where the addend
 * has no second handle. */
Test(norm_act, a_sum_over_the_addend_needs_a_map_less) {
    for (int either = 0; either < 2; either++) {
        setting c = {.addend = OVER, .act = FRI_ACTIVATION_RELU, .no_grad = true, .switches = fr_switches_default()};
        c.either = either;
        result two = run(c);
        c.fused = true;
        result one = run(c);
        const size_t map = (COUNT * sizeof(float) + 511) / 512 * 512;
        cr_expect_geq(two.peak, map);
        cr_expect_lt(one.peak, map, "%zu bytes, of which a map has %zu", one.peak, map);
        release(&one);
        release(&two);
    }
    expect_nothing_left();
}

/* ---- only where no reader can tell --------------------------------------------------------------------------- */

Test(norm_act, without_permission_every_pass_runs) {
    setting c = {.addend = OTHER, .act = FRI_ACTIVATION_RELU, .fused = true, .switches = fr_switches_all_off()};
    result off = run(c);
    cr_expect_eq(adds(), 1);
    cr_expect_eq(relus(), 1);
    c.switches = fr_switches_default();
    fr_detect_anomaly(true);
    result examined = run(c);
    fr_detect_anomaly(false);
    cr_expect_eq(adds(), 1);
    cr_expect_eq(relus(), 1, "where each result is examined, each op makes its own");
    expect_equal(off.y, examined.y, "y");
    release(&off);
    release(&examined);
    expect_nothing_left();
}

typedef struct parts {
    fr_tensor *x, *mean, *var;
} parts;

static parts make_parts(fr_dtype t) {
    parts p = {.x = image(t, 1, false)};
    fr_dtype real = t == FR_F64 ? FR_F64 : FR_F32;
    must(fr_tensor_full(1, (int64_t[]){C}, 0.25, real, test_device(), &p.mean));
    must(fr_tensor_full(1, (int64_t[]){C}, 2, real, test_device(), &p.var));
    return p;
}

static void drop_parts(parts *p) {
    fr_tensor_release(&p->x);
    fr_tensor_release(&p->mean);
    fr_tensor_release(&p->var);
}

/* relu(batch norm + *addend); addend NULL: batch norm alone. */
static fr_status norm(const parts *p, fr_tensor **addend, fr_tensor **y) {
    const fri_norm n = {.running_mean = p->mean, .running_var = p->var, .opts = FR_BATCHNORM2D_OPTS(.train = false)};
    return fri_norm_act(p->x, &n, addend, addend != NULL ? FRI_ACTIVATION_RELU : FRI_ACTIVATION_NONE, y);
}

static fr_tensor *by_ops(const parts *p, fr_tensor *other) {
    fr_tensor *y = NULL;
    must(norm(p, NULL, &y));
    must(fr_add(y, other, &y));
    must(fr_relu(y, &y));
    return y;
}

/* f64 has kernels of its own. */
Test(norm_act, in_f64) {
    if (test_device() != FR_CPU) cr_skip_test("f64 arithmetic is the CPU's");
    parts p = make_parts(FR_F64);
    fr_tensor *other = image(FR_F64, 4, true), *one = NULL, *two = by_ops(&p, other);
    kernels_watch();
    must(norm(&p, &other, &one));
    kernels_unwatch();
    cr_expect_eq(adds() + relus(), 0);
    expect_equal(one, two, "y");
    fr_tensor_release(&one);
    fr_tensor_release(&two);
    drop_parts(&p);
    expect_nothing_left();
}

/* Autocast: the identity may be f32 and the branch half; the add promotes. */
Test(norm_act, another_type_or_shape_is_left_to_the_add) {
    parts p = make_parts(FR_F16);
    fr_tensor *wide = image(FR_F32, 4, false), *half = image(FR_F16, 4, false), *flat = NULL;
    must(fr_tensor_full(4, (int64_t[]){1, H, 1, C}, 1, FR_F16, test_device(), &flat));
    cr_expect(fri_norm_fuses(p.x, NULL) && fri_norm_fuses(p.x, half));
    cr_expect(!fri_norm_fuses(p.x, wide), "another type");
    cr_expect(!fri_norm_fuses(p.x, flat), "another shape");
    RELEASE_ALL(&wide, &half, &flat);
    drop_parts(&p);
    expect_nothing_left();
}

/* A leaf that requires grad, a tensor with a second handle, batch norm's own input: never written over, whatever is
 * asked. */
Test(norm_act, what_somebody_needs_is_not_written_over) {
    enum { FREE, HELD, LEAF, INPUT, WAYS };
    parts p = make_parts(FR_F16);
    for (int way = 0; way < WAYS; way++) {
        fr_tensor *leaf = image(FR_F16, 4, false), *other = NULL, *second = NULL, *y = NULL, *was = NULL;
        must(fr_scale(leaf, 1, &other));
        must(fr_tensor_set_requires_grad(other, way == LEAF));
        if (way == HELD) second = fr_tensor_retain(other);
        if (way == INPUT) fri_tensor_put(&(fr_tensor *){fr_tensor_retain(p.x)}, &other);
        must(fr_scale(p.x, 1, &was));
        fr_tensor *want = by_ops(&p, other);
        const void *at = fr_tensor_data(other);
        must(norm(&p, &other, &y));
        cr_expect_eq(fr_tensor_data(y) == at, way == FREE, "case %d", way);
        if (way == HELD) expect_equal(second, leaf, "the tensor with a second handle");
        expect_equal(y, want, "the sum");
        expect_equal(p.x, was, "x");
        RELEASE_ALL(&leaf, &second, &y, &was, &want);
    }
    drop_parts(&p);
    expect_nothing_left();
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* Batch norm and relu in turn, `n` layers. */
static fr_module *chain_of(int layers) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 1, 1, C});
    for (int k = 0; k < layers; k++) x = k % 2 == 0 ? fr_net_batchnorm2d(n, NULL, x, NULL) : fr_net_relu(n, NULL, x);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

Test(norm_act, a_relu_behind_a_batch_norm_in_a_chain_is_its_tail) {
    fr_tensor *x = image(FR_BF16, 1, false), *one = NULL, *two = NULL;
    fr_module *chain = chain_of(4);
    for (int apart = 0; apart < 2; apart++) {
        if (apart) fr_module_inplace(fr_module_child(chain, 1), false);
        kernels_watch();
        must(fr_module_forward(chain, x, apart ? &two : &one));
        kernels_unwatch();
        cr_expect_eq(relus(), apart, "%d relus: one that must not run in place is its own", relus());
    }
    expect_equal(one, two, "the chain's result");
    RELEASE_ALL(&x, &one, &two);
    fr_module_release(&chain);
    expect_nothing_left();
}

/* relu(norm(x) + x), and with the summands the other way round: no kernel for sum and relu. */
Test(norm_act, a_sum_and_a_relu_behind_a_batch_norm_are_its_tail) {
    for (int swapped = 0; swapped < 2; swapped++) {
        fr_tensor *x = image(FR_F32, 1, false), *y = NULL, *want = NULL;
        fr_module *m = NULL;
        fr_net *n = fr_net_begin(test_device());
        fr_value in = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 1, 1, C}), out = fr_net_batchnorm2d(n, "bn", in, NULL);
        out = swapped ? fr_net_add(n, "add", in, out) : fr_net_add(n, "add", out, in);
        out = fr_net_relu(n, "relu", out);
        must(fr_net_end(&n, &out, 1, &m));
        must(fr_module_forward(fr_module_find(m, "bn"), x, &want));
        must(swapped ? fr_add(x, want, &want) : fr_add(want, x, &want));
        must(fr_relu(want, &want));
        kernels_watch();
        must(fr_module_forward(m, x, &y));
        kernels_unwatch();
        cr_expect_eq(kernels_run("batchnorm2d_apply"), 1);
        cr_expect_eq(adds() + relus(), 0, "%d adds, %d relus", adds(), relus());
        expect_equal(y, want, "the result");
        RELEASE_ALL(&x, &y, &want);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* ---- the models -------------------------------------------------------------------------------------------------- */

typedef struct bytes {
    unsigned char *data;
    size_t n, capacity;
} bytes;

static fr_status keep(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    bytes *b = ctx;
    (void)path;
    fr_tensor *all[] = {t, is_parameter ? fr_tensor_get_grad(t) : NULL};
    for (int i = 0; i < 2 && all[i] != NULL; i++) {
        if (b->n + fri_nbytes(all[i]) > b->capacity) {
            b->capacity = 2 * (b->n + fri_nbytes(all[i]));
            b->data = realloc(b->data, b->capacity);
        }
        must(fr_tensor_to_host(all[i], b->data + b->n));
        b->n += fri_nbytes(all[i]);
    }
    return FR_OK;
}

/* Forward and backward of a ResNet; every gradient and running value, and how often forward added. */
static bytes resnet(int depth, fr_dtype half, bool checkpointed, fr_switches switches) {
    fr_switches was = fr_switches_get();
    fr_autocast_state cast;
    fr_module *m = NULL;
    fr_tensor *x = NULL, *y = NULL;
    bytes b = {0};
    fr_seed(5);
    fr_switches_set(switches);
    must(fr_resnet(depth, FR_MODEL_OPTS(.classes = 3, .image_size = 16, .small_stem = true, .device = test_device()),
                   &m));
    must(fr_tensor_uniform(4, (int64_t[]){2, 16, 16, 3}, -1, 1, FR_F32, test_device(), &x));
    if (half != FR_F32) must(fr_autocast_begin(half, &cast));
    kernels_watch();
    must(checkpointed ? fr_checkpoint_sequential(m, 3, x, &y) : fr_module_forward(m, x, &y));
    kernels_unwatch();
    if (half != FR_F32) fr_autocast_end(cast);
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    must(fr_module_each_tensor(m, keep, &b));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    fr_switches_set(was);
    return b;
}

Test(norm_act, residual_networks_add_nowhere, .timeout = 300) {
    static const struct {
        int depth;
        fr_dtype half;
    } nets[] = {{18, FR_F32}, {18, FR_BF16}, {18, FR_F16}, {50, FR_F32}};
    for (int i = 0; i < 4; i++) {
        bytes two = resnet(nets[i].depth, nets[i].half, false, fr_switches_all_off());
        cr_expect_eq(adds(), nets[i].depth == 18 ? 8 : 16, "each block adds");
        for (int k = 0; k < 3; k++) {
            fr_switches s = fr_switches_default();
            s.rebuild = k == 1;
            bytes one = resnet(nets[i].depth, nets[i].half, k == 2, s);
            cr_expect_eq(adds(), 0, "ResNet-%d adds %d times", nets[i].depth, adds());
            cr_expect_eq(relus(), 0, "%d relus stand alone", relus());
            cr_assert_eq(one.n, two.n);
            cr_expect_eq(memcmp(one.data, two.data, one.n), 0, "ResNet-%d in %s differs (%d)", nets[i].depth,
                         fr_dtype_name(nets[i].half), k);
            free(one.data);
        }
        free(two.data);
    }
    expect_nothing_left();
}
