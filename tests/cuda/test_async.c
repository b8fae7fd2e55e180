/* test_async.c - a training step on an asynchronous device: the host never waits in a step, and the numbers equal
 * those of a host that always waits. Whole trainings on the fake device, whose copies are done as late as the rules
 * allow. */
#include "optim/scaler.h"
#include <criterion/criterion.h>
#include <frugal/addon.h>
#include <frugal/extend.h>
#include <frugal/memory.h>
#include <frugal/optim.h>
#include <frugal/plan.h>
#include "data/input.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/fake.h"
#include "cuda/fake_order.h"
#include "cuda/memory.h"
#include "cuda/small.h"
#include "memory/allocator.h"
#include "meta/calls.h"
#include "meta/meta.h"
#include "support/golden.h"

TestSuite(async, .init = fake_begin, .fini = small_end);

enum { TEST_BATCHES = 256 / 4 };

static void train(const char *device, int steps, const char *more, const char *name) {
    char flags[512];
    snprintf(flags, sizeof flags, "--dataset synthetic --classes 10 --steps %d %s", steps, more);
    small_train(device, flags, name);
}

static void same_training(const char *more) {
    train("cpu", 9, more, "cpu");
    train("cuda", 9, more, "cuda");
    small_expect_same("cpu", "cuda", more);
    cr_expect_eq(fake_order_faults(), 0, "%s: %d accesses, the first: %s", more, fake_order_faults(),
                 fake_order_first());
    cr_expect_gt(fake.launches, 0);
}

static int waits(void) {
    return fake.event_waits + fake.stream_waits + fake.device_waits + fake.waiting_copies;
}

/* Waits of a run outside its steps do not depend on the number of steps. */
static void nobody_waits(const char *more) {
    int before = waits();
    train("cuda", 4, more, "few");
    int few = waits() - before; /* three per exported tensor, with the look for NaN, and the last values */
    cr_expect_lt(few, 2 * TEST_BATCHES, "%s: %d waits, in the evaluation's %d batches, too", more, few, TEST_BATCHES);
    train("cuda", 14, more, "many");
    int many = waits() - before - few;
    cr_expect_eq(many, few, "%s: %d waits in 10 steps", more, many - few);
    cr_expect_gt(fake.queries, 0);
}

static void set_up(void) {
    small_begin();
    fake_kernels();
}

#define TRAINING(name, flags) \
    Test(async, name) {       \
        set_up();             \
        same_training(flags); \
        nobody_waits(flags);  \
    }

TRAINING(prefetch, "--device-prefetch")
TRAINING(prefetch_without_an_arena, "--device-prefetch --no-arena")
TRAINING(prefetch_with_offload, "--device-prefetch --offload --no-encode")
TRAINING(prefetch_accumulating, "--device-prefetch --accumulate 2")

typedef struct traffic {
    double largest;                      /* bytes of a transfer */
    fr_dtype type;                       /* that the network takes */
    int transfers, normalized[2], casts; /* of batches; to that type or not; of as many elements */
} traffic;

static void count_traffic(void *ctx, const fri_kernel_call *c) {
    enum { BATCH = 4 * 32 * 32 * 3 };
    traffic *t = ctx;
    if (strcmp(c->name, "transfer") == 0 && c->bytes >= BATCH) t->transfers++;
    if (strcmp(c->name, "transfer") == 0) t->largest = fmax(t->largest, c->bytes);
    if (strcmp(c->name, "normalize") == 0) t->normalized[c->dtype == t->type]++;
    if (strcmp(c->name, "cast") == 0) t->casts += c->dim[0] == BATCH && t->transfers > 0;
}

/* Images cross the bus as bytes, and become at once the network's input type. */
Test(async, a_batch_crosses_the_bus_as_bytes) {
    static const struct {
        const char *flags;
        fr_dtype type;
    } runs[] = {{"", FR_F32},
                {"--amp", FR_F16},
                {"--half=bf16 --device-prefetch", FR_BF16},
                {"--amp --split-batch 2", FR_F16}};
    set_up();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        traffic t = {.type = runs[i].type};
        char flags[128];
        snprintf(flags, sizeof flags, "--plan --dataset synthetic --classes 10 --steps 4 %s", runs[i].flags);
        fri_call_listener was = fri_meta_listen((fri_call_listener){count_traffic, &t});
        small_train("cuda", flags, "plan");
        fri_meta_listen(was);
        cr_expect_eq(t.largest, 4 * 32 * 32 * 3, "%s: %.0f bytes in a transfer", flags, t.largest);
        cr_expect_gt(t.transfers, 0);
        cr_expect_gt(t.normalized[1], 0, "%s", flags);
        cr_expect_eq(t.normalized[0], 0, "%s", flags);
        cr_expect_eq(t.casts, 0, "%s: %d casts of images", flags, t.casts);
    }
}

