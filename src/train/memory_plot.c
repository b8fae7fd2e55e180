/* memory_plot.c - --memory-plot: the step that needs most memory, as a picture. */
#include "base/status.h"
#include "train/run.h"
#include "train/timeline.h"

#include <inttypes.h>
#include <stdlib.h>

struct fri_memory_plot {
    fri_timeline_recorder recorder;
};

fr_status fri_memory_plot_begin(fri_run *r, fr_device device) {
    const char *path = r->opts.memory_plot;
    if (path == NULL) return FR_OK;
    r->memory_plot = calloc(1, sizeof *r->memory_plot);
    if (r->memory_plot == NULL) return fri_fail(FR_ENOMEM, "--memory-plot %s: no host memory", path);
    return fri_timeline_begin(&r->memory_plot->recorder, device);
}

fr_status fri_memory_plot_end(fri_run *r) {
    fri_memory_plot *p = r->memory_plot;
    const fr_train_opts *o = &r->opts;
    char heading[256];
    fr_status s = FR_OK;
    if (p == NULL) return FR_OK;
    FR_TRY(s, fri_timeline_end(&p->recorder));
    const fri_timeline_panel panel = {&p->recorder.most, ""};
    snprintf(heading, sizeof heading,
             "%s on %s, %" PRId64 " images of %" PRId64 " pixels: one training step, requested bytes by category",
             r->model_name, fr_device_name(o->device), o->batch_size, o->image_size);
    FR_TRY(s, fri_timeline_draw(o->memory_plot, heading, &panel, 1));
done:
    fri_memory_plot_release(r);
    return s < 0 ? fri_fail_prefix(s, "--memory-plot ") : FR_OK;
}

void fri_memory_plot_release(fri_run *r) {
    if (r->memory_plot == NULL) return;
    fri_timeline_free(&r->memory_plot->recorder);
    free(r->memory_plot);
    r->memory_plot = NULL;
}
