/* test_add_follows.c - an add (and a relu behind it) that batch norm has taken over: the same bits and bytes, two
 * passes fewer, and only where nobody can tell (Note [Add in the kernel before it]). */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <math.h>
#include <string.h>

#include "autograd/state.h"
#include "backend/backend.h"
#include "support/golden.h"
#include "support/kernels_run.h"
#include "tensor/tensor.h"

enum { N = 3, H = 5, W = 7, C = 8, COUNT = N * H * W * C };

/* ---- which kernels run ----------------------------------------------------------------------------------------- */

static int adds(void) {
    return kernels_run("add") + kernels_run("add_relu");
}

static int relus(void) {
    return kernels_run("relu_forward");
}

/* ---- what goes in ---------------------------------------------------------------------------------------------- */

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

/* ---- one residual block's end ------------------------------------------------------------------------------------ */

enum { OTHER, OTHER_CONSTANT, ITSELF }; /* the addend: another tensor with or without a gradient, or x */

typedef struct setting {
    fr_dtype dtype;
    int addend;
    bool relu, said, eval, no_grad, special;
    fr_switches switches;
} setting;

typedef struct result {
    fr_tensor *y, *grad[4]; /* of x, the addend, gamma, beta; NULL: none */
    size_t peak, allocated; /* by this run */
    uint64_t inplace;
} result;

static void release(result *r) {
    fr_tensor_release(&r->y);
    for (int i = 0; i < 4; i++) fr_tensor_release(&r->grad[i]);
}

/* [relu](batch norm(x) + addend), forward and backward. Gamma and beta have both signs. */
static result run(setting c) {
    result r = {0};
    fr_module *bn = NULL;
    fr_memory_stats m;
    fr_switches was = fr_switches_get();
    fr_switches_set(c.switches);
    must(fr_nn_batchnorm2d(C, test_device(), &bn));
    fr_tensor *x = image(c.dtype, 1, false), *dy = image(c.dtype, 7, false), *other = image(c.dtype, 4, c.special);
    fr_tensor *addend = fr_tensor_retain(c.addend == ITSELF ? x : other);
    fr_tensor *leaf[4] = {x, other, fr_module_tensor(bn, "weight"), fr_module_tensor(bn, "bias")};
    fr_seed(3);
    must(fr_init_uniform(leaf[2], -1, 1));
    must(fr_init_uniform(leaf[3], -0.5, 0.5));
    fr_module_train(bn, !c.eval);
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(other, c.addend == OTHER));
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.requested;
    r.allocated = m.allocated;
    uint64_t inplace = fr_graph_stats_get().inplace;
    bool grad = c.no_grad ? fr_no_grad_begin() : false;
    kernels_watch();
    if (c.said) fri_add_follows(addend, false, c.relu);
    must(fr_module_forward(bn, x, &r.y));
    if (c.relu) fri_relu_follows(c.said);
    must(fr_add(r.y, addend, &r.y));
    fr_tensor_release(&addend);
    if (c.relu) must(fr_relu(r.y, &r.y));
    kernels_unwatch();
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
    fr_tensor_release(&x);
    fr_tensor_release(&dy);
    fr_tensor_release(&other);
    fr_module_release(&bn);
    return r;
}

static void expect_same(const result *one, const result *two) {
    static const char *const names[] = {"dx", "the addend's gradient", "dgamma", "dbeta"};
    expect_equal(one->y, two->y, "y");
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(one->grad[i] == NULL, two->grad[i] == NULL, "%s", names[i]);
        if (one->grad[i] != NULL) expect_equal(one->grad[i], two->grad[i], names[i]);
    }
    cr_expect_eq(one->peak, two->peak, "peak of %zu bytes, %zu by separate passes", one->peak, two->peak);
    cr_expect_eq(one->allocated, two->allocated, "%zu bytes allocated, %zu by separate passes", one->allocated,
                 two->allocated);
    cr_expect_eq(one->inplace, two->inplace, "%d ops in place, %d of separate passes", (int)one->inplace,
                 (int)two->inplace);
}

