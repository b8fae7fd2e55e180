/* loader.c - see loader.h.
 *
 * Note [Loader numbers] With q counting batches:
 *     next - 1 < next <= claim <= min(end, unfree)        unfree <= max(next - 1, 0) + slots
 * The caller holds next - 1 (from 1 on), fetch returns next, workers fill claim, end is the end of the epoch, and
 * unfree the first number without a free slot. `first` is the number of the epoch's batch 0. next never goes back:
 * setting the position moves `first`. */
#include "data/loader.h"

#include "data/sampler.h"

#include "backend/fork.h"
#include "base/philox.h"
#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_MAX = 16, ERROR_BYTES = 1024 };
#define EPOCH_MAX (INT64_C(1) << 60)

typedef struct slot {
    void *images, *targets;
    int64_t done; /* finished images, also failed images */
    int64_t failed_at;
    bool mixed;
    fr_status status; /* of the failure at the lowest position, independent of the workers' order */
    char error[ERROR_BYTES];
} slot;

struct fri_loader {
    fr_dataset *dataset;
    fri_transform transform;
    fr_loader_opts opts;
    fri_loader_shape shape;
    int64_t batches;
    fri_loader_provide_fn *provide;
    void *ctx;
    bool decode;

    /* The caller's: read by workers only while a batch of the epoch is claimed. */
    int64_t *order;
    fri_balance balance; /* of opts.balanced */
    float *spare;        /* of opts.augmentation.batch: an image, or shares of classes */
    int64_t *runs;       /* files of the dataset, of a window; NULL: none, or no window */
    int64_t epoch;
    bool ended;     /* fetch has said FR_END */
    fr_image image; /* for decoding without workers */
    fri_transform_scratch scratch;

    pthread_mutex_t lock;
    pthread_cond_t work, ready, idle; /* for workers; for fetch; for position_set */
    bool stop, paused;
    int64_t first, next, claim, end, unfree;
    int64_t claim_at; /* position within batch `claim` */
    int in_flight;    /* chunks being decoded */
    slot *slots;

    int started, dead; /* dead: ended in the middle of an image, see worker_died */
    pthread_t *threads;
};

static slot *slot_of(fri_loader *l, int64_t number) {
    return &l->slots[number % l->shape.slots];
}

/* ---- the loader's batches: all, or some of each group ----------------------------------------------- */

static int64_t divide_up(int64_t a, int64_t b) {
    return a > 0 ? (a + b - 1) / b : 0;
}

/* Number of the loader's batches among the first n batches of an epoch. */
static int64_t own_of(const fri_loader *l, int64_t n) {
    const fr_loader_opts *o = &l->opts;
    return n / o->group * divide_up(o->group - o->first, o->every) + divide_up(n % o->group - o->first, o->every);
}

/* The epoch's number of the loader's q-th batch. */
static int64_t batch_of(const fri_loader *l, int64_t q) {
    const fr_loader_opts *o = &l->opts;
    const int64_t per = divide_up(o->group - o->first, o->every);
    return q / per * o->group + o->first + q % per * o->every;
}

static int64_t length_of(const fri_loader *l, int64_t number) {
    int64_t left = l->dataset->count - batch_of(l, number - l->first) * l->opts.batch_size;
    return left < l->opts.batch_size ? left : l->opts.batch_size;
}

/* ---- an image --------------------------------------------------------------------------------------------- */

