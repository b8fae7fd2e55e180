/* test_host_faults.c - every eleventh request for host memory of a training step (fault_stride) fails in turn:
 * loader, forward, loss, backward, clipping, scaler, optimizer.
 *
 * The step says that memory is short (or does without, where only a code could not be made), nothing leaks, the next
 * step with these objects works, and a repeated step gives the usual bytes. (Device memory: test_faults.c.)
 *
 * Objects made once per process and kept (interned names) are made at the first step only: the
 * cold test runs each of its points in a fresh process. */
#include "support/host_faults.h"

#include "autograd/nets.h"
#include "autograd/run.h"
#include "support/golden.h"
#include "support/small_train.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 4, SIZE = 32 };

static uint64_t stride(void) {
    return fault_stride(11);
}

typedef struct setting {
    const char *name;
    small_net net;
    small_form form;
    small_amp amp;
    fr_switches switches;
    bool adam, fused, clip;
} setting;

typedef struct world {
    const setting *c;
    fr_dataset *images;
    fr_loader *loader;
    fr_module *model;
    fr_optimizer *optimizer;
    fr_grad_scaler *scaler;
    small_bytes initial;
} world;

/* ---- bytes of the model -------------------------------------------------------------------------------------- */

static void keep(small_bytes *b, const void *data, size_t n) {
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->data = realloc(b->data, b->capacity);
        cr_assert_not_null(b->data);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static fr_status keep_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    (void)is_parameter;
    keep(ctx, fr_tensor_data(t), fr_tensor_nbytes(t));
    return FR_OK;
}

static fr_status put_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const unsigned char **at = ctx;
    (void)path;
    (void)is_parameter;
    memcpy(fr_tensor_data(t), *at, fr_tensor_nbytes(t));
    *at += fr_tensor_nbytes(t);
    return FR_OK;
}

/* ---- the step ------------------------------------------------------------------------------------------------ */

/* Optimizer and scaler are new, so that the step makes their state too. */
static void renew(world *w) {
    const unsigned char *at = w->initial.data;
    must(fr_module_each_tensor(w->model, put_tensor, &at));
    if (w->c->adam)
        must(fr_adam(w->model, FR_ADAM_OPTS(.lr = 0.01), &w->optimizer));
    else
        must(fr_sgd(w->model, FR_SGD_OPTS(.lr = 0.02, .momentum = 0.9), &w->optimizer));
    if (w->c->fused) must(fr_optimizer_fuse(w->optimizer, true));
    fr_grad_scaler_release(&w->scaler);
    if (w->c->amp == SMALL_F16)
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1024, .dynamic = false), FR_CPU, &w->scaler));
    must(fr_loader_position_set(w->loader, 0, 0));
    fr_seed(7);
}

static void world_open(world *w, const setting *c) {
    *w = (world){.c = c};
    host_faults_begin();
    fr_switches_set(c->switches);
    must(fr_dataset_synthetic(64, 5, 8, 8, 1, 3, &w->images));
    must(fr_loader_create(w->images,
                          FR_LOADER_OPTS(.batch_size = BATCH, .channels = 3, .height = SIZE, .width = SIZE,
                                         .workers = 0, .degrees = 10, .padding = 2, .random_crop = true),
                          &w->loader));
    fr_seed(21);
    w->model = small_net_make(c->net, FR_CPU);
    must(fr_module_each_tensor(w->model, keep_tensor, &w->initial));
    renew(w);
}

static void world_close(world *w) {
    fr_grad_scaler_release(&w->scaler);
    fr_optimizer_release(&w->optimizer);
    fr_module_release(&w->model);
    fr_loader_release(&w->loader);
    fr_dataset_release(&w->images);
    free(w->initial.data);
    fr_switches_set(fr_switches_default());
}

static fr_status backward(world *w, fr_tensor *images, fr_tensor *labels, double *value) {
    fr_tensor *y = NULL, *loss = NULL, *scaled = NULL;
    fr_autocast_state was = fri_autocast_get();
    fr_status s = FR_OK;
    if (w->c->amp != SMALL_F32) FR_TRY(s, fr_autocast_begin(w->c->amp == SMALL_F16 ? FR_F16 : FR_BF16, &was));
    FR_TRY(s, small_net_forward(w->model, w->c->form, images, &y));
    FR_TRY(s, fr_cross_entropy(y, labels, FR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.1), &loss));
    fr_tensor_release(&y);
    fr_autocast_end(was);
    FR_TRY(s, fr_tensor_item(loss, value));
    scaled = fr_tensor_retain(loss);
    if (w->scaler != NULL) FR_TRY(s, fr_grad_scaler_scale(w->scaler, loss, &scaled));
    FR_TRY(s, fr_backward(scaled, NULL));