/* Said and not said, under the same switches. */
static void compare(setting c) {
    result two = run(c);
    cr_expect_eq(adds(), 1, "nothing was said: the add runs");
    c.said = true;
    result one = run(c);
    cr_expect_eq(kernels_run("batchnorm2d_apply"), 1);
    cr_expect_eq(adds(), 0, "%d add kernels", adds());
    cr_expect_eq(relus(), 0, "%d relu kernels", relus());
    expect_same(&one, &two);
    release(&one);
    release(&two);
}

static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};

Test(add_follows, every_bit_and_byte_is_that_of_the_separate_passes) {
    for (int i = 0; i < 3 * 3 * 16; i++)
        compare((setting){.dtype = types[i % 3],
                          .addend = i / 3 % 3,
                          .relu = i / 9 & 1,
                          .eval = i / 18 & 1,
                          .no_grad = i / 36 & 1,
                          .special = i / 72 & 1,
                          .switches = fr_switches_default()});
    expect_nothing_left();
}

Test(add_follows, rebuild_encodings_and_early_release_see_no_difference) {
    for (int i = 0; i < 3 * 16; i++) {
        fr_switches s = fr_switches_default();
        s.encode = i / 3 & 1;
        s.rebuild = i / 6 & 1;
        s.early_release = i / 12 & 1;
        s.offload = i / 24 & 1;
        compare((setting){.dtype = types[i % 3], .relu = true, .switches = s});
    }
    expect_nothing_left();
}

/* ---- only where nobody can tell ---------------------------------------------------------------------------------- */