static fr_status fill_image(const fri_loader *l, const slot *s, int64_t batch, int64_t position, int64_t epoch,
                            fr_image *image, fri_transform_scratch *scratch) {
    const fri_transform *t = &l->transform;
    int64_t index = l->order[batch * l->opts.batch_size + position];
    fr_status status = fri_dataset_read(l->dataset, index, image);
    if (status != FR_OK) return status;
    const size_t at = (size_t)(position * l->shape.numbers);
    const fr_target target = l->dataset->target;
    const int64_t label = target != FR_TARGET_CLASS ? 0 : image->labelled ? image->label : l->dataset->labels[index];
    int64_t *classes = l->shape.target == FR_TARGET_VECTOR ? NULL : (int64_t *)s->targets + at;
    if (target == FR_TARGET_CLASS && l->shape.target == FR_TARGET_CLASS) *classes = label;
    if (target == FR_TARGET_CLASS && l->shape.target == FR_TARGET_VECTOR) /* shares, to be mixed */
        for (int64_t c = 0; c < l->shape.numbers; c++) ((float *)s->targets)[at + (size_t)c] = c == label ? 1 : 0;
    if (target == FR_TARGET_VECTOR)
        memcpy((float *)s->targets + at, image->target.data, (size_t)l->shape.numbers * sizeof(float));
    /* An image drawn twice is varied twice. */
    const int64_t draw = l->balance.image != NULL ? batch * l->opts.batch_size + position : index;
    const size_t bytes = (size_t)(t->height * t->width * t->channels) * fr_dtype_size(l->shape.dtype);
    return fri_transform_apply(t, image, epoch, draw, scratch, (char *)s->images + (size_t)position * bytes,
                               target == FR_TARGET_PIXELS ? classes : NULL);
}

static void slot_reset(slot *s) {
    s->done = 0;
    s->mixed = false;
    s->status = FR_OK;
    s->failed_at = INT64_MAX;
}

/* Augments a complete batch, once. A last batch of a single image is mixed with a copy of the image. */
static void augment_batch(const fri_loader *l, slot *s) {
    const fri_transform *t = &l->transform;
    const fr_augmentation *a = &l->opts.augmentation;
    if (a->batch == NULL || s->mixed) return;
    const fr_augment_input in =
        {t->seed,     l->epoch,        batch_of(l, l->next - l->first), length_of(l, l->next), t->height, t->width,
         t->channels, l->shape.numbers};
    a->batch(a, &in, s->images, s->targets, l->spare);
    s->mixed = true;
}

/* ---- workers ----------------------------------------------------------------------------------------------- */

static bool can_claim(const fri_loader *l) {
    return !l->paused && l->claim < l->end && l->claim < l->unfree;
}

/* Current work of a worker. */
typedef struct chunk {
    fri_loader *l;
    slot *s;
    int64_t batch, epoch, position, from, to, length;
    fr_status status;
    fr_image image;
    fri_transform_scratch scratch;
} chunk;

/* Ends a chunk; the caller holds the lock. Positions after a failure are not decoded: the batch is lost. The lowest
 * failure is still found, because every chunk stops at the chunk's first failure. */
static void finish_chunk(const chunk *c, const char *error) {
    fri_loader *l = c->l;
    slot *s = c->s;
    if (c->status != FR_OK && c->position < s->failed_at) {
        s->failed_at = c->position;
        s->status = c->status;
        snprintf(s->error, sizeof s->error, "%s", error);
    }
    s->done += c->to - c->from;
    l->in_flight--;
    if (s->done == c->length) pthread_cond_signal(&l->ready);
    if (l->in_flight == 0) pthread_cond_signal(&l->idle);
}

static void free_chunk(chunk *c) {
    fr_image_clear(&c->image);
    fri_transform_scratch_free(&c->scratch);
}

/* A thread that ends inside a dataset's read (pthread_exit in the program) must not leave the caller waiting. */
static void worker_died(void *argument) {
    chunk *c = argument;
    char error[120];
    snprintf(error, sizeof error, "loader: a worker ended in the middle of image %lld",
             (long long)c->l->order[c->batch * c->l->opts.batch_size + c->position]);
    pthread_mutex_lock(&c->l->lock);
    c->l->dead++;
    c->status = FR_EINTERNAL;
    finish_chunk(c, error);
    pthread_cond_signal(&c->l->ready); /* no worker may be left to complete the batch */
    pthread_mutex_unlock(&c->l->lock);
    free_chunk(c);
}

