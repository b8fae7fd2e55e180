/* test_async.c - a training step on a device that runs ahead: nobody waits in it, and the numbers are those of a host
 * that waits for everything. Whole trainings on the fake device, whose copies are done as late as the rules allow. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <frugal/optim.h>
#include <frugal/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/context.h"
#include "cuda/fake.h"
#include "cuda/memory.h"
#include "memory/allocator.h"
#include "support/golden.h"

TestSuite(async, .init = fake_begin);

/* ---- a trainer of a few thousand parameters -------------------------------------------------------------------- */

static fr_status add(fr_module *net, fr_status made, fr_module **part) {
    fr_status s = made < 0 ? made : fr_nn_append(net, part);
    fr_module_release(part);
    return s;
}

static fr_status small(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    fr_module *net = NULL, *m = NULL;
    fr_status s = FR_OK;
    strcpy(name, "small");
    FR_TRY(s, fr_nn_sequential(&net));
    FR_TRY(s, add(net, fr_nn_conv2d(3, 16, 3, FR_CONV2D_MODULE_OPTS(.conv.padding = 1), o->device, &m), &m));
    FR_TRY(s, add(net, fr_nn_batchnorm2d(16, o->device, &m), &m));
    FR_TRY(s, add(net, fr_nn_relu(&m), &m));
    FR_TRY(s, add(net, fr_nn_conv2d(16, 16, 3, FR_CONV2D_MODULE_OPTS(.conv.padding = 1), o->device, &m), &m));
    FR_TRY(s, add(net, fr_nn_batchnorm2d(16, o->device, &m), &m));
    FR_TRY(s, add(net, fr_nn_relu(&m), &m));
    FR_TRY(s, add(net, fr_nn_maxpool2d(4, NULL, &m), &m));
    FR_TRY(s, add(net, fr_nn_dropout(0.25, &m), &m));
    FR_TRY(s, add(net, fr_nn_adaptive_avgpool2d(1, 1, &m), &m));
    FR_TRY(s, add(net, fr_nn_flatten(1, &m), &m));
    FR_TRY(s, add(net, fr_nn_linear(16, classes, true, o->device, &m), &m));
    fr_module_release(out);
    *out = net;
    net = NULL;
done:
    fr_module_release(&net);
    return s;
}

static fr_status no_digits(fr_split split, fr_dataset **out) {
    (void)split;
    (void)out;
    return FR_EUNSUPPORTED;
}

static char folder[] = "/tmp/frugal-async-XXXXXX";

enum { ARGS = 40, TEST_BATCHES = 256 / 4 };

/* Trains and leaves the weights in <folder>/<name>. `more` is separated by blanks. */
static void train(const char *device, int steps, const char *more, const char *name) {
    static const char *const none[] = {NULL};
    fr_train_program program = {.name = "small",
                                .summary = "",
                                .description = "",
                                .examples = none,
                                .defaults = fr_train_opts_default(),
                                .sgd_lr = 0.05,
                                .depths = "1",
                                .batch_norm_optional = true,
                                .digits = no_digits,
                                .model = small};
    char *argv[ARGS] = {0}, count[16], export[64], report[64], flags[512];
    int argc = 0;
    snprintf(count, sizeof count, "%d", steps);
    snprintf(export, sizeof export, "%s/%s", folder, name);
    snprintf(report, sizeof report, "%s/%s.json", folder, name);
    snprintf(flags, sizeof flags,
             "small --dataset synthetic --image-size 32 --classes 10 --batch-size 4 --quiet --workers 0 "
             "--device %s --steps %s --export %s --report %s %s",
             device, count, export, report, more);
    for (char *word = strtok(flags, " "); word != NULL; word = strtok(NULL, " ")) argv[argc++] = word;
    program.defaults.depth = 1;
    cr_assert_eq(fr_train_main(&program, argc, argv), 0, "%s: %s", more, fr_last_error());
}

static char *contents(const char *name, size_t *bytes) {
    char path[80];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    char *all = malloc(1 << 22);
    *bytes = fread(all, 1, 1 << 22, f);
    fclose(f);
    return all;
}

