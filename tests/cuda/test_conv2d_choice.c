/* test_conv2d_choice.c - the choice among cuDNN's plans for a convolution: the workspace limit, determinism, and
 * timing. On a fake runtime and a fake cuDNN whose engines take a given time. */
#include "base/process.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/half.h"
#include "cuda/conv2d.h"
#include "cuda/conv2d_plan.h"
#include "cuda/context.h"
#include "cuda/fake_cudnn.h"
#include "cuda/kernels.h"
#include "support/golden.h"

enum { MIB = 1 << 20 };

TestSuite(conv2d_choice, .init = fake_cudnn_begin);

static void engines(int in_list_a, int n, const fake_engine *e) {
    fake_dnn.in_list_a = in_list_a;
    fake_dnn.n = n;
    for (int i = 0; i < n; i++) fake_dnn.engine[i] = e[i];
}

static fri_conv2d_desc shape(int64_t height, size_t limit) {
    return (fri_conv2d_desc){.dtype = FR_F16,
                             .n = 8,
                             .h = height,
                             .w = 28,
                             .c = 64,
                             .k = 128,
                             .r = 3,
                             .s = 3,
                             .p = height,
                             .q = 28,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = 1,
                             .pad_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1,
                             .workspace_limit = limit};
}

static fri_cuda_conv2d_choice choose(int64_t height, size_t limit) {
    fri_conv2d_desc d = shape(height, limit);
    fri_cuda_conv2d_choice c;
    must(fri_cuda_conv2d_choose(&d, FRI_CUDA_CONV2D_FORWARD, &c));
    return c;
}

static int executions(void) {
    int n = 0;
    for (int i = 0; i < fake_dnn.n; i++) n += fake_dnn.engine[i].executions;
    return n;
}

static void expect_counts(int64_t timed, int64_t guessed) {
    int64_t t, g;
    fri_cuda_conv2d_timed(&t, &g);
    cr_expect_eq(t, timed, "%lld timed", (long long)t);
    cr_expect_eq(g, guessed, "%lld not timed", (long long)g);
}

/* ---- the workspace limit --------------------------------------------------------------------------------------- */

Test(conv2d_choice, the_first_within_the_limit_wins) {
    engines(3, 4, (fake_engine[]){{.workspace = 9 * MIB}, {.workspace = 4 * MIB}, {.workspace = 0}, {.workspace = 1}});
    cr_expect_eq(choose(1, 8 * MIB).engine, 1, "not the first, and not the smallest");
    cr_expect_eq(choose(1, 9 * MIB).engine, 0, "the limit itself is within");
    cr_expect_eq(choose(1, 4 * MIB - 1).engine, 2);
    cr_expect_eq(choose(1, 0).engine, 0, "0: no limit");
    cr_expect_eq(fake_dnn.searches, 4, "the fallback list was asked for without need");
}

Test(conv2d_choice, without_one_within_the_limit_the_smallest_of_both_lists_is_taken) {
    engines(2, 4,
            (fake_engine[]){{.workspace = 9 * MIB},
                            {.workspace = 7 * MIB},
                            {.workspace = 5 * MIB},
                            {.workspace = 6 * MIB}});
    fri_cuda_conv2d_choice c = choose(1, MIB);
    cr_expect_eq(c.engine, 2);
    cr_expect(c.fallback);
    cr_expect_eq(c.workspace, (size_t)5 * MIB);
    cr_expect_eq(c.configurations, 3, "looked at %d before it", c.configurations);
}

Test(conv2d_choice, without_an_engine_the_convolution_is_named) {
    fri_conv2d_desc d = shape(7, MIB);
    fri_cuda_conv2d_choice c;
    cr_expect_eq(fri_cuda_conv2d_choose(&d, FRI_CUDA_CONV2D_FORWARD, &c), FR_EUNSUPPORTED);
    cr_expect_not_null(strstr(fr_last_error(), "x (8, 64, 7, 28)"), "%s", fr_last_error());
    cr_expect_not_null(strstr(fr_last_error(), "deterministic"), "%s", fr_last_error());
}

