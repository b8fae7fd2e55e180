/* views.h - what a run does, for people and their tools: the add-on views. */
#ifndef FRUGAL_VIEWS_H
#define FRUGAL_VIEWS_H

#include <frugal/io.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Charges every allocation and free from begin to end, on all devices, to the source line that caused it; end writes
 * two listings per device to `out`: lines of the program, then lines of the library, largest first:
 *         live      at peak    allocated        freed         change  line of the program
 *            0       204800      1228800      1024000        +204800  03_train_loop.c:36 train_step: FR_TRY(s, ...
 * In bytes as `allocated` counts them: what the line allocated and still lives, now and when most lived; what it
 * allocated and what it freed, and the difference. Each column adds up to the device's own number. A line "(before)" is
 * what lived at begin. Lines are found by return address and debug information (compile with -g; read by elfutils'
 * libdw); where there is none the address and its function stand for the line. Without begin it costs
 * nothing. It watches the thread's pool, or outside of any pool the thread; no other thread may allocate there during
 * begin. FR_EUSAGE: tracked already, or end without begin; FR_EUNSUPPORTED: no libdw; FR_ENOMEM,
 * FR_EIO. */
FR_API fr_status fr_track_lines_begin(FILE *out);
FR_API fr_status fr_track_lines_end(void);

/* TensorBoard's event files: scalars of a run. */
typedef struct fr_tensorboard {
    int fd;
    char *path;
    int64_t bytes; /* complete so far */
} fr_tensorboard;

/* A new file in `folder`, which is made if its parent exists. resume: the step a run continues from; TensorBoard
 * forgets what earlier files of the folder say about later ones; -1: a new run. FR_EIO names the file. */
FR_API fr_status fr_tensorboard_open(const char *folder, int64_t resume, fr_tensorboard *out);
FR_API void fr_tensorboard_close(fr_tensorboard *t); /* accepts NULL */
/* Each is complete when the call returns; after FR_EIO (disk full) the file ends with the last complete record, and
 * later calls may succeed. FR_EINVAL: a negative step, a tag that is too long. */
FR_API fr_status fr_tensorboard_step(fr_tensorboard *t, const fr_log_step *step);
FR_API fr_status fr_tensorboard_scalar(fr_tensorboard *t, const char *tag, int64_t step, double value);

#ifdef __cplusplus
}
#endif
#endif
