/* test_strided.c - pad, narrow, slice, permute, pixel_shuffle: golden values, gradients, types, saved bytes,
 * refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <string.h>

#include "backend/backend.h"
#include "support/op_suite.h"

enum { PAD, NARROW, SLICE, PERMUTE, SHUFFLE, UNSHUFFLE };

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *x = in[0];
    int64_t before[FR_MAX_RANK], after[FR_MAX_RANK];
    int dims[FR_MAX_RANK];
    const int64_t kind = golden_int(g, "kind", 0);
    for (int i = 0; i < fr_tensor_rank(x); i++) {
        if (kind == PAD) before[i] = golden_int(g, "before", i);
        if (kind == PAD) after[i] = golden_int(g, "after", i);
        if (kind == PERMUTE) dims[i] = (int)golden_int(g, "dims", i);
    }
    switch (kind) {
    case PAD: return fr_pad(x, before, after, golden_real(g, "value"), y);
    case NARROW:
        return fr_narrow(x, (int)golden_int(g, "dim", 0), golden_int(g, "start", 0), golden_int(g, "length", 0), y);
    case SLICE:
        return fr_slice(x, (int)golden_int(g, "dim", 0), golden_int(g, "start", 0), golden_int(g, "end", 0),
                        golden_int(g, "step", 0), y);
    case PERMUTE: return fr_permute(x, dims, y);
    case SHUFFLE: return fr_pixel_shuffle(x, golden_int(g, "r", 0), y);
    default: return fr_pixel_unshuffle(x, golden_int(g, "r", 0), y);
    }
}

static const op_suite suite = {.op = "strided", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(strided)

/* Maps cut by the loops: there and back gives the old map, in types of 1, 2, 4 and 8 bytes. */
Test(strided, there_and_back_in_all_sizes) {
    static const fr_dtype types[] = {FR_U8, FR_BF16, FR_F32, FR_I64};
    for (int i = 0; i < 4; i++) {
        fr_tensor *x = NULL, *y = NULL, *whole = NULL;
        fr_seed(6);
        must(fr_tensor_uniform(4, (int64_t[]){3, 64, 48, 20}, 0, 100, FR_F32, test_device(), &whole));
        must(fr_cast(whole, types[i], &x));
        must(fr_permute(x, (const int[]){0, 3, 1, 2}, &y));
        must(fr_permute(y, (const int[]){0, 2, 3, 1}, &y));
        expect_same_values(y, x, "permute");
        must(fr_pixel_shuffle(y, 2, &y));
        cr_expect_eq(fr_tensor_shape(y)[1], 128);
        must(fr_pixel_unshuffle(y, 2, &y));
        expect_same_values(y, x, "pixel_shuffle");
        must(fr_pad(y, (const int64_t[]){0, 3, 2, 1}, (const int64_t[]){1, 0, 5, 0}, 7, &y));
        must(fr_narrow(y, 0, 0, 3, &y));
        must(fr_narrow(y, 1, 3, 64, &y));
        must(fr_slice(y, 2, 2, -5, 1, &y));
        must(fr_slice(y, -1, 1, INT64_MAX, 1, &y));
        expect_same_values(y, x, "pad and slice");
        RELEASE_ALL(&x, &y, &whole);
    }
    expect_nothing_left();
}

