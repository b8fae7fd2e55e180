/* views.h - views of a run, for people and tools: the add-on views. */
#ifndef FRUGAL_VIEWS_H
#define FRUGAL_VIEWS_H

#include <frugal/io.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Charges every allocation and free from begin to end, on all devices, to a source line. End writes two listings per
 * device to `out`, lines of the program, then lines of the library, largest first:
 *         live      at peak    allocated        freed         change  line of the program
 *            0       204800      1228800      1024000        +204800  03_train_loop.c:36 train_step: FR_TRY(s, ...
 * In allocated bytes: the line's live bytes, now and at the peak; allocated and freed bytes, and the difference. Each
 * column adds up to the device's own number. A line "(before)" are blocks from before begin. Lines are found by return
 * address and debug information (compile with -g; read by elfutils' libdw); without debug information the listing
 * shows address and function. No cost without begin. Watches the thread's pool, or the thread if outside any pool;
 * further threads must not allocate there during begin. FR_EUSAGE: tracked already, or end without begin;
 * FR_EUNSUPPORTED: no libdw; FR_ENOMEM, FR_EIO. */
FR_API fr_status fr_track_lines_begin(FILE *out);
FR_API fr_status fr_track_lines_end(void);

/* Prints the tensors made and freed on the device since the last call (the first call: all live tensors), a line per
 * kind of tensor; before them the place and the bytes of all tensors (not rounded up to 512):
 *     At train.c step: line 41                              Total Used Memory:592.7  Mb (592732560 bytes)
 *     + | 7 * Size:(512, 512, 3, 3)     | Memory: 66.060 M | parameter f32, 66060288 bytes
 * Memory is in 10^6 bytes, cut off, as printed by the memory trackers of PyTorch's guides. A tensor made and freed
 * between two calls has no line. FR_EDEVICE, FR_ENOMEM, FR_EIO. */
FR_API fr_status fr_memory_track(fr_device d, const char *file, const char *function, int line, FILE *out);
#define FR_TRACK(device, out) fr_memory_track((device), __FILE__, __func__, __LINE__, (out))

/* Memory over a training step, by category, drawn as SVG: a point per change of requested bytes. The recorder keeps
 * the step with the highest peak (of equal peaks the last). */
typedef struct fr_timeline_point {
    size_t bytes[FR_CATEGORY_COUNT];
    fr_phase phase;
} fr_timeline_point;

typedef struct fr_timeline {
    fr_timeline_point *points;
    size_t count;
    size_t peak, peak_at; /* the first instant of the maximum */
    fr_tag at_peak;       /* scope then */
} fr_timeline;

typedef struct fr_timeline_recorder {
    fr_device device;
    size_t live[FR_CATEGORY_COUNT];
    fr_timeline now, most;
    bool in_step, listening, no_memory;
} fr_timeline_recorder;

/* Begins a recording, before the first tensor: earlier tensors are not seen. */
FR_API fr_status fr_timeline_begin(fr_timeline_recorder *r, fr_device device);
/* FR_ENOMEM if samples were lost, FR_EUSAGE if there was no step; r->most holds the step. */
FR_API fr_status fr_timeline_end(fr_timeline_recorder *r);
FR_API void fr_timeline_free(fr_timeline_recorder *r); /* accepts zeroes */

typedef struct fr_timeline_panel {
    const fr_timeline *timeline;
    const char *title;
} fr_timeline_panel;

/* Draws the panels in a column, on a common scale: areas stacked by category, with phases and peak. FR_EIO. */
FR_API fr_status fr_timeline_draw(const char *path, const char *heading, const fr_timeline_panel *panel, int panels);

/* TensorBoard's event files: scalars of a run. */
typedef struct fr_tensorboard {
    int fd;
    char *path;
    int64_t bytes; /* complete so far */
} fr_tensorboard;

/* A new file in `folder`, made if the parent exists. resume: first step of a continued run; TensorBoard drops later
 * steps of earlier files; -1: a new run. FR_EIO names the file. */
FR_API fr_status fr_tensorboard_open(const char *folder, int64_t resume, fr_tensorboard *out);
FR_API void fr_tensorboard_close(fr_tensorboard *t); /* accepts NULL */
/* Each is complete when the call returns; after FR_EIO (disk full) the file ends with the last complete record, and
 * later calls may succeed. FR_EINVAL: a negative step, a long tag. */
FR_API fr_status fr_tensorboard_step(fr_tensorboard *t, const fr_log_step *step);
FR_API fr_status fr_tensorboard_scalar(fr_tensorboard *t, const char *tag, int64_t step, double value);

#ifdef __cplusplus
}
#endif
#endif
