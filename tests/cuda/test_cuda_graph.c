/* test_cuda_graph.c - --cuda-graph on the fake device: steps that run from a record give the bits of steps that run as
 * always, whatever the flags; a record keeps arguments by value, so what changes from step to step and was forgotten
 * would show. And what cannot be recorded trains on without. */
#include <criterion/criterion.h>
#include <frugal/nn.h>
#include <frugal/optim.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/fake.h"
#include "cuda/fake_order.h"
#include "cuda/fake_record.h"
#include "cuda/memory.h"
#include "cuda/small.h"
#include "memory/event.h"
#include "support/golden.h"
#include "tensor/capture.h"

TestSuite(cuda_graph, .init = fake_begin, .fini = small_end);

/* 5 batches of 4 in an epoch, and one of 2 with --keep-last. The first step of its kind runs as always, and so does the
 * very first. */
enum { EPOCHS = 4, FULL = SMALL_IMAGES / 4, STEPS = EPOCHS * FULL };

static int waits(void) {
    return fake.event_waits + fake.stream_waits + fake.device_waits + fake.waiting_copies;
}

static int number(const char *name, const char *key) {
    char text[64];
    small_report(name, key, text);
    return atoi(text);
}

static void train(const char *device, const char *name, int epochs, const char *more, bool graph) {
    char flags[600];
    snprintf(flags, sizeof flags, "--epochs %d --lr 0.02 %s %s", epochs, more, graph ? "--cuda-graph" : "");
    small_train(device, flags, name);
}

static void same(const char *more, int captures, int replays, int launches) {
    small_begin();
    fake_kernels();
    train("cpu", "cpu", EPOCHS, more, false);
    train("cuda", "plain", EPOCHS, more, false);
    cr_expect_eq(fake.captures, 0);
    fake_record_unload();
    train("cuda", "graph", EPOCHS, more, true);
    cr_expect_eq(fake_record_loads(), 0, "%s: %d kernels were launched first in a capture", more, fake_record_loads());
    small_expect_same("plain", "graph", more);
    small_expect_same("cpu", "graph", more);
    cr_expect_eq(number("graph", "\"captures\":"), captures, "%s: %d captures", more, number("graph", "\"captures\":"));
    cr_expect_eq(number("graph", "\"replays\":"), replays, "%s: %d replays", more, number("graph", "\"replays\":"));
    cr_expect_eq(fake.graph_launches, launches, "%s: %d launches", more, fake.graph_launches);
    cr_expect_eq(fake.forbidden, 0, "%s: %d calls that a capture does not allow, first %s", more, fake.forbidden,
                 fake.forbidden_call);
    cr_expect_eq(fake_order_faults(), 0, "%s: %s", more, fake_order_first());
    cr_expect_eq(fake.graphs, 0, "%s: %d graphs are left", more, fake.graphs);
}

/* The arena's places were those of the dry run. */
static void expect_planned(const char *more) {
    cr_expect_eq(number("graph", "\"departures\":"), 0, "%s: %d departures", more, number("graph", "\"departures\":"));
}

#define GRAPH(name, flags)                    \
    Test(cuda_graph, name) {                  \
        same(flags, 1, STEPS - 2, STEPS - 2); \
        expect_planned(flags);                \
    }

GRAPH(plain, "")
GRAPH(schedule, "--schedule cosine --warmup 1 --weight-decay 0.01")
GRAPH(nesterov, "--nesterov --schedule step")
GRAPH(adam, "--optimizer adam --lr 0.001 --schedule cosine")
GRAPH(adamw, "--optimizer adamw --lr 0.001 --schedule cosine --weight-decay 0.1")
GRAPH(adam8, "--optimizer adam8 --lr 0.001")
GRAPH(rmsprop, "--optimizer rmsprop --rmsprop-centered --lr 0.001")
GRAPH(bf16, "--amp=bf16")
GRAPH(half, "--half=bf16")
GRAPH(scaled, "--amp=fp16")
GRAPH(scaled_adam, "--amp=fp16 --optimizer adam --lr 0.001")
GRAPH(clipped, "--clip 0.5")
GRAPH(scaled_and_clipped, "--amp=fp16 --clip 0.5")
GRAPH(split, "--split-batch 2")
GRAPH(kept_gradients, "--grad-zero")
GRAPH(fused, "--fused-step --optimizer adamw --lr 0.001 --schedule cosine")
GRAPH(two_passes, "--amp=fp16 --fused-step=two-pass")
GRAPH(rebuilt, "--rebuild")
GRAPH(checkpointed, "--checkpoint-segments 3")
GRAPH(all_off, "--all-off --arena")
GRAPH(evaluated, "--eval-every 1")
GRAPH(unpinned, "--no-pin-memory")
GRAPH(workers, "--workers 2")
GRAPH(prefetch, "--device-prefetch")