static void fill_chunk(chunk *c) {
    pthread_cleanup_push(worker_died, c);
    c->status = FR_OK;
    while (c->position < c->to && c->status == FR_OK) {
        c->status = fill_image(c->l, c->s, c->batch, c->position, c->epoch, &c->image, &c->scratch);
        if (c->status == FR_OK) c->position++;
    }
    pthread_cleanup_pop(0);
}

static void *worker(void *argument) {
    fri_loader *l = argument;
    chunk c = {.l = l};
    int64_t images = l->opts.batch_size / (2 * l->opts.workers);
    images = images < 1 ? 1 : images > CHUNK_MAX ? CHUNK_MAX : images;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && !can_claim(l)) pthread_cond_wait(&l->work, &l->lock);
        if (l->stop) break;
        const int64_t number = l->claim;
        c.s = slot_of(l, number);
        c.batch = batch_of(l, number - l->first);
        c.epoch = l->epoch;
        c.length = length_of(l, number);
        c.from = c.position = l->claim_at;
        c.to = c.from + images < c.length ? c.from + images : c.length;
        if (c.from == 0) slot_reset(c.s);
        l->claim_at = c.to;
        if (c.to == c.length) {
            l->claim++;
            l->claim_at = 0;
        }
        l->in_flight++;
        pthread_mutex_unlock(&l->lock);
        fill_chunk(&c);
        pthread_mutex_lock(&l->lock);
        finish_chunk(&c, c.status != FR_OK ? fr_last_error() : "");
    }
    pthread_mutex_unlock(&l->lock);
    free_chunk(&c);
    return NULL;
}

/* Signals belong to the program's threads: workers block all signals. Fewer threads than requested (or none: fetch
 * decodes) cost time, but do not end the training. */
