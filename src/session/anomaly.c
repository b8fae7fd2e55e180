/* anomaly.c - finds the gradient that overflows in a step, and the first op with inf or NaN. */
#include "session/step.h"
#include "optim/scaler.h"
#include "autograd/run.h"
#include "optim/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

fr_status fri_watch_overflow(fri_run *r) {
    const char *path = NULL, *op = NULL;
    fr_status s = fri_grad_scaler_find_overflow(r->net.scaler, r->net.optimizer, &path, &op);
    if (s == FR_OK && path != NULL) {
        r->numbers.overflow_path = path;
        r->numbers.overflow_op = op;
    }
    return s;
}

bool fri_watch_enabled(const fri_run *r) {
    return r->config->opts.precision.detect_anomaly || (r->numbers.step_skipped && !isfinite(r->numbers.overflow_loss));
}

void fri_watch_begin(const fri_run *r) {
    (void)fr_detect_anomaly(fri_watch_enabled(r));
}

void fri_watch_end(fri_step_values *v) {
    bool looked = fr_detect_anomaly(false);
    v->anomaly = looked ? fri_anomaly_get() : (fr_anomaly){0};
}

double fri_unsigned_nan(double x) {
    return isnan(x) ? NAN : x;
}

const char *fri_anomaly_text(const fr_anomaly *a, char text[FRI_ANOMALY_TEXT]) {
    text[0] = '\0';
    if (a->op != NULL)
        snprintf(text, FRI_ANOMALY_TEXT, "inf or NaN first in %s of op %s in module %s",
                 a->backward ? "a gradient" : "the result", a->op, a->module[0] != '\0' ? a->module : "-");
    return text;
}

fr_status fri_watch_loss(const fri_run *r, double loss, bool tested) {
    char text[FRI_ANOMALY_TEXT];
    if (r->config->opts.device == FR_META || isfinite(loss) || (!tested && r->numbers.step_skipped)) return FR_OK;
    return fr_fail(FR_EINVAL, "the %sloss is %g after step %" PRId64 ": --lr %g may be too high; %s",
                   tested ? "test " : "", fri_unsigned_nan(loss), r->numbers.known, r->config->opts.optim.lr,
                   r->numbers.anomaly.op != NULL ? fri_anomaly_text(&r->numbers.anomaly, text)
                                                 : "--detect-anomaly names the op where it began");
}

/* ---- before a file is written ---------------------------------------------------------------------------------- */

/* False: a number has the exponent of inf and NaN. */
static bool are_finite(const void *x, fr_dtype dtype, size_t n) {
    const uint64_t half = dtype == FR_F16 ? 0x7c00 : 0x7f80;
    bool found = false;
    for (size_t i = 0; i < n && dtype == FR_F64; i++) found |= !isfinite(((const double *)x)[i]);
    for (size_t i = 0; i < n && dtype == FR_F32; i++) found |= (((const uint32_t *)x)[i] & 0x7f800000) == 0x7f800000;
    for (size_t i = 0; i < n && fr_dtype_size(dtype) == 2; i++) found |= (((const uint16_t *)x)[i] & half) == half;
    return !found;
}

static fr_status look_at_state(void *ctx, const char *path, fr_tensor *t) {
    const fri_run *r = ctx;
    if (!fr_dtype_is_float(fr_tensor_dtype(t)) || fr_tensor_device(t) == FR_META) return FR_OK;
    const bool near = fr_tensor_device(t) == FR_CPU;
    FRI_OWNED(fri_free) void *copy = near ? NULL : malloc(fr_tensor_nbytes(t) + 1);
    if (!near && copy == NULL)
        return fr_fail(FR_ENOMEM, "no host memory for %zu bytes of %s", fr_tensor_nbytes(t), path);
    if (!near) FRI_TRY(fr_tensor_to_host(t, copy));
    if (are_finite(near ? fr_tensor_data(t) : copy, fr_tensor_dtype(t), (size_t)fr_tensor_numel(t))) return FR_OK;
    return fr_fail(FR_EINVAL,
                   "after step %" PRId64
                   " the training holds inf or NaN, first in %s: --lr %g may be too high; no file "
                   "is written, and older ones stay",
                   r->at.step, path, r->config->opts.optim.lr);
}

static fr_status look_at_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return look_at_state(ctx, path, t);
}

fr_status fri_watch_values(fri_run *r) {
    FRI_TRY(fr_module_each_tensor(r->net.model, look_at_tensor, r));
    return fri_optimizer_each_state(r->net.optimizer, look_at_state, r);
}