/* Per epoch the graph of the short batch, too, after the first of its kind. */
Test(cuda_graph, short_batches) {
    same("--keep-last --schedule cosine", 2, STEPS - 2 + EPOCHS - 1, STEPS - 2 + EPOCHS - 1);
}

/* 2 steps of 2 batches in an epoch: each is two pieces. */
Test(cuda_graph, accumulated) {
    same("--accumulate 2 --optimizer adam --lr 0.001", 1, 2 * EPOCHS - 2, 2 * (2 * EPOCHS - 2));
}

/* The same with batches that are there already; the short one, too. */
Test(cuda_graph, prefetch_of_all_kinds) {
    same("--keep-last --device-prefetch", 2, STEPS - 2 + EPOCHS - 1, STEPS - 2 + EPOCHS - 1);
    expect_planned("--keep-last --device-prefetch");
}

Test(cuda_graph, accumulated_prefetch) {
    same("--accumulate 2 --device-prefetch", 1, 2 * EPOCHS - 2, 2 * (2 * EPOCHS - 2));
    expect_planned("--accumulate 2 --device-prefetch");
}

/* A loss scale that overflows at first: the skipped steps are skipped in the record as well, by the device. */
Test(cuda_graph, skipped_steps) {
    small_begin();
    fake_kernels();
    static const char more[] = "--amp=fp16 --loss-scale dynamic --optimizer adam --lr 0.001 --steps 9";
    train("cpu", "cpu", EPOCHS, more, false);
    train("cuda", "graph", EPOCHS, more, true);
    small_expect_same("cpu", "graph", more);
    cr_expect_eq(number("graph", "\"replays\":"), 7);
}

/* Where a gradient overflows in every step the device skips every replay; the count of steps stays behind. */
Test(cuda_graph, overflow_in_replays) {
    small_begin();
    fake_kernels();
    static const char more[] = "--amp=fp16 --loss-scale 1e9 --optimizer adam --lr 0.001 --clip 1";
    train("cpu", "cpu", EPOCHS, more, false);
    train("cuda", "graph", EPOCHS, more, true);
    small_expect_same("cpu", "graph", more);
    cr_expect_gt(number("graph", "\"skipped\":"), 0);
    cr_expect_gt(number("graph", "\"replays\":"), 0);
}

/* A step that asks for memory that was not planned is not recorded, the next one is. */
Test(cuda_graph, a_step_that_departs) {
    small_odd_forward = EPOCHS * (FULL + 2) + 2; /* the second step, after the plain run with its evaluations */
    same("", 1, STEPS - 3, STEPS - 3);
}

/* Neither is the record of a step used on, nor its memory, when the arena may have moved: a new one is made. */
Test(cuda_graph, an_evaluation_that_departs) {
    small_odd_forward = EPOCHS * (FULL + 2) + 2 + 1 + 1; /* 2 steps, 1 recorded, and the evaluation's first batch */
    same("--eval-every 1", 2, STEPS - 2 - 1, STEPS - 2 - 1);
}

/* Nothing that a longer run does more of waits. */
Test(cuda_graph, nobody_waits) {
    static const char *const flags[] = {"", "--amp=fp16 --optimizer adam --lr 0.001", "--accumulate 2"};
    small_begin();
    fake_kernels();
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char few[128], many[128];
        snprintf(few, sizeof few, "%s --dataset synthetic --classes 10 --steps 6", flags[i]);
        snprintf(many, sizeof many, "%s --dataset synthetic --classes 10 --steps 30", flags[i]);
        int before = waits();
        train("cuda", "few", 1, few, true);
        int in_few = waits() - before;
        train("cuda", "many", 1, many, true);
        cr_expect_eq(waits() - before - in_few, in_few, "%s: %d waits in 24 steps", flags[i],
                     waits() - before - 2 * in_few);
    }
}