static fr_status start_workers(fri_loader *l) {
    sigset_t all, was;
    sigfillset(&all);
    l->threads = calloc((size_t)l->opts.workers, sizeof *l->threads);
    if (l->threads == NULL) return fr_fail(FR_ENOMEM, "loader: no memory for %d workers", l->opts.workers);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    while (l->started < l->opts.workers && pthread_create(&l->threads[l->started], NULL, worker, l) == 0) l->started++;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return FR_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------- */

static fr_status check_opts(const fr_loader_opts *o, const fr_dataset *d) {
    const fr_augmentation *a = &o->augmentation;
    if (o->dtype != FR_F32 && (a->real != NULL || a->last != NULL || a->batch != NULL))
        return fr_fail(FR_EDTYPE, "loader: batches are %s, but augmentations (except those of bytes) need f32",
                       fr_dtype_name(o->dtype));
    if (o->dtype != FR_F32 && (o->dtype != FR_U8 || d->f32))
        return fr_fail(FR_EDTYPE, "loader: dtype is %s but %s holds %s images; f32, or u8 for u8 images",
                       fr_dtype_name(o->dtype), d->source, d->f32 ? "f32" : "u8");
    if (a->bytes != NULL && (d->f32 || d->target == FR_TARGET_PIXELS))
        return fr_fail(FR_EINVAL, "loader: augmentations of bytes need 8-bit images without masks, but %s holds %s",
                       d->source, d->f32 ? "f32 images" : "masks");
    if (o->batch_size < 1)
        return fr_fail(FR_EINVAL, "loader: batch_size is %lld; it must be >= 1", (long long)o->batch_size);
    if (o->drop_last && o->batch_size > d->count)
        return fr_fail(FR_EINVAL, "loader: batch_size is %lld but %s holds %lld images, and drop_last is set",
                       (long long)o->batch_size, d->source, (long long)d->count);
    if (o->workers < 0 || o->workers > FRI_LOADER_WORKERS_MAX)
        return fr_fail(FR_EINVAL, "loader: workers is %d, must lie in 0..%d", o->workers, FRI_LOADER_WORKERS_MAX);
    if (o->group < 1 || o->every < 1 || o->first < 0)
        return fr_fail(FR_EINVAL, "loader: group %lld and every %lld must be >= 1, first %lld >= 0",
                       (long long)o->group, (long long)o->every, (long long)o->first);
    if (o->prefetch < 1 || o->prefetch > FRI_LOADER_PREFETCH_MAX)
        return fr_fail(FR_EINVAL, "loader: prefetch is %d, must lie in 1..%d", o->prefetch, FRI_LOADER_PREFETCH_MAX);
    if (o->shuffle_window < 0)
        return fr_fail(FR_EINVAL, "loader: shuffle_window is %lld, must be >= 0", (long long)o->shuffle_window);
    if (o->balanced && (!o->shuffle || o->shuffle_window > 0))
        return fr_fail(FR_EINVAL, "loader: balanced needs shuffle 1 and shuffle_window 0, not %d and %lld", o->shuffle,
                       (long long)o->shuffle_window);
    if (a->batch != NULL && d->target != FR_TARGET_CLASS)
        return fr_fail(FR_EINVAL, "loader: augmentations of batches mix classes, but the images of %s have none",
                       d->source);
    return FR_OK;
}

/* Mixing changes targets, too. */
static fr_status shares_of_classes(fri_loader *l) {
    const fri_transform *t = &l->transform;
    const int64_t pixels = t->height * t->width * t->channels, classes = l->dataset->classes;
    l->shape.target = FR_TARGET_VECTOR;
    l->shape.numbers = classes;
    l->spare = malloc((size_t)(pixels > classes ? pixels : classes) * sizeof(float));
    return l->spare != NULL ? FR_OK : fr_fail(FR_ENOMEM, "loader: no memory for an image");
}

fr_status fri_loader_create(fr_dataset *d, const fr_loader_opts *opts, fri_loader **out) {
    FRI_TRY(check_opts(opts, d));
    FRI_OWNED(fri_loader_release) fri_loader *l = calloc(1, sizeof *l);
    if (l == NULL) return fr_fail(FR_ENOMEM, "loader: no memory");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->idle, NULL);
    l->dataset = fr_dataset_retain(d);
    l->opts = *opts;
    if (l->opts.batch_size > d->count) l->opts.batch_size = d->count;
    l->batches = d->count / l->opts.batch_size + (!opts->drop_last && d->count % l->opts.batch_size != 0);
    FRI_TRY(fri_transform_init(&l->transform, opts, d->height, d->width, d->channels));
    l->shape = (fri_loader_shape){.slots = opts->workers > 0 ? opts->prefetch + 1 : 1,
                                  .capacity = l->opts.batch_size,
                                  .height = l->transform.height,
                                  .width = l->transform.width,
                                  .channels = l->transform.channels,
                                  .dtype = opts->dtype,
                                  .target = d->target,
                                  .numbers = fri_target_numel(d, l->transform.height, l->transform.width)};
    if (opts->augmentation.batch != NULL) FRI_TRY(shares_of_classes(l));
    if (opts->balanced && opts->device != FR_META) FRI_TRY(fri_balance_init(d, &l->balance));
    l->unfree = l->shape.slots;
    l->slots = calloc((size_t)l->shape.slots, sizeof *l->slots);
    if ((uint64_t)d->count <= SIZE_MAX / sizeof *l->order) l->order = malloc((size_t)d->count * sizeof *l->order);
    const bool by_files = opts->shuffle_window > 0 && d->runs > 0;
    if (by_files) l->runs = malloc((size_t)d->runs * sizeof *l->runs);
    if (l->slots == NULL || l->order == NULL || (by_files && l->runs == NULL))
        return fr_fail(FR_ENOMEM, "loader: no memory for the order of %lld images", (long long)d->count);
    FRI_MOVE(out, l);
    return FR_OK;
}

fri_loader_shape fri_loader_shape_get(const fri_loader *l) {
    return l->shape;
}

