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

/* found: per device, nonzero once a tensor there holds inf or NaN. The host waits for the flag at the end of a pass, or
 * by tensor in a pass that names the tensor. */
typedef struct look {
    const fri_run *run;
    fr_tensor *found[FR_META];
    bool by_tensor;
} look;

static fr_status look_at_state(void *ctx, const char *path, fr_tensor *t) {
    look *l = ctx;
    const fr_device device = fr_tensor_device(t);
    double found = 0;
    if (!fr_dtype_is_float(fr_tensor_dtype(t)) || device == FR_META) return FR_OK;
    fr_tensor **flag = &l->found[device];
    if (*flag == NULL) FRI_TRY(fr_tensor_zeros(1, (int64_t[]){1}, FR_F32, device, flag));
    fri_array array = {fri_numel(t), fri_data(t)};
    FRI_TRY(FRI_KERNEL(fri_backend_of(t), t->dtype, unscale, (FRI_EXEC, t->dtype, 1, &array, NULL, fri_data(*flag))));
    if (l->by_tensor) FRI_TRY(fr_tensor_item(*flag, &found));
    if (found == 0) return FR_OK;
    return fr_fail(FR_EINVAL,
                   "after step %" PRId64
                   " the training holds inf or NaN, first in %s: --lr %g may be too high; no file "
                   "is written, and older ones stay",
                   l->run->at.step, path, l->run->config->opts.optim.lr);
}

static fr_status look_at_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return look_at_state(ctx, path, t);
}

static fr_status look_at_all(look *l) {
    FRI_TRY(fr_module_each_tensor(l->run->net.model, look_at_tensor, l));
    return fri_optimizer_each_state(l->run->net.optimizer, look_at_state, l);
}

fr_status fri_watch_values(fri_run *r) {
    look l = {.run = r};
    fr_status s = look_at_all(&l);
    for (int device = 0; device < FR_META; device++) {
        double found = 0;
        if (s == FR_OK && l.found[device] != NULL) s = fr_tensor_item(l.found[device], &found);
        l.by_tensor |= found != 0;
        fr_tensor_release(&l.found[device]);
    }
    if (s == FR_OK && l.by_tensor) s = look_at_all(&l);
    for (int device = 0; device < FR_META; device++) fr_tensor_release(&l.found[device]);
    return s;
}
