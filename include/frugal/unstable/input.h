/* input.h - the batches of a loader on their way to a device.
 *
 * Unstable: see frugal/unstable.h. On an asynchronous device a batch is copied into one of two page-locked places, in
 * turn, and from there to the device on a stream of its own: the loader's buffer is free at once, and the host waits
 * only if the batch before the last one is still in its place.
 *
 * A step needs the memory of its batch to its end, so the transfer of the next batch waits for that, unless there is
 * memory for one more (fr_input_prefetch): the next batch is copied there while a step runs, and from there, on the
 * device, to where its step expects it. A prefetch moves the loader on by a batch, so the position of the loader is to
 * be saved before it. */
#ifndef FRUGAL_UNSTABLE_INPUT_H
#define FRUGAL_UNSTABLE_INPUT_H

#include <frugal/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_input fr_input;

typedef struct fr_input_opts {
    fr_device device;
    bool pinned; /* through page-locked memory; no matter on the CPU */
    /* Changes a batch on the host before it leaves; NULL: nothing does. */
    fr_status (*edit)(void *ctx, fr_tensor *images, fr_tensor **targets);
    void *ctx;
} fr_input_opts;

FR_API fr_status fr_input_create(const fr_input_opts *opts, fr_input **out);
FR_API void fr_input_release(fr_input **in);

/* Memory for a batch that comes early, images and targets of at most these shapes; taken in a plan, too. */
FR_API fr_status fr_input_prefetch(fr_input *in, const fr_shape *images, fr_dtype of_images, const fr_shape *targets,
                                   fr_dtype of_targets);
/* Begins to copy the loader's next batch there, unless it holds one; fr_input_next for this loader takes
 * it. FR_OK also at the end of an epoch. Without that memory: does nothing. */
FR_API fr_status fr_input_fetch(fr_input *in, fr_loader *loader);

/* The next batch on the device. FR_END as fr_loader_next. */
FR_API fr_status fr_input_next(fr_input *in, fr_loader *loader, fr_tensor **images, fr_tensor **targets);

/* How many targets the batch of the last call has: classes of images or pixels, without those that
 * are ignored (below 0), or vectors. */
FR_API int64_t fr_input_count(const fr_input *in);

#ifdef __cplusplus
}
#endif
#endif