/* No map is saved; an input saved by the next op is rebuilt from x. */
Test(strided, saved_bytes) {
    enum { COUNT = 64 * 64 };
    for (int rebuild = 0; rebuild < 2; rebuild++) {
        fr_tensor *x = NULL, *y = NULL;
        fr_memory_stats before, after;
        fr_switches switches = fr_switches_default();
        switches.rebuild = rebuild;
        fr_switches_set(switches);
        must(fr_tensor_normal(2, (int64_t[]){64, 64}, 0, 1, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_permute(x, (const int[]){1, 0}, &y));
        must(fr_mul(y, y, &y));
        must(fr_sum(y, &y));
        must(fr_memory_stats_get(test_device(), &after));
        cr_expect_eq(after.requested - before.requested, (rebuild ? 0 : COUNT * 4) + 512, "rebuild %d: %zu bytes",
                     rebuild, after.requested - before.requested);
        must(fr_backward(y, NULL));
        const float *v = host_of(x), *dx = host_of(fr_tensor_get_grad(x));
        for (int i = 0; i < COUNT; i++) cr_assert_eq(dx[i], 2 * v[i]);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* A single element; an empty part, with padding around. */
/* Shuffles of groups and back, for maps whose pixels have more channels on either side. */
Test(strided, shuffles_of_each_width) {
    static const int64_t lengths[] = {1, 2, 7, 16, 29, 64, 131};
    enum { ROWS = 70, MOST = 70 * 4 * 140 }; /* more lines than a piece, whose number is odd for 131 elements */
    static uint32_t x[MOST], y[MOST], want[MOST];
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int64_t groups = 2; groups <= 4; groups++)
            for (int back = 0; back < 2; back++)
                for (int64_t spare = 0; spare < 2; spare++)
                    for (size_t size = 2; size <= 4; size += 2) {
                        const int64_t n = lengths[k], c = n * groups + spare;
                        const fri_strided_desc d = {.size = size,
                                                    .rank = 3,
                                                    .extent = {ROWS, back ? groups : n, back ? n : groups},
                                                    .x_stride = {c, 1, back ? groups : n},
                                                    .y_stride = {c, back ? n : groups, 1}};
                        for (int64_t i = 0; i < MOST; i++) x[i] = (uint32_t)i * 2654435761u;
                        memset(y, 0, sizeof y);
                        memset(want, 0, sizeof want);
                        for (int64_t r = 0; r < ROWS; r++)
                            for (int64_t i = 0; i < d.extent[1]; i++)
                                for (int64_t j = 0; j < d.extent[2]; j++)
                                    memcpy((char *)want + (r * c + i * d.y_stride[1] + j) * (int64_t)size,
                                           (char *)x + (r * c + i + j * d.x_stride[2]) * (int64_t)size, size);
                        must(fri_backend_get(FR_CPU)->kernels.copy_strided(&(fri_exec){0}, &d, x, y));
                        cr_expect_eq(memcmp(y, want, sizeof y), 0, "%lld of %lld groups, back %d, %lld spare, size %zu",
                                     (long long)n, (long long)groups, back, (long long)spare, size);
                    }
}

Test(strided, one_element_and_none) {
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_full(2, (int64_t[]){1, 1}, 3, FR_F32, test_device(), &x));
    must(fr_permute(x, (const int[]){1, 0}, &y));
    cr_expect_eq(*(const float *)host_of(y), 3);
    fr_tensor_release(&x);
    must(fr_tensor_zeros(2, (int64_t[]){4, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_slice(x, 0, 3, 1, 1, &y));
    cr_expect_eq(fr_tensor_shape(y)[0], 0);
    must(fr_pad(y, (const int64_t[]){1, 0}, (const int64_t[]){0, 0}, 5, &y));
    must(fr_sum(y, &y));
    cr_expect_eq(*(const float *)host_of(y), 15);
    must(fr_backward(y, NULL));
    cr_expect_eq(((const float *)host_of(fr_tensor_get_grad(x)))[11], 0);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

Test(strided, rejects_bad_args) {
    fr_tensor *x = NULL, *rows = NULL, *y = NULL;
    const int64_t none[4] = {0}, less[4] = {0, -1}, many[4] = {INT32_MAX, INT32_MAX, INT32_MAX};
    must(fr_tensor_zeros(4, (int64_t[]){2, 4, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(2, (int64_t[]){2, 4}, FR_F32, test_device(), &rows));
    expect_refused(fr_pad(x, none, NULL, 0, &y), FR_EINVAL, "pad", "NULL", y);
    expect_refused(fr_pad(x, none, less, 0, &y), FR_EINVAL, "-1 after", "dimension 1", y);
    expect_refused(fr_pad(x, none, many, 0, &y), FR_ESHAPE, "pad", "memory", y);
    expect_refused(fr_narrow(x, 4, 0, 1, &y), FR_EINVAL, "narrow: no dimension 4", "rank 4", y);
    expect_refused(fr_narrow(x, 1, 2, 3, &y), FR_EINVAL, "3 elements from 2", "of size 4", y);
    expect_refused(fr_narrow(x, 1, -1, 1, &y), FR_EINVAL, "from -1", "of size 4", y);
    expect_refused(fr_narrow(x, 1, 1, INT64_MAX, &y), FR_EINVAL, "narrow", "of size 4", y);
    expect_refused(fr_slice(x, -5, 0, 1, 1, &y), FR_EINVAL, "dimension -5", "rank 4", y);
    expect_refused(fr_slice(x, 0, 0, 1, 0, &y), FR_EINVAL, "step is 0", ">= 1", y);
    expect_refused(fr_permute(x, (const int[]){0, 1, 2, 4}, &y), FR_EINVAL, "dimension 4", "rank 4", y);
    expect_refused(fr_permute(x, (const int[]){0, 1, 2, -2}, &y), FR_EINVAL, "dimension 2", "twice", y);
    expect_refused(fr_pixel_shuffle(rows, 2, &y), FR_ESHAPE, "pixel_shuffle", "rank 4", y);
    expect_refused(fr_pixel_shuffle(x, 2, &y), FR_ESHAPE, "3 channels", "multiple of 4", y);
    expect_refused(fr_pixel_shuffle(x, 0, &y), FR_EINVAL, "factor is 0", "1..1024", y);
    expect_refused(fr_pixel_unshuffle(x, 4, &y), FR_ESHAPE, "4 x 6", "factor of 4", y);
    fr_tensor_release(&x);
    fr_tensor_release(&rows);
    expect_nothing_left();
}
