/* test_batchnorm_sync.c - a batch cut among several threads, each of which normalizes its part by the statistics of
 * all: results, gradients and running values equal those of the whole batch. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "autograd/state.h"
#include "backend/kernels.h"
#include "support/golden.h"

enum { PARTS_MOST = 4, C = 6, SIDE = 3, NUMBERS = 2 * C + 1 };

typedef fr_status norm_fn(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *mean, fr_tensor *var,
                          fr_tensor **y);

static fr_status plain(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *mean, fr_tensor *var,
                       fr_tensor **y) {
    return fr_batchnorm2d(x, gamma, beta, mean, var, NULL, y);
}

static fr_status in_place(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *mean, fr_tensor *var,
                          fr_tensor **y) {
    fr_tensor *copy = NULL;
    fr_status s = fr_scale(x, 1, &copy); /* the op writes over its input, which must be no leaf */
    if (s == FR_OK) s = fr_inplace_abn(copy, gamma, beta, mean, var, NULL, 0.1, y);
    fr_tensor_release(&copy);
    return s;
}

/* ---- threads in place of ranks ---------------------------------------------------------------------------------- */

static struct meeting {
    pthread_barrier_t barrier;
    int ranks;
    double mine[PARTS_MOST][NUMBERS], all[PARTS_MOST * NUMBERS];
    int gathers;
} meet;

static double *room(void *ctx, int64_t n) {
    cr_assert_eq(n, NUMBERS);
    return meet.mine[(size_t)(uintptr_t)ctx];
}

static fr_status gather(void *ctx, int64_t n, const double **all) {
    pthread_barrier_wait(&meet.barrier);
    if (ctx == NULL) {
        for (int r = 0; r < meet.ranks; r++) memcpy(meet.all + r * n, meet.mine[r], (size_t)n * sizeof *meet.all);
        meet.gathers++;
    }
    pthread_barrier_wait(&meet.barrier);
    *all = meet.all;
    return FR_OK;
}

typedef struct part {
    norm_fn *norm;
    fr_dtype dtype;
    int rank, first, images;
    bool sync;
    double y[64 * C * SIDE * SIDE], dx[64 * C * SIDE * SIDE], dgamma[C], dbeta[C], mean[C], var[C];
} part;

static void to_doubles(const fr_tensor *t, double *out) {
    const int64_t n = fr_tensor_numel(t);
    if (fr_tensor_dtype(t) == FR_F64) {
        must(fr_tensor_to_host(t, out));
        return;
    }
    float host[64 * C * SIDE * SIDE];
    must(fr_tensor_to_host(t, host));
    for (int64_t i = 0; i < n; i++) out[i] = (double)host[i];
}

/* Numbers that belong to an element of the whole batch, of either type. */
static fr_tensor *make(fr_dtype dtype, int rank, const int64_t *dim, int first, double scale, double offset) {
    double d[64 * C * SIDE * SIDE];
    float f[64 * C * SIDE * SIDE];
    fr_tensor *t = NULL;
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dim[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i + (int64_t)first * C * SIDE * SIDE;
        d[i] = offset + scale * sin(1.7 * (double)at + (double)(at % C));
        f[i] = (float)d[i];
    }
    must(fr_tensor_from_host(dtype == FR_F64 ? (const void *)d : f, rank, dim, dtype, FR_CPU, &t));
    return t;
}

/* Forward and backward of images [first, first + images) of the batch. */
static void *run(void *argument) {
    part *p = argument;
    const fri_statistics_sync sync = {meet.ranks, room, gather, (void *)(uintptr_t)p->rank};
    const int64_t shape[] = {p->images, SIDE, SIDE, C}, vector[] = {C};
    fr_tensor *x = make(p->dtype, 4, shape, p->first, 2, 3), *dy = make(p->dtype, 4, shape, p->first + 7, 1, 0.2);
    fr_tensor *gamma = make(p->dtype, 1, vector, 0, 0.3, 1.2), *beta = make(p->dtype, 1, vector, 1, 0.5, 0);
    fr_tensor *mean = make(p->dtype, 1, vector, 2, 0.1, 0), *var = make(p->dtype, 1, vector, 3, 0.1, 1), *y = NULL;
    fr_tensor_set_requires_grad(x, true);
    fr_tensor_set_requires_grad(gamma, true);
    fr_tensor_set_requires_grad(beta, true);
    if (p->sync) fri_statistics_sync_set(&sync);
    must(p->norm(x, gamma, beta, mean, var, &y));
    to_doubles(y, p->y);
    must(fr_backward(y, dy));
    fri_statistics_sync_set(NULL);
    to_doubles(fr_tensor_get_grad(x), p->dx);
    to_doubles(fr_tensor_get_grad(gamma), p->dgamma);
    to_doubles(fr_tensor_get_grad(beta), p->dbeta);
    to_doubles(mean, p->mean);
    to_doubles(var, p->var);
    fr_tensor *all[] = {x, dy, gamma, beta, mean, var, y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) fr_tensor_release(&all[i]);
    return NULL;
}

