/* gpu_first.c - the first two minutes on a GPU: what the device is, three convolutions and a relu against the CPU, and
 * whether what was planned is what is taken, and whether a convolution that was recorded runs again.
 *
 *     build/benchmarks/gpu_first [description.json]       writes the device description that planning elsewhere reads
 *
 * Exit status 77: no device, with the reason. */
#include "backend/backend.h"

#include <frugal/memory.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/conv2d.h"
#include "cuda/cudnn.h"

static int failures;

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "gpu_first: %s: %s\n", what, fr_last_error());
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A tensor on both sides; half data is made on the CPU. */
typedef struct pair {
    void *host, *device;
    size_t bytes;
    int64_t n;
} pair;

static const fri_backend *cpu, *gpu;
static const fri_exec none;

static pair make(fr_dtype t, int64_t n, uint64_t stream) {
    pair p = {.bytes = (size_t)n * fr_dtype_size(t), .n = n};
    must(cpu->segment_alloc(p.bytes, &p.host), "host memory");
    must(gpu->segment_alloc(p.bytes, &p.device), "device memory");
    must(cpu->kernels.uniform(&none, t, n, 1, stream, -1, 1, p.host), "numbers");
    must(gpu->copy(&none, FRI_COPY_HOST_TO_DEVICE, p.host, p.device, p.bytes), "copy");
    return p;
}

static void drop(pair *p) {
    cpu->segment_free(p->host, p->bytes);
    gpu->segment_free(p->device, p->bytes);
}

/* Differences relative to the largest magnitude. */
static void compare(const char *what, fr_dtype t, const pair *p, double tolerance, double ms, double gflop) {
    void *got = malloc(p->bytes);
    float *a = malloc((size_t)p->n * 4), *b = malloc((size_t)p->n * 4);
    double largest = 0, worst = 0;
    if (got == NULL || a == NULL || b == NULL) exit(1);
    must(gpu->copy(&none, FRI_COPY_DEVICE_TO_HOST, p->device, got, p->bytes), what);
    must(cpu->kernels.cast(&none, t, FR_F32, p->n, got, a), what);
    must(cpu->kernels.cast(&none, t, FR_F32, p->n, p->host, b), what);
    for (int64_t i = 0; i < p->n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    bool fine = worst <= tolerance * largest;
    failures += !fine;
    printf("%-34s %-5s %9.3f ms %9.1f GFLOP/s   off by %.1e of %.3g   %s\n", what, fr_dtype_name(t), ms,
           ms > 0 ? gflop / ms * 1e3 : 0, worst, largest, fine ? "ok" : "WRONG");
    free(got);
    free(a);
    free(b);
}

typedef fr_status run_fn(const fri_kernels *k, const fri_exec *e, const fri_conv2d_desc *d, void *x, void *w, void *y);

static fr_status forward(const fri_kernels *k, const fri_exec *e, const fri_conv2d_desc *d, void *x, void *w, void *y) {
    return k->conv2d_forward(e, d, x, w, NULL, y);
}

static fr_status backward_input(const fri_kernels *k, const fri_exec *e, const fri_conv2d_desc *d, void *x, void *w,
                                void *y) {
    return k->conv2d_backward_input(e, d, w, y, x);
}

static fr_status backward_weight(const fri_kernels *k, const fri_exec *e, const fri_conv2d_desc *d, void *x, void *w,
                                 void *y) {
    return k->conv2d_backward_weight(e, d, x, y, w);
}

static const char *const names[] = {"forward", "backward input", "backward weight"};
static run_fn *const passes[] = {forward, backward_input, backward_weight};

static fri_exec scratch_for(const fri_backend *b, const fri_conv2d_desc *d, int pass) {
    fri_conv2d_workspace_fn *const f[] = {b->kernels.conv2d_forward_workspace,
                                          b->kernels.conv2d_backward_input_workspace,
                                          b->kernels.conv2d_backward_weight_workspace};
    fri_exec e = {0};
    must(f[pass](d, &e.workspace_bytes), "workspace");
    if (e.workspace_bytes > 0) must(b->segment_alloc(e.workspace_bytes, &e.workspace), "workspace");
    return e;
}

enum { REPEAT = 20 };

/* Results stay in the output of both sides; the next pass begins with fresh numbers. */
static void convolution(const fri_conv2d_desc *d, int pass, bool exact) {
    const double gflop = 2e-9 * (double)(d->n * d->p * d->q * d->k) * (double)(d->r * d->s * d->c);
    char what[80];
    pair x = make(d->dtype, d->n * d->h * d->w * d->c, 1), w = make(d->dtype, d->k * d->r * d->s * d->c, 2);
    pair y = make(d->dtype, d->n * d->p * d->q * d->k, 3), *out[] = {&y, &x, &w};
    fri_exec ce = scratch_for(cpu, d, pass), ge = scratch_for(gpu, d, pass);
    must(passes[pass](&cpu->kernels, &ce, d, x.host, w.host, y.host), "CPU convolution");
    must(passes[pass](&gpu->kernels, &ge, d, x.device, w.device, y.device), "CUDA convolution");
    must(gpu->synchronize(&none), "CUDA convolution");
    double began = seconds();
    for (int i = 0; i < REPEAT; i++)
        must(passes[pass](&gpu->kernels, &ge, d, x.device, w.device, y.device), "CUDA convolution");
    must(gpu->synchronize(&none), "CUDA convolution");
    double ms = (seconds() - began) * 1e3 / REPEAT;
    snprintf(what, sizeof what, "%dx%d %d->%d /%d %s%s", (int)d->r, (int)d->s, (int)d->c, (int)d->k, (int)d->stride_h,
             names[pass], exact ? ", exact" : "");
    const double tolerance = exact ? 2e-5 : d->dtype == FR_BF16 ? 1.6e-2 : 2e-3;
    compare(what, d->dtype, out[pass], tolerance, ms, gflop);
    if (ge.workspace != NULL) gpu->segment_free(ge.workspace, ge.workspace_bytes);
    if (ce.workspace != NULL) cpu->segment_free(ce.workspace, ce.workspace_bytes);
    drop(&x);
    drop(&w);
    drop(&y);
}

static void relu(fr_dtype t) {
    enum { N = 1 << 24 };
    pair x = make(t, N, 4);
    must(cpu->kernels.relu_forward(&none, t, N, x.host, x.host), "relu");
    must(gpu->kernels.relu_forward(&none, t, N, x.device, x.device), "relu");
    must(gpu->synchronize(&none), "relu");
    double began = seconds();
    for (int i = 0; i < REPEAT; i++) must(gpu->kernels.relu_forward(&none, t, N, x.device, x.device), "relu");
    must(gpu->synchronize(&none), "relu");
    double ms = (seconds() - began) * 1e3 / REPEAT;
    printf("relu: %.0f GB/s\n", 2.0 * (double)x.bytes / ms * 1e-6);
    compare("relu of 16 Mi elements", t, &x, 0, ms, 0);
    drop(&x);
}

static void write_description(const char *path) {
    char *text = NULL;
    must(fri_cudnn_device_json(&text), "device description");
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) {
        fprintf(stderr, "gpu_first: %s cannot be written\n", path);
        exit(1);
    }
    free(text);
}