Test(add_follows, without_permission_every_pass_runs) {
    setting c = {.relu = true, .said = true, .switches = fr_switches_all_off()};
    result off = run(c);
    cr_expect_eq(adds(), 1);
    cr_expect_eq(relus(), 1);
    c.switches = fr_switches_default();
    fr_detect_anomaly(true);
    result looked = run(c);
    fr_detect_anomaly(false);
    cr_expect_eq(adds(), 1);
    cr_expect_eq(relus(), 1, "where each result is looked at, each op makes its own");
    expect_equal(off.y, looked.y, "y");
    release(&off);
    release(&looked);
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

static fr_status norm(const parts *p, fr_tensor *addend, fr_tensor **y) {
    if (addend != NULL) fri_add_follows(addend, false, true);
    return fr_batchnorm2d(p->x, NULL, NULL, p->mean, p->var, FR_BATCHNORM2D_OPTS(.train = false), y);
}

/* f64 has kernels of its own. */
Test(add_follows, in_f64) {
    if (test_device() != FR_CPU) cr_skip_test("f64 arithmetic is the CPU's");
    parts p = make_parts(FR_F64);
    fr_tensor *other = image(FR_F64, 4, true), *one = NULL, *two = NULL;
    must(norm(&p, NULL, &two));
    must(fr_add(two, other, &two));
    must(fr_relu(two, &two));
    kernels_watch();
    must(norm(&p, other, &one));
    must(fr_add(one, other, &one));
    must(fr_relu(one, &one));
    kernels_unwatch();
    cr_expect_eq(adds() + relus(), 0);
    expect_equal(one, two, "y");
    fr_tensor_release(&other);
    fr_tensor_release(&one);
    fr_tensor_release(&two);
    drop_parts(&p);
    expect_nothing_left();
}

/* Under autocast the identity may be f32 and the branch half: the add promotes, and batch norm leaves it to it. */
Test(add_follows, another_type_or_shape_is_left_to_the_add) {
    parts p = make_parts(FR_F16);
    fr_tensor *wide = image(FR_F32, 4, false), *one = NULL, *two = NULL, *flat = NULL;
    must(norm(&p, NULL, &two));
    must(fr_add(two, wide, &two));
    must(fr_relu(two, &two));
    kernels_watch();
    must(norm(&p, wide, &one));
    fri_relu_follows(true);
    must(fr_add(one, wide, &one));
    must(fr_relu(one, &one));
    kernels_unwatch();
    cr_expect_eq(adds(), 1);
    expect_equal(one, two, "y");
    must(fr_tensor_full(4, (int64_t[]){N, H, 1, C}, 1, FR_F16, test_device(), &flat));
    must(norm(&p, flat, &one));
    cr_expect_eq(fr_add(one, flat, &one), FR_ESHAPE, "shapes are the add's business");
    must(fr_relu(one, &one)); /* and batch norm's result is its own */
    fr_tensor_release(&wide);
    fr_tensor_release(&flat);
    fr_tensor_release(&one);
    fr_tensor_release(&two);
    drop_parts(&p);
    expect_nothing_left();
}

/* What was said holds for one batch norm; what is said to a chain holds for its last child. */
Test(add_follows, it_is_said_for_one_batch_norm) {
    parts p = make_parts(FR_F32);
    fr_tensor *other = image(FR_F32, 4, false), *y = NULL, *z = NULL, *want = NULL;
    fr_module *chain = NULL, *c = NULL;
    must(norm(&p, other, &y));
    must(norm(&p, NULL, &z));
    must(norm(&p, NULL, &want));
    expect_equal(z, want, "the second batch norm's result");
    for (int i = 0; i < 3; i++) { /* batch norm, relu, batch norm; then, with a relu last, the add is not the reader */
        must(fr_nn_sequential(&chain));
        for (int k = 0; k < 2 + i; k++) {
            must(k % 2 == 0 ? fr_nn_batchnorm2d(C, test_device(), &c) : fr_nn_relu(&c));
            must(fr_nn_append(chain, &c));
        }
        must(fr_module_forward(chain, p.x, &want));
        must(fr_add(want, other, &want));
        must(fr_relu(want, &want));
        kernels_watch();
        fri_add_follows(other, false, true);
        must(fr_module_forward(chain, p.x, &z));
        fri_relu_follows(true);
        must(fr_add(z, other, &z));
        must(fr_relu(z, &z));
        kernels_unwatch();
        cr_expect_eq(adds(), i == 1 ? 0 : 1, "a chain of %d: %d adds", 2 + i, adds());
        expect_equal(z, want, "the chain's result");
    }
    fr_module_release(&chain);
    fr_tensor_release(&other);
    fr_tensor_release(&want);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    drop_parts(&p);
    expect_nothing_left();
}

/* The add's result may lie elsewhere, and the summands may come in the other order. */
Test(add_follows, the_sum_moves_where_it_cannot_stay) {
    parts p = make_parts(FR_BF16);
    fr_tensor *other = image(FR_BF16, 4, false), *y = NULL, *z = NULL, *want = NULL;
    must(norm(&p, NULL, &want));
    must(fr_add(want, other, &want));
    must(fr_relu(want, &want));
    for (int swapped = 0; swapped < 2; swapped++) {
        must(norm(&p, other, &y));
        kernels_watch();
        must(swapped ? fr_add(other, y, &z) : fr_add(y, other, &z));
        must(fr_relu(z, &z));
        kernels_unwatch();
        cr_expect_eq(adds() + relus(), 0);
        expect_equal(z, want, swapped ? "the sum of the addend and batch norm" : "a sum in its own place");
    }
    fr_tensor_release(&other);
    fr_tensor_release(&want);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    drop_parts(&p);
    expect_nothing_left();
}

/* As in a block with a downsample: the add goes over the addend, and so does batch norm. A leaf that requires grad, or
 * a tensor with another handle, is not written over. */
Test(add_follows, the_sum_may_lie_over_the_addend) {
    parts p = make_parts(FR_F16);
    for (int held = 0; held < 3; held++) {
        fr_tensor *leaf = image(FR_F16, 4, false), *other = NULL, *second = NULL, *y = NULL;
        fr_tensor *want = NULL, *was = NULL;
        must(fr_scale(leaf, 1, &other));
        must(fr_tensor_set_requires_grad(other, held == 2));
        if (held == 1) second = fr_tensor_retain(other);
        must(norm(&p, NULL, &want));
        must(fr_add(other, want, &want));
        must(fr_relu(want, &want));
        kernels_watch();
        fri_add_follows(other, true, true);
        must(norm(&p, NULL, &y));
        fri_relu_follows(true);
        must(fr_add(other, y, &other));
        must(fr_relu(other, &other));
        kernels_unwatch();
        cr_expect_eq(adds(), held == 0 ? 0 : 1);
        expect_equal(other, want, "the sum");
        if (held == 0) { /* the kernel left nothing in y */
            must(fr_scale(leaf, 1, &other));
            fri_add_follows(other, true, false);
            must(norm(&p, NULL, &y));
            expect_refused(fr_relu(y, &was), FR_EINTERNAL, "relu", "handed to an add", was);
            expect_refused(fr_relu(other, &was), FR_EINTERNAL, "relu", "handed to an add", was);
            must(fr_add(y, other, &was));
        }
        fr_tensor_release(&leaf);
        fr_tensor_release(&other);
        fr_tensor_release(&second);
        fr_tensor_release(&y);
        fr_tensor_release(&want);
        fr_tensor_release(&was);
    }
    drop_parts(&p);
    expect_nothing_left();
}

/* Batch norm saves its input, so the sum with it lies elsewhere, whatever was said. */
Test(add_follows, the_input_is_not_written_over) {
    parts p = make_parts(FR_F32);
    fr_tensor *was = NULL, *y = NULL;
    must(fr_scale(p.x, 1, &was));
    fri_add_follows(p.x, true, true);
    must(norm(&p, NULL, &y));
    expect_equal(p.x, was, "x");
    must(fr_relu(y, &y)); /* not refused: nothing was added */
    fr_tensor_release(&was);
    fr_tensor_release(&y);
    drop_parts(&p);
    expect_nothing_left();
}

/* A promise that is not kept is an error, never a wrong number. */
Test(add_follows, nobody_else_gets_the_sum) {
    parts p = make_parts(FR_F32);
    fr_tensor *other = image(FR_F32, 4, false), *third = image(FR_F32, 5, false), *y = NULL, *z = NULL;
    must(norm(&p, other, &y));
    expect_refused(fr_relu(y, &z), FR_EINTERNAL, "relu", "handed to an add", z);
    expect_refused(fr_add(y, third, &z), FR_EINTERNAL, "add", "input 0", z);
    expect_refused(fr_add(third, y, &z), FR_EINTERNAL, "add", "input 1", z);
    expect_refused(fr_add_inplace(y, other), FR_EINTERNAL, "add", "handed to an add", z);
    must(fr_scale_inplace(other, 2)); /* not what was added */
    expect_refused(fr_add(y, other, &z), FR_EINTERNAL, "add", "handed to an add", z);
    fr_tensor_release(&other);
    fr_tensor_release(&third);
    fr_tensor_release(&y);
    drop_parts(&p);
    expect_nothing_left();
}

/* ---- the models -------------------------------------------------------------------------------------------------- */

typedef struct bytes {
    unsigned char *data;
    size_t n;
} bytes;

static fr_status keep(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    bytes *b = ctx;
    (void)path;
    fr_tensor *all[] = {t, is_parameter ? fr_tensor_get_grad(t) : NULL};
    for (int i = 0; i < 2 && all[i] != NULL; i++) {
        b->data = realloc(b->data, b->n + fri_nbytes(all[i]));
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

Test(add_follows, residual_networks_add_nowhere, .timeout = 300) {
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
            cr_expect_eq(relus(), k == 2, "%d relus: only that of a stem in units stands alone", relus());
            cr_assert_eq(one.n, two.n);
            cr_expect_eq(memcmp(one.data, two.data, one.n), 0, "ResNet-%d in %s differs (%d)", nets[i].depth,
                         fr_dtype_name(nets[i].half), k);
            free(one.data);
        }
        free(two.data);
    }
    expect_nothing_left();
}