fr_status fri_loader_start(fri_loader *l, fri_loader_provide_fn *provide, void *ctx, bool decode) {
    l->provide = provide;
    l->ctx = ctx;
    l->decode = decode;
    for (int i = 0; i < l->shape.slots; i++) FRI_TRY(provide(ctx, i, &l->slots[i].images, &l->slots[i].targets));
    FRI_TRY(fri_loader_position_set(l, 0, 0));
    return l->opts.workers > 0 && decode ? start_workers(l) : FR_OK;
}

void fri_loader_release(fri_loader **loader) {
    fri_loader *l = *loader;
    *loader = NULL;
    if (l == NULL || fri_forked()) return; /* the lock and the workers are the parent's */
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->started; i++) pthread_join(l->threads[i], NULL);
    pthread_cond_destroy(&l->idle);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    fr_image_clear(&l->image);
    fri_transform_scratch_free(&l->scratch);
    fr_dataset_release(&l->dataset);
    fri_balance_free(&l->balance);
    free(l->spare);
    free(l->threads);
    free(l->slots);
    free(l->order);
    free(l->runs);
    free(l);
}

/* ---- order and position ------------------------------------------------------------------------------------ */

/* Fisher-Yates from Philox: a function of (seed, epoch, first). */
static void shuffle_epoch(const fri_loader *l, int64_t epoch, int64_t first, int64_t n, int64_t *list) {
    for (int64_t i = n - 1; i > 0; i--) {
        fri_philox4 r = fri_philox(l->transform.seed, fri_stream_shuffle(epoch), (uint64_t)(first + i));
        /* 64 bits against at most 2^31 images: the modulo's bias is below 2^-32. */
        int64_t k = (int64_t)(((uint64_t)r.v[1] << 32 | r.v[0]) % (uint64_t)(i + 1));
        int64_t swap = list[i];
        list[i] = list[k];
        list[k] = swap;
    }
}

/* The dataset's files in a random order, with images in order of storage. */
static void order_of_files(const fri_loader *l, int64_t epoch) {
    const fr_dataset *d = l->dataset;
    int64_t n = 0;
    for (int64_t k = 0; k < d->runs; k++) l->runs[k] = k;
    shuffle_epoch(l, epoch, EPOCH_MAX, d->runs, l->runs);
    for (int64_t k = 0; k < d->runs; k++) {
        const int64_t run = l->runs[k], begin = run > 0 ? d->run_end[run - 1] : 0;
        for (int64_t i = begin; i < d->run_end[run]; i++) l->order[n++] = d->place[i];
    }
}

/* A function of (seed, epoch). */
static void make_order(fri_loader *l, int64_t epoch) {
    const int64_t n = l->dataset->count, window = l->opts.shuffle_window > 0 ? l->opts.shuffle_window : n;
    for (int64_t i = 0; i < n; i++) l->order[i] = i;
    if (l->balance.image != NULL) fri_balance_draw(&l->balance, l->transform.seed, epoch, n, l->order);
    if (!l->opts.shuffle || l->balance.image != NULL) return;
    if (l->runs != NULL) order_of_files(l, epoch);
    for (int64_t i = 0; i < n; i += window) shuffle_epoch(l, epoch, i, n - i < window ? n - i : window, l->order + i);
}

int fri_loader_workers(const fri_loader *l) {
    return l->started;
}

int64_t fri_loader_batches(const fri_loader *l) {
    return l->batches;
}

void fri_loader_position_get(const fri_loader *l, int64_t *epoch, int64_t *batch) {
    *epoch = l->epoch + (l->ended ? 1 : 0);
    const int64_t q = l->next - l->first, per = own_of(l, l->opts.group);
    *batch = l->ended ? 0 : per == 0 || q % per == 0 ? q / (per > 0 ? per : 1) * l->opts.group : batch_of(l, q);
}