done:
    fr_autocast_end(was);
    RELEASE_ALL(&y, &loss, &scaled);
    return s;
}

static fr_status update(world *w) {
    bool skipped = false;
    fr_status s = FR_OK;
    if (w->c->clip) {
        if (w->scaler != NULL) FR_TRY(s, fr_grad_scaler_unscale(w->scaler, w->optimizer));
        FR_TRY(s, fr_clip_grad_norm(w->model, 0.5, NULL));
    }
    if (w->scaler == NULL) return fr_optimizer_step(w->optimizer);
    FR_TRY(s, fr_grad_scaler_step(w->scaler, w->optimizer));
    FR_TRY(s, fr_grad_scaler_update(w->scaler, &skipped));
done:
    return s;
}

/* A step as a program writes it; leaves only the model and the optimizer's state. */
static fr_status step(world *w, double *loss) {
    fr_tensor *images = NULL, *labels = NULL;
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    if (s < 0) return s;
    *loss = NAN;
    FR_TRY(s, fr_loader_next(w->loader, &images, &labels));
    FR_TRY(s, backward(w, images, labels, loss));
    FR_TRY(s, update(w));
done:
    fr_optimizer_zero_grad(w->optimizer);
    fr_tensor_release(&images);
    fr_tensor_release(&labels);
    fr_status ended = fr_step_end(&scope);
    return s < 0 ? s : ended;
}

/* ---- the sweep ----------------------------------------------------------------------------------------------- */

static int64_t resting(void) {
    must(fr_memory_empty_cache(FR_CPU)); /* the allocator keeps a block per free piece */
    return host_faults_live();
}

static bool same_model(const world *w, const small_bytes *want) {
    small_bytes got = {0};
    must(fr_module_each_tensor(w->model, keep_tensor, &got));
    bool same = got.n == want->n && memcmp(got.data, want->data, got.n) == 0;
    free(got.data);
    return same;
}

/* `more`: requests behind the failed one that fail too, as happens when memory is really short. */
static void sweep(const setting *c, uint64_t more) {
    world w;
    small_bytes want = {0};
    double loss = 0, first = 0;
    uint64_t points = 0, managed = 0;
    world_open(&w, c);
    for (int i = 0; i < 3; i++) { /* until no object is made for the first time any more */
        renew(&w);
        must(step(&w, &first));
    }
    must(fr_module_each_tensor(w.model, keep_tensor, &want));
    int64_t alive = resting();
    for (uint64_t k = 1;; k += stride()) {
        renew(&w);
        host_faults_arm(k, more);
        fr_status s = step(&w, &loss);
        if (!host_faults_disarm()) {
            must(s);
            break;
        }
        points++;
        managed += s == FR_OK;
        cr_expect(s == FR_OK || (s == FR_ENOMEM && strlen(fr_last_error()) > 10), "request %d: %s: %s", (int)k,
                  fr_status_name(s), fr_last_error());
        if (s == FR_OK) cr_expect(same_model(&w, &want), "request %d: a step that managed without is another", (int)k);
        cr_expect_eq(fr_graph_stats_get().nodes, 0u, "request %d: nodes are left", (int)k);
        must(step(&w, &loss)); /* the objects still work after the failure */
        cr_expect(isfinite(loss), "request %d: the next loss is %g", (int)k, loss);
        renew(&w);
        must(step(&w, &loss));
        cr_assert(same_model(&w, &want) && memcmp(&loss, &first, sizeof loss) == 0,
                  "request %d: the same step is another afterwards", (int)k);
        int64_t now = resting();
        cr_assert_eq(now, alive, "request %d: %lld blocks are alive, %lld were before (%s)", (int)k, (long long)now,
                     (long long)alive, fr_last_error());
    }
    fprintf(stderr, "host faults, %s%s: %d points tried, %d told, %d managed without, 0 leaks, 0 crashes\n", c->name,
            more > 0 ? ", all that follow" : "", (int)points, (int)(points - managed), (int)managed);
    cr_expect_gt(points, 200u / stride());
    free(want.data);
    world_close(&w);
    expect_nothing_left();
}

TestSuite(host_faults, .timeout = 300);

Test(host_faults, plain) {
    const setting c = {.name = "VGG, plain", .net = SMALL_VGG, .switches = fr_switches_default()};
    sweep(&c, 0);
    sweep(&c, UINT64_MAX);
}