/* The report's value behind "key": as text. */
static void report_value(const char *name, const char *key, char text[64]) {
    char file[64];
    size_t bytes, length = 0;
    snprintf(file, sizeof file, "%s.json", name);
    char *all = contents(file, &bytes);
    all[bytes] = '\0';
    const char *at = strstr(all, key);
    cr_assert_not_null(at, "%s has no %s", file, key);
    at += strlen(key);
    while (at[length] != '\n' && at[length] != '\0' && length < 63) length++;
    memcpy(text, at, length);
    text[length] = '\0';
    free(all);
}

static void same_training(const char *more) {
    size_t a_bytes, b_bytes;
    train("cpu", 9, more, "cpu");
    train("cuda", 9, more, "cuda");
    char *a = contents("cpu", &a_bytes), *b = contents("cuda", &b_bytes);
    cr_expect(a_bytes > 1000 && a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0, "%s: other weights", more);
    free(a);
    free(b);
    cr_expect_eq(fake.unordered, 0, "%s: %d copies do not wait for what was computed before", more, fake.unordered);
    cr_expect_gt(fake.launches, 0);
    static const char *const keys[] = {"\"first\":", "\"last\":", "\"accuracy\":", "\"skipped\":"};
    for (size_t i = 0; i < (strstr(more, "--amp") != NULL ? 4 : 3); i++) {
        char x[64], y[64];
        report_value("cpu", keys[i], x);
        report_value("cuda", keys[i], y);
        cr_expect_str_eq(x, y, "%s: %s is %s, on cpu %s", more, keys[i], y, x);
    }
}

static int waits(void) {
    return fake.event_waits + fake.stream_waits + fake.device_waits + fake.waiting_copies;
}

/* What a run waits for outside its steps is the same however many there are. */
static void nobody_waits(const char *more) {
    int before = waits();
    train("cuda", 4, more, "few");
    int few = waits() - before; /* two per tensor that is exported, and the last values */
    cr_expect_lt(few, TEST_BATCHES, "%s: %d waits, in the evaluation's %d batches, too", more, few, TEST_BATCHES);
    train("cuda", 14, more, "many");
    int many = waits() - before - few;
    cr_expect_eq(many, few, "%s: %d waits in 10 steps", more, many - few);
    cr_expect_gt(fake.queries, 0);
}

static void set_up(void) {
    cr_assert_not_null(mkdtemp(folder));
    fake_kernels();
}

#define TRAINING(name, flags) \
    Test(async, name) {       \
        set_up();             \
        same_training(flags); \
        nobody_waits(flags);  \
    }

TRAINING(plain, "")
TRAINING(no_arena, "--no-arena")
TRAINING(adam, "--optimizer adamw --lr 0.001")
TRAINING(scaled, "--amp=fp16")
TRAINING(scaled_overflow, "--amp=fp16 --loss-scale 1e9")
TRAINING(scaled_overflow_adam, "--amp=fp16 --loss-scale 1e9 --optimizer adam --lr 0.001")
TRAINING(clipped, "--clip 0.5")
TRAINING(scaled_and_clipped, "--amp=fp16 --clip 0.5 --loss-scale 1e9")
TRAINING(offloaded, "--offload --no-encode")
TRAINING(split, "--split-batch 2")
TRAINING(fused, "--fused-step")
TRAINING(two_passes, "--amp=fp16 --fused-step=two-pass")
TRAINING(two_passes_overflow, "--amp=fp16 --fused-step=two-pass --loss-scale=1e9")
TRAINING(scaled_adam8, "--amp=fp16 --optimizer adam8 --lr 0.001")

/* ---- the loss scaler on the device, against the one on the host -------------------------------------------------- */

enum { ELEMENTS = 1000, UPDATES = 40 };

typedef struct scaled {
    fr_module *m;
    fr_optimizer *o;
    fr_grad_scaler *g;
} scaled;

static scaled scaled_new(fr_device device, bool adam) {
    scaled b = {0};
    float values[ELEMENTS];
    fr_tensor *w = NULL;
    static const fr_module_class bag = {.name = "Bag"};
    for (int i = 0; i < ELEMENTS; i++) values[i] = (float)(i % 37) / 16 - 1;
    must(fr_module_create(&bag, 0, &b.m));
    must(fr_tensor_from_host(values, 1, (int64_t[]){ELEMENTS}, FR_F32, device, &w));
    must(fr_module_add_parameter(b.m, "w", &w));
    must(adam ? fr_adamw(b.m, NULL, &b.o) : fr_sgd(b.m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &b.o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1024, .growth_interval = 3), device, &b.g));
    return b;
}