static void expect_near(const double *a, const double *b, int n, double tolerance, const char *what) {
    for (int i = 0; i < n; i++)
        cr_expect(fabs(a[i] - b[i]) <= tolerance * (1 + fabs(a[i])), "%s [%d]: %.9g, of the whole batch %.9g", what, i,
                  b[i], a[i]);
}

/* Parts of the given sizes against the whole. */
static void compare(norm_fn *norm, fr_dtype dtype, int parts, const int *images) {
    static part whole, one[PARTS_MOST];
    const double tolerance = dtype == FR_F64 ? 1e-12 : 2e-5;
    pthread_t thread[PARTS_MOST];
    double dgamma[C] = {0}, dbeta[C] = {0};
    whole = (part){.norm = norm, .dtype = dtype};
    meet.ranks = parts;
    pthread_barrier_init(&meet.barrier, NULL, (unsigned)parts);
    for (int r = 0; r < parts; r++) {
        one[r] = (part){norm, dtype, r, whole.images, images[r], true};
        whole.images += images[r];
    }
    meet.gathers = 0;
    for (int r = 0; r < parts; r++) cr_assert_eq(pthread_create(&thread[r], NULL, run, &one[r]), 0);
    for (int r = 0; r < parts; r++) pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&meet.barrier);
    cr_expect_eq(meet.gathers, 2, "%d exchanges, one forward and one backward", meet.gathers);
    run(&whole);
    for (int r = 0; r < parts; r++) {
        const int from = one[r].first * C * SIDE * SIDE, n = images[r] * C * SIDE * SIDE;
        expect_near(whole.y + from, one[r].y, n, tolerance, "y");
        expect_near(whole.dx + from, one[r].dx, n, tolerance, "dx");
        expect_near(whole.mean, one[r].mean, C, tolerance, "running mean");
        expect_near(whole.var, one[r].var, C, tolerance, "running variance");
        cr_expect_arr_eq(one[r].mean, one[0].mean, sizeof one[r].mean, "running means differ between ranks");
        cr_expect_arr_eq(one[r].var, one[0].var, sizeof one[r].var, "running variances differ between ranks");
        for (int c = 0; c < C; c++) {
            dgamma[c] += one[r].dgamma[c];
            dbeta[c] += one[r].dbeta[c];
        }
    }
    expect_near(whole.dgamma, dgamma, C, 20 * tolerance, "sum of dgamma");
    expect_near(whole.dbeta, dbeta, C, 20 * tolerance, "sum of dbeta");
}

Test(batchnorm_sync, parts_make_the_whole) {
    static const int even[] = {4, 4}, uneven[] = {1, 5, 2}, four[] = {2, 2, 2, 2}, alone[] = {3};
    norm_fn *const norms[] = {plain, in_place};
    for (int i = 0; i < 2; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            const fr_dtype dtype = f64 ? FR_F64 : FR_F32;
            compare(norms[i], dtype, 2, even);
            compare(norms[i], dtype, 3, uneven);
            compare(norms[i], dtype, 4, four);
            compare(norms[i], dtype, 1, alone);
        }
}

/* A pixel of an image on each rank, which alone has no variance. */
Test(batchnorm_sync, one_value_per_channel_and_rank) {
    fr_tensor *x = make(FR_F32, 4, (int64_t[]){1, 1, 1, C}, 0, 1, 0), *y = NULL;
    meet.ranks = 1;
    pthread_barrier_init(&meet.barrier, NULL, 1);
    cr_expect_eq(fr_batchnorm2d(x, NULL, NULL, NULL, NULL, NULL, &y), FR_EINVAL);
    const fri_statistics_sync sync = {1, room, gather, NULL};
    fri_statistics_sync_set(&sync);
    must(fr_batchnorm2d(x, NULL, NULL, NULL, NULL, NULL, &y));
    /* Evaluation needs no other rank. */
    meet.gathers = 0;
    fr_tensor *mean = make(FR_F32, 1, (int64_t[]){C}, 0, 1, 0), *var = make(FR_F32, 1, (int64_t[]){C}, 0, 0.1, 1);
    must(fr_batchnorm2d(x, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = false), &y));
    cr_expect_eq(meet.gathers, 0);
    fri_statistics_sync_set(NULL);
    fr_tensor *all[] = {x, y, mean, var};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) fr_tensor_release(&all[i]);
}
