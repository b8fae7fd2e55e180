/* test_norm_parts.c - batch norm of a concatenation that is never made (fri_norm_parts): the bits of the separate
 * calls, at most their bytes (beside the rounding of a block for each part), no copy, and a case for each reason not
 * to fuse. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <string.h>

#include "backend/backend.h"
#include "net/layers.h"
#include "net/module.h"
#include "support/golden.h"
#include "support/kernels_run.h"
#include "tensor/tensor.h"

enum { N = 3, H = 5, W = 7, MOST = 5 };

/* Widths that are no multiples of a vector, and parts that end inside, at and after the first 512 channels. */
static const struct {
    int n;
    int64_t c[MOST];
} lists[] = {{1, {5}}, {2, {3, 10}}, {3, {7, 1, 13}}, {5, {33, 3, 5, 17, 1}}, {3, {500, 30, 12}}, {2, {512, 9}}};
enum { LISTS = sizeof lists / sizeof *lists };

static bool reads_parts(fr_dtype t) {
    fr_tensor *x = NULL;
    must(fr_tensor_zeros(0, NULL, t, test_device(), &x));
    const bool reads = fri_kernels_for(fri_backend_of(x), t)->batchnorm2d_reads_parts != NULL;
    fr_tensor_release(&x);
    return reads;
}

static fr_tensor *image(fr_dtype t, int64_t c) {
    fr_tensor *f = NULL, *x = NULL;
    must(fr_tensor_uniform(4, (int64_t[]){N, H, W, c}, -2, 2, FR_F32, test_device(), &f));
    must(fr_cast(f, t, &x));
    fr_tensor_release(&f);
    return x;
}

static fr_tensor *vector(fr_dtype t, int64_t c, double low, double high) {
    fr_tensor *v = NULL;
    must(fr_tensor_uniform(1, &c, low, high, t == FR_F64 ? FR_F64 : FR_F32, test_device(), &v));
    return v;
}

static void expect_equal(const fr_tensor *a, const fr_tensor *b, const char *what, int i) {
    cr_assert((a == NULL) == (b == NULL), "%s %d is missing", what, i);
    if (a == NULL) return;
    size_t n = fr_tensor_nbytes(a);
    char *p = malloc(n), *q = malloc(n);
    cr_assert_eq(n, fr_tensor_nbytes(b));
    must(fr_tensor_to_host(a, p));
    must(fr_tensor_to_host(b, q));
    cr_expect_eq(memcmp(p, q, n), 0, "%s %d differs (%s)", what, i, fr_dtype_name(fr_tensor_dtype(a)));
    free(p);
    free(q);
}

/* Readers of the parts beside the norm: none, a later one (its gradient comes first), an earlier one; or the first part
 * is the second, too, and there is a later reader; or the first is a constant. */
typedef enum others { NONE, LATER, EARLIER, TWICE, CONSTANT, OTHERS } others;

typedef struct setting {
    fr_dtype dtype;
    int list;
    others others;
    fri_activation act;
    bool eval, fused;
} setting;

typedef struct result {
    fr_tensor *y, *grad[MOST + 2], *running[2];
    size_t peak;
    int copies, nodes;
} result;

static void separate(fr_tensor *const *part, int n, const fri_norm *norm, fri_activation act, fr_tensor **y) {
    static fr_status (*const ops[])(fr_tensor *, fr_tensor **) = {NULL, fr_relu, fr_relu6, fr_hardswish, fr_silu};
    must(fr_concat(part, n, y));
    must(fri_norm_act(*y, norm, NULL, FRI_ACTIVATION_NONE, y));
    if (act) must(ops[act](*y, y));
}

