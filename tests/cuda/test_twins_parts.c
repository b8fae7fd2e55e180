/* test_twins_parts.c - batch norms that read the parts of a concatenation: CUDA's against the CPU's, and against the
 * bits of the joined tensor. */
#include "cuda/kernels.h"
#include "cuda/twin.h"

TestSuite(twins_parts, .init = twin_begin, .timeout = 300);

enum { PARTS = 3 };

/* The parts on the running side; the first has a gradient already, the second wants none. */
static fri_batchnorm2d_desc *of_parts(fri_batchnorm2d_desc *d, fri_batchnorm2d_part list[PARTS], const int64_t c[PARTS],
                                      const buf *x, const buf *dx) {
    for (int i = 0; i < PARTS; i++)
        list[i] = (fri_batchnorm2d_part){.c = c[i], .x = p(&x[i]), .dx = i == 1 ? NULL : p(&dx[i]), .adds = i == 0};
    d->part = list;
    return d;
}

/* Copies channels of a joined array to a part, on a side in host memory. */
static void split(const buf *joined, int side, int64_t rows, int64_t c, int64_t first, int64_t width, buf *part) {
    const size_t size = joined->bytes / (size_t)(rows * c);
    for (int64_t r = 0; r < rows && !(side == 1 && on_gpu); r++)
        memcpy(part->data[side] + (size_t)(r * width) * size, joined->data[side] + (size_t)(r * c + first) * size,
               (size_t)width * size);
}

/* Results of the norm on both sides, compared with each other; the device's are kept. */
typedef struct results {
    buf vector[4]; /* mean, invstd, dgamma, dbeta */
    buf y;
    char *kept[5];
} results;

static void keep(results *r, int i, const buf *b) {
    cr_assert_not_null(r->kept[i] = malloc(b->bytes));
    if (!on_gpu) memcpy(r->kept[i], b->data[1], b->bytes);
}

/* x, whole or the first part, and dx, whole or NULL. */
static void run(results *r, fri_batchnorm2d_desc *d, const int64_t *widths, const buf *x, buf *dx, const buf *dy,
                const buf *gamma, const buf *beta) {
    const buf none = {0};
    buf *v = r->vector;
    const bool joined = widths == NULL;
    fri_batchnorm2d_part list[PARTS];
#define DESC (joined ? d : of_parts(d, list, widths, x, dx))
    BOTH(k->batchnorm2d_stats(ex(), DESC, p(x), p(&v[0]), p(&v[1]), p(&none), p(&none)));
    for (int i = 0; i < 2; i++) {
        expect_same(i == 0 ? "mean" : "invstd", &v[i], 1e-5);
        keep(r, i, &v[i]);
        copy_in(&v[i]);
    }
    BOTH(k->batchnorm2d_apply(ex(), DESC, p(x), p(&v[0]), p(&v[1]), p(gamma), p(beta), NULL, FRI_ACTIVATION_RELU,
                              p(&r->y)));
    expect_same("apply", &r->y, 0);
    keep(r, 4, &r->y);
    BOTH(k->batchnorm2d_backward(ex(), DESC, true, p(x), p(&v[0]), p(&v[1]), p(gamma), p(beta), FRI_ACTIVATION_RELU,
                                 p(dy), joined ? p(dx) : NULL, p(&v[2]), p(&v[3])));
    for (int i = 2; i < 4; i++) {
        expect_same(i == 2 ? "dgamma" : "dbeta", &v[i], 1e-5);
        keep(r, i, &v[i]);
    }
#undef DESC
}

static results results_of(fr_dtype t, int64_t rows, int64_t c) {
    results r = {.y = blank(t, rows * c, 0)};
    for (int i = 0; i < 4; i++) r.vector[i] = blank(FR_F32, c, 0);
    return r;
}

static void results_drop(results *r) {
    for (int i = 0; i < 5; i++) free(r->kept[i]);
    for (int i = 0; i < 4; i++) drop(&r->vector[i]);
    drop(&r->y);
}

Test(twins_parts, batchnorm2d_of_parts_has_the_bits_of_the_joined_tensor) {
    static const struct {
        int64_t rows, c[PARTS];
    } shapes[] = {{7, {8, 16, 8}}, {333, {64, 8, 32}}, {3000, {8, 8, 24}}, {20, {512, 32, 32}}};
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
        const fr_dtype t = floats[i % 3];
        const int64_t rows = shapes[i / 3].rows, *w = shapes[i / 3].c, c = w[0] + w[1] + w[2];
        fri_batchnorm2d_desc d = {.dtype = t, .rows = rows, .c = c, .eps = 1e-5, .momentum = 0.1};
        buf x = numbers_between(t, rows * c, 0, 3, 5, false), dy = numbers(t, rows * c, 0);
        buf dx = blank(t, rows * c, 0), gamma = numbers(FR_F32, c, 0), beta = numbers(FR_F32, c, 0);
        buf part[PARTS], grad[PARTS], slice = blank(t, rows * w[2], 0);
        results whole = results_of(t, rows, c), parts = results_of(t, rows, c);
        int64_t first = 0;
        for (int k = 0; k < PARTS; first += w[k++]) {
            part[k] = blank(t, rows * w[k], 0);
            grad[k] = k == 0 ? numbers(t, rows * w[k], 0) : blank(t, rows * w[k], 0);
            split(&x, 0, rows, c, first, w[k], &part[k]);
            copy_in(&part[k]);
        }
        run(&whole, &d, NULL, &x, &dx, &dy, &gamma, &beta);
        run(&parts, &d, w, part, grad, &dy, &gamma, &beta);
        for (int k = 0; k < 5 && !on_gpu; k++)
            cr_expect_eq(memcmp(whole.kept[k], parts.kept[k], k < 4 ? whole.vector[k].bytes : whole.y.bytes), 0,
                         "result %d of %d x %d", k, (int)rows, (int)c);
        expect_same("a gradient that is added", &grad[0], 2 * rounding(t));
        expect_same("a gradient", &grad[2], 2 * rounding(t));
        split(&dx, 1, rows, c, w[0] + w[1], w[2], &slice);
        if (!on_gpu) cr_expect_eq(memcmp(slice.data[1], grad[2].data[1], slice.bytes), 0, "gradient");
        results_drop(&whole), results_drop(&parts);
        drop(&x), drop(&dy), drop(&dx), drop(&gamma), drop(&beta), drop(&slice);
        for (int k = 0; k < PARTS; k++) drop(&part[k]);
        for (int k = 0; k < PARTS; k++) drop(&grad[k]);
    }
}

Test(twins_parts, packs_lie_in_a_part) {
    static const struct {
        fr_dtype t;
        int64_t granule;
        bool reads;
    } rows[] = {{FR_F16, 8, true},   {FR_F16, 32, true}, {FR_F16, 4, false}, {FR_BF16, 8, true},
                {FR_BF16, 1, false}, {FR_F32, 4, true},  {FR_F32, 2, false}, {FR_F32, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(fri_cuda_batchnorm2d_reads_parts(rows[i].t, rows[i].granule), rows[i].reads, "%zu", i);
}
