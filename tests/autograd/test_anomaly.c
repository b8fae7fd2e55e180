/* test_anomaly.c - the first op that makes inf or NaN is named: in forward, in backward, in every type, through
 * checkpoints, without a byte. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <math.h>
#include <string.h>

#include "support/golden.h"
#include "autograd/run.h"

static fr_tensor *full(double value, fr_dtype dtype, bool grad) {
    fr_tensor *t = NULL;
    must(fr_tensor_full(1, (int64_t[]){5}, value, dtype, test_device(), &t));
    if (grad) must(fr_tensor_set_requires_grad(t, true));
    return t;
}

static void expect_found(const char *op, bool backward, const char *text) {
    fr_anomaly a = fri_anomaly_get();
    cr_assert_not_null(a.op, "%s: nothing was found", text);
    cr_expect_str_eq(a.op, op, "%s: %s", text, a.op);
    cr_expect_eq(a.backward, backward, "%s", text);
}

/* x * y overflows the type. The sum after it is bad too, but not first. */
Test(anomaly, forward_in_every_type) {
    static const struct {
        fr_dtype dtype;
        double large;
    } types[] = {{FR_F16, 3e4}, {FR_BF16, 3e38}, {FR_F32, 3e38}, {FR_F64, 1e308}};
    for (int i = 0; i < 4; i++) {
        const char *text = fr_dtype_name(types[i].dtype);
        if (test_device() == FR_CUDA && types[i].dtype == FR_F64) continue;
        fr_tensor *x = full(types[i].large, types[i].dtype, false), *y = NULL;
        cr_expect(!fr_detect_anomaly(true));
        must(fr_scale(x, 0.5, &y));
        cr_expect_null(fri_anomaly_get().op, "%s: half of it is finite", text);
        must(fr_mul(y, x, &y));
        must(fr_add(y, x, &y));
        cr_expect(fr_detect_anomaly(false));
        expect_found("mul", false, text);
        fr_detect_anomaly(true);
        cr_expect_null(fri_anomaly_get().op, "%s: turning on forgets", text);
        fr_detect_anomaly(false);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}

/* NaN counts, and so does a bad input that the op hands on. */
Test(anomaly, nan_and_off) {
    fr_tensor *x = full(NAN, FR_F32, false), *y = NULL;
    fr_detect_anomaly(true);
    fr_detect_anomaly(false);
    must(fr_scale(x, 1, &y));
    cr_expect_null(fri_anomaly_get().op, "it was off");
    fr_detect_anomaly(true);
    must(fr_relu(x, &y));
    fr_detect_anomaly(false);
    expect_found("relu", false, "NaN");
    fr_tensor_release(&x);
    fr_tensor_release(&y);
}

/* loss = sum(big * (big * (x * tiny))): finite; dx on the way overflows where big meets big. */
static fr_status product(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    (void)ctx;
    (void)n_in;
    (void)n_out;
    FR_TRY(s, fr_mul(in[0], in[1], &y));
    FR_TRY(s, fr_scale(y, 1e30, &y));
    FR_TRY(s, fr_scale(y, 1e30, &y));
    FR_TRY(s, fr_sum(y, out));
done:
    fr_tensor_release(&y);
    return s;
}

Test(anomaly, backward_also_through_a_checkpoint) {
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        fr_tensor *in[2] = {full(1, FR_F32, true), full(1e-40, FR_F32, false)}, *loss = NULL;
        fr_memory_stats before, after;
        fr_detect_anomaly(true);
        if (checkpoint)
            must(fr_checkpoint(product, NULL, NULL, in, 2, &loss, 1));
        else
            must(product(NULL, in, 2, &loss, 1));
        cr_expect_null(fri_anomaly_get().op, "forward is finite");
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_backward(loss, NULL));
        must(fr_memory_stats_get(test_device(), &after));
        fr_detect_anomaly(false);
        expect_found("scale", true, checkpoint ? "checkpointed" : "plain");
        fr_tensor_release(&in[0]);
        fr_tensor_release(&in[1]);
        fr_tensor_release(&loss);
    }
    expect_nothing_left();
}

/* Looking allocates nothing. Meta tensors have no values to look at. */
Test(anomaly, costs_no_bytes) {
    size_t peak[2];
    for (int on = 0; on < 2; on++) {
        fr_memory_stats m;
        fr_tensor *x = full(1, FR_F32, true), *y = NULL;
        must(fr_memory_reset_peak(test_device()));
        fr_detect_anomaly(on);
        must(fr_mul(x, x, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        fr_detect_anomaly(false);
        must(fr_memory_stats_get(test_device(), &m));
        peak[on] = m.peak_requested;
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    cr_expect_eq(peak[0], peak[1], "%zu bytes, looking %zu", peak[0], peak[1]);
    fr_tensor *x = NULL;
    must(fr_tensor_empty(1, (int64_t[]){5}, FR_F32, FR_META, &x));
    fr_detect_anomaly(true);
    must(fr_scale(x, 2, &x));
    fr_detect_anomaly(false);
    cr_expect_null(fri_anomaly_get().op);
    fr_tensor_release(&x);
    expect_nothing_left();
}
