/* test_described_op.c - a program's own op in both forms: recorded, as example 04 of version 0.3.0, and described. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/frugal.h>
#include <math.h>
#include <string.h>

#include "support/golden.h"

/* ---- recorded: example 04 of version 0.3.0 ----------------------------------------------------------------------- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* out[i] = f(x[i], dy[i]) on f32 or f64 tensors of the CPU; dy NULL: the forward. */
static void swish_values(fr_tensor *x, fr_tensor *dy, fr_tensor *out) {
    bool wide = fr_tensor_dtype(x) == FR_F64;
    for (int64_t i = 0; i < fr_tensor_numel(x); i++) {
        double v = wide ? ((double *)fr_tensor_data(x))[i] : (double)((float *)fr_tensor_data(x))[i];
        double g = dy == NULL ? 1 : wide ? ((double *)fr_tensor_data(dy))[i] : (double)((float *)fr_tensor_data(dy))[i];
        double q = sigmoid(v), r = dy == NULL ? v * q : g * (q + v * q * (1 - q));
        if (wide)
            ((double *)fr_tensor_data(out))[i] = r;
        else
            ((float *)fr_tensor_data(out))[i] = (float)r;
    }
}

static fr_status new_like(fr_tensor *x, fr_tensor **out) {
    return fr_tensor_empty(fr_tensor_rank(x), fr_tensor_shape(x), fr_tensor_dtype(x), fr_tensor_device(x), out);
}

static fr_status recorded_backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *x = NULL, *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_node_saved(node, 0, &x)); /* the value may have been kept, rebuilt or recomputed */
    FR_TRY(s, new_like(x, &dx));
    swish_values(x, *dy, dx);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&x);
    fr_tensor_release(&dx);
    return s;
}

static const fr_op recorded_op = {.name = "swish", .backward = recorded_backward};

static fr_status recorded_swish(fr_tensor *x, fr_tensor **y) {
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, new_like(x, &out));
    swish_values(x, NULL, out);
    fr_save save = {x, FR_SAVE_VALUE};
    FR_TRY(s, fr_op_record(&recorded_op, NULL, 0, &x, 1, &save, 1, out));
    fr_tensor_release(y);
    *y = out;
    out = NULL;
done:
    fr_tensor_release(&out);
    return s;
}

/* ---- described --------------------------------------------------------------------------------------------------- */

static fr_status forward_kernel(const fr_kernel_call *c) {
    swish_values(c->t[0], NULL, c->t[1]);
    return FR_OK;
}

static fr_status backward_kernel(const fr_kernel_call *c) {
    cr_expect_eq(c->workspace_bytes, 512);
    memset(c->workspace, 0, c->workspace_bytes);
    swish_values(c->t[0], c->t[1], c->t[2]);
    return FR_OK;
}

static fr_status scratch(const fr_kernel_call *c, size_t *bytes) {
    *bytes = 512;
    return c->device == FR_CUDA ? FR_EUNSUPPORTED : FR_OK;
}

static const fr_kernel swish_forward = {.name = "swish_forward", .run = forward_kernel};
static const fr_kernel swish_backward = {.name = "swish_backward", .run = backward_kernel, .workspace = scratch};
static fr_described swish = {.op = {.name = "swish"},
                             .operands = "x[*] > y[*]=x",
                             .forward = {{"x > y", &swish_forward}},
                             .backward = {{"x dy > dx=dy", &swish_backward}},
                             .rebuilds = true};