fr_status fri_loader_position_set(fri_loader *l, int64_t epoch, int64_t batch) {
    FRI_TRY(fri_fork_refuses());
    if (epoch < 0 || epoch > EPOCH_MAX)
        return fr_fail(FR_EINVAL, "loader: epoch %lld is outside 0..%lld", (long long)epoch, (long long)EPOCH_MAX);
    if (batch < 0 || batch > l->batches)
        return fr_fail(FR_EINVAL, "loader: batch %lld is outside 0..%lld, the batches of an epoch", (long long)batch,
                       (long long)l->batches);
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->in_flight > 0) pthread_cond_wait(&l->idle, &l->lock);
    make_order(l, epoch);
    l->epoch = epoch;
    l->ended = false;
    l->first = l->next - own_of(l, batch); /* drops batches decoded ahead; the caller's batch keeps the slot */
    l->end = l->first + own_of(l, l->batches);
    l->claim = l->next;
    l->claim_at = 0;
    l->paused = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return FR_OK;
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

static fr_status fill_here(fri_loader *l, slot *s) {
    fr_status status = FR_OK;
    slot_reset(s);
    for (int64_t i = 0; status == FR_OK && i < length_of(l, l->next); i++)
        status = fill_image(l, s, batch_of(l, l->next - l->first), i, l->epoch, &l->image, &l->scratch);
    if (status == FR_OK) augment_batch(l, s);
    return status;
}

static fr_status fetch_here(fri_loader *l, slot *s) {
    fr_status status = l->provide(l->ctx, (int)(l->next % l->shape.slots), &s->images, &s->targets);
    return status == FR_OK && l->decode ? fill_here(l, s) : status;
}

/* Frees the slots after the held slot. */
static fr_status give_back(fri_loader *l) {
    if (l->opts.workers == 0) return FR_OK; /* fetch_here requests the single buffer */
    /* Only the calling thread writes next and unfree, so reads need no lock. */
    while (l->unfree < l->next - 1 + l->shape.slots) {
        slot *s = slot_of(l, l->unfree);
        void *images = NULL, *targets = NULL;
        fr_status status = l->provide(l->ctx, (int)(l->unfree % l->shape.slots), &images, &targets);
        if (status != FR_OK) return status;
        pthread_mutex_lock(&l->lock);
        s->images = images;
        s->targets = targets;
        l->unfree++;
        pthread_cond_broadcast(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    return FR_OK;
}

fr_status fri_loader_fetch(fri_loader *l, int *slot_number, int64_t *length) {
    fr_status status = fri_fork_refuses();
    if (status == FR_OK && l->ended) status = fri_loader_position_set(l, l->epoch + 1, 0);
    if (status == FR_OK) status = give_back(l);
    if (status != FR_OK) return status;
    if (l->next == l->end) {
        l->ended = true;
        return FR_END;
    }
    slot *s = slot_of(l, l->next);
    *slot_number = (int)(l->next % l->shape.slots);
    *length = length_of(l, l->next);
    if (l->opts.workers == 0) return fetch_here(l, s);
    if (!l->decode) return FR_OK;
    if (l->started == 0) return fill_here(l, s); /* none could be started */
    pthread_mutex_lock(&l->lock);
    bool complete;
    while (!(complete = l->claim > l->next && s->done == *length) && l->dead < l->started)
        pthread_cond_wait(&l->ready, &l->lock);
    status = s->status;
    pthread_mutex_unlock(&l->lock);
    if (!complete)
        return fr_fail(FR_EINTERNAL, "loader: all %d worker threads ended while they decoded an image", l->started);
    if (status == FR_OK) augment_batch(l, s);
    /* A complete slot is not written before the return. */
    return status == FR_OK ? FR_OK : fr_fail(status, "%s", s->error);
}

void fri_loader_advance(fri_loader *l) {
    pthread_mutex_lock(&l->lock);
    l->next++;
    pthread_mutex_unlock(&l->lock);
    /* The next fetch asks again for a missing buffer, and reports the failure. */
    (void)give_back(l);
}