/* A state that is saved between replays is that of the steps that ran, and a run goes on from it, in an arena, too. */
Test(cuda_graph, saved_and_resumed) {
    static const char *const kinds[] = {"--amp=fp16 --optimizer adam --lr 0.001",
                                        "--optimizer adamw --lr 0.001 --device-prefetch", ""};
    char flags[512], folder[] = "/tmp/frugal-graph-XXXXXX", command[96];
    glob_t found;
    small_begin();
    fake_kernels();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        strcpy(folder, "/tmp/frugal-graph-XXXXXX");
        cr_assert_not_null(mkdtemp(folder));
        train("cpu", "whole", EPOCHS, kinds[i], false);
        snprintf(flags, sizeof flags, "%s --save %s --save-every 3", kinds[i], folder);
        train("cuda", "saving", EPOCHS, flags, true);
        small_expect_same("whole", "saving", kinds[i]);
        snprintf(flags, sizeof flags, "%s --save %s/half --save-every 7 --keep 0", kinds[i], folder);
        train("cuda", "half", EPOCHS, flags, true);
        snprintf(command, sizeof command, "%s/half/state-*-step-14.safetensors", folder);
        cr_assert_eq(glob(command, 0, NULL, &found), 0);
        snprintf(flags, sizeof flags, "%s --resume %s", kinds[i], found.gl_pathv[0]);
        globfree(&found);
        train("cuda", "resumed", EPOCHS, flags, true);
        char x[64], y[64];
        small_report("whole", "\"last\":", x);
        small_report("resumed", "\"last\":", y);
        cr_expect_str_eq(x, y, "%s: the last loss is %s, resumed %s", kinds[i], x, y);
        cr_expect_eq(number("resumed", "\"replays\":"), STEPS - 14 - 2);
        cr_expect_eq(number("resumed", "\"departures\":"), 0);
        snprintf(command, sizeof command, "rm -r %s", folder);
        cr_expect_eq(system(command), 0);
    }
}

/* ---- what cannot be recorded ----------------------------------------------------------------------------------- */

static void without(const char *reason) {
    char text[64];
    train("cpu", "cpu", 2, "", false);
    train("cuda", "graph", 2, "", true);
    small_expect_same("cpu", "graph", reason);
    cr_expect_eq(number("graph", "\"replays\":"), 0);
    small_report("graph", "\"cuda_graph\":", text);
    cr_expect_eq(fake.graphs, 0);
}

static void expect_reason(const char *reason) {
    char text[64];
    small_report("graph", "\"replays\":", text); /* the reason is the next line */
    cr_expect_eq(atoi(text), 0, "%s", reason);
}

Test(cuda_graph, a_capture_that_fails_costs_nothing) {
    small_begin();
    fake_kernels();
    fake.capture_error = cudaErrorNotSupported;
    without("BeginCapture");
    cr_expect_eq(fake.captures, 0);
    fake.capture_error = cudaSuccess;
    fake.instantiate_error = cudaErrorMemoryAllocation;
    without("Instantiate");
    cr_expect_eq(fake.captures, 3, "%d tries", fake.captures);
    expect_reason("Instantiate");
}

Test(cuda_graph, without_an_arena) {
    small_begin();
    setenv("FRUGAL_NO_POOL", "1", 1);
    fake_kernels();
    without("FRUGAL_NO_POOL");
    cr_expect_eq(fake.captures, 0);
}

Test(cuda_graph, looking_at_each_result) {
    small_begin();
    setenv("FRUGAL_CHECK_NAN", "1", 1);
    fake_kernels();
    without("FRUGAL_CHECK_NAN");
    cr_expect_eq(fake.captures, 0);
}

Test(cuda_graph, usage) {
    static const struct {
        const char *device, *flags, *says;
    } wrong[] = {
        {"cpu", "", "--cuda-graph: records the steps of a GPU, and this run is on cpu"},
        {"meta", "", "--cuda-graph: records the steps of a GPU, and this run is on meta"},
        {"cuda", "--no-arena", "--cuda-graph with --no-arena: a recorded step needs its tensors at fixed places"},
        {"cuda", "--offload", "--cuda-graph with --offload: the host moves the saved tensors"},
        {"cuda", "--empty-cache-every 3", "--cuda-graph with --empty-cache-every: that turns the arena off"},
        {"cuda", "--detect-anomaly", "--cuda-graph with --detect-anomaly: the host looks at each result"},
    };
    small_begin();
    fake_kernels();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char flags[128];
        snprintf(flags, sizeof flags, "--cuda-graph --epochs 1 %s", wrong[i].flags);
        cr_expect_eq(small_try(wrong[i].device, flags, "wrong"), 2, "%s %s", wrong[i].device, wrong[i].flags);
        cr_expect_str_eq(fr_last_error(), wrong[i].says);
    }
}