static result run(setting c) {
    const int n = lists[c.list].n;
    const fr_batchnorm2d_opts opts = *FR_BATCHNORM2D_OPTS(.train = !c.eval);
    fr_tensor *leaf[MOST] = {NULL}, *part[MOST] = {NULL}, *other = NULL, *dy = NULL;
    fr_memory_stats m;
    result r = {0};
    int64_t total = 0;
    fr_seed(3);
    for (int i = 0; i < n; i++) {
        const int64_t width = lists[c.list].c[i];
        leaf[i] = image(c.dtype, width);
        must(fr_tensor_set_requires_grad(leaf[i], c.others != CONSTANT || i > 0));
        must(fr_scale(c.others == TWICE && i == 1 ? leaf[0] : leaf[i], 0.5, &part[i]));
        if (c.others == TWICE && i == 1) fri_tensor_put(&(fr_tensor *){fr_tensor_retain(part[0])}, &part[1]);
        total += fr_tensor_dim(part[i], 3);
    }
    dy = image(c.dtype, total);
    const double spread = c.act > FRI_ACTIVATION_RELU ? 8 : 1; /* results on both sides of 6 */
    fri_norm norm = {.gamma = vector(c.dtype, total, -spread, spread),
                     .beta = vector(c.dtype, total, -0.5, 0.5),
                     .running_mean = vector(c.dtype, total, -0.5, 0.5),
                     .running_var = vector(c.dtype, total, 1, 2),
                     .opts = &opts};
    must(fr_tensor_set_requires_grad(norm.gamma, true));
    must(fr_tensor_set_requires_grad(norm.beta, true));
    if (c.others == EARLIER) must(fr_concat(part, n, &other));
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
    must(fr_memory_stats_get(test_device(), &m));
    const size_t before = m.requested;
    const uint64_t nodes = fr_graph_stats_get().nodes;
    kernels_watch();
    if (c.fused) cr_assert(fri_norm_joins(part, n, true));
    if (c.fused)
        must(fri_norm_parts(part, n, &norm, c.act, &r.y));
    else
        separate(part, n, &norm, c.act, &r.y);
    kernels_unwatch();
    r.copies = kernels_run("copy_rows");
    r.nodes = (int)(fr_graph_stats_get().nodes - nodes);
    if (c.others == LATER || c.others == TWICE) must(fr_concat(part, n, &other));
    for (int i = 0; i < n; i++) fr_tensor_release(&part[i]);
    fr_tensor *root = NULL;
    if (other != NULL)
        must(fr_mul(r.y, other, &root));
    else
        must(fr_scale(r.y, 0.75, &root));
    fr_tensor_release(&other);
    must(fr_backward(root, dy));
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.peak_requested - before;
    fr_tensor *all[MOST + 2] = {norm.gamma, norm.beta};
    for (int i = 0; i < n; i++) all[2 + i] = leaf[i];
    for (int i = 0; i < n + 2; i++)
        if (fr_tensor_get_grad(all[i]) != NULL) r.grad[i] = fr_tensor_retain(fr_tensor_get_grad(all[i]));
    r.running[0] = fr_tensor_retain(norm.running_mean);
    r.running[1] = fr_tensor_retain(norm.running_var);
    for (int i = 0; i < n; i++) fr_tensor_release(&leaf[i]);
    RELEASE_ALL(&root, &dy, &norm.gamma, &norm.beta, &norm.running_mean, &norm.running_var);
    return r;
}

static void release(result *r) {
    for (int i = 0; i < MOST + 2; i++) fr_tensor_release(&r->grad[i]);
    RELEASE_ALL(&r->y, &r->running[0], &r->running[1]);
}

static void compare(setting c) {
    c.fused = true;
    result one = run(c);
    c.fused = false;
    result two = run(c);
    const int at = 1000 * c.list + 100 * (int)c.others + 10 * (int)c.act + c.eval;
    expect_equal(one.y, two.y, "y of case", at);
    for (int i = 0; i < MOST + 2; i++)
        expect_equal(one.grad[i], two.grad[i], i < 2 ? "vector of case" : "dx of case", at);
    for (int i = 0; i < 2; i++) expect_equal(one.running[i], two.running[i], "running values of case", at);
    cr_expect_eq(one.copies, 0, "case %d copies", at);
    cr_expect_eq(one.nodes, 1, "case %d: one node", at);
    cr_expect_eq(two.copies, lists[c.list].n, "case %d: the separate calls copy each part", at);
    cr_expect_leq(one.peak, two.peak + 512 * (size_t)lists[c.list].n, "case %d: %zu bytes, %zu by separate calls", at,
                  one.peak, two.peak);
    if (c.others <= EARLIER && lists[c.list].n > 2) cr_expect_lt(one.peak, two.peak, "case %d", at);
    release(&one);
    release(&two);
}

static void compare_all(fr_dtype t) {
    if (!reads_parts(t)) cr_skip_test("kernels do not read parts");
    for (int list = 0; list < LISTS; list++)
        for (int o = 0; o < OTHERS; o++) {
            if (o == TWICE && lists[list].n < 2) continue;
            for (int act = FRI_ACTIVATION_NONE; act <= FRI_ACTIVATION_SILU; act++)
                for (int eval = 0; eval < 2; eval++)
                    compare((setting){.dtype = t,
                                      .list = list,
                                      .others = (others)o,
                                      .act = (fri_activation)act,
                                      .eval = eval});
        }
    expect_nothing_left();
}

Test(norm_parts, bits_and_bytes_of_separate_calls_in_f32, .timeout = 300) {
    compare_all(FR_F32);
}

Test(norm_parts, bits_and_bytes_of_separate_calls_in_bf16, .timeout = 300) {
    compare_all(FR_BF16);
}

Test(norm_parts, bits_and_bytes_of_separate_calls_in_f16, .timeout = 300) {
    compare_all(FR_F16);
}

