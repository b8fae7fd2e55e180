/* test_segments.c - cutting a chain: the cuts are the promised cuts, and the bytes kept alive grow as sqrt and
 * log. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <string.h>

#include "support/golden.h"
#include "net/units.h"

enum { MOST = 1024 };

/* ---- the cuts ---------------------------------------------------------------------------------------------- */

static size_t sum(const size_t *weight, int first, int end) {
    size_t n = 0;
    for (int i = first; i < end; i++) n += weight[i];
    return n;
}

/* The heaviest of `parts` parts at best, by trying every cut. */
static size_t best(const size_t *weight, int first, int end, int parts) {
    if (parts == 1) return sum(weight, first, end);
    size_t least = SIZE_MAX;
    for (int i = first + 1; i <= end - parts + 1; i++) {
        size_t left = sum(weight, first, i), right = best(weight, i, end, parts - 1);
        size_t heaviest = left > right ? left : right;
        if (heaviest < least) least = heaviest;
    }
    return least;
}

Test(segments, parts_by_weight_are_the_best_there_are) {
    fr_unit_range range[10];
    size_t weight[10];
    unsigned random = 1;
    for (int trial = 0; trial < 200; trial++) {
        int units = 1 + trial % 10, n = 0;
        for (int i = 0; i < units; i++) {
            random = random * 1664525u + 1013904223u;
            weight[i] = random >> 28;
        }
        for (int parts = 1; parts <= units; parts++) {
            must(fri_unit_segments(FR_SEGMENTS_COUNT, parts, units, weight, range, &n));
            cr_assert_eq(n, parts - 1);
            size_t heaviest = 0;
            int end = 0;
            for (int i = 0; i < n; i++) {
                cr_assert(range[i].first == end && range[i].end > end);
                end = range[i].end;
                size_t w = sum(weight, range[i].first, end);
                heaviest = w > heaviest ? w : heaviest;
            }
            cr_assert_lt(end, units);
            size_t last = sum(weight, end, units);
            cr_assert_eq(last > heaviest ? last : heaviest, best(weight, 0, units, parts));
        }
    }
}

/* A range is inside or behind each earlier range. */
Test(segments, a_plan_s_ranges_do_not_overlap_in_part) {
    static const fr_unit_option option[3];
    static const fr_unit_range wrong[][2] = {{{0, 2}, {1, 3}}, {{1, 3}, {0, 2}}, {{0, 2}, {0, 2}}};
    fr_module *m = NULL;
    fr_tensor *x = NULL, *y = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 3});
    for (int i = 0; i < 3; i++) v = fr_net_linear(n, NULL, v, 3, FR_BIAS);
    must(fr_net_end(&n, &v, 1, &m));
    must(fr_tensor_zeros(2, (int64_t[]){1, 3}, FR_F32, test_device(), &x));
    for (int i = 0; i < 3; i++)
        expect_refused(fr_checkpoint_plan(m, &(fr_unit_plan){3, option, 2, wrong[i], NULL}, x, &y), FR_EINVAL,
                       "range 1", "range 0", y);
    must(fr_checkpoint_plan(m, &(fr_unit_plan){3, option, 2, (fr_unit_range[]){{0, 2}, {2, 3}}, NULL}, x, &y));
    fr_module_release(&m);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

Test(segments, without_weights_as_checkpoint_sequential) {
    fr_unit_range range[10];
    int n = 0;
    must(fri_unit_segments(FR_SEGMENTS_COUNT, 4, 10, NULL, range, &n));
    cr_assert(n == 3 && range[2].first == 4 && range[2].end == 6); /* 2, 2, 2, (4 plain) */
}

Test(segments, halves_hold_log_inputs_and_rerun_log_times) {
    static fr_unit_range range[MOST];
    static int runs[MOST];
    for (int units = 1, log = 0; units <= MOST; units *= 2, log++) {
        int n = 0;
        must(fri_unit_segments(FR_SEGMENTS_LOG, 0, units, NULL, range, &n));
        cr_assert_eq(n, units - 1);
        memset(runs, 0, sizeof runs);
        for (int i = 0; i < n; i++)
            for (int u = range[i].first; u < range[i].end; u++) runs[u]++;
        int total = 0;
        for (int u = 0; u < units; u++) {
            cr_assert_leq(runs[u], log);
            total += runs[u];
        }
        cr_assert_eq(2 * total, units * log, "%d units run again %d times", units, total);
    }
}

