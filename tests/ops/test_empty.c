/* test_empty.c - every op of ops.h with each dimension 0 in turn, forward and backward, against a table made by
 * PyTorch (tests/golden/make_empty.py): inputs hold a number each, dy is 1. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "support/op_suite.h"

enum { INPUTS = 3 };

typedef struct row {
    const char *op, *zero; /* the op's name up to a dot */
    bool refused;          /* by PyTorch */
    int64_t in[INPUTS][5]; /* rank, sizes */
    struct {
        int64_t shape[5];
        double value;
    } y;
    double gradient[INPUTS];
} row;

static const row table[] = {
#include "golden/empty.inc"
};
enum { ROWS = sizeof table / sizeof *table };

static const double value[INPUTS] = {2, 3, 0.5};

/* ---- calling an op by its name --------------------------------------------------------------------------------- */

static fr_tensor *zeros_like(fr_tensor *t, fr_dtype type) {
    fr_tensor *zeros = NULL;
    must(fr_tensor_zeros(fr_tensor_rank(t), fr_tensor_shape(t), type, test_device(), &zeros));
    return zeros;
}

/* Rows of x's last dimension, all of class 0. */
static fr_tensor *targets_of(fr_tensor *x) {
    fr_tensor *target = NULL;
    must(fr_tensor_zeros(fr_tensor_rank(x) - 1, fr_tensor_shape(x), FR_I64, test_device(), &target));
    return target;
}

static fr_status norm(const row *r, fr_tensor *const *in, bool abn, fr_tensor **y) {
    const fr_dtype real = fr_tensor_dtype(in[1]);
    const fr_batchnorm2d_opts o = *FR_BATCHNORM2D_OPTS(.train = strstr(r->op, "eval") == NULL);
    fr_tensor *mean = zeros_like(in[1], real), *var = NULL;
    must(fr_tensor_full(1, fr_tensor_shape(in[1]), 1, real, test_device(), &var));
    const fr_status s = abn ? fr_inplace_abn(in[0], in[1], in[2], mean, var, &o, 0.01, y)
                            : fr_batchnorm2d(in[0], in[1], in[2], mean, var, &o, y);
    fr_tensor_release(&mean);
    fr_tensor_release(&var);
    return s;
}

/* "add": is it the row's op? */
static bool is(const row *r, const char *name) {
    const size_t n = strlen(name);
    return strncmp(r->op, name, n) == 0 && (r->op[n] == '\0' || r->op[n] == '.');
}

