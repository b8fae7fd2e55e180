/* vgg_step.c - a whole training step of VGG-16 against its convolutions alone.
 *
 *     build/benchmarks/vgg_step [batch] [rounds]          (64 images of 32 x 32, 7 rounds)
 *
 * One run measures both in turn: the step (forward, loss, backward, SGD) of VGG-16 without and with batch norm, and the
 * thirteen convolutions' three passes as plain oneDNN primitives with weights already in the library's layout. GFLOP/s
 * count the convolutions' multiply-adds twice (three passes; the first layer has no input gradient). Medians; the share
 * is of medians. Before any time is taken, each convolution's result through frugal is compared with the plain
 * primitive's. */
#include "cpu/dnnl.h"
#include "tensor/tensor.h"

#include <frugal/frugal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CONVS = 13, MAX_ROUNDS = 99 };

static const struct {
    int64_t size, in, out;
} layers[CONVS] = {{32, 3, 64},   {32, 64, 64},  {16, 64, 128}, {16, 128, 128}, {8, 128, 256},
                   {8, 256, 256}, {8, 256, 256}, {4, 256, 512}, {4, 512, 512},  {4, 512, 512},
                   {2, 512, 512}, {2, 512, 512}, {2, 512, 512}};

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "vgg_step: %s: %s\n", what, fr_last_error());
    exit(1);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* ---- convolutions alone --------------------------------------------------------------------------------------- */

typedef struct conv {
    fri_conv2d_desc d;
    fr_tensor *x, *w, *y, *dx, *dw;
    const fri_dnnl_op *op[3];
    void *packed[3], *scratch[3];
} conv;

static double gflop(const conv *c) {
    double pass = 2e-9 * (double)(c->d.n * c->d.p * c->d.q * c->d.k * c->d.r * c->d.s * c->d.c);
    return pass * (c->d.c == 3 ? 2 : 3);
}

static void *scratch_of(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p == NULL) must(FR_ENOMEM, "scratch");
    return p;
}

static void conv_make(conv *c, int i, int64_t batch) {
    int64_t s = layers[i].size;
    c->d = (fri_conv2d_desc){.dtype = FR_F32,
                             .bias_dtype = FR_F32,
                             .n = batch,
                             .h = s,
                             .w = s,
                             .c = layers[i].in,
                             .k = layers[i].out,
                             .r = 3,
                             .s = 3,
                             .p = s,
                             .q = s,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = 1,
                             .pad_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1,
                             .workspace_limit = SIZE_MAX};
    int64_t x[] = {batch, s, s, c->d.c}, y[] = {batch, s, s, c->d.k}, w[] = {c->d.k, 3, 3, c->d.c};
    must(fr_tensor_normal(4, x, 0, 1, FR_F32, FR_CPU, &c->x), "x");
    must(fr_tensor_normal(4, w, 0, 0.05, FR_F32, FR_CPU, &c->w), "w");
    must(fr_tensor_normal(4, y, 0, 1, FR_F32, FR_CPU, &c->y), "y");
    must(fr_tensor_empty(4, x, FR_F32, FR_CPU, &c->dx), "dx");
    must(fr_tensor_empty(4, w, FR_F32, FR_CPU, &c->dw), "dw");
    for (int pass = 0; pass < 3; pass++) {
        must(fri_dnnl()->conv2d(&c->d, (fri_pass)pass, &c->op[pass]), "primitive");
        if (c->op[pass] == NULL) must(FR_EUNSUPPORTED, "the library has no optimized convolution here");
        c->packed[pass] = scratch_of(c->op[pass]->packed_bytes + fri_nbytes(c->w));
        c->scratch[pass] = scratch_of(c->op[pass]->scratch_bytes);
        if (c->op[pass]->packed_bytes > 0 && pass < 2)
            must(fri_dnnl()->pack(c->op[pass], fri_data(c->w), c->packed[pass], c->scratch[pass]), "pack");
    }
}

static void conv_release(conv *c) {
    fr_tensor_release(&c->x);
    fr_tensor_release(&c->w);
    fr_tensor_release(&c->y);
    fr_tensor_release(&c->dx);
    fr_tensor_release(&c->dw);
    for (int pass = 0; pass < 3; pass++) {
        free(c->packed[pass]);
        free(c->scratch[pass]);
    }
}

static const void *weights(const conv *c, int pass) {
    return c->op[pass]->packed_bytes > 0 ? c->packed[pass] : fri_data(c->w);
}

static void conv_forward(conv *c, const float *bias) {
    must(fri_dnnl()->run(c->op[0], fri_data(c->x), weights(c, 0), bias, fri_data(c->y), c->scratch[0]), "forward");
}

static void conv_backward(conv *c) {
    if (c->d.c != 3)
        must(fri_dnnl()->run(c->op[1], fri_data(c->y), weights(c, 1), NULL, fri_data(c->dx), c->scratch[1]),
             "backward");
    void *dw = c->op[2]->packed_bytes > 0 ? c->packed[2] : fri_data(c->dw);
    must(fri_dnnl()->run(c->op[2], fri_data(c->x), fri_data(c->y), NULL, dw, c->scratch[2]), "backward");
}