int main(int argc, char **argv) {
    static const fri_conv2d_desc shapes[] = {
        {.n = 8,
         .h = 56,
         .w = 56,
         .c = 64,
         .k = 64,
         .r = 3,
         .s = 3,
         .stride_h = 1,
         .stride_w = 1,
         .pad_h = 1,
         .pad_w = 1},
        {.n = 8, .h = 28, .w = 28, .c = 512, .k = 128, .r = 1, .s = 1, .stride_h = 1, .stride_w = 1},
        {.n = 4,
         .h = 224,
         .w = 224,
         .c = 3,
         .k = 64,
         .r = 7,
         .s = 7,
         .stride_h = 2,
         .stride_w = 2,
         .pad_h = 3,
         .pad_w = 3},
    };
    static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};
    char text[320];
    size_t left, total;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!fr_device_available(FR_CUDA)) {
        printf("gpu_first: skipped: %s\n", fr_device_reason(FR_CUDA));
        return 77;
    }
    cpu = fri_backend_get(FR_CPU);
    gpu = fri_backend_get(FR_CUDA);
    gpu->describe(text, sizeof text);
    gpu->memory_info(&left, &total);
    printf("%s; %.1f of %.1f GiB in use before the first tensor\n", text, (double)(total - left) / (1 << 30),
           (double)total / (1 << 30));
    if (argc > 1) write_description(argv[1]);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 3; i++) {
            fri_conv2d_desc d = shapes[i];
            d.dtype = d.bias_dtype = types[t];
            d.dilation_h = d.dilation_w = d.groups = 1;
            d.p = (d.h + 2 * d.pad_h - d.r) / d.stride_h + 1;
            d.q = (d.w + 2 * d.pad_w - d.s) / d.stride_w + 1;
            /* Tensor cores round f32 factors to TF32's 10 bits, unless exact convolutions are asked for. */
            for (int exact = 0; exact < (d.dtype == FR_F32 ? 2 : 1); exact++) {
                fr_exact_convolutions_set(exact);
                for (int pass = 0; pass < 3; pass++) convolution(&d, pass, exact);
            }
            fr_exact_convolutions_set(false);
        }
        relu(types[t]);
    }
    printf("%d wrong\n", failures);
    return failures > 0;
}
