/* input.h - batches of a loader on the way to a device.
 *
 * On an asynchronous device a batch is copied into one of two page-locked buffers, in turn, and from there to the
 * device on a separate stream: the loader's buffer is free at once, and the host waits only while the batch before the
 * last still occupies the buffer.
 *
 * A step needs the memory of a batch to the end, so the transfer of the next batch waits for the end of the step.
 * fri_input_prefetch adds memory for an early batch: the next batch is copied there while a step runs, and copied on
 * the device at the next step. A prefetch advances the loader by a batch: save the loader's position before. */
#ifndef FRI_DATA_INPUT_H
#define FRI_DATA_INPUT_H

#include <frugal/data.h>

typedef struct fri_input fri_input;

typedef struct fri_input_opts {
    fr_device device;
    bool pinned; /* through page-locked memory; without effect on the CPU */
    /* Changes a batch on the host before the copy; or NULL. */
    fr_status (*edit)(void *ctx, fr_tensor *images, fr_tensor **targets);
    void *ctx;
} fri_input_opts;

fr_status fri_input_create(const fri_input_opts *opts, fri_input **out);
void fri_input_release(fri_input **in);

/* Allocates memory for an early batch, images and targets of at most these shapes, also in a plan. */
fr_status fri_input_prefetch(fri_input *in, const fr_shape *images, fr_dtype of_images, const fr_shape *targets,
                             fr_dtype of_targets);
/* Begins to copy the loader's next batch into the memory of fri_input_prefetch, unless a batch lies there;
 * fri_input_next takes the batch. FR_OK also at the end of an epoch. Does nothing without memory. */
fr_status fri_input_fetch(fri_input *in, fr_loader *loader);

/* The next batch on the device. FR_END as fr_loader_next. */
fr_status fri_input_next(fri_input *in, fr_loader *loader, fr_tensor **images, fr_tensor **targets);

/* Number of targets in the batch of the last call: classes of images or pixels, without ignored ones (below 0), or
 * vectors. */
int64_t fri_input_count(const fri_input *in);

#endif
