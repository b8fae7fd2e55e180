/* anomaly.c - finds the gradient that overflows in a step, and the first op with inf or NaN. */
#include "session/step.h"
#include "optim/scaler.h"
#include "autograd/run.h"

#include <inttypes.h>
#include <math.h>

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

fr_status fri_watch_loss(const fri_run *r, double loss) {
    char text[FRI_ANOMALY_TEXT];
    if (r->config->opts.device == FR_META || isfinite(loss) || r->numbers.step_skipped) return FR_OK;
    return fr_fail(FR_EINVAL, "the loss is %g after step %" PRId64 ": --lr %g may be too high; %s",
                   fri_unsigned_nan(loss), r->numbers.known, r->config->opts.optim.lr,
                   r->numbers.anomaly.op != NULL ? fri_anomaly_text(&r->numbers.anomaly, text)
                                                 : "--detect-anomaly names the op where it began");
}
