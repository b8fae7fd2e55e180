/* memory_plot.c - --memory-plot: the step that needs most memory, of a run or of a plan, as a picture. */
#include "session/views.h"

#include <inttypes.h>

static fr_status begin(void *state, const fri_session *r) {
    (void)state;
    return r->config->opts.memory_plot != NULL ? FR_OK : FR_END;
}

static fr_status draw(fr_timeline_recorder *recorder, const fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    const fr_timeline_panel panel = {&recorder->most, ""};
    char heading[256];
    snprintf(heading, sizeof heading,
             "%s on %s, %" PRId64 " images of %" PRId64 " pixels: one training step, requested bytes by category",
             r->config->model_name, fr_device_name(o->device), o->batch_size, o->image_size);
    fr_status s = fr_timeline_end(recorder);
    if (s == FR_OK) s = fr_timeline_draw(o->memory_plot, heading, &panel, 1);
    return s < 0 ? fr_fail_prefix(s, "--memory-plot ") : FR_OK;
}

static fr_status event(void *state, const fri_session *r, fri_run_event e) {
    if (e == FRI_RUN_SETUP) return fr_timeline_begin(state, r->planned ? FR_META : r->config->opts.device);
    return e == FRI_RUN_STEPS_END ? draw(state, r) : FR_OK;
}

static void end(void *state) {
    fr_timeline_free(state);
}

const fri_view fri_memory_plot_view = {sizeof(fr_timeline_recorder), begin, event, end};
