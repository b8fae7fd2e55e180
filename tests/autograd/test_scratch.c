/* test_scratch.c - scratch of convolutions fills the bytes free below a peak (autograd/scratch.h), on meta, for a
 * device whose kernels take all they may. */
#include "autograd/run.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>

#include "autograd/scratch.h"
#include "meta/meta.h"
#include "support/golden.h"

enum { MIB = 1 << 20, BASE = 2 * MIB, SIDE = 128, MOST = 64 * MIB };

/* Up to MOST. */
static fr_status greedy(const fri_conv2d_desc *d, size_t *bytes) {
    *bytes = d->workspace_limit > BASE ? d->workspace_limit : BASE;
    if (*bytes > MOST) *bytes = MOST;
    return FR_OK;
}

static const fri_backend device = {.name = "greedy",
                                   .device = FR_CUDA,
                                   .kernels = {.conv2d_forward_workspace = greedy,
                                               .conv2d_backward_input_workspace = greedy,
                                               .conv2d_backward_weight_workspace = greedy}};

/* Convolutions of 8, 16 and 8 channels, [8, 128, 128, c] f32: 4, 8 and 4 MiB; the last shape equals the first. */
static size_t step(fri_scratch_limits *scratch, bool again) {
    static const int64_t channels[] = {8, 16, 8, 8};
    fr_switches was = fr_switches_get(), s = fr_switches_all_off();
    fr_tensor *w[3] = {NULL}, *x = NULL, *held = NULL;
    fr_memory_stats m;
    s.workspace_limit = BASE;
    s.scratch = scratch;
    fr_switches_set(s);
    const fri_backend *target = fri_meta_target_set(&device);
    fr_memory_reset_peak(FR_META);
    must(fr_tensor_zeros(4, (int64_t[]){8, SIDE, SIDE, 8}, FR_F32, FR_META, &x));
    must(fr_tensor_set_requires_grad(x, true));
    for (int i = 0; i < 3; i++) {
        must(fr_tensor_zeros(4, (int64_t[]){channels[i + 1], 3, 3, channels[i]}, FR_F32, FR_META, &w[i]));
        must(fr_tensor_set_requires_grad(w[i], true));
        must(fr_conv2d(x, w[i], NULL, FR_CONV2D_OPTS(.padding = 1), &x));
    }
    if (again) must(fr_tensor_zeros(1, (int64_t[]){4 * MIB}, FR_F32, FR_META, &held));
    must(fr_mean(x, &x));
    must(fr_backward(x, NULL));
    must(fr_memory_stats_get(FR_META, &m));
    for (int i = 0; i < 3; i++) fr_tensor_release(&w[i]);
    fr_tensor_release(&x);
    fr_tensor_release(&held);
    fri_meta_target_set(target);
    fr_switches_set(was);
    return m.peak_requested;
}

static const fri_scratch_use *use_of(const fri_scratch_limits *s, fri_scratch_pass pass, int64_t c, int64_t k) {
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        for (const fri_scratch_use *u = fri_scratch_uses(s, i); u != NULL; u = u->next)
            if (u->pass == pass && u->d.c == c && u->d.k == k) return u;
    cr_assert_fail("no use of %d -> %d", (int)c, (int)k);
    return NULL;
}

Test(scratch, fills_what_is_free_below_the_peak_and_raises_it_nowhere) {
    fri_scratch_limits *s = NULL;
    const size_t plain = step(NULL, false);
    must(fri_scratch_create(&s));
    cr_expect_eq(step(s, false), plain, "noting changes nothing");
    fri_scratch_settle(s, plain);
    cr_expect_eq(step(s, false), plain, "planned %zu", plain);
    int raised = 0;
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        for (const fri_scratch_use *u = fri_scratch_uses(s, i); u != NULL; u = u->next) {
            raised += u->limit > BASE;
            cr_expect(u->live + u->limit <= plain && plain < u->live + u->limit + MIB, "pass %d, %d -> %d: %zu + %zu",
                      u->pass, (int)u->d.c, (int)u->d.k, u->live, u->limit);
        }
    cr_expect_gt(raised, 2);
    cr_expect_gt(use_of(s, FRI_SCRATCH_FORWARD, 8, 16)->limit, use_of(s, FRI_SCRATCH_FORWARD, 16, 8)->limit,
                 "less is alive in front");
    fri_scratch_settle(s, plain + 4 * MIB);
    cr_expect_gt(step(s, false), plain, "a higher peak is filled");
    fri_scratch_settle(s, 0);
    cr_expect_eq(step(s, false), plain, "none leaves the switch's limit");
    fri_scratch_release(&s);
}

/* Two calls, with more and with fewer bytes alive than the first, have the limit of the first. */
Test(scratch, calls_of_one_convolution_have_one_limit) {
    fri_scratch_limits *s = NULL, *both = NULL;
    must(fri_scratch_create(&s));
    must(fri_scratch_create(&both));
    const size_t peak = step(s, true);
    (void)step(both, false);
    (void)step(both, true);
    (void)step(both, false);
    for (int i = 0; i < FRI_SCRATCH_BUCKETS; i++)
        for (const fri_scratch_use *u = fri_scratch_uses(s, i); u != NULL; u = u->next)
            cr_expect_eq(use_of(both, u->pass, u->d.c, u->d.k)->live, u->live);
    fri_scratch_settle(both, peak);
    cr_expect_eq(step(both, true), peak);
    fri_scratch_release(&s);
    fri_scratch_release(&both);
}

Test(scratch, release_clears_the_switches) {
    fri_scratch_limits *s = NULL;
    fr_switches on = fr_switches_get();
    must(fri_scratch_create(&s));
    on.scratch = s;
    fr_switches_set(on);
    fri_scratch_release(&s);
    cr_expect_null(fr_switches_get().scratch);
    cr_expect_null(s);
    fri_scratch_settle(NULL, 1);
}
