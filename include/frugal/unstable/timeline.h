/* timeline.h - memory over one training step, by category: recorded from the event log, drawn as SVG.
 *
 * Unstable: see frugal/unstable.h. One sample per change of requested bytes. Of all steps between begin and end the one
 * that needs most is kept (of equals the last), so its peak is the training's. */
#ifndef FRUGAL_UNSTABLE_TIMELINE_H
#define FRUGAL_UNSTABLE_TIMELINE_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_timeline_point {
    size_t bytes[FR_CATEGORY_COUNT];
    fr_phase phase;
} fr_timeline_point;

typedef struct fr_timeline {
    fr_timeline_point *points;
    size_t count, capacity;
    size_t peak, peak_at; /* the first instant of the maximum */
    fr_tag at_peak;       /* scope then */
} fr_timeline;

typedef struct fr_timeline_recorder {
    fr_device device;
    size_t live[FR_CATEGORY_COUNT];
    fr_timeline now, most;
    bool in_step, listening, no_memory;
} fr_timeline_recorder;

/* Begin before the first tensor is made: what lives already is not seen. */
FR_API fr_status fr_timeline_begin(fr_timeline_recorder *r, fr_device device);
/* FR_ENOMEM if samples were lost, FR_EUSAGE if there was no step; r->most holds the step. */
FR_API fr_status fr_timeline_end(fr_timeline_recorder *r);
FR_API void fr_timeline_free(fr_timeline_recorder *r); /* accepts zeroes */

typedef struct fr_timeline_panel {
    const fr_timeline *timeline;
    const char *title;
} fr_timeline_panel;

/* The panels one below the other, on one scale: areas stacked by category, phases and the peak marked. FR_EIO names the
 * file. */
FR_API fr_status fr_timeline_draw(const char *path, const char *heading, const fr_timeline_panel *panel, int panels);

#ifdef __cplusplus
}
#endif
#endif