/* ---- slow engines ----------------------------------------------------------------------------------------------- */

static fri_cuda_conv2d_choice choose_f32(int64_t height, size_t limit) {
    fri_conv2d_desc d = shape(height, limit);
    fri_cuda_conv2d_choice c;
    d.dtype = d.bias_dtype = FR_F32;
    must(fri_cuda_conv2d_choose(&d, FRI_CUDA_CONV2D_FORWARD, &c));
    return c;
}

Test(conv2d_choice, an_engine_of_last_resort_comes_behind_all_others) {
    engines(1, 4,
            (fake_engine[]){{.workspace = 9 * MIB},
                            {.strict_nan = true},
                            {.workspace = 7 * MIB, .no_tensor_core = true},
                            {.workspace = 8 * MIB}});
    cr_expect_eq(choose(1, MIB).engine, 3, "half types: the smallest with tensor cores, above the limit");
    cr_expect(!choose(1, MIB).slow);
    cr_expect_eq(choose(1, 9 * MIB).engine, 0, "the first of them within the limit");
    cr_expect_eq(choose_f32(1, MIB).engine, 2, "f32 may do without tensor cores");
    engines(1, 1, (fake_engine[]){{.strict_nan = true}});
    cr_expect_eq(choose(2, MIB).engine, 0, "there is no other");
    cr_expect(choose(2, MIB).slow);
    cr_expect(choose_f32(2, MIB).slow);
}

/* Engines for depthwise convolutions have the note: cuDNN's first choice is the fast engine. */
Test(conv2d_choice, a_first_engine_without_tensor_cores_is_cudnns_choice) {
    engines(1, 3, (fake_engine[]){{.no_tensor_core = true}, {.workspace = MIB}, {.strict_nan = true}});
    cr_expect_eq(choose(1, 2 * MIB).engine, 0);
    engines(1, 3,
            (fake_engine[]){{.workspace = 2 * MIB, .no_tensor_core = true}, {.workspace = 4 * MIB}, {.workspace = 1}});
    cr_expect_eq(choose(2, MIB).engine, 2, "above the limit the smallest scratch wins");
}

Test(conv2d_choice, among_slow_engines_the_first_within_the_limit_wins) {
    engines(1, 3,
            (fake_engine[]){{.workspace = 2 * MIB, .no_tensor_core = true},
                            {.workspace = MIB, .no_tensor_core = true},
                            {.strict_nan = true}});
    cr_expect_eq(choose(1, MIB).engine, 1);
    cr_expect_eq(choose(1, 2 * MIB).engine, 0);
    cr_expect_eq(choose(1, 2 * MIB).configurations, 1, "what is kept is the choice's");
}

Test(conv2d_choice, slow_engines_are_not_timed_where_there_are_others) {
    engines(4, 4,
            (fake_engine[]){{.ms = 3},
                            {.ms = 0.1, .strict_nan = true},
                            {.ms = 0.2, .no_tensor_core = true},
                            {.ms = 2}});
    fr_cudnn_benchmark_set(true);
    fri_cuda_conv2d_choice c = choose(1, MIB);
    cr_expect_eq(c.engine, 3);
    cr_expect_eq(c.configurations, 2);
    cr_expect_eq(fake_dnn.engine[1].executions + fake_dnn.engine[2].executions, 0);
    fake_dnn.engine[0].workspace = fake_dnn.engine[3].workspace = 2 * MIB;
    cr_expect_eq(choose(2, MIB).engine, 0, "all within the limit are slow");
    for (int i = 0; i < 4; i++) fake_dnn.engine[i].no_tensor_core = true;
    cr_expect_eq(choose(3, MIB).engine, 1, "all are slow, and this one is the fastest");
}

/* ---- determinism ----------------------------------------------------------------------------------------------- */

Test(conv2d_choice, engines_that_vary_are_taken_only_when_allowed) {
    engines(2, 2, (fake_engine[]){{.nondeterministic = true}, {.workspace = 1}});
    cr_expect(fri_cudnn_deterministic_get(), "on at the start");
    cr_expect_eq(choose(1, MIB).engine, 1);
    fr_cudnn_deterministic_set(false);
    cr_expect_eq(choose(1, MIB).engine, 0);
    fr_cudnn_deterministic_set(true);
    cr_expect_eq(choose(1, MIB).engine, 1, "what was chosen under the other setting stayed");
}