/* Kernels of the setup may still use the memory of a first prefetch. */
Test(async, the_first_prefetch_follows_what_used_its_memory_before) {
    fr_dataset *images = NULL;
    fr_loader *loader = NULL;
    fr_tensor *t = NULL;
    fri_input *in = NULL;
    fake_kernels();
    must(fr_dataset_synthetic(8, 2, 4, 4, 3, 1, &images));
    must(fr_loader_create(images, FR_LOADER_OPTS(.batch_size = 4), &loader));
    must(fr_tensor_full(4, (int64_t[]){4, 4, 4, 3}, 1, FR_F32, FR_CUDA, &t)); /* of the images' size */
    cr_assert_gt(fake.launches, 0);
    fr_tensor_release(&t);
    must(fri_input_create(&(fri_input_opts){.device = FR_CUDA, .pinned = true}, &in));
    must(fri_input_prefetch(in, &(fr_shape){4, {4, 4, 4, 3}}, FR_F32, &(fr_shape){1, {4}}, FR_I64));
    must(fri_input_fetch(in, loader));
    cr_expect_eq(fake.copies, 2);
    cr_expect_eq(fake_order_faults(), 0, "%s", fake_order_first());
    fri_input_release(&in);
    fr_tensor_release(&t);
    fr_loader_release(&loader);
    fr_dataset_release(&images);
}

enum { LINKS = 10, LINK = 1 << 18 };

/* The gradient of a chain of which each link saves its input; the plan's peak or the run's. */
static size_t chain(fr_device device, bool offload, float *gradient) {
    fr_tensor *x = NULL, *y = NULL;
    fr_memory_stats m;
    fr_switches s = fr_switches_all_off(), was = fr_switches_get();
    s.offload = offload;
    s.early_release = true;
    fr_switches_set(s);
    must(fr_tensor_full(1, (int64_t[]){LINK}, 0.5, FR_F32, device, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 1, &y));
    for (int i = 0; i < LINKS; i++) must(fr_silu(y, &y));
    must(fr_mean(y, &y));
    fake.stalls = 0; /* in forward a result may take the place of a tensor still on its way out */
    must(fr_backward(y, NULL));
    if (gradient != NULL) must(fr_tensor_to_host(fr_tensor_get_grad(x), gradient));
    must(fr_memory_stats_get(device, &m));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_switches_set(was);
    return m.peak_allocated;
}

/* Saved values of a node are fetched while the node before runs, and the plan knows. */
Test(async, offloaded_values_come_back_while_the_node_before_runs) {
    static float kept[LINK], back[LINK];
    fr_plan *plan = NULL;
    set_up();
    (void)chain(FR_CUDA, false, kept);
    must(fr_memory_empty_cache(FR_CUDA));
    fr_memory_reset_peak(FR_CUDA);
    fake_order_reset();
    int copies = fake.copies;
    size_t peak = chain(FR_CUDA, true, back);
    cr_expect_eq(fake.copies - copies, 2 * LINKS + 1, "%d copies: out, back, and the gradient", fake.copies - copies);
    cr_expect_eq(fake.stalls, 0, "%d times a kernel waits for a copy that began behind the one before", fake.stalls);
    cr_expect_eq(fake_order_faults(), 0, "%s", fake_order_first());
    cr_expect_eq(memcmp(kept, back, sizeof back), 0, "other gradients");
    must(fr_plan_begin(FR_CUDA, &plan));
    must(fr_plan_section(plan, "all"));
    size_t planned = chain(FR_META, true, NULL);
    must(fr_plan_end(plan));
    fr_plan_release(&plan);
    cr_expect_eq(planned, peak, "planned %zu, taken %zu", planned, peak);
}

static fr_status hand_on(fr_node *node, fr_tensor **dy) {
    return fr_node_grad(node, 0, dy);
}