#define INPLACE(name_, ...)                                         \
    if (is(r, #name_ "_inplace")) {                                 \
        fr_status s = fr_scale(in[0], 1, y);                        \
        return s < 0 ? s : fr_##name_##_inplace(*y, ##__VA_ARGS__); \
    }
#define BOTH(name_, ...)                                           \
    if (is(r, #name_)) return fr_##name_(in[0], ##__VA_ARGS__, y); \
    INPLACE(name_, ##__VA_ARGS__)
#define CALL(name_, ...) \
    if (is(r, #name_)) return fr_##name_(__VA_ARGS__, y)

static fr_status run_indexed(const row *r, fr_tensor *const *in, fr_tensor *index, fr_tensor **y) {
    BOTH(scatter, 1, index, in[1])
    BOTH(scatter_add, 1, index, in[1])
    CALL(gather, in[0], 1, index);
    return fr_embedding(index, in[0], y);
}

static fr_status run_loss(const row *r, fr_tensor *const *in, fr_tensor *target, fr_tensor **y) {
    CALL(cross_entropy, in[0], target, NULL);
    CALL(bce, in[0], target, NULL);
    CALL(dice, in[0], target, NULL);
    return fr_count_correct(in[0], target, y);
}

static fr_status run_images(const row *r, fr_tensor *const *in, fr_tensor **y) {
    const double p = strstr(r->op, ".all") != NULL ? 1 : 0.5;
    CALL(conv2d, in[0], in[1], in[2], FR_CONV2D_OPTS(.padding = strstr(r->op, "pointwise") == NULL));
    CALL(conv_transpose2d, in[0], in[1], in[2], FR_CONV_TRANSPOSE2D_OPTS(.stride = 2));
    CALL(group_norm, in[0], 2, in[1], in[2], 1e-5);
    CALL(maxpool2d, in[0], 2, NULL);
    CALL(avgpool2d, in[0], 2, NULL);
    CALL(adaptive_avgpool2d, in[0], 2, 2);
    CALL(upsample, in[0], 6, 7, strstr(r->op, "bilinear") ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST, false);
    CALL(pixel_shuffle, in[0], 2);
    CALL(pixel_unshuffle, in[0], 2);
    CALL(dropout, in[0], p, p == 1);
    CALL(dropout2d, in[0], p, p == 1);
    CALL(stochastic_depth, in[0], p, p == 1);
    return is(r, "inplace_abn") || is(r, "batchnorm2d") ? norm(r, in, is(r, "inplace_abn"), y) : FR_EINTERNAL;
}

static fr_status run_unary(const row *r, fr_tensor *const *in, fr_tensor **y) {
    const int64_t *dim = fr_tensor_shape(in[0]), turned[] = {dim[2], dim[1], dim[0]};
    BOTH(relu)
    BOTH(relu6)
    BOTH(leaky_relu, 0.25)
    BOTH(scale, 3)
    BOTH(add_scalar, 3)
    CALL(sigmoid, in[0]);
    CALL(tanh, in[0]);
    CALL(silu, in[0]);
    CALL(hardsigmoid, in[0]);
    CALL(hardswish, in[0]);
    CALL(gelu, in[0]);
    CALL(gelu_tanh, in[0]);
    CALL(elu, in[0]);
    CALL(softplus, in[0]);
    CALL(clamp, in[0], -1, 1);
    CALL(softmax, in[0]);
    CALL(log_softmax, in[0]);
    CALL(cast, in[0], fr_tensor_dtype(in[0]) == FR_F32 ? FR_F16 : FR_F32);
    CALL(sum, in[0]);
    CALL(mean, in[0]);
    CALL(reshape, in[0], 3, turned);
    CALL(flatten, in[0], 1);
    CALL(narrow, in[0], 1, 0, dim[1] / 2);
    CALL(slice, in[0], 1, 1, INT64_MAX, 2);
    CALL(permute, in[0], (const int[]){2, 0, 1});
    CALL(pad, in[0], (const int64_t[]){0, 0, 1}, (const int64_t[]){0, 2, 0}, 7);
    return run_images(r, in, y);
}

static fr_status run(const row *r, fr_tensor *const *in, fr_tensor **y) {
    const bool embedding = is(r, "embedding"), loss = is(r, "cross_entropy") || is(r, "bce") || is(r, "dice");
    if (embedding || strncmp(r->op, "scatter", 7) == 0 || is(r, "gather")) {
        fr_tensor *index = zeros_like(in[in[1] != NULL], FR_I64);
        const fr_status s = run_indexed(r, in, index, y);
        fr_tensor_release(&index);
        return s;
    }
    if (loss || is(r, "count_correct")) {
        fr_tensor *target = targets_of(in[0]);
        const fr_status s = run_loss(r, in, target, y);
        fr_tensor_release(&target);
        return s;
    }
    BOTH(add, in[1])
    BOTH(sub, in[1])
    BOTH(mul, in[1])
    BOTH(div, in[1])
    CALL(linear, in[0], in[1], in[2]);
    CALL(matmul, in[0], in[1]);
    CALL(layer_norm, in[0], in[1], in[2], 1e-5);
    CALL(concat, in, 2);
    CALL(mse, in[0], in[1]);
    CALL(l1, in[0], in[1]);
    CALL(smooth_l1, in[0], in[1], 1);
    return run_unary(r, in, y);
}

/* ---- the rows --------------------------------------------------------------------------------------------------- */

/* The statistics and the vectors of norms are f32 beside half data. */
static fr_dtype type_of(const row *r, int i, fr_dtype type) {
    const bool vector =
        i > 0 && (is(r, "batchnorm2d") || is(r, "inplace_abn") || is(r, "group_norm") || is(r, "layer_norm"));
    return vector && type != FR_F64 ? FR_F32 : type;
}

static void expect_value(const row *r, const char *what, const fr_tensor *t, double expected) {
    double *v = values_of(t);
    for (int64_t i = 0; i < fr_tensor_numel(t) && (i == 0 || close_enough(fr_tensor_dtype(t), v[i - 1], expected)); i++)
        cr_expect(close_enough(fr_tensor_dtype(t), v[i], expected), "%s, %s = 0, %s: %s[%lld] is %g, not %g", r->op,
                  r->zero, fr_dtype_name(fr_tensor_dtype(t)), what, (long long)i, v[i], expected);
    free(v);
}

static void expect_shape(const row *r, const fr_tensor *y) {
    bool same = fr_tensor_rank(y) == r->y.shape[0];
    for (int i = 0; i < fr_tensor_rank(y) && same; i++) same = fr_tensor_dim(y, i) == r->y.shape[i + 1];
    cr_expect(same, "%s, %s = 0: another shape than PyTorch's", r->op, r->zero);
}

static void check(const row *r, fr_dtype type) {
    const bool overwritten = is(r, "mul_inplace") || is(r, "div_inplace"); /* a gradient of b would need the old a */
    char what[8];
    fr_tensor *in[INPUTS] = {NULL}, *y = NULL, *dy = NULL;
    for (int i = 0; i < INPUTS && (i == 0 || r->in[i][0] > 0 || strstr(r->op, ".scalar") != NULL); i++) {
        if (i == 2 && r->in[i][0] == 0) break;
        must(fr_tensor_full((int)r->in[i][0], r->in[i] + 1, value[i], type_of(r, i, type), test_device(), &in[i]));
        must(fr_tensor_set_requires_grad(in[i], i == 0 || !overwritten));
    }
    const fr_status s = run(r, in, &y);
    cr_expect(s >= 0 || (r->refused && fr_last_error()[0] != '\0' && s != FR_EINTERNAL && s != FR_ELIBRARY),
              "%s, %s = 0, %s: %s: %s", r->op, r->zero, fr_dtype_name(type), fr_status_name(s), fr_last_error());
    if (s < 0) goto done;
    cr_expect(!r->refused || fr_tensor_numel(y) == 0, "%s, %s = 0: PyTorch refuses it", r->op, r->zero);
    if (!r->refused) expect_shape(r, y);
    expect_value(r, "y", y, r->y.value);
    if (fr_tensor_requires_grad(y)) {
        must(fr_tensor_full(fr_tensor_rank(y), fr_tensor_shape(y), 1, fr_tensor_dtype(y), test_device(), &dy));
        const fr_status back = fr_backward(y, dy);
        cr_expect_eq(back, FR_OK, "%s, %s = 0, %s: backward: %s", r->op, r->zero, fr_dtype_name(type), fr_last_error());
    }
    for (int i = 0; i < INPUTS; i++) {
        fr_tensor *g = in[i] != NULL ? fr_tensor_get_grad(in[i]) : NULL;
        snprintf(what, sizeof what, "d%d", i);
        if (g != NULL)
            expect_value(r, what, g, r->gradient[i]);
        else
            cr_expect_eq(r->gradient[i], 0, "%s, %s = 0: input %d has no gradient", r->op, r->zero, i);
    }
done:
    fr_tensor_release(&y);
    fr_tensor_release(&dy);
    for (int i = 0; i < INPUTS; i++) fr_tensor_release(&in[i]);
}

static void check_all(fr_dtype type) {
    for (int i = 0; i < ROWS; i++) check(&table[i], type);
    expect_nothing_left();
}

Test(empty, f32_as_pytorch) {
    check_all(FR_F32);
}

Test(empty, halves_as_pytorch) {
    check_all(FR_F16);
    check_all(FR_BF16);
}

Test(empty, f64_as_pytorch) {
    cpu_only("f64 is computed there alone");
    check_all(FR_F64);
}

/* Nodes keep whole tensors instead of bits and codes. */
Test(empty, without_switches_as_pytorch) {
    fr_switches_set(fr_switches_all_off());
    check_all(FR_F32);
}

Test(empty, every_op_of_the_header_has_a_row) {
    char path[1024], line[512], name[64];
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/include/frugal/ops.h", root != NULL ? root : ".");
    FILE *f = fopen(path, "r");
    int ops = 0;
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "FR_API fr_status fr_%63[a-z0-9_](", name) != 1) continue;
        bool found = false;
        for (int i = 0; i < ROWS && !found; i++) found = is(&table[i], name);
        cr_expect(found, "fr_%s has no row", name);
        ops++;
    }
    fclose(f);
    cr_expect_gt(ops, 60);
}