Test(conv2d_choice, exact_convolutions_do_not_round_to_tf32) {
    engines(2, 2, (fake_engine[]){{.workspace = 0}, {.workspace = 1, .no_tensor_core = true}});
    cr_expect_eq(choose_f32(1, MIB).engine, 0, "PyTorch's default is not ours");
    fr_exact_convolutions_set(true);
    cr_expect_eq(choose_f32(1, MIB).engine, 1);
    fr_exact_convolutions_set(false);
    cr_expect_eq(choose_f32(1, MIB).engine, 0, "what was chosen under the other setting stayed");
}

/* ---- timing ---------------------------------------------------------------------------------------------------- */

/* The second is the fastest within the limit; the fourth would be, above it; the first is slow only at its first
 * execution's side, the fifth is of the fallback list and a copy of nothing. */
static const fake_engine timed_engines[] = {{.ms = 3},
                                            {.workspace = MIB, .ms = 1, .warm_up_ms = 50},
                                            {.workspace = 2 * MIB, .ms = 2},
                                            {.workspace = 9 * MIB, .ms = 0.1},
                                            {.workspace = 512, .ms = 1.5}};

Test(conv2d_choice, the_fastest_within_the_limit_is_kept) {
    const size_t memory = fake.memory;
    engines(4, 5, timed_engines);
    fr_cudnn_benchmark_set(true);
    fri_cuda_conv2d_choice c = choose(1, 8 * MIB);
    cr_expect_eq(c.engine, 1);
    cr_expect_eq(c.workspace, (size_t)MIB);
    cr_expect(abs((int)c.nanoseconds - 1000000) < 1000, "%lld ns", (long long)c.nanoseconds);
    cr_expect_eq(c.configurations, 4, "%d plans timed", c.configurations);
    /* Each loads its code, then runs twice two timed executions; the first also until 30 ms are over. */
    for (int i = 0; i < 5; i++)
        cr_expect_eq(fake_dnn.engine[i].executions,
                     i == 3   ? 0
                     : i == 0 ? 15
                              : 5,
                     "engine %d ran %d times", i, fake_dnn.engine[i].executions);
    cr_expect_eq(fake.frees, 1, "the memory of the timing was kept");
    cr_expect_gt(memory - fake.least, (size_t)2 * MIB, "x, w, y and the largest workspace were not there");
    cr_expect_eq(fake.events, 0);
    expect_counts(1, 0);
    (void)choose(1, 8 * MIB);
    cr_expect_eq(executions(), 30, "timed again");
    expect_counts(1, 0);
}

/* An idle device's clock is low: the engine timed first would look slow. */
Test(conv2d_choice, a_clock_that_rises_does_not_change_the_choice) {
    for (int ramp = 0; ramp <= 80; ramp += 5) {
        fake_cudnn_begin();
        fake_dnn.ramp_ms = ramp;
        engines(3, 3, (fake_engine[]){{.ms = 1}, {.ms = 1.2}, {.ms = 1.1}});
        fr_cudnn_benchmark_set(true);
        cr_expect_eq(choose(1 + ramp, MIB).engine, 0, "ramp of %d ms", ramp);
    }
}

Test(conv2d_choice, what_takes_three_times_the_fastest_runs_once_more_at_most) {
    engines(3, 3, (fake_engine[]){{.ms = 2}, {.ms = 1000}, {.ms = 5.9}});
    fr_cudnn_benchmark_set(true);
    cr_expect_eq(choose(1, MIB).engine, 0);
    cr_expect_eq(fake_dnn.engine[1].executions, 2, "%d", fake_dnn.engine[1].executions);
    cr_expect_eq(fake_dnn.engine[2].executions, 5, "%d", fake_dnn.engine[2].executions);
    engines(1, 1, (fake_engine[]){{.ms = 1e-6}});
    (void)choose(2, MIB);
    cr_expect_eq(fake_dnn.engine[0].executions, 1 + 64 + 4, "the clock is not waited for without end");
}