/* Compares with the forward through fr_conv2d: the largest difference relative to the largest value. */
static void check(conv *c, const float *bias) {
    fr_tensor *y = NULL;
    double worst = 0, largest = 0;
    bool was = fr_no_grad_begin();
    must(fr_conv2d(c->x, c->w, NULL, FR_CONV2D_OPTS(.padding = 1), &y), "conv2d");
    fr_no_grad_end(was);
    conv_forward(c, bias);
    const float *a = fr_tensor_data(y), *b = fr_tensor_data(c->y);
    for (int64_t i = 0; i < fr_tensor_numel(y); i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    if (!(worst <= 1e-4 * largest)) {
        fprintf(stderr, "vgg_step: convolution %lld -> %lld differs from the primitive by %g of %g\n",
                (long long)c->d.c, (long long)c->d.k, worst, largest);
        exit(1);
    }
    fr_tensor_release(&y);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

typedef struct trainee {
    fr_module *m;
    fr_optimizer *o;
    fr_tensor *x, *target;
} trainee;

static void trainee_make(trainee *t, bool batch_norm, int64_t batch) {
    must(fr_vgg(16, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .batch_norm = batch_norm), &t->m), "model");
    must(fr_sgd(t->m, FR_SGD_OPTS(.lr = 1e-3, .momentum = 0.9, .weight_decay = 5e-4), &t->o), "optimizer");
    must(fr_tensor_normal(4, (int64_t[]){batch, 32, 32, 3}, 0, 1, FR_F32, FR_CPU, &t->x), "x");
    must(fr_tensor_full(1, &batch, 3, FR_I64, FR_CPU, &t->target), "target");
}

static void step(trainee *t) {
    fr_tensor *y = NULL, *loss = NULL;
    must(fr_module_forward(t->m, t->x, &y), "forward");
    must(fr_cross_entropy(y, t->target, NULL, &loss), "loss");
    fr_tensor_release(&y);
    must(fr_backward(loss, NULL), "backward");
    must(fr_optimizer_step(t->o), "step");
    fr_optimizer_zero_grad(t->o);
    fr_tensor_release(&loss);
}

static void trainee_release(trainee *t) {
    fr_optimizer_release(&t->o);
    fr_module_release(&t->m);
    fr_tensor_release(&t->x);
    fr_tensor_release(&t->target);
}

int main(int argc, char **argv) {
    int64_t batch = argc > 1 ? atoll(argv[1]) : 64;
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    static float bias[512];
    static double plain[MAX_ROUNDS], normed[MAX_ROUNDS], alone[MAX_ROUNDS];
    char library[128];
    conv c[CONVS] = {0};
    trainee t[2] = {0};
    double work = 0;
    if (batch < 1 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "vgg_step: batch %lld must be >= 1, rounds %d in 1..%d\n", (long long)batch, rounds,
                MAX_ROUNDS);
        return 2;
    }
    fr_seed(1);
    for (int i = 0; i < CONVS; i++) {
        conv_make(&c[i], i, batch);
        check(&c[i], bias);
        work += gflop(&c[i]);
    }
    for (int k = 0; k < 2; k++) trainee_make(&t[k], k == 1, batch);
    for (int r = -1; r < rounds; r++) { /* round -1 warms up */
        double t0 = milliseconds();
        step(&t[0]);
        double t1 = milliseconds();
        for (int i = 0; i < CONVS; i++) conv_forward(&c[i], bias);
        for (int i = CONVS - 1; i >= 0; i--) conv_backward(&c[i]);
        double t2 = milliseconds();
        step(&t[1]);
        double t3 = milliseconds();
        if (r < 0) continue;
        plain[r] = t1 - t0;
        alone[r] = t2 - t1;
        normed[r] = t3 - t2;
    }
    fri_dnnl()->version(library, sizeof library);
    double a = median(alone, rounds), p = median(plain, rounds), n = median(normed, rounds);
    printf("VGG-16, %lld x 32 x 32, f32, %d threads, %s, median of %d rounds\n", (long long)batch, fr_threads_get(),
           library, rounds);
    printf("  convolutions alone   %8.1f ms  %7.1f GFLOP/s\n", a, work / a * 1e3);
    printf("  step                 %8.1f ms  %7.1f GFLOP/s  %5.1f %% of the convolutions alone\n", p, work / p * 1e3,
           100 * a / p);
    printf("  step, batch norm     %8.1f ms  %7.1f GFLOP/s  %5.1f %%\n", n, work / n * 1e3, 100 * a / n);
    for (int k = 0; k < 2; k++) trainee_release(&t[k]);
    for (int i = 0; i < CONVS; i++) conv_release(&c[i]);
    return 0;
}
