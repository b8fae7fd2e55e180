/* memory_plot.c - --memory-plot: a picture of the step with the highest memory, of a run or a plan. */
#include "addons/views/files.h"

#include <frugal/files.h>

#include <inttypes.h>
#include <sys/stat.h>

/* The picture is drawn after the run, so a trial finds now whether a file can be written. A FIFO's reader would take
 * the trial for the picture. */
static fr_status plot_begin(void *state, const fr_run *r) {
    const char *path = r->opts->files.memory_plot;
    struct stat st;
    fr_flag_output trial;
    (void)state;
    if (path != NULL && stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return FR_OK;
    const fr_status s = fr_flag_output_open("memory-plot", path, &trial);
    fr_atomic_abandon(&trial.output);
    return s;
}

static fr_status plot_draw(fr_timeline_recorder *recorder, const fr_run *r) {
    const fr_train_opts *o = r->opts;
    const fr_timeline_panel panel = {&recorder->most, ""};
    char heading[256];
    snprintf(heading, sizeof heading,
             "%s on %s, %" PRId64 " images of %" PRId64 " x %" PRId64
             " pixels: one training step, requested bytes by category",
             r->model, fr_device_name(o->device), o->optim.batch_size, o->data.image_size, o->data.image_width);
    fr_status s = fr_timeline_end(recorder);
    if (s == FR_OK) s = fr_timeline_draw(o->files.memory_plot, heading, &panel, 1);
    return s < 0 ? fr_fail_prefix(s, "--memory-plot ") : FR_OK;
}

static fr_status plot_event(void *state, const fr_run *r, fr_run_event e) {
    if (e == FR_RUN_SETUP) return fr_timeline_begin(state, r->planned ? FR_META : r->opts->device);
    return e == FR_RUN_STEPS_END ? plot_draw(state, r) : FR_OK;
}

static void plot_end(void *state) {
    fr_timeline_free(state);
}

const fr_view fri_memory_plot_view = {.bytes = sizeof(fr_timeline_recorder),
                                      .begin = plot_begin,
                                      .event = plot_event,
                                      .end = plot_end};