Test(conv2d_choice, timing_leaves_one_plan_per_convolution) {
    engines(4, 5, timed_engines);
    fr_cudnn_benchmark_set(true);
    (void)choose(1, 8 * MIB);
    int first = fake_dnn.descriptors;
    (void)choose(2, 8 * MIB);
    cr_expect_eq(fake_dnn.descriptors - first, 1, "%d descriptors more", fake_dnn.descriptors - first);
}

Test(conv2d_choice, plans_that_do_not_run_are_passed_over) {
    engines(3, 3, (fake_engine[]){{.ms = 1, .unbindable = true}, {.ms = 2, .fails = true}, {.ms = 3}});
    fr_cudnn_benchmark_set(true);
    cr_expect_eq(choose(1, MIB).engine, 2);
    expect_counts(1, 0);
}

Test(conv2d_choice, without_a_plan_that_runs_the_heuristics_choice_stands_in) {
    engines(2, 2, (fake_engine[]){{.workspace = 7, .fails = true}, {.fails = true}});
    fr_cudnn_benchmark_set(true);
    fri_cuda_conv2d_choice c = choose(1, MIB);
    cr_expect_eq(c.engine, 0);
    cr_expect_eq(c.workspace, 7u);
    cr_expect_eq(c.nanoseconds, 0);
    expect_counts(0, 1);
    int n = executions();
    (void)choose(1, MIB);
    cr_expect_eq(executions(), n, "tried again");
}

Test(conv2d_choice, without_memory_for_timing_the_heuristics_choice_stands_in) {
    engines(4, 5, timed_engines);
    fr_cudnn_benchmark_set(true);
    fake.memory = MIB;
    cr_expect_eq(choose(28, 8 * MIB).engine, 0);
    cr_expect_eq(executions(), 0);
    cr_expect_eq(fake.sticky, cudaSuccess);
    expect_counts(0, 1);
}

Test(conv2d_choice, determinism_holds_for_timed_plans_too) {
    engines(3, 3, (fake_engine[]){{.ms = 3}, {.ms = 1, .nondeterministic = true}, {.ms = 2}});
    fr_cudnn_benchmark_set(true);
    cr_expect_eq(choose(1, MIB).engine, 2);
    fr_cudnn_deterministic_set(false);
    cr_expect_eq(choose(1, MIB).engine, 1);
}

/* A description stands for the device where none is present. */
Test(conv2d_choice, without_a_device_the_heuristics_choose) {
    engines(4, 5, timed_engines);
    fake.devices = 0;
    fri_cuda_use(fri_cudart_table);
    fr_cudnn_benchmark_set(true);
    cr_expect_eq(choose(2, 8 * MIB).engine, 0);
    cr_expect_eq(executions(), 0);
    expect_counts(0, 1);
}

/* ---- the bias in the kernel ---------------------------------------------------------------------------------- */

static _Alignas(512) char memory[4][1 << 20], scratch[4 << 20];

/* Bytes of workspace asked by the forward pass, which runs with exactly these bytes. */
static size_t forward(fri_conv2d_desc d, const void *x, const void *w, const void *b) {
    fri_exec e = {.workspace = scratch};
    must(fri_cuda_conv2d_forward_workspace(&d, &e.workspace_bytes));
    must(fri_cuda_conv2d_forward(&e, &d, x, w, b, memory[2]));
    return e.workspace_bytes;
}

static fri_conv2d_desc with_bias(size_t limit) {
    fri_conv2d_desc d = shape(1, limit);
    d.bias = true;
    d.bias_dtype = FR_F16;
    return d;
}