static fr_status described_swish(fr_tensor *x, fr_tensor **y) {
    return fr_op_call(&swish, &x, 1, NULL, 0, y);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static fr_status (*const forms[])(fr_tensor *x, fr_tensor **y) = {recorded_swish, described_swish};

/* y = swish(swish(x)), with the signature that fr_gradcheck and fr_checkpoint call. */
static fr_status twice(void *form, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    const int f = *(int *)form;
    const fr_status s = forms[f](in[0], out);
    return s < 0 ? s : forms[f](out[0], out);
}

/* The gradient of sum(twice(x)), with or without a checkpoint around it. */
static void gradient(int form, bool checkpoint, float *g) {
    fr_tensor *x = NULL, *y = NULL;
    fr_seed(3);
    must(fr_tensor_normal(1, (int64_t[]){100}, 0, 2, FR_F32, FR_CPU, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(checkpoint ? fr_checkpoint(twice, &form, NULL, &x, 1, &y, 1) : twice(&form, &x, 1, &y, 1));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(x), g));
    RELEASE_ALL(&x, &y);
}

Test(described_op, both_forms_agree_with_and_without_checkpoints) {
    float g[4][100];
    for (int i = 0; i < 4; i++) gradient(i / 2, i % 2 == 1, g[i]);
    for (int i = 1; i < 4; i++) cr_expect_eq(memcmp(g[0], g[i], sizeof g[0]), 0, "form %d", i);
    expect_nothing_left();
}

Test(described_op, gradients_agree_with_differences) {
    for (int form = 0; form < 2; form++) {
        fr_tensor *x = NULL;
        must(fr_tensor_normal(1, (int64_t[]){20}, 0, 2, FR_F64, FR_CPU, &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_gradcheck(twice, &form, &x, 1, NULL));
        fr_tensor_release(&x);
    }
    expect_nothing_left();
}

/* A plan never calls the kernels, and has all bytes: x, dx over dy, the sum and the workspace of backward. */
Test(described_op, a_description_is_planned) {
    fr_tensor *x = NULL, *y = NULL;
    fr_memory_stats stats;
    must(fr_tensor_empty(1, (int64_t[]){10000}, FR_F32, FR_META, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(described_swish(x, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    must(fr_memory_stats_get(FR_META, &stats));
    cr_expect_eq(stats.peak_requested, 2 * 40448 + 2 * 512, "%zu", (size_t)stats.peak_requested);
    RELEASE_ALL(&x, &y);
}

/* y = x + w; dx may be dy, which dw's step reads later. */
static fr_status add_kernel(const fr_kernel_call *c) {
    const float *x = fr_tensor_data(c->t[0]), *w = fr_tensor_data(c->t[1]);
    float *y = fr_tensor_data(c->t[2]);
    for (int64_t i = 0; i < fr_tensor_numel(c->t[0]); i++) y[i] = x[i] + w[i];
    return FR_OK;
}

static fr_status scaled(const fr_kernel_call *c, float by) {
    const float *dy = fr_tensor_data(c->t[0]);
    float *d = fr_tensor_data(c->t[1]);
    for (int64_t i = 0; i < fr_tensor_numel(c->t[0]); i++) d[i] = by * dy[i];
    return FR_OK;
}

static fr_status ten_kernel(const fr_kernel_call *c) {
    return scaled(c, 10);
}

static fr_status one_kernel(const fr_kernel_call *c) {
    return scaled(c, 1);
}

Test(described_op, a_gradient_over_dy_waits_for_the_last_reader) {
    static const fr_kernel sum = {.name = "sum_of_two", .run = add_kernel}, ten = {.name = "ten", .run = ten_kernel},
                           one = {.name = "one", .run = one_kernel};
    static fr_described op = {.op = {.name = "two"},
                              .operands = "x[*] w[*] > y[*]",
                              .forward = {{"x w > y", &sum}},
                              .backward = {{"dy > dx=dy", &ten}, {"dy > dw=dy", &one}}};
    fr_tensor *x = NULL, *w = NULL, *y = NULL;
    float dw[4];
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CPU, &x));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CPU, &w));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_op_call(&op, (fr_tensor *[]){x, w}, 2, NULL, 0, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(w), dw));
    for (int i = 0; i < 4; i++) cr_expect_eq(dw[i], 1);
    RELEASE_ALL(&x, &w, &y);
    expect_nothing_left();
}

Test(described_op, a_description_refuses) {
    fr_tensor *x = NULL, *w = NULL, *y = NULL;
    static fr_described unknown = {.op = {.name = "unknown"},
                                   .operands = "x[*] > y[*]",
                                   .forward = {{"z > y", &swish_forward}}};
    static fr_described typed = {.op = {.name = "typed"},
                                 .operands = "x:f8[*] > y[*]",
                                 .forward = {{"x > y", &swish_forward}}};
    static fr_described empty = {.op = {.name = "empty"}, .operands = "x[*] > y[*]"};
    static fr_described pair = {.op = {.name = "pair"},
                                .operands = "x[*,i] w[o,i] > y[*,o]",
                                .forward = {{"x w > y", &swish_forward}}};
    must(fr_tensor_zeros(2, (int64_t[]){2, 3}, FR_F32, FR_CPU, &x));
    must(fr_tensor_zeros(2, (int64_t[]){5, 4}, FR_F32, FR_CPU, &w));
    fr_tensor *in[] = {x, w};
    expect_refused(fr_op_call(&swish, (fr_tensor *[]){NULL}, 1, NULL, 0, &y), FR_EINVAL, "swish: x", "NULL", y);
    expect_refused(fr_op_call(&swish, in, 2, NULL, 0, &y), FR_EINVAL, "2 inputs", "has 1", y);
    expect_refused(fr_op_call(&swish, in, 1, in, 257, &y), FR_EINVAL, "257 bytes", "256", y);
    expect_refused(fr_op_call(&unknown, in, 1, NULL, 0, &y), FR_EINVAL, "'z > y'", "names no operand", y);
    expect_refused(fr_op_call(&typed, in, 1, NULL, 0, &y), FR_EINVAL, "f8", "none of real", y);
    expect_refused(fr_op_call(&empty, in, 1, NULL, 0, &y), FR_EINVAL, "empty", "no forward step", y);
    expect_refused(fr_op_call(&pair, in, 2, NULL, 0, &y), FR_ESHAPE, "w has shape [5, 4]; [5, 3] is needed", "[2, 3]",
                   y);
    RELEASE_ALL(&x, &w);
    expect_nothing_left();
}
