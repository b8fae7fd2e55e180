/* loader.h - the loader without tensors: workers that fill batch buffers given to it by a callback.
 *
 * Batches have running numbers over the loader's whole life; batch number q lies in slot q % slots. A slot goes
 *     free -> claimed, image by image in chunks -> complete -> held by the caller -> free
 * and only a free slot is claimed, so nothing is written while the caller looks at it. All of this is under one lock;
 * decoding is outside it. The caller's side (everything declared here) belongs to one thread. */
#ifndef FRI_DATA_LOADER_H
#define FRI_DATA_LOADER_H

#include "data/transform.h"

enum { FRI_LOADER_WORKERS_MAX = 256, FRI_LOADER_PREFETCH_MAX = 64 };

/* Called on the caller's thread before a slot is filled: *images and *targets get buffers for `capacity` images (see
 * fri_loader_shape) that nobody else reads: of the images' type; i64, or f32 of vectors. They may be the slot's old
 * ones or new. */
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

/* Checks the options and everything about them; no buffers yet. */
fr_status fri_loader_create(fr_dataset *d, const fr_loader_opts *opts, fri_loader **out);
fri_loader_shape fri_loader_shape_get(const fri_loader *l);
/* Asks for all buffers and starts the workers. With `decode` false (meta) no worker starts and slots count as filled at
 * once; buffers are asked for when workers would need them. */
fr_status fri_loader_start(fri_loader *l, fri_loader_provide_fn *provide, void *ctx, bool decode);
/* Stops and joins the workers, then frees. */
void fri_loader_release(fri_loader **l);

/* Waits for the next batch. It stays the next one until fri_loader_advance; after a failure nothing has moved. FR_END
 * at the end of the epoch, once. */
fr_status fri_loader_fetch(fri_loader *l, int *slot, int64_t *length);
/* The fetched batch is now held; the one held before is free. */
void fri_loader_advance(fri_loader *l);

int fri_loader_workers(const fri_loader *l); /* that were started */
int64_t fri_loader_batches(const fri_loader *l);
void fri_loader_position_get(const fri_loader *l, int64_t *epoch, int64_t *batch);
fr_status fri_loader_position_set(fri_loader *l, int64_t epoch, int64_t batch);

#endif