Test(conv2d_choice, bias_is_added_by_the_convolution) {
    engines(1, 1, (fake_engine[]){{.workspace = MIB, .fused_workspace = 512}});
    cr_expect_eq(forward(with_bias(MIB), memory[0], memory[1], memory[3]), 512u);
    cr_expect_eq(fake_dnn.operations, 2);
    cr_expect_eq(fake_dnn.b, memory[3]);
    cr_expect_eq(fake_dnn.pointers, 4);
    cr_expect_eq(fake_dnn.x, memory[0]);
    cr_expect_eq(fake_dnn.w, memory[1]);
    cr_expect_eq(fake_dnn.y, memory[2]);
    cr_expect_eq(fake_dnn.searches, 1, "the plain pass was planned without need");
}

Test(conv2d_choice, a_bias_of_another_type_or_none_leaves_the_plain_pass) {
    fri_conv2d_desc wide = with_bias(MIB), none = shape(1, MIB), crooked = with_bias(MIB);
    wide.bias_dtype = FR_F32;
    crooked.unaligned = FRI_UNALIGNED_B;
    engines(1, 1, (fake_engine[]){{.workspace = 1024, .fused_workspace = 512}});
    cr_expect_eq(forward(none, memory[0], memory[1], NULL), 1024u);
    cr_expect_eq(fake_dnn.operations, 1);
    cr_expect_eq(fake_dnn.pointers, 3);
    cr_expect_eq(forward(wide, memory[0], memory[1], memory[3]), 1024u);
    cr_expect_eq(fake_dnn.operations, 1);
    cr_expect_eq(forward(crooked, memory[0], memory[1], memory[3] + 2), 1024u);
    cr_expect_eq(fake_dnn.operations, 1);
}

Test(conv2d_choice, without_a_fused_engine_the_plain_pass_runs) {
    engines(1, 1, (fake_engine[]){{.workspace = 1024}});
    fake_dnn.not_fused = true;
    cr_expect_eq(forward(with_bias(MIB), memory[0], memory[1], memory[3]), 1024u);
    cr_expect_eq(fake_dnn.operations, 1);
    int n = fake_dnn.searches;
    (void)forward(with_bias(MIB), memory[0], memory[1], memory[3]);
    cr_expect_eq(fake_dnn.searches, n, "searched again");
}

Test(conv2d_choice, a_slow_fused_engine_is_not_taken) {
    engines(1, 1, (fake_engine[]){{.workspace = MIB, .fused_workspace = 512, .fused_strict_nan = true}});
    cr_expect_eq(forward(with_bias(2 * MIB), memory[0], memory[1], memory[3]), (size_t)MIB);
    cr_expect_eq(fake_dnn.operations, 1);
}

/* Fused passes above the limit are taken only where they need no more than the plain pass. */
Test(conv2d_choice, the_fused_pass_keeps_to_the_workspace_limit) {
    engines(1, 1, (fake_engine[]){{.workspace = 1024, .fused_workspace = 2048}});
    cr_expect_eq(forward(with_bias(1024), memory[0], memory[1], memory[3]), 1024u);
    cr_expect_eq(fake_dnn.operations, 1);
    cr_expect_eq(forward(with_bias(2048), memory[0], memory[1], memory[3]), 2048u);
    cr_expect_eq(fake_dnn.operations, 2);
    engines(1, 1, (fake_engine[]){{.workspace = 4096, .fused_workspace = 2048}});
    cr_expect_eq(forward(with_bias(512), memory[0], memory[1], memory[3]), 2048u);
    cr_expect_eq(fake_dnn.operations, 2);
}

/* ---- plans refused by a handle ------------------------------------------------------------------------------- */

Test(conv2d_choice, a_refused_plan_is_a_failure_with_cudnns_sentence) {
    fri_conv2d_desc d = shape(1, MIB);
    engines(1, 1, (fake_engine[]){{.unbindable = true}});
    cr_expect_eq(fri_cuda_conv2d_forward(&(fri_exec){0}, &d, memory[0], memory[1], NULL, memory[2]), FR_ELIBRARY);
    cr_expect_not_null(strstr(fr_last_error(), "fake refusal"), "%s", fr_last_error());
}

