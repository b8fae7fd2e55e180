/* test_plan.c - a plan equals the run to the byte; the arena changes only addresses. */
#include "plan/section.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/optim.h>
#include <frugal/plan.h>
#include <string.h>

#include "net/layers.h"
#include "memory/allocator.h"
#include "plan/net.h"
#include "plan/plan.h"
#include "support/golden.h"

enum { STEPS = 6, SHORT_BATCH = 5, BATCH = 8 };

/* Section 0 sets up, section i is step i: the batch of step 2 is shorter. */
static int64_t batch_of(int step) {
    return step == 2 ? SHORT_BATCH : BATCH;
}

/* The switches of a cell, from the bits of i. */
static fr_switches cell(int i) {
    fr_switches s = i & 1 ? fr_switches_all_off() : fr_switches_default();
    if (i & 2) s.rebuild = false;
    if (i & 4) s.inplace = !s.inplace;
    if (i & 8) s.early_release = !s.early_release;
    return s;
}

static fr_plan *plan_of(fr_device target) {
    fr_plan *plan = NULL;
    net n;
    double loss;
    must(fr_plan_begin(target, &plan));
    must(fr_plan_section(plan, "setup"));
    must(net_create(&n, FR_META));
    for (int i = 0; i < 3; i++) {
        must(fr_plan_section(plan, i == 0 ? "first step" : i == 1 ? "steady step" : "short batch"));
        must(net_step(&n, batch_of(i), &loss));
        must(net_update(&n));
    }
    net_release(&n);
    must(fr_plan_end(plan));
    return plan;
}

static void fresh_peak(void) {
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
}

/* Parameters, optimizer state, and the largest op. */
Test(plan, floor_is_the_sum_that_its_header_says) {
    fr_plan *plan = NULL;
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_plan_section_stats at;
    must(fr_plan_begin(test_device(), &plan));
    must(fr_plan_section(plan, "setup"));
    must(fri_nn_linear(256, 256, true, FR_META, &m));
    must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
    for (int i = 0; i < 2; i++) {
        fr_tensor *x = NULL;
        must(fr_plan_section(plan, "step"));
        must(fr_tensor_empty(2, (int64_t[]){8, 256}, FR_F32, FR_META, &x));
        must(fr_module_forward(m, x, &x));
        must(fr_sum(x, &x));
        must(fr_backward(x, NULL));
        fr_tensor_release(&x);
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
    }
    fr_optimizer_release(&o);
    fr_module_release(&m);
    must(fr_plan_end(plan));
    must(fr_plan_section_get(plan, fri_plan_peak_section(plan), &at));
    const size_t *bytes = at.memory.at_peak_allocated;
    cr_expect_geq(bytes[FR_MEM_OPTIMIZER], sizeof(float) * 256 * 256);
    cr_expect_eq(fri_plan_floor(plan), bytes[FR_MEM_PARAMETER] + bytes[FR_MEM_OPTIMIZER] + fri_plan_largest_op(plan));
    fr_plan_release(&plan);
}

/* Every statistic of every section, on a CPU allocator as fresh as the plan's. */
Test(plan, equals_the_run) {
    for (int i = 0; i < 16; i++) {
        net n;
        double loss;
        fr_seed(1);
        fr_switches_set(cell(i));
        fr_plan *plan = plan_of(test_device());
        fresh_peak();
        must(net_create(&n, test_device()));
        for (int step = 0; step < 3; step++) {
            fr_memory_stats run;
            fr_plan_section_stats planned;
            must(fr_memory_reset_peak(test_device()));
            must(net_step(&n, batch_of(step), &loss));
            must(net_update(&n));
            must(fr_memory_stats_get(test_device(), &run));
            must(fr_plan_section_get(plan, step + 1, &planned));
            const fr_memory_stats *p = &planned.memory;
            cr_expect_eq(p->peak_requested, run.peak_requested, "cell %d %s: requested %zu, run %zu", i, planned.name,
                         p->peak_requested, run.peak_requested);
            cr_expect_eq(p->peak_allocated, run.peak_allocated, "cell %d %s: allocated %zu, run %zu", i, planned.name,
                         p->peak_allocated, run.peak_allocated);
            cr_expect_eq(p->peak_reserved, run.peak_reserved, "cell %d %s: reserved %zu, run %zu", i, planned.name,
                         p->peak_reserved, run.peak_reserved);
            cr_expect_eq(memcmp(p->at_peak_allocated, run.at_peak_allocated, sizeof run.at_peak_allocated), 0,
                         "cell %d %s: categories differ", i, planned.name);
        }
        net_release(&n);
        fr_plan_release(&plan);
    }
}

static void train(double *loss, float *weight, bool arena) {
    net n;
    fr_seed(2);
    if (arena) must(fr_plan_follow(test_device(), 0));
    must(net_create(&n, test_device()));
    for (int i = 0; i < STEPS; i++) {
        if (arena) must(fr_plan_follow(test_device(), i == 0 ? 1 : i == 2 ? 3 : 2));
        must(net_step(&n, batch_of(i), &loss[i]));
        must(net_update(&n));
        if (arena) cr_expect(!fri_plan_departed(test_device()), "step %d departed from the plan", i);
    }
    must(fr_tensor_to_host(n.parameters[0], weight));
    net_release(&n);
}

