/* loader.h - the loader without tensors: workers that fill batch buffers given to it by a callback.
 *
 * Batches have running numbers over the loader's whole life; batch number q lies in slot q % slots. A slot goes
 *     free -> claimed, image by image in chunks -> complete -> held by the caller -> free
 * and workers claim free slots only, so never write to the caller's batch. A lock guards all states; decoding runs
 * outside the lock. The functions below belong to a single thread. */
#ifndef FRI_DATA_LOADER_H
#define FRI_DATA_LOADER_H

#include "data/transform.h"

enum { FRI_LOADER_WORKERS_MAX = 256, FRI_LOADER_PREFETCH_MAX = 64 };

/* Called on the caller's thread before a slot is filled: *images and *targets get unshared buffers for `capacity`
 * images (see fri_loader_shape): of the images' type; i64, or f32 of vectors. Old buffers of the slot may be reused. */
typedef fr_status fri_loader_provide_fn(void *ctx, int slot, void **images, void **targets);

typedef struct fri_loader fri_loader;

typedef struct fri_loader_shape {
    int slots;
    int64_t capacity; /* images per buffer */
    int64_t height, width, channels;
    fr_dtype dtype;
    fr_target target;
    int64_t numbers; /* per target */
} fri_loader_shape;

/* Checks all options; allocates no buffers. */
fr_status fri_loader_create(fr_dataset *d, const fr_loader_opts *opts, fri_loader **out);
fri_loader_shape fri_loader_shape_get(const fri_loader *l);
/* Requests all buffers and starts the workers. With `decode` false (meta) no worker starts and slots count as filled at
 * once; buffers are requested when workers would need buffers. */
fr_status fri_loader_start(fri_loader *l, fri_loader_provide_fn *provide, void *ctx, bool decode);
/* Stops and joins the workers, then frees. */
void fri_loader_release(fri_loader **l);

/* Waits for the next batch. The batch stays the next until fri_loader_advance, also after a failure. FR_END at the end
 * of the epoch, once. */
fr_status fri_loader_fetch(fri_loader *l, int *slot, int64_t *length);
/* Holds the fetched batch and frees the earlier. */
void fri_loader_advance(fri_loader *l);

int fri_loader_workers(const fri_loader *l); /* started workers */
int64_t fri_loader_batches(const fri_loader *l);
void fri_loader_position_get(const fri_loader *l, int64_t *epoch, int64_t *batch);
fr_status fri_loader_position_set(fri_loader *l, int64_t epoch, int64_t batch);

/* Number of decoding threads, possibly fewer than requested if the system refuses more. With 0 fr_loader_next
 * decodes, with equal batches. */
int fri_tensor_loader_workers(const fr_loader *loader);

#endif
