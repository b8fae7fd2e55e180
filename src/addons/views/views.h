/* views.h - views of a run, for people and tools: the add-on views. */
#ifndef FRUGAL_VIEWS_H
#define FRUGAL_VIEWS_H

#include <frugal/io.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Charges every allocation and free from begin to end, on all devices, to a source line; end writes two listings per
 * device to `out`: lines of the program, then lines of the library, largest first:
 *         live      at peak    allocated        freed         change  line of the program 0       204800      1228800
 *            1024000        +204800  03_train_loop.c:36 train_step: FR_TRY(s, ... In allocated bytes: the line's live
 *            bytes, now and at the peak; allocated and freed bytes, and the difference. Each column adds up to the
 *            device's own number. A line "(before)" are blocks from before begin. Lines are found by return address and
 *            debug information (compile with -g; read by elfutils' libdw); without debug information the listing shows
 *            address and function. No cost without begin. Watches the thread's pool, or the thread if outside any pool;
 *            further threads must not allocate there during begin. FR_EUSAGE: tracked already, or end without begin;
 *            FR_EUNSUPPORTED: no libdw; FR_ENOMEM, FR_EIO. */
FR_API fr_status fr_track_lines_begin(FILE *out);
FR_API fr_status fr_track_lines_end(void);

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