static void scaled_step(scaled *b, fr_device device, int i, bool clip) {
    float values[ELEMENTS];
    fr_tensor *grad = NULL;
    for (int k = 0; k < ELEMENTS; k++) values[k] = (float)((k * 31 + i * 7) % 101 - 50);
    if (i % 5 == 1 || i == 20 || i == 21) values[i] = i % 2 ? INFINITY : NAN;
    must(fr_tensor_from_host(values, 1, (int64_t[]){ELEMENTS}, FR_F32, device, &grad));
    must(fr_tensor_set_grad(fr_module_tensor(b->m, "w"), grad));
    fr_tensor_release(&grad);
    if (clip) must(fr_grad_scaler_unscale(b->g, b->o));
    if (clip) must(fr_clip_grad_norm(b->m, 0.25, NULL));
    must(fr_grad_scaler_step(b->g, b->o));
    must(fr_grad_scaler_update(b->g, NULL));
    fr_optimizer_zero_grad(b->o);
}

static void expect_same_scaled(const scaled *a, const scaled *b, int i) {
    float x[ELEMENTS], y[ELEMENTS];
    must(fr_tensor_to_host(fr_module_tensor(a->m, "w"), x));
    must(fr_tensor_to_host(fr_module_tensor(b->m, "w"), y));
    cr_expect_eq(memcmp(x, y, sizeof x), 0, "step %d: other parameters", i);
    cr_expect_eq(fr_grad_scaler_scale_of(a->g), fr_grad_scaler_scale_of(b->g), "step %d: scale %g, on cpu %g", i,
                 fr_grad_scaler_scale_of(b->g), fr_grad_scaler_scale_of(a->g));
    cr_expect_eq(fr_grad_scaler_growth_tracker(a->g), fr_grad_scaler_growth_tracker(b->g), "step %d: tracker", i);
    cr_expect_eq(fr_grad_scaler_skipped(a->g), fr_grad_scaler_skipped(b->g), "step %d: skipped", i);
    cr_expect_eq(fr_optimizer_steps(a->o), fr_optimizer_steps(b->o), "step %d: %lld steps, on cpu %lld", i,
                 (long long)fr_optimizer_steps(b->o), (long long)fr_optimizer_steps(a->o));
}

static void scaled_release(scaled *b) {
    fr_grad_scaler_release(&b->g);
    fr_optimizer_release(&b->o);
    fr_module_release(&b->m);
}

/* look: after each step, which brings the counts to the host in between; else only at the end. */
static void expect_host_rule(bool adam, bool clip, bool look) {
    scaled a = scaled_new(FR_CPU, adam), b = scaled_new(FR_CUDA, adam);
    int before = 0;
    for (int i = 0; i < UPDATES; i++) {
        scaled_step(&a, FR_CPU, i, clip);
        if (i == 1) before = waits();
        scaled_step(&b, FR_CUDA, i, clip);
        if (look) expect_same_scaled(&a, &b, i);
    }
    if (!look) cr_expect_eq(waits(), before, "%d waits in %d steps", waits() - before, UPDATES);
    expect_same_scaled(&a, &b, UPDATES);
    cr_expect_gt(fr_grad_scaler_skipped(b.g), 5);
    must(fr_grad_scaler_set(b.g, 64, 1));
    must(fr_grad_scaler_set(a.g, 64, 1));
    for (int i = 22; i < 25; i++) {
        scaled_step(&a, FR_CPU, i, clip);
        scaled_step(&b, FR_CUDA, i, clip);
    }
    expect_same_scaled(&a, &b, UPDATES + 3);
    scaled_release(&a);
    scaled_release(&b);
}

Test(async, the_device_decides_by_the_hosts_rule) {
    fake_kernels();
    for (int i = 0; i < 8; i++) expect_host_rule(i & 1, i & 2, i & 4);
}

/* A dampened momentum begins in another way than it goes on, so there the host must know which step was the first. */
Test(async, a_dampened_momentum_is_decided_on_the_host) {
    fake_kernels();
    scaled a = scaled_new(FR_CPU, false), b = scaled_new(FR_CUDA, false);
    must(fr_sgd(a.m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .dampening = 0.5), &a.o));
    must(fr_sgd(b.m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .dampening = 0.5), &b.o));
    for (int i = 1; i < 12; i++) {
        scaled_step(&a, FR_CPU, i, false);
        scaled_step(&b, FR_CUDA, i, false);
        expect_same_scaled(&a, &b, i);
    }
    scaled_release(&a);
    scaled_release(&b);
}

