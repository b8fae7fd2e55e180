/* training_threads.c - two threads train and a third infers, each with separate modules, tensors, loaders and, every
 * second time, a separate memory pool; each result must equal the result of working alone, bit for bit and byte for
 * byte. A plain program, because Criterion does not start under the thread sanitizer (.ci/run tsan).
 *
 *   training_threads [SECONDS]     2 by default
 *
 * Results handed over by a thread are freed by another. Exit status 1 and a sentence for any difference. */
#include <frugal/frugal.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory/report.h"

enum { STEPS = 3, BATCH = 4, SIZE = 16, CLASSES = 5, TRAINERS = 2 };

typedef struct recipe {
    const char *name;
    int resnet; /* 0: a DenseNet with a final dropout */
    fr_segmentation how;
    int segments; /* 0: no checkpoints */
    bool amp, adam, fused, all_off, offload;
} recipe;

static const recipe recipes[] = {
    {.name = "densenet, sgd"},
    {.name = "densenet, sqrt, adam, amp", .how = FR_SEGMENTS_SQRT, .segments = 1, .adam = true, .amp = true},
    {.name = "resnet, fused adam", .resnet = 1, .adam = true, .fused = true},
    {.name = "densenet, offload", .offload = true},
    {.name = "resnet, two segments, all off", .resnet = 1, .segments = 2, .all_off = true},
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

typedef struct result {
    uint64_t hash; /* of the losses, and of all parameters and buffers in the end */
    size_t requested, allocated;
} result;

static result alone[RECIPES];
static uint64_t inferred_alone;
static atomic_bool over, failed;

static int complain(const char *what) {
    fprintf(stderr, "training_threads: %s: %s\n", what, fr_last_error());
    failed = true;
    return 1;
}

static void hash_bytes(uint64_t *h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) *h = (*h ^ p[i]) * 1099511628211u;
}

static fr_status hash_tensor(void *ctx, const char *name, fr_tensor *t, bool parameter) {
    (void)name;
    (void)parameter;
    hash_bytes(ctx, fr_tensor_data(t), fr_tensor_nbytes(t));
    return FR_OK;
}

/* ---- handing a tensor to another thread ---------------------------------------------------------------------- */

static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static fr_tensor *mailbox;

static fr_tensor *exchange(fr_tensor *t) {
    pthread_mutex_lock(&mailbox_lock);
    fr_tensor *was = mailbox;
    mailbox = t;
    pthread_mutex_unlock(&mailbox_lock);
    return was;
}

/* ---- training ------------------------------------------------------------------------------------------------ */

static fr_status make(const recipe *r, fr_module **m) {
    fr_model_opts o = *FR_MODEL_OPTS(.classes = CLASSES, .image_size = SIZE, .growth = 4, .small_stem = true);
    return r->resnet ? fr_resnet(18, &o, m) : fr_densenet(10, &o, m);
}

static fr_status forward(const recipe *r, fr_module *m, fr_tensor *x, fr_tensor **y) {
    if (r->segments == 0) return fr_module_forward(m, x, y);
    return fr_checkpoint_segments(m, r->how, r->segments, NULL, x, y);
}

static fr_status step(const recipe *r, fr_module *m, fr_optimizer *o, fr_tensor *x, fr_tensor *target, uint64_t *h) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_autocast_state was = {0};
    fr_step_scope scope;
    double value = 0;
    fr_status s = fr_step_begin(&scope);
    if (r->amp) FR_TRY(s, fr_autocast_begin(FR_BF16, &was));
    FR_TRY(s, forward(r, m, x, &y));
    if (!r->resnet) FR_TRY(s, fr_dropout(y, 0.2, true, &y));
    FR_TRY(s, fr_cross_entropy(y, target, NULL, &loss));
    fr_tensor_release(&y);
    fr_autocast_end(was);
    FR_TRY(s, fr_backward(loss, NULL));
    if (!r->fused) FR_TRY(s, fr_optimizer_step(o));
    FR_TRY(s, fr_tensor_item(loss, &value));
    hash_bytes(h, &value, sizeof value);
done:
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_step_end(&scope);
    return s;
}

static fr_status train(const recipe *r, result *out) {
    fr_dataset *images = NULL;
    fr_loader *loader = NULL;
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_tensor *x = NULL, *target = NULL, *own = NULL;
    fr_memory_stats t;
    fr_status s = FR_OK;
    *out = (result){.hash = 14695981039346656037u};
    fr_seed(7);
    fr_switches switches = r->all_off ? fr_switches_all_off() : fr_switches_default();
    switches.offload = r->offload;
    fr_switches_set(switches);
    FR_TRY(s, fr_dataset_synthetic(STEPS * BATCH, CLASSES, SIZE, SIZE, 3, 1, &images));
    FR_TRY(s, fr_loader_create(images, FR_LOADER_OPTS(.batch_size = BATCH, .workers = 1), &loader));
    FR_TRY(s, make(r, &m));
    FR_TRY(s, r->adam ? fr_adam(m, FR_ADAM_OPTS(.lr = 0.001), &o) : fr_sgd(m, FR_SGD_OPTS(.lr = 0.1), &o));
    if (r->fused) FR_TRY(s, fr_optimizer_fuse(o, true));
    for (int i = 0; i < STEPS; i++) {
        FR_TRY(s, fr_loader_next(loader, &x, &target));
        FR_TRY(s, step(r, m, o, x, target, &out->hash));
    }
    FR_TRY(s, fr_module_each_tensor(m, hash_tensor, &out->hash));
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &t));
    out->requested = t.peak_requested;
    out->allocated = t.peak_allocated;
    FR_TRY(s, fr_tensor_clone(x, &own));
    own = exchange(own); /* freed by another thread, in exchange for a foreign result */