Test(plan, arena_gives_the_same_bits_and_reserves_the_peak) {
    double plain[STEPS], placed[STEPS];
    float w_plain[16 * 27], w_placed[16 * 27];
    fr_placement placement;
    fr_memory_stats t;
    fr_switches_set(fr_switches_default());
    fr_plan *plan = plan_of(test_device());
    train(plain, w_plain, false);
    fresh_peak();
    must(fr_plan_install(plan, test_device(), &placement));
    must(fr_memory_stats_get(test_device(), &t));
    uint64_t segments = t.segment_allocs;
    train(placed, w_placed, true);
    must(fr_memory_stats_get(test_device(), &t));
    cr_expect_eq(t.segment_allocs, segments, "the device allocator was called %d times",
                 (int)(t.segment_allocs - segments));
    cr_expect_eq(t.reserved, placement.extent);
    cr_expect_eq(t.peak_requested, placement.peak, "peak %zu, planned %zu", t.peak_requested, placement.peak);
    cr_expect(placement.extent <= placement.peak + placement.peak / 100, "extent %zu, peak %zu", placement.extent,
              placement.peak);
    cr_expect_eq(memcmp(plain, placed, sizeof plain), 0);
    cr_expect_eq(memcmp(w_plain, w_placed, sizeof w_plain), 0);
    must(fr_plan_uninstall(test_device()));
    must(fr_memory_stats_get(test_device(), &t));
    cr_expect_eq(t.reserved, 0u);
    fr_plan_release(&plan);
}

/* Steps of random batch sizes depart from the plan; results equal the caching allocator's. */
Test(plan, departure_is_correct) {
    fr_switches_set(fr_switches_default());
    fr_plan *plan = plan_of(test_device());
    int departed = 0;
    for (int arena = 0; arena < 2; arena++) {
        static double loss[2][12];
        net n;
        fr_seed(3);
        if (arena) must(fr_plan_install(plan, test_device(), NULL));
        must(net_create(&n, test_device()));
        for (int i = 0; i < 12; i++) {
            static const int64_t batches[12] = {8, 3, 8, 9, 5, 1 + 1, 8, 16, 7, 8, 4, 8};
            if (arena) must(fr_plan_follow(test_device(), i == 0 ? 1 : 2));
            must(net_step(&n, batches[i], &loss[arena][i]));
            must(net_update(&n));
            if (arena) departed += fri_plan_departed(test_device());
        }
        net_release(&n);
        if (arena) {
            must(fr_plan_uninstall(test_device()));
            cr_expect_eq(memcmp(loss[0], loss[1], sizeof loss[0]), 0);
            cr_expect_eq(departed, 7, "%d steps departed", departed);
        }
    }
    fr_plan_release(&plan);
}

/* Random batch sizes, wrong and unknown sections, extra tensors of the caller: despite all departures, every loss and
 * weight equals the caching allocator's. */
Test(plan, random_departures_change_no_bit) {
    enum { RANDOM_STEPS = 40, CELLS = 6 };
    static double loss[2][RANDOM_STEPS];
    static float w[2][16 * 27];
    int departed = 0, followed = 0;
    for (int i = 0; i < CELLS; i++) {
        fr_switches_set(cell(5 * i));
        fr_plan *plan = plan_of(test_device());
        for (int arena = 0; arena < 2; arena++) {
            uint64_t r = 99 + (uint64_t)i;
            fr_tensor *extra = NULL;
            net n;
            fr_seed(3);
            if (arena) must(fr_plan_install(plan, test_device(), NULL));
            must(net_create(&n, test_device()));
            for (int k = 0; k < RANDOM_STEPS; k++) {
                r = r * 6364136223846793005u + 1442695040888963407u;
                unsigned d = (unsigned)(r >> 33);
                int64_t batch = d % 3 == 0 ? 1 + d / 3 % 12 : BATCH;
                int section = d / 64 % 4 == 0 ? (int)(d / 256 % 6) - 1 : k == 0 ? 1 : 2;
                if (arena) must(fr_plan_follow(test_device(), section));
                if (d / 4096 % 4 == 0)
                    must(fr_tensor_full(1, (int64_t[]){1 + d % 5000}, 1, FR_F32, test_device(), &extra));
                else
                    fr_tensor_release(&extra);
                must(net_step(&n, batch, &loss[arena][k]));
                must(net_update(&n));
                if (arena) departed += fri_plan_departed(test_device());
                if (arena) followed += !fri_plan_departed(test_device());
            }
            fr_tensor_release(&extra);
            must(fr_tensor_to_host(n.parameters[0], w[arena]));
            net_release(&n);
        }
        must(fr_plan_uninstall(test_device()));
        cr_expect_eq(memcmp(loss[0], loss[1], sizeof loss[0]), 0, "cell %d: losses differ", i);
        cr_expect_eq(memcmp(w[0], w[1], sizeof w[0]), 0, "cell %d: weights differ", i);
        fr_plan_release(&plan);
    }
    cr_expect(departed > CELLS * 5 && followed > CELLS * 5, "%d steps departed, %d followed", departed, followed);
}