Test(host_faults, all_off) {
    const setting c = {.name = "ResNet, all switches off",
                       .net = SMALL_RESNET,
                       .adam = true,
                       .switches = fr_switches_all_off()};
    sweep(&c, 0);
}

static fr_switches everything(void) {
    fr_switches s = fr_switches_default();
    s.offload = true;
    return s;
}

Test(host_faults, rebuild_offload_checkpoints) {
    const setting c = {.name = "VGG, rebuild, offload, each unit a checkpoint",
                       .net = SMALL_VGG,
                       .form = SMALL_EACH,
                       .adam = true,
                       .switches = everything()};
    sweep(&c, 0);
}

Test(host_faults, nested_checkpoints) {
    const setting c = {.name = "ResNet, nested checkpoints",
                       .net = SMALL_RESNET,
                       .form = SMALL_NESTED,
                       .switches = everything()};
    sweep(&c, 0);
    sweep(&c, UINT64_MAX);
}

Test(host_faults, dense_half_clipped) {
    const setting c = {.name = "DenseNet, f16, scaler, clipping",
                       .net = SMALL_DENSENET,
                       .amp = SMALL_F16,
                       .clip = true,
                       .switches = fr_switches_default()};
    sweep(&c, 0);
}

Test(host_faults, fused_bf16) {
    const setting c = {.name = "VGG, bf16, fused step",
                       .net = SMALL_VGG,
                       .form = SMALL_SQRT,
                       .amp = SMALL_BF16,
                       .fused = true,
                       .switches = fr_switches_default()};
    sweep(&c, 0);
}

/* ---- objects made once per process --------------------------------------------------------------------------- */

enum { CHILD_SAME = 0, CHILD_NO_FAULT = 10, CHILD_STATUS, CHILD_NEXT, CHILD_OTHER };

/* A whole life with a failure: from the first allocation of the model on. */
static int live_once(uint64_t k, const small_bytes *want) {
    static const setting plain = {.net = SMALL_VGG};
    setting c = plain;
    world w;
    double loss = 0;
    c.switches = fr_switches_default();
    world_open(&w, &c);
    host_faults_arm(k, 0);
    fr_status s = step(&w, &loss);
    if (!host_faults_disarm()) return s == FR_OK ? CHILD_NO_FAULT : CHILD_STATUS;
    if (s != FR_OK && s != FR_ENOMEM) return CHILD_STATUS;
    if (step(&w, &loss) != FR_OK) return CHILD_NEXT;
    renew(&w);
    if (step(&w, &loss) != FR_OK) return CHILD_NEXT;
    int status = same_model(&w, want) ? CHILD_SAME : CHILD_OTHER;
    world_close(&w);
    return status;
}

Test(host_faults, cold) {
    int points = 0, status = CHILD_SAME;
    small_bytes want = {0};
    int ends[2];
    /* The bytes come from a child too: the parent must not warm up, nor start threads before the fork. */
    cr_assert_eq(pipe(ends), 0);
    for (uint64_t k = 0; WEXITSTATUS(status) != CHILD_NO_FAULT; k += stride()) {
        pid_t pid = fork();
        cr_assert(pid >= 0);
        if (pid == 0 && k > 0) _exit(live_once(k, &want));
        if (pid == 0) {
            setting c = {.net = SMALL_VGG, .switches = fr_switches_default()};
            world w;
            double loss = 0;
            world_open(&w, &c);
            must(step(&w, &loss));
            must(fr_module_each_tensor(w.model, keep_tensor, &want));
            close(ends[0]);
            for (size_t at = 0; at < want.n;) {
                ssize_t n = write(ends[1], want.data + at, want.n - at);
                if (n <= 0) _exit(1);
                at += (size_t)n;
            }
            _exit(0);
        }
        if (k == 0) {
            unsigned char bytes[4096];
            close(ends[1]);
            for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) keep(&want, bytes, (size_t)n);
        }
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status), "request %d: the process was ended by signal %d", (int)k, WTERMSIG(status));
        if (WEXITSTATUS(status) == CHILD_NO_FAULT) break;
        cr_assert_eq(WEXITSTATUS(status), CHILD_SAME, "request %d: %d", (int)k, WEXITSTATUS(status));
        points += k > 0;
    }
    fprintf(stderr, "host faults, first step of a process: %d points tried, 0 crashes\n", points);
    cr_expect_gt(points, 200 / stride());
    free(want.data);
}
