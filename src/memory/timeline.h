/* timeline.h - memory over one training step, by category: recorded from the event log, drawn as SVG.
 *
 * One sample per change of requested bytes. Of all steps between begin and end the one that needs most is kept (of
 * equals the last), so its peak is the training's. */
#ifndef FRI_MEMORY_TIMELINE_H
#define FRI_MEMORY_TIMELINE_H

#include "memory/event.h"

typedef struct fri_timeline_point {
    size_t bytes[FR_CATEGORY_COUNT];
    fr_phase phase;
} fri_timeline_point;

typedef struct fri_timeline {
    fri_timeline_point *points;
    size_t count, capacity;
    size_t peak, peak_at; /* the first instant of the maximum */
    fri_tag at_peak;      /* scope then */
} fri_timeline;

typedef struct fri_timeline_recorder {
    fr_device device;
    size_t live[FR_CATEGORY_COUNT];
    fri_timeline now, most;
    bool in_step, listening, no_memory;
} fri_timeline_recorder;

/* Begin before the first tensor is made: what lives already is not seen. */
fr_status fri_timeline_begin(fri_timeline_recorder *r, fr_device device);
/* FR_ENOMEM if samples were lost, FR_EUSAGE if there was no step; r->most holds the step. */
fr_status fri_timeline_end(fri_timeline_recorder *r);
void fri_timeline_free(fri_timeline_recorder *r); /* accepts zeroes */

typedef struct fri_timeline_panel {
    const fri_timeline *timeline;
    const char *title;
} fri_timeline_panel;

/* The panels one below the other, on one scale: areas stacked by category, phases and the peak marked. FR_EIO names the
 * file. */
fr_status fri_timeline_draw(const char *path, const char *heading, const fri_timeline_panel *panel, int panels);

#endif