Test(conv2d_choice, without_memory_for_cudnn_the_sentence_says_what_is_free) {
    fri_conv2d_desc d = shape(1, MIB);
    engines(1, 1, (fake_engine[]){{.ms = 1}});
    (void)choose(1, MIB);
    int n = fake_dnn.searches;
    fake.memory = 3 * MIB;
    fake_dnn.no_memory = true;
    cr_expect_eq(fri_cuda_conv2d_forward(&(fri_exec){0}, &d, memory[0], memory[1], NULL, memory[2]), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), "cuDNN needs memory beside the engine's"), "%s", fr_last_error());
    cr_expect_not_null(strstr(fr_last_error(), "3 of the device's 1024 MiB are free"), "%s", fr_last_error());
    cr_expect_eq(fake_dnn.searches, n, "another plan would need memory, too");
    fake_dnn.no_memory = false;
    (void)forward(d, memory[0], memory[1], NULL);
    /* A module without room is a failed execution. */
    fake_dnn.engine[0].fails = true;
    cr_expect_eq(fri_cuda_conv2d_forward(&(fri_exec){0}, &d, memory[0], memory[1], NULL, memory[2]), FR_ENOMEM);
    fake.memory = (size_t)1 << 30;
    cr_expect_eq(fri_cuda_conv2d_forward(&(fri_exec){0}, &d, memory[0], memory[1], NULL, memory[2]), FR_ELIBRARY);
}

/* ---- more elements than cuDNN counts ------------------------------------------------------------------------- */