/* ---- memory that another stream uses ----------------------------------------------------------------------------- */

static fri_block *block_of(size_t bytes) {
    fri_allocator *a = NULL;
    fri_block *b = NULL;
    fri_tag tag = fri_tag_make(FR_MEM_OTHER, FR_U8, &(fri_shape){.rank = 1, .dim = {(int64_t)bytes}});
    must(fri_allocator_get(FR_CUDA, &a));
    must(fri_block_alloc(a, bytes, &tag, &b));
    return b;
}

Test(async, a_place_is_used_again_only_behind_the_other_streams_fence) {
    const fri_streams *streams = fri_backend_get(FR_CUDA)->streams;
    char *kept = NULL, seven[4096], eight[4096];
    fri_fence f = {0};
    memset(seven, 7, sizeof seven);
    memset(eight, 8, sizeof eight);
    must(streams->host_alloc(4096, (void **)&kept));
    fri_block *b = block_of(4096);
    void *place = b->data;
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, seven, b->data, 4096));
    must(streams->mark(FRI_STREAM_COMPUTE, &f));
    must(streams->follow(FRI_STREAM_OFFLOAD, f));
    must(streams->copy(FRI_STREAM_OFFLOAD, FRI_COPY_DEVICE_TO_HOST, b->data, kept, 4096));
    must(streams->mark(FRI_STREAM_OFFLOAD, &f));
    must(fri_block_used(b, f));
    int follows = fake.follows, waited = waits();
    fri_block_free(&b);
    b = block_of(2048); /* a part of it */
    cr_expect_eq(b->data, place);
    cr_expect_eq(fake.follows, follows + 1, "compute does not follow the copy");
    must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, eight, b->data, 2048));
    fri_block *c = block_of(1024);
    cr_expect_eq(fake.follows, follows + 1, "once is enough");
    cr_expect_eq(waits(), waited, "the host waited");
    must(fri_cuda_synchronize(NULL));
    for (int i = 0; i < 4096; i++) cr_assert_eq(kept[i], 7, "byte %d was written over before it was copied", i);
    fri_block_free(&b);
    fri_block_free(&c);
    streams->host_free(kept, 4096);
}

Test(async, a_segment_goes_back_only_after_the_other_streams_fence) {
    const fri_streams *streams = fri_backend_get(FR_CUDA)->streams;
    void *kept = NULL;
    fri_fence f = {0};
    must(streams->host_alloc(4096, &kept));
    fri_block *b = block_of(4096);
    must(streams->copy(FRI_STREAM_OFFLOAD, FRI_COPY_DEVICE_TO_HOST, b->data, kept, 4096));
    must(streams->mark(FRI_STREAM_OFFLOAD, &f));
    must(fri_block_used(b, f));
    fri_block_free(&b);
    int waited = fake.event_waits;
    must(fr_memory_empty_cache(FR_CUDA));
    cr_expect_eq(fake.event_waits, waited + 1);
    cr_expect_eq(fake.frees, 1);
    cr_expect(streams->passed(f));
    streams->host_free(kept, 4096);
}

/* ---- positions that are reported late ---------------------------------------------------------------------------- */

Test(async, a_bad_target_is_reported_by_a_later_step) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_step_scope scope;
    double value = 0;
    fake_kernels();
    must(fr_tensor_zeros(2, (int64_t[]){4, 3}, FR_F32, FR_CUDA, &x));
    must(fr_tensor_from_host((int64_t[]){0, 1, 7, 2}, 1, (int64_t[]){4}, FR_I64, FR_CUDA, &target));
    must(fr_step_begin(&scope));
    int waited = waits();
    must(fr_cross_entropy(x, target, NULL, &loss));
    cr_expect_eq(waits(), waited, "the op waited");
    must(fr_step_end(&scope));
    must(fr_tensor_item(loss, &value));
    cr_expect_eq(fr_step_begin(&scope), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "the target of row 2 is outside 0..2"), "%s", fr_last_error());
    must(fr_step_begin(&scope));
    must(fr_step_end(&scope));
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&loss);
}