/* y = 1; the op saves x and does not read the saved value. */
static void forgetful(fr_tensor *x, fr_tensor **y) {
    static const fr_op op = {.name = "forgetful", .backward = hand_on};
    fr_tensor *out = NULL;
    must(fr_tensor_full(1, (int64_t[]){LINK}, 1, FR_F32, FR_CUDA, &out));
    must(fr_op_record(&op, NULL, 0, &x, 1, &(fr_save){x, FR_SAVE_VALUE}, 1, out));
    fr_tensor_release(y);
    *y = out;
}

/* An unread value on its way back: its place is used again only behind the copy. */
Test(async, an_offloaded_value_that_is_not_read_leaves_its_place_in_order) {
    fr_tensor *x = NULL, *y = NULL;
    fr_switches s = fr_switches_all_off();
    s.offload = true;
    set_up();
    fr_switches_set(s);
    must(fr_tensor_full(1, (int64_t[]){LINK}, 0.5, FR_F32, FR_CUDA, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 1, &y));
    forgetful(y, &y);
    must(fr_silu(y, &y));
    must(fr_mean(y, &y));
    must(fr_backward(y, NULL));
    cr_expect_eq(fake_order_faults(), 0, "%s", fake_order_first());
    fr_tensor_release(&x);
    fr_tensor_release(&y);
}

Test(async, nothing_is_prefetched_without_pinned_memory) {
    set_up();
    same_training("--device-prefetch --no-pin-memory");
}

Test(async, colored) {
    if (fr_addon_find("augment") == NULL) cr_skip("built without the add-on augment");
    set_up();
    same_training("--augment strong");
    nobody_waits("--augment strong");
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
TRAINING(schedule, "--schedule cosine --warmup 1 --weight-decay 0.01")
TRAINING(rmsprop, "--optimizer rmsprop --lr 0.001")
TRAINING(bf16, "--amp=bf16")
TRAINING(half, "--half=bf16")
TRAINING(kept_gradients, "--grad-zero")
TRAINING(rebuilt, "--rebuild")
TRAINING(checkpointed, "--checkpoint-segments 3")
TRAINING(all_off, "--all-off --arena")
TRAINING(workers, "--workers 2")
TRAINING(scaled_adam8, "--amp=fp16 --optimizer adam8 --lr 0.001")

/* ---- the loss scaler on the device, against the host's ------------------------------------------------------- */

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
    cr_expect_eq(fr_grad_scaler_value(a->g), fr_grad_scaler_value(b->g), "step %d: scale %g, on cpu %g", i,
                 fr_grad_scaler_value(b->g), fr_grad_scaler_value(a->g));
    cr_expect_eq(fri_grad_scaler_growth_tracker(a->g), fri_grad_scaler_growth_tracker(b->g), "step %d: tracker", i);
    cr_expect_eq(fr_grad_scaler_skipped(a->g), fr_grad_scaler_skipped(b->g), "step %d: skipped", i);
    cr_expect_eq(fr_optimizer_steps(a->o), fr_optimizer_steps(b->o), "step %d: %lld steps, on cpu %lld", i,
                 (long long)fr_optimizer_steps(b->o), (long long)fr_optimizer_steps(a->o));
}

static void scaled_release(scaled *b) {
    fr_grad_scaler_release(&b->g);
    fr_optimizer_release(&b->o);
    fr_module_release(&b->m);
}

/* look: look after each step, which brings the counts to the host in between; else only at the end. */
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
    must(fri_grad_scaler_set(b.g, 64, 1));
    must(fri_grad_scaler_set(a.g, 64, 1));
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

/* A dampened momentum begins differently from its later steps, so the host must know the first step. */
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

/* ---- memory used by a second stream -------------------------------------------------------------------------- */

static fri_block *block_of(size_t bytes) {
    fri_allocator *a = NULL;
    fri_block *b = NULL;
    fr_tag tag = fri_tag_make(FR_MEM_OTHER, FR_U8, &(fr_shape){.rank = 1, .dim = {(int64_t)bytes}});
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
    b = block_of(2048); /* a part of the block */
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
    cr_expect_eq(fake.spins, 0, "the wait for a fence took a core");
    cr_expect_eq(fake.frees, 1);
    cr_expect(streams->passed(f));
    streams->host_free(kept, 4096);
}

/* ---- positions reported late --------------------------------------------------------------------------------- */

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
    RELEASE_ALL(&x, &target, &loss);
}
