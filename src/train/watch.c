/* watch.c - what a run keeps an eye on: gradients that overflow, a graph that grows, memory the engine does not see. */
#include "base/status.h"
#include "memory/report.h"
#include "train/run.h"

#include <inttypes.h>
#include <math.h>

enum { GROWING_STEPS = 3, FRI_WATCH_TEXT = 256 };

fr_status fri_watch_overflow(fri_run *r) {
    const char *path = NULL, *op = NULL;
    fr_status s = fr_grad_scaler_find_overflow(r->scaler, r->optimizer, &path, &op);
    if (s == FR_OK && path != NULL) {
        r->overflow_path = path;
        r->overflow_op = op;
    }
    return s;
}

/* "nan", whatever its sign. */
static double unsigned_nan(double x) {
    return isnan(x) ? NAN : x;
}

bool fri_watch_looks(const fri_run *r) {
    return r->opts.detect_anomaly || (r->step_skipped && !isfinite(r->overflow_loss));
}

void fri_watch_begin(const fri_run *r) {
    (void)fr_detect_anomaly(fri_watch_looks(r));
}

void fri_watch_end(fri_step_values *v) {
    bool looked = fr_detect_anomaly(false);
    v->anomaly = looked ? fr_anomaly_get() : (fr_anomaly){0};
}

/* "" if this step was not looked at. */
static const char *anomaly_text(const fr_anomaly *a, char text[FRI_WATCH_TEXT]) {
    text[0] = '\0';
    if (a->op != NULL)
        snprintf(text, FRI_WATCH_TEXT, "inf or NaN first in %s of op %s in module %s",
                 a->backward ? "a gradient" : "the result", a->op, a->module[0] != '\0' ? a->module : "-");
    return text;
}

fr_status fri_watch_loss(const fri_run *r, double loss) {
    char text[FRI_WATCH_TEXT];
    if (r->opts.device == FR_META || isfinite(loss) || r->step_skipped) return FR_OK;
    return fri_fail(FR_EINVAL, "the loss is %g after step %" PRId64 ": --lr %g may be too high; %s", unsigned_nan(loss),
                    r->known, r->opts.lr,
                    r->anomaly.op != NULL ? anomaly_text(&r->anomaly, text)
                                          : "--detect-anomaly names the op where it began");
}

static void overflow_line(const fri_run *r) {
    char text[FRI_WATCH_TEXT];
    fri_progress_line_begin(r);
    fprintf(r->out, "step %" PRId64 " is skipped: ", r->known);
    if (!isfinite(r->overflow_loss))
        fprintf(r->out, "the forward pass overflowed, its loss is %g; ", unsigned_nan(r->overflow_loss));
    if (r->anomaly.op != NULL) fprintf(r->out, "%s; ", anomaly_text(&r->anomaly, text));
    if (r->overflow_path == NULL)
        fprintf(r->out, "inf or NaN in a gradient that is gone (%s)\n",
                fri_device_runs_ahead(r->opts.device) ? "the device was ahead" : "--fused-step");
    else
        fprintf(r->out, "inf or NaN first in the gradient of %s, made by op %s\n", r->overflow_path,
                r->overflow_op != NULL && r->overflow_op[0] != '\0' ? r->overflow_op : "-");
}

static void growth_line(const fri_run *r) {
    fr_memory_stats m = {0};
    char text[FRI_BYTES_TEXT];
    (void)fr_memory_stats_get(r->opts.device, &m);
    fri_progress_line_begin(r);
    fprintf(r->out,
            "warning: the graph grew in each of the last %d steps: %" PRIu64 " nodes live between steps, with %s of "
            "activations. Is something summed over steps that requires a gradient, a loss without fr_tensor_item?\n",
            GROWING_STEPS, fr_graph_stats_get().nodes, fri_bytes_text(m.allocated_by[FR_MEM_ACTIVATION], text));
}

void fri_watch_step(const fri_run *r) {
    if (r->opts.quiet) return;
    if (r->step_skipped) overflow_line(r);
    if (fr_graph_stats_get().growing_steps == GROWING_STEPS) growth_line(r);
}

size_t fri_watch_outside(const fri_run *r, fri_memory_use *use, size_t *reserved) {
    const fri_backend *b = fri_backend_get(r->opts.device);
    fr_memory_stats m;
    *use = (fri_memory_use){.source = ""};
    *reserved = 0;
    if (r->planned || b == NULL || b->memory_use == NULL || fr_memory_stats_get(r->opts.device, &m) < 0) return 0;
    b->memory_use(use);
    *reserved = m.reserved;
    return use->process > m.reserved ? use->process - m.reserved : 0;
}