/* ---- captures by themselves -------------------------------------------------------------------------------------- */

static fr_capture *begun(int64_t places) {
    fr_capture *c = NULL;
    fake_kernels();
    must(fr_capture_create(FR_CUDA, places, &c));
    must(fr_capture_begin(c));
    cr_assert(fri_capturing());
    return c;
}

static void refused_as(const char *what, fr_status s) {
    cr_expect_eq(s, FR_EUSAGE, "%s: status %d", what, (int)s);
    cr_expect_not_null(strstr(fr_last_error(), what), "%s", fr_last_error());
}

/* Each call that CUDA would answer by spoiling the capture is refused before it gets there, and named. */
Test(cuda_graph, what_a_record_cannot_hold_is_named) {
    fr_tensor *t = NULL, *random = NULL;
    float values[4] = {0};
    void *memory = NULL;
    fri_fence f = {0};
    fake_kernels();
    const fri_streams *streams = fri_backend_get(FR_CUDA)->streams;
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CUDA, &t));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CUDA, &random));
    must(streams->mark(FRI_STREAM_INPUT, &f));
    fr_capture *c = begun(4);
    refused_as("a copy to the host", fr_tensor_to_host(t, values));
    refused_as("a copy from the host", fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, values, fri_data(t), 16));
    refused_as("waiting", fri_backend_get(FR_CUDA)->synchronize(NULL));
    refused_as("waiting", streams->wait(f));
    refused_as("a fence", streams->mark(FRI_STREAM_COMPUTE, &f));
    refused_as("a fence", streams->follow(FRI_STREAM_COMPUTE, f));
    refused_as("another stream's copy",
               streams->copy(FRI_STREAM_INPUT, FRI_COPY_DEVICE_TO_DEVICE, fri_data(t), fri_data(t), 16));
    refused_as("memory from the driver", fri_cuda_segment_alloc(1 << 21, &memory));
    cr_expect_eq(fr_init_normal(random, 0, 1), FR_EUNSUPPORTED);
    refused_as("the beginning of another one", fri_backend_get(FR_CUDA)->graphs->begin());
    cr_expect_eq(fake.forbidden, 0);
    cr_expect_eq(fr_capture_end(c, fr_fail(FR_EINVAL, "the step says why")), FR_EINVAL);
    cr_expect_str_eq(fr_last_error(), "the step says why");
    cr_expect_not(fri_capturing());
    cr_expect_eq(fr_capture_pieces(c), 0);
    must(fr_tensor_to_host(t, values));
    fr_capture_release(&c);
    fr_tensor_release(&t);
    fr_tensor_release(&random);
    cr_expect_eq(fake.graphs, 0);
}

/* The first launch of a kernel loads it, which a capture does not allow; trainings expect none. */
Test(cuda_graph, a_kernel_that_a_capture_would_load_is_counted) {
    fr_tensor *t = NULL;
    fake_kernels();
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CUDA, &t));
    for (int launched = 0; launched < 2; launched++) {
        fake_record_unload();
        if (launched) must(fr_scale_inplace(t, 2));
        fr_capture *c = begun(1);
        must(fr_scale_inplace(t, 2));
        must(fr_capture_end(c, FR_OK));
        cr_expect_eq(fake_record_loads(), !launched);
        fr_capture_release(&c);
    }
    fr_tensor_release(&t);
}

static void count_event(void *ctx, const fr_event *e) {
    (void)e;
    ++*(int *)ctx;
}

