/* test_io_host_faults.c - every request for host memory outside of training steps fails in turn: making a model, an
 * optimizer and a loader, saving, finding and loading states and weights, logging. Each failure reports the lack of
 * memory and leaves no block, open file or partial data; state on disk and model in memory are unchanged, and
 * repeating the call works. (cJSON uses the system's functions.) */
#include "io/session_files.h"
#include "io/support.h"
#include "support/host_faults.h"

#include <frugal/frugal.h>
#include <frugal/io.h>

#include <stdlib.h>
#include <string.h>

typedef struct world {
    fr_module *model;
    fr_optimizer *optimizer;
    fr_dataset *images;
    fr_loader *loader;
    fr_state state;
    unsigned char *bytes; /* of the model */
    size_t n;
} world;

typedef fr_status act_fn(world *w);

static void world_open(world *w) {
    *w = (world){0};
    make_folder();
    w->model = small_net(3, FR_CPU);
    OK(fr_sgd(w->model, FR_SGD_OPTS(.momentum = 0.9), &w->optimizer));
    OK(fr_dataset_synthetic(42, 5, 7, 9, 3, 1, &w->images));
    OK(fr_loader_create(w->images, FR_LOADER_OPTS(.batch_size = 8, .workers = 0), &w->loader));
    w->state = (fr_state){.model = w->model,
                          .optimizer = w->optimizer,
                          .loader = w->loader,
                          .dataset = w->images,
                          .model_name = "small",
                          .step = 5};
    OK(fr_state_save(in_folder("s"), &w->state, 1, NULL));
    OK(fr_weights_save(w->model, in_folder("w.safetensors"), NULL));
    w->bytes = module_bytes(w->model, &w->n);
}

static void world_close(world *w) {
    fr_loader_release(&w->loader);
    fr_dataset_release(&w->images);
    fr_optimizer_release(&w->optimizer);
    fr_module_release(&w->model);
    free(w->bytes);
    remove_folder();
}

/* A state can be loaded after every failure, and the model is unchanged. */
static void check(world *w, int k) {
    char path[FR_STATE_PATH_BYTES];
    fr_state state = w->state;
    cr_assert(module_equals(w->model, w->bytes, w->n), "request %d: the model is another", k);
    OK(fr_state_find_latest(in_folder("s"), path, NULL, NULL));
    OK(fr_state_load(path, &state));
    cr_assert(module_equals(w->model, w->bytes, w->n), "request %d: the state is of another model", k);
    cr_assert_eq(files_in(in_folder("s")), 1, "request %d: %d files instead of one state", k, files_in(in_folder("s")));
    cr_assert_leq(files_in(folder), 5, "request %d: something is left in the folder", k);
}

static void sweep(const char *name, act_fn *act, int least) {
    world w;
    int points = 0, managed = 0;
    world_open(&w);
    OK(act(&w));
    check(&w, 0);
    OK(act(&w));
    OK(fr_memory_empty_cache(FR_CPU));
    int64_t alive = host_faults_live();
    int files = files_in("/proc/self/fd");
    for (uint64_t k = 1;; k++) {
        host_faults_arm(k, 0);
        fr_status s = act(&w);
        if (!host_faults_disarm()) {
            OK(s);
            break;
        }
        points++;
        managed += s == FR_OK;
        cr_expect(s == FR_OK || (s == FR_ENOMEM && strlen(fr_last_error()) > 10), "%s, request %d: %s: %s", name,
                  (int)k, fr_status_name(s), fr_last_error());
        OK(fr_memory_empty_cache(FR_CPU));
        cr_assert_eq(files_in("/proc/self/fd"), files, "%s, request %d: a file stays open", name, (int)k);
        OK(act(&w));
        OK(fr_memory_empty_cache(FR_CPU));
        cr_assert_eq(host_faults_live(), alive, "%s, request %d: %lld blocks are left", name, (int)k,
                     (long long)(host_faults_live() - alive));
        check(&w, (int)k);
        OK(fr_memory_empty_cache(FR_CPU));
    }
    fprintf(stderr, "host faults, %s: %d points tried, %d told, %d managed without, 0 leaks, 0 crashes\n", name, points,
            points - managed, managed);
    cr_expect_geq(points, least);
    world_close(&w);
}

static fr_status make(world *w) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_loader *l = NULL;
    fr_grad_scaler *g = NULL;
    fr_dataset *d = NULL;
    fr_status s = FR_OK;
    (void)w;
    FR_TRY(s, fr_densenet(16, FR_MODEL_OPTS(.classes = 5, .image_size = 8, .growth = 4), &m));
    FR_TRY(s, fr_adam(m, NULL, &o));
    FR_TRY(s, fr_grad_scaler_create(NULL, FR_CPU, &g));
    FR_TRY(s, fr_dataset_synthetic(42, 5, 7, 9, 3, 1, &d));
    FR_TRY(s, fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 8, .workers = 2), &l));
done:
    fr_loader_release(&l);
    fr_dataset_release(&d);
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    return s;
}

static fr_status save(world *w) {
    return fr_state_save(in_folder("s"), &w->state, 1, NULL);
}

static fr_status find_and_load(world *w) {
    char path[FR_STATE_PATH_BYTES];
    fr_state state = w->state;
    fr_status s = fr_state_find_latest(in_folder("s"), path, NULL, NULL);
    return s < 0 ? s : fr_state_load(path, &state);
}

static fr_status save_weights(world *w) {
    return fr_weights_save(w->model, in_folder("w.safetensors"), NULL);
}

static fr_status load_weights(world *w) {
    return fr_weights_load(w->model, in_folder("w.safetensors"), NULL);
}

static fr_status write_logs(world *w) {
    fri_log *log = NULL;
    fr_status s = FR_OK;
    (void)w;
    FR_TRY(s, fri_log_open(in_folder("l.jsonl"), -1, false, &log));
    FR_TRY(s, fri_log_write(log, &(fr_log_step){.step = 1, .loss = 2}));
    FR_TRY(s, fri_log_scalar(log, "test/accuracy", 1, 0.5));
done:
    fri_log_close(&log);
    return s;
}

TestSuite(io_host_faults, .timeout = 240);

Test(io_host_faults, making_everything) {
    sweep("making model, optimizer, loader", make, 100);
}

Test(io_host_faults, states) {
    sweep("saving a state", save, 20);
    sweep("finding and loading a state", find_and_load, 20);
}

Test(io_host_faults, weights) {
    sweep("saving weights", save_weights, 10);
    sweep("loading weights", load_weights, 10);
}

Test(io_host_faults, logs) {
    sweep("logs", write_logs, 3);
}