done:
    fr_tensor_release(&own);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    fr_loader_release(&loader);
    fr_dataset_release(&images);
    fr_offload_close();
    return s;
}

static fr_status train_in_pool(const recipe *r, result *out) {
    fr_pool *pool = NULL;
    fr_pool_state was;
    fr_status s = fr_pool_create(FR_CPU, &pool);
    if (s < 0) return s;
    s = fr_pool_begin(pool, &was);
    if (s == FR_OK) {
        s = train(r, out);
        fr_pool_end(was);
    }
    fr_pool_release(&pool);
    return s;
}

static void *trainer(void *number) {
    for (size_t i = (size_t)(intptr_t)number; !over && !failed; i++) {
        const recipe *r = &recipes[i % RECIPES];
        const result *expected = &alone[i % RECIPES];
        bool pool = i / RECIPES % 2 == 0;
        result got;
        if ((pool ? train_in_pool(r, &got) : train(r, &got)) < 0) {
            complain(r->name);
        } else if (got.hash != expected->hash) {
            fprintf(stderr, "training_threads: %s: other bits than alone\n", r->name);
            failed = true;
        } else if (pool && (got.requested != expected->requested || got.allocated != expected->allocated)) {
            fprintf(stderr, "training_threads: %s: peak of %zu and %zu bytes, alone %zu and %zu\n", r->name,
                    got.requested, got.allocated, expected->requested, expected->allocated);
            failed = true;
        }
    }
    return NULL;
}

/* ---- inference ----------------------------------------------------------------------------------------------- */

static fr_status infer(fr_module *m, fr_tensor *x, uint64_t *h) {
    fr_tensor *y = NULL;
    bool was = fr_no_grad_begin();
    fr_status s = fr_module_forward(m, x, &y);
    fr_no_grad_end(was);
    *h = 14695981039346656037u;
    if (s == FR_OK) hash_bytes(h, fr_tensor_data(y), fr_tensor_nbytes(y));
    fr_tensor_release(&y);
    return s;
}

static fr_status inference(bool once, int *rounds) {
    fr_module *m = NULL;
    fr_tensor *x = NULL, *other = NULL;
    uint64_t h = 0;
    fr_status s = FR_OK;
    fr_seed(3);
    FR_TRY(s, make(&recipes[RECIPES - 1], &m));
    fr_module_train(m, false);
    FR_TRY(s, fr_tensor_normal(4, (int64_t[]){1, SIZE, SIZE, 3}, 0, 1, FR_F32, FR_CPU, &x));
    do {
        FR_TRY(s, infer(m, x, &h));
        if (once) inferred_alone = h;
        if (h != inferred_alone) {
            fprintf(stderr, "training_threads: inference gives other bits than alone\n");
            failed = true;
        }
        other = exchange(NULL);
        fr_tensor_release(&other);
        ++*rounds;
    } while (!once && !over && !failed);
done:
    fr_tensor_release(&x);
    fr_module_release(&m);
    return s;
}

static void *inferrer(void *rounds) {
    if (inference(false, rounds) < 0) complain("inference");
    return NULL;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    pthread_t threads[TRAINERS + 1];
    int rounds = 0;
    for (int i = 0; i < RECIPES; i++)
        if (train_in_pool(&recipes[i], &alone[i]) < 0) return complain(recipes[i].name);
    if (inference(true, &rounds) < 0) return complain("inference");
    for (int i = 0; i < TRAINERS; i++)
        if (pthread_create(&threads[i], NULL, trainer, (void *)(intptr_t)i) != 0) return complain("pthread_create");
    if (pthread_create(&threads[TRAINERS], NULL, inferrer, &rounds) != 0) return complain("pthread_create");
    struct timespec wait = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wait, NULL);
    over = true;
    for (int i = 0; i <= TRAINERS; i++) pthread_join(threads[i], NULL);
    fr_tensor *left = exchange(NULL);
    fr_tensor_release(&left);
    fr_memory_stats t;
    if (fri_memory_process_get(FR_CPU, &t) < 0) return complain("memory");
    if (t.allocs != t.frees) {
        fprintf(stderr, "training_threads: %llu blocks are left\n", (unsigned long long)(t.allocs - t.frees));
        failed = true;
    }
    printf("training_threads: %d inferences beside %d threads that train, %s\n", rounds, TRAINERS,
           failed ? "FAILED" : "the bits and bytes of each alone");
    return failed;
}