Test(segments, refusals) {
    fr_unit_range range[3];
    int n = -1;
    size_t heavy[] = {SIZE_MAX / 2, 1, 1};
    expect_refused(fri_unit_segments(FR_SEGMENTS_COUNT, 4, 3, NULL, range, &n), FR_EINVAL, "4 segments", "3 units",
                   NULL);
    expect_refused(fri_unit_segments(FR_SEGMENTS_COUNT, 0, 3, NULL, range, &n), FR_EINVAL, "0 segments", "3 units",
                   NULL);
    expect_refused(fri_unit_segments(FR_SEGMENTS_LOG, 0, 0, NULL, range, &n), FR_EINVAL, "0 units", "at least 1", NULL);
    expect_refused(fri_unit_segments(FR_SEGMENTS_SQRT, 0, 3, heavy, range, &n), FR_EINVAL, "3 units", "weights", NULL);
    cr_assert_eq(n, -1);
}

/* ---- running ranges ------------------------------------------------------------------------------------------ */

/* Units of linear and relu, named "0.0". */
static fr_module *chain(int units, fr_device device) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 128});
    for (int i = 0; i < units; i++) {
        fr_net_scope_begin(n, "%d", i);
        x = fr_net_relu(n, NULL, fr_net_linear(n, NULL, x, 128, FR_NO_BIAS));
        fr_net_scope_end(n);
    }
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static void step(fr_module *m, int how, int segments, fr_tensor *x, float *grad) {
    fr_tensor *y = NULL;
    if (how < 0)
        must(fr_module_forward(m, x, &y));
    else
        must(fr_checkpoint_segments(m, (fr_segmentation)how, segments, NULL, x, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    if (grad != NULL)
        must(
            fr_tensor_to_host(fr_tensor_get_grad(fr_module_tensor(fr_module_child(fr_module_child(m, 0), 0), "weight")),
                              grad));
    fr_module_zero_grad(m);
    fr_tensor_release(&y);
}

Test(segments, gradients_are_bit_identical) {
    static float plain[128 * 128], grad[128 * 128];
    fr_tensor *x = NULL;
    fr_module *m = chain(13, test_device());
    must(fr_tensor_normal(2, (int64_t[]){3, 128}, 0, 1, FR_F32, test_device(), &x));
    step(m, -1, 0, x, plain);
    for (int how = 0; how <= FR_SEGMENTS_EACH; how++) {
        uint64_t before = fr_graph_stats_get().recomputed_segments;
        step(m, how, 5, x, grad);
        cr_expect_gt(fr_graph_stats_get().recomputed_segments, before);
        cr_expect_eq(memcmp(grad, plain, sizeof grad), 0, "segmentation %d", how);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* Peak in maps of 4 MiB. A unit saves a map: its result, which is the next unit's input. Weights' gradients, 64 KiB
 * each, count too. */
static int maps_at_peak(int units, int how) {
    enum { ROWS = 8192 };
    fr_memory_stats t;
    fr_tensor *x = NULL;
    fr_module *m = chain(units, FR_META);
    must(fr_tensor_empty(2, (int64_t[]){ROWS, 128}, FR_F32, FR_META, &x));
    must(fr_memory_stats_get(FR_META, &t));
    size_t before = t.requested;
    must(fr_memory_reset_peak(FR_META));
    step(m, how, 0, x, NULL);
    must(fr_memory_stats_get(FR_META, &t));
    fr_tensor_release(&x);
    fr_module_release(&m);
    return (int)((t.peak_requested - before) / ((size_t)ROWS * 128 * 4));
}

Test(segments, what_lives_grows_as_the_theory_says) {
    int plain = maps_at_peak(256, -1), root = maps_at_peak(256, FR_SEGMENTS_SQRT);
    int log = maps_at_peak(256, FR_SEGMENTS_LOG), log_small = maps_at_peak(16, FR_SEGMENTS_LOG);
    cr_expect(plain >= 256, "plain: %d", plain);
    cr_expect(root <= 16 + 16 + 4, "sqrt: %d maps at the peak", root);
    cr_expect(log <= 8 + 4 + 4, "log: %d maps at the peak", log); /* the gradients are 4 maps */
    cr_expect(log_small <= 4 + 4, "log of 16: %d maps at the peak", log_small);
    expect_nothing_left();
}