/* Readbacks take turns; the generator moves on as if the step had been walked through. */
Test(cuda_graph, numbers_of_a_replay) {
    fr_tensor *x = NULL, *y = NULL, *sum = NULL, *seen = NULL;
    fr_readback recorded = {0}, readback[2] = {{0}, {0}};
    double expected[5], value = 0;
    float ones[64];
    for (int i = 0; i < 64; i++) ones[i] = 1;
    fake_kernels();
    fr_seed(7);
    must(fr_tensor_from_host(ones, 1, (int64_t[]){64}, FR_F32, FR_CPU, &x));
    for (int i = 0; i < 5; i++) {
        must(fr_dropout(x, 0.5, true, &y));
        must(fr_sum(y, &sum));
        must(fr_tensor_item(sum, &expected[i]));
        fr_tensor_release(&y);
        fr_tensor_release(&sum);
    }
    fr_tensor_release(&x);
    fr_seed(7);
    must(fr_tensor_from_host(ones, 1, (int64_t[]){64}, FR_F32, FR_CUDA, &x));
    must(fr_tensor_zeros(1, (int64_t[]){64}, FR_F32, FR_CUDA, &y)); /* segments are there before the capture */
    must(fr_tensor_zeros(0, NULL, FR_F32, FR_CUDA, &sum));
    fr_tensor_release(&y);
    fr_tensor_release(&sum);
    int events = 0;
    must(fr_event_subscribe(count_event, &events));
    fr_capture *c = begun(1);
    events = 0; /* what comes now leaves nothing behind, so no plot and no trace hears of it */
    must(fr_dropout(x, 0.5, true, &y));
    must(fr_sum(y, &sum));
    must(fr_readback_begin(sum, &recorded));
    cr_expect_eq(fr_readback_begin(sum, &readback[0]), FR_EUNSUPPORTED, "a second value has no place");
    must(fr_capture_end(c, FR_OK));
    cr_expect_eq(events, 0);
    fr_event_unsubscribe(count_event, &events);
    cr_expect_eq(fr_capture_pieces(c), 1);
    cr_expect_eq(fake.launches > 0 && fake.graph_launches == 0, true);
    for (int i = 0; i < 5; i++) {
        must(fr_capture_replay_begin(c));
        must(fr_capture_replay_piece(c, 0));
        must(fr_capture_replay_end(c));
        fr_capture_readback(c, &recorded, &readback[i % 2]);
        if (i > 0) {
            must(fr_readback_value(&readback[(i - 1) % 2], &value));
            cr_expect_eq(value, expected[i - 1], "replay %d: %g instead of %g", i - 1, value, expected[i - 1]);
        }
    }
    must(fr_readback_value(&readback[0], &value));
    cr_expect_eq(value, expected[4]);
    fr_seed(8);
    cr_expect_eq(fr_capture_replay_begin(c), FR_EUSAGE);
    fr_readback_drop(&readback[0]);
    fr_readback_drop(&readback[1]);
    fr_capture_release(&c);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&sum);
    fr_tensor_release(&seen);
}

/* The target that is none is in the batch of the second replay, not in the captured one. */
Test(cuda_graph, a_bad_target_is_reported_by_a_later_step) {
    static const int64_t good[4] = {0, 1, 2, 0}, bad[4] = {0, 1, 9, 0};
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_step_scope scope;
    fake_kernels();
    must(fr_tensor_zeros(2, (int64_t[]){4, 3}, FR_F32, FR_CUDA, &x));
    must(fr_tensor_from_host(good, 1, (int64_t[]){4}, FR_I64, FR_CUDA, &target));
    must(fr_cross_entropy(x, target, NULL, &loss));
    fr_tensor_release(&loss);
    fr_capture *c = begun(4);
    must(fr_cross_entropy(x, target, NULL, &loss));
    must(fr_capture_end(c, FR_OK));
    for (int i = 0; i < 2; i++) {
        must(fri_cuda_copy(NULL, FRI_COPY_HOST_TO_DEVICE, i == 0 ? good : bad, fri_data(target), sizeof good));
        must(fr_step_begin(&scope));
        must(fr_capture_replay_begin(c));
        must(fr_capture_replay_piece(c, 0));
        must(fr_capture_replay_end(c));
        must(fr_step_end(&scope));
        must(fri_backend_get(FR_CUDA)->synchronize(NULL));
    }
    cr_expect_eq(fr_step_begin(&scope), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "the target of row 2 is outside 0..2"), "%s", fr_last_error());
    must(fr_capture_replay_begin(c));
    must(fr_capture_replay_piece(c, 0));
    must(fr_capture_replay_end(c));
    fr_capture_release(&c); /* with its memory goes what nobody asked about */
    must(fr_step_begin(&scope));
    must(fr_step_end(&scope));
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&loss);
}