Test(norm_parts, bits_and_bytes_of_separate_calls_in_f64, .timeout = 300) {
    if (test_device() != FR_CPU) cr_skip_test("f64 arithmetic is the CPU's");
    compare_all(FR_F64);
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

typedef enum reason { FUSED, TAPPED, READ_TWICE, NO_NORM, ADDS, REASONS } reason;

/* concat - norm - relu, or a list that is no row. */
static fr_module *network(reason why) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){N, H, W, 4}), y[2];
    const fr_value made = fr_net_conv2d(n, "conv", x, 6, 1, NULL, FR_NO_BIAS);
    const fr_value joined = fr_net_concat(n, "concat", (fr_value[]){x, made}, 2);
    fr_value side = joined;
    if (why == ADDS) side = fr_net_conv2d(n, "side", x, 10, 1, NULL, FR_NO_BIAS);
    y[0] = why == NO_NORM ? joined : fr_net_batchnorm2d(n, "norm", joined, NULL);
    if (why == ADDS) y[0] = fr_net_add(n, "add", y[0], side);
    y[0] = fr_net_relu(n, "relu", y[0]);
    y[1] = joined;
    must(fr_net_end(&n, y, why == READ_TWICE ? 2 : 1, &m));
    return m;
}

/* Calls of copy_rows in a forward pass. */
static int copies(fr_module *m, int results) {
    fr_tensor *x = image(FR_F32, 4), *y[2] = {NULL, NULL};
    kernels_watch();
    must(fr_module_forward_n(m, &x, 1, y, results));
    kernels_unwatch();
    RELEASE_ALL(&x, &y[0], &y[1]);
    return kernels_run("copy_rows");
}

Test(norm_parts, layers_that_are_no_row_are_separate_calls) {
    if (!reads_parts(FR_F32)) cr_skip_test("kernels do not read parts");
    for (int why = 0; why < REASONS; why++) {
        fr_module *m = network((reason)why);
        if (why == TAPPED) must(fr_module_tap(m, "concat"));
        cr_expect_eq(copies(m, why == TAPPED || why == READ_TWICE ? 2 : 1), why == FUSED ? 0 : 2, "case %d", why);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

static double *no_room(void *ctx, int64_t n) {
    (void)ctx;
    (void)n;
    return NULL;
}

Test(norm_parts, switches_and_examined_results_keep_calls_separate) {
    if (!reads_parts(FR_F32)) cr_skip_test("kernels do not read parts");
    fr_module *m = network(FUSED);
    fr_switches s = fr_switches_default();
    s.rebuild = false;
    fr_switches_set(s);
    cr_expect_eq(copies(m, 1), 0, "no rebuild: what is kept is the parts");
    s.inplace = false;
    fr_switches_set(s);
    cr_expect_eq(copies(m, 1), 2, "nothing that fuses");
    fr_switches_set(fr_switches_default());
    fr_detect_anomaly(true);
    cr_expect_eq(copies(m, 1), 2, "each result is examined");
    fr_detect_anomaly(false);
    fr_module_train(m, false);
    cr_expect_eq(copies(m, 1), 0, "evaluation with a gradient of gamma");
    must(fr_tensor_set_requires_grad(fr_module_tensor(fr_module_find(m, "norm"), "weight"), false));
    cr_expect_eq(copies(m, 1), 2, "a backward that does not read x keeps signs alone");
    bool was = fr_no_grad_begin();
    cr_expect_eq(copies(m, 1), 0, "no backward");
    fr_no_grad_end(was);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(norm_parts, parts_that_do_not_fit_are_left_to_concat) {
    if (!reads_parts(FR_F32)) cr_skip_test("kernels do not read parts");
    fr_tensor *x = image(FR_F32, 4), *half = image(FR_F16, 4), *row = NULL, *small = NULL, *number = NULL;
    fr_tensor *many[FRI_NORM_PARTS + 1];
    const fri_statistics_sync sync = {.ranks = 2, .room = no_room};
    must(fr_tensor_zeros(2, (int64_t[]){N, 4}, FR_F32, test_device(), &row));
    must(fr_tensor_zeros(4, (int64_t[]){N, 1, W, 4}, FR_F32, test_device(), &small));
    must(fr_tensor_zeros(4, (int64_t[]){N, H, W, 4}, FR_I32, test_device(), &number));
    for (int i = 0; i <= FRI_NORM_PARTS; i++) many[i] = x;
    cr_expect(fri_norm_joins((fr_tensor *[]){x, x}, 2, true));
    cr_expect(fri_norm_joins(many, FRI_NORM_PARTS, true));
    cr_expect_not(fri_norm_joins(many, FRI_NORM_PARTS + 1, true), "too many");
    cr_expect_not(fri_norm_joins((fr_tensor *[]){x, half}, 2, true), "another type");
    cr_expect_not(fri_norm_joins((fr_tensor *[]){x, small}, 2, true), "another shape");
    cr_expect_not(fri_norm_joins((fr_tensor *[]){row, row}, 2, true), "no images");
    cr_expect_not(fri_norm_joins((fr_tensor *[]){number, number}, 2, true), "no float type");
    fri_statistics_sync_set(&sync);
    cr_expect_not(fri_norm_joins((fr_tensor *[]){x, x}, 2, true), "statistics of several processes");
    fri_statistics_sync_set(NULL);
    RELEASE_ALL(&x, &half, &row, &small, &number);
    expect_nothing_left();
}