/* Addresses for 6 GiB, without memory. */
static char *addresses(void) {
    void *p = mmap(NULL, (size_t)6 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(p, MAP_FAILED);
    return p;
}

enum { TALL = 100000 }; /* y has 2.9e9 elements, half the batch 1.4e9 */

Test(conv2d_choice, a_large_batch_runs_in_equal_parts) {
    const int64_t half = 4LL * TALL * 28 * 2;
    char *x = addresses(), *y = addresses();
    engines(1, 1, (fake_engine[]){{.workspace = 700, .fused_workspace = 700}});
    cr_expect_eq(forward(shape(TALL, MIB), x, memory[1], NULL), 700u);
    cr_expect_eq(fake_dnn.engine[0].executions, 2);
    cr_expect_eq(fake_dnn.graph.x[0], 4);
    cr_expect_eq(fake_dnn.x, x + half * 64);
    cr_expect_eq(fake_dnn.w, memory[1]);
    cr_expect_eq((const char *)fake_dnn.y - memory[2], half * 128);
    (void)forward(shape(TALL / 2, MIB), x, memory[1], NULL);
    cr_expect_eq(fake_dnn.engine[0].executions, 3, "1.4e9 elements are not too many");
    munmap(x, (size_t)6 << 30);
    munmap(y, (size_t)6 << 30);
}

Test(conv2d_choice, weight_gradients_of_parts_are_added) {
    const size_t weights = (size_t)128 * 3 * 3 * 64;
    const int64_t half = 4LL * TALL * 28 * 2;
    char *x = addresses(), *y = addresses();
    fri_exec e = {.workspace = scratch};
    fri_conv2d_desc d = shape(TALL, MIB);
    fri_f16 *sum = (fri_f16 *)(void *)memory[1], *part = (fri_f16 *)(void *)(scratch + 1024);
    fake_kernels();
    engines(1, 1, (fake_engine[]){{.workspace = 700}});
    must(fri_cuda_conv2d_backward_weight_workspace(&d, &e.workspace_bytes));
    cr_expect_eq(e.workspace_bytes, 1024 + 2 * weights);
    for (size_t i = 0; i < weights; i++) {
        sum[i] = fri_f16_from_f32(1);
        part[i] = fri_f16_from_f32(2);
    }
    must(fri_cuda_conv2d_backward_weight(&e, &d, x, y, memory[1]));
    cr_expect_eq(fake_dnn.engine[0].executions, 2);
    cr_expect_eq(fake_dnn.x, x + half * 64);
    cr_expect_eq(fake_dnn.w, scratch + 1024, "the second part would overwrite the first one's");
    cr_expect_eq(fake_dnn.y, y + half * 128);
    for (size_t i = 0; i < weights; i++) cr_assert_eq(fri_f32_from_f16(sum[i]), 3, "element %zu", i);
    munmap(x, (size_t)6 << 30);
    munmap(y, (size_t)6 << 30);
}

/* 4 images have 8 times an odd number of bytes. */
Test(conv2d_choice, parts_start_at_multiples_of_16_bytes) {
    fri_conv2d_desc d = shape(TALL - 1, MIB);
    size_t bytes = 0;
    engines(1, 1, (fake_engine[]){{.workspace = 700}});
    d.w = d.q = 27;
    d.k = 127;
    cr_expect_eq(fri_cuda_conv2d_forward_workspace(&d, &bytes), FR_EUNSUPPORTED);
    d.k = 128;
    must(fri_cuda_conv2d_forward_workspace(&d, &bytes));
}

Test(conv2d_choice, an_image_that_is_too_large_is_refused_by_the_plan) {
    fri_conv2d_desc d = shape(8 * TALL, MIB);
    size_t bytes = 0;
    engines(1, 1, (fake_engine[]){{.workspace = 700}});
    d.n = 1;
    cr_expect_eq(fri_cuda_conv2d_forward_workspace(&d, &bytes), FR_EUNSUPPORTED);
    cr_expect_not_null(strstr(fr_last_error(), "y (1, 128, 800000, 28) has more than the 2147483647 elements"), "%s",
                       fr_last_error());
}

/* ---- operands that start anywhere ------------------------------------------------------------------------------ */

Test(conv2d_choice, an_unaligned_operand_is_copied_into_counted_scratch) {
    fri_conv2d_desc d = shape(1, MIB);
    const size_t x = (size_t)(d.n * d.h * d.w * d.c) * 2;
    engines(1, 1, (fake_engine[]){{.workspace = 700}});
    for (size_t i = 0; i < x; i++) memory[0][i + 2] = (char)(i * 31 + 7);
    d.unaligned = FRI_UNALIGNED_X;
    cr_expect_eq(forward(d, memory[0] + 2, memory[1], NULL), 1024 + x);
    cr_expect_eq(fake_dnn.x, scratch + 1024, "behind the engine's scratch");
    cr_expect_eq(fake_dnn.w, memory[1]);
    cr_expect_eq(fake.copies, 1);
    must(fri_cuda_synchronize(NULL));
    cr_expect_eq(memcmp(scratch + 1024, memory[0] + 2, x), 0);
}

Test(conv2d_choice, both_operands_of_a_gradient_may_be_unaligned) {
    fri_conv2d_desc d = shape(1, MIB);
    fri_exec e = {.workspace = scratch};
    const size_t x = (size_t)(d.n * d.h * d.w * d.c) * 2, y = (size_t)(d.n * d.p * d.q * d.k) * 2;
    engines(1, 1, (fake_engine[]){{.workspace = 0}});
    d.unaligned = FRI_UNALIGNED_X | FRI_UNALIGNED_Y;
    must(fri_cuda_conv2d_backward_weight_workspace(&d, &e.workspace_bytes));
    cr_expect_eq(e.workspace_bytes, (x + 511) / 512 * 512 + y);
    must(fri_cuda_conv2d_backward_weight(&e, &d, memory[0] + 2, memory[2] + 4, memory[1]));
    cr_expect_eq(fake_dnn.x, scratch);
    cr_expect_eq(fake_dnn.y, scratch + (x + 511) / 512 * 512);
    cr_expect_eq(fake_dnn.w, memory[1], "what is written is where it was asked for");
    cr_expect_eq(fake.copies, 2);
}

Test(conv2d_choice, an_operand_that_nobody_said_is_unaligned_is_refused) {
    fri_conv2d_desc d = shape(1, MIB);
    fri_exec e = {.workspace = scratch, .workspace_bytes = sizeof scratch};
    engines(1, 1, (fake_engine[]){{.workspace = 0}});
    cr_expect_eq(fri_cuda_conv2d_forward(&e, &d, memory[0] + 2, memory[1], NULL, memory[2]), FR_EINTERNAL);
    cr_expect_not_null(strstr(fr_last_error(), "16 bytes"));
}