/* An unplanned batch size departs once; later it has places too, and the device is not called again. */
Test(plan, a_departed_step_is_planned_anew) {
    static const int64_t batches[] = {8, 3, 3, 8, 16, 16, 3, 8, 16, 5, 8, 5, 16, 3};
    enum { N = sizeof batches / sizeof *batches };
    static const bool expected[N] = {[1] = true, [4] = true, [9] = true};
    double loss[2][N];
    uint64_t calls = 0;
    fr_memory_stats t;
    fr_switches_set(fr_switches_default());
    fr_plan *plan = plan_of(test_device());
    for (int arena = 0; arena < 2; arena++) {
        net n;
        fr_seed(5);
        if (arena) must(fr_plan_install(plan, test_device(), NULL));
        must(net_create(&n, test_device()));
        for (int i = 0; i < N; i++) {
            if (arena) must(fr_plan_follow(test_device(), i == 0 ? 1 : 2));
            if (i == 10) must(fr_memory_stats_get(test_device(), &t));
            if (i == 10) calls = t.segment_allocs + t.segment_frees;
            must(net_step(&n, batches[i], &loss[arena][i]));
            must(net_update(&n));
            if (arena)
                cr_expect_eq(fri_plan_departed(test_device()), expected[i], "step %d with a batch of %d", i,
                             (int)batches[i]);
        }
        must(fr_memory_stats_get(test_device(), &t));
        if (arena) cr_expect_eq(t.segment_allocs + t.segment_frees, calls, "the device was asked again");
        if (arena) cr_expect_eq(t.allocated, t.requested);
        net_release(&n);
    }
    must(fr_plan_uninstall(test_device()));
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_stats_get(test_device(), &t));
    cr_expect_eq(t.reserved, 0u);
    cr_expect_eq(memcmp(loss[0], loss[1], sizeof loss[0]), 0);
    fr_plan_release(&plan);
}

/* Repeated sections have no separate places, and can be followed nevertheless. */
Test(plan, sections_that_repeat_share_their_places) {
    fr_plan *plan = NULL;
    fr_placement two, five;
    net n;
    double loss;
    for (int steps = 2; steps <= 5; steps += 3) {
        must(fr_plan_begin(test_device(), &plan));
        must(fr_plan_section(plan, "setup"));
        must(net_create(&n, FR_META));
        for (int i = 0; i < steps; i++) {
            must(fr_plan_section(plan, "step"));
            must(net_step(&n, BATCH, &loss));
            must(net_update(&n));
        }
        net_release(&n);
        must(fr_plan_end(plan));
        must(fr_plan_use_arena(plan, steps == 2 ? &two : &five));
        if (steps == 2) fr_plan_release(&plan);
    }
    cr_expect_eq(two.blocks, five.blocks, "%zu blocks with two steps, %zu with five", two.blocks, five.blocks);
    cr_expect_eq(two.extent, five.extent);
    must(fr_plan_install(plan, test_device(), NULL));
    must(net_create(&n, test_device()));
    for (int i = 0; i < 5; i++) {
        must(fr_plan_follow(test_device(), 1 + i));
        must(net_step(&n, BATCH, &loss));
        must(net_update(&n));
        cr_expect(!fri_plan_departed(test_device()), "step %d departed", i);
    }
    fr_memory_stats run;
    must(fr_memory_stats_get(test_device(), &run));
    cr_expect_eq(run.reserved, five.extent);
    cr_expect_eq(run.allocated, run.requested);
    net_release(&n);
    must(fr_plan_uninstall(test_device()));
    fr_plan_release(&plan);
}

Test(plan, is_installed_only_where_it_holds) {
    cpu_only("what a plan depends on is told apart by the number of threads");
    int threads = fr_threads_get();
    must(fr_threads_set(2));
    fr_plan *plan = plan_of(test_device());
    must(fr_threads_set(1));
    cr_expect_eq(fr_plan_install(plan, test_device(), NULL), FR_EUSAGE);
    cr_expect(strstr(fr_last_error(), "2 threads") != NULL && strstr(fr_last_error(), "1 threads") != NULL, "%s",
              fr_last_error());
    must(fr_threads_set(threads));
    fr_plan_release(&plan);
}

Test(plan, refuses_misuse) {
    fr_plan *plan = NULL, *second = NULL;
    fr_tensor *left = NULL;
    must(fr_plan_begin(test_device(), &plan));
    cr_expect_eq(fr_plan_begin(test_device(), &second), FR_EUSAGE);
    cr_expect_null(second);
    must(fr_plan_section(plan, "one"));
    must(fr_tensor_empty(1, (int64_t[]){1000}, FR_F32, FR_META, &left));
    cr_expect_eq(fr_plan_end(plan), FR_EUSAGE);
    cr_expect(strstr(fr_last_error(), "1 tensors") != NULL, "%s", fr_last_error());
    fr_tensor_release(&left);
    fr_plan_release(&plan);
    cr_expect_eq(fr_plan_follow(test_device(), 0), FR_EUSAGE);
}
