/* loader_threads.c - a stress test of the loader's threads for the thread sanitizer (.ci/run tsan), under which
 * Criterion does not start. Two callers with separate loaders over a shared dataset read, jump and stop at any time;
 * both must see equal batches. Then frames are pushed into a ring while a loader reads: image and target must belong
 * together. Exit status 1 on failure. */
#include "data/dataset.h"
#include "data/loader.h"

#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { ROUNDS = 40, SLOTS_MAX = 8, BATCH = 10 };

typedef struct caller {
    fr_dataset *images;
    uLong sum; /* of all batches */
    fr_status status;
    char error[512];
} caller;

typedef struct buffers {
    float *images[SLOTS_MAX];
    int64_t *labels[SLOTS_MAX];
    size_t per_batch;
} buffers;

static fr_status provide(void *ctx, int slot, void **images, void **targets) {
    buffers *b = ctx;
    free(b->images[slot]); /* new buffers each time: writes into old buffers are detected */
    free(b->labels[slot]);
    *images = b->images[slot] = malloc(b->per_batch * sizeof(float));
    *targets = b->labels[slot] = malloc(BATCH * sizeof(int64_t));
    return *images != NULL && *targets != NULL ? FR_OK : FR_ENOMEM;
}

static fr_status take(fri_loader *l, const buffers *b, uLong *sum) {
    int slot = 0;
    int64_t n = 0;
    fr_status s = fri_loader_fetch(l, &slot, &n);
    if (s != FR_OK) return s;
    *sum = crc32(*sum, (const Bytef *)b->images[slot], (uInt)(b->per_batch * sizeof(float)));
    *sum = crc32(*sum, (const Bytef *)b->labels[slot], (uInt)(BATCH * sizeof(int64_t)));
    fri_loader_advance(l);
    return FR_OK;
}

static fr_status round_of(caller *c, int i) {
    fri_loader *l = NULL;
    buffers b = {0};
    fr_status s = FR_OK;
    FR_TRY(s, fri_loader_create(c->images,
                                FR_LOADER_OPTS(.batch_size = BATCH, .workers = 1 + i % 4, .prefetch = 1 + i % 3,
                                               .flip = true, .padding = 2, .random_crop = true, .degrees = 10),
                                &l));
    fri_loader_shape shape = fri_loader_shape_get(l);
    b.per_batch = (size_t)(shape.capacity * shape.height * shape.width * shape.channels);
    FR_TRY(s, fri_loader_start(l, provide, &b, true));
    for (int k = 0; k < i % 7; k++) FR_TRY(s, take(l, &b, &c->sum));
    if (i % 3 == 1) FR_TRY(s, fri_loader_position_set(l, i, i % 10));
    if (i % 2) usleep((useconds_t)(i * 30));
    if (i % 5 == 4)
        while ((s = take(l, &b, &c->sum)) == FR_OK) continue;
    if (s == FR_END) s = FR_OK;
done:
    fri_loader_release(&l);
    for (int k = 0; k < SLOTS_MAX; k++) {
        free(b.images[k]);
        free(b.labels[k]);
    }
    return s;
}

static void *call(void *argument) {
    caller *c = argument;
    for (int i = 0; i < ROUNDS && c->status == FR_OK; i++) c->status = round_of(c, i);
    if (c->status < 0) snprintf(c->error, sizeof c->error, "%s", fr_last_error());
    return NULL;
}

/* ---- a ring ------------------------------------------------------------------------------------------------------ */

enum { FRAMES = 7, SIDE = 256, KINDS = 200, READS = 60 };

static atomic_bool enough;

static fr_status push(fr_dataset *ring, int64_t kind) {
    uint8_t pixels[SIDE * SIDE];
    memset(pixels, (int)kind, sizeof pixels);
    return fr_dataset_push(ring, pixels, &kind);
}

static void *pusher(void *ring) {
    fr_status s = FR_OK;
    for (int64_t i = 0; s == FR_OK && !enough; i++) s = push(ring, i % KINDS);
    return s == FR_OK ? NULL : ring;
}

static int64_t torn(fr_loader *l) {
    fr_tensor *x = NULL, *t = NULL;
    int64_t found = 0;
    for (int i = 0; i < READS; i++) {
        fr_status s = fr_loader_next(l, &x, &t);
        if (s < 0) found++;
        if (s != FR_OK) continue;
        const float *pixel = fr_tensor_data(x);
        for (int64_t k = 0; k < fr_tensor_numel(x); k++)
            found += pixel[k] != (float)((double)((int64_t *)fr_tensor_data(t))[k / (SIDE * SIDE)] / 255.0);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    return found;
}

/* -1: not possible here. */
static int64_t ring(void) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    pthread_t thread;
    void *failed = NULL;
    int64_t found = -1;
    fr_status s = FR_OK;
    FR_TRY(s, fr_dataset_create(&(fr_dataset_source){"ring", FRAMES, KINDS, SIDE, SIDE, 1}, &d));
    FR_TRY(s, push(d, 1));
    FR_TRY(s, fr_loader_create(d, FR_LOADER_OPTS(.batch_size = FRAMES, .workers = 3), &l));
    if (pthread_create(&thread, NULL, pusher, d) != 0) goto done;
    found = torn(l);
    enough = true;
    pthread_join(thread, &failed);
    if (failed != NULL) found = -1;
done:
    fr_loader_release(&l);
    fr_dataset_release(&d);
    return s < 0 ? -1 : found;
}

int main(void) {
    caller callers[2] = {0};
    pthread_t threads[2];
    fr_dataset *images = NULL;
    int started = 0;
    if (fr_dataset_synthetic(200, 5, 16, 16, 3, 1, &images) < 0) {
        fprintf(stderr, "loader_threads: %s\n", fr_last_error());
        return 1;
    }
    for (; started < 2; started++) {
        callers[started].images = images;
        if (pthread_create(&threads[started], NULL, call, &callers[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    fr_dataset_release(&images);
    int64_t found = ring();
    printf("loader_threads: a ring of frames, %lld torn\n", (long long)found);
    bool fine = found == 0 && started == 2 && callers[0].sum == callers[1].sum && callers[0].status == FR_OK;
    printf("loader_threads: %d callers, %d loaders each, sums %08lx and %08lx%s%s\n", started, ROUNDS, callers[0].sum,
           callers[1].sum, callers[0].error, callers[1].error);
    return fine ? 0 : 1;
}
