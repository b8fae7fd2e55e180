/* watch.c - warns about skipped steps and growing graphs; measures memory outside of the engine. */
#include "session/step.h"
#include "session/views.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <math.h>

enum { GROWING_STEPS = 3 };

static void say_overflow(const fri_run *r) {
    char loss[96] = "", first[FRI_ANOMALY_TEXT + 2] = "", text[FRI_ANOMALY_TEXT];
    if (!isfinite(r->numbers.overflow_loss))
        fr_snprintf(loss, sizeof loss, "the forward pass overflowed, its loss is %g; ",
                    fri_unsigned_nan(r->numbers.overflow_loss));
    if (r->numbers.anomaly.op != NULL)
        snprintf(first, sizeof first, "%s; ", fri_anomaly_text(&r->numbers.anomaly, text));
    if (r->numbers.overflow_path == NULL)
        fri_say(r->config, FRI_SAY_STEP, "step %" PRId64 " is skipped: %s%sinf or NaN in a gradient that is gone (%s)",
                r->numbers.known, loss, first,
                fr_device_is_asynchronous(r->config->opts.device) ? "the device was ahead" : "--fused-step");
    else
        fri_say(r->config, FRI_SAY_STEP,
                "step %" PRId64 " is skipped: %s%sinf or NaN first in the gradient of %s, made by op %s",
                r->numbers.known, loss, first, r->numbers.overflow_path,
                r->numbers.overflow_op != NULL && r->numbers.overflow_op[0] != '\0' ? r->numbers.overflow_op : "-");
}

static void say_growth(const fri_run *r) {
    fr_memory_stats m = {0};
    char text[FR_BYTES_TEXT];
    (void)fr_memory_stats_get(r->config->opts.device, &m);
    fri_say(r->config, FRI_SAY_STEP,
            "warning: the graph grew in each of the last %d steps: %" PRIu64 " nodes live between steps, with %s of "
            "activations. Is something summed over steps that requires a gradient, a loss without fr_tensor_item?",
            GROWING_STEPS, fr_graph_stats_get().nodes, fr_bytes_text(m.allocated_by[FR_MEM_ACTIVATION], text));
}

static fr_status watch_event(void *state, const fri_run *r, fr_run_event e) {
    (void)state;
    if (e != FR_RUN_STEP) return FR_OK;
    if (r->numbers.step_skipped) say_overflow(r);
    if (fr_graph_stats_get().growing_steps == GROWING_STEPS) say_growth(r);
    return FR_OK;
}

const fri_view fri_watch_view = {0, NULL, watch_event, NULL};

size_t fri_watch_outside(const fri_run *r, fr_memory_use *use, size_t *reserved) {
    fr_memory_stats m;
    *use = (fr_memory_use){.source = ""};
    *reserved = 0;
    if (r->planned || fr_memory_stats_get(r->config->opts.device, &m) < 0) return 0;
    fr_memory_use_get(r->config->opts.device, use);
    if (use->source[0] == '\0') return 0;
    *reserved = m.reserved;
    return use->process > m.reserved ? use->process - m.reserved : 0;
}
