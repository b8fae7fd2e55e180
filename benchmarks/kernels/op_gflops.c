/* op_gflops.c - every convolution and matrix product of VGG-16 and ResNet-50, MobileNetV2's convolutions of 1 x 1 on
 * maps from 14 pixels on, DenseNet-121's, and U-Net's, as a step calls them: weights in KRSC, packing and widening
 * included.
 *
 *     build/benchmarks/op_gflops [f32|bf16|f16] [rounds] [layer]          (f32, 5 rounds, all layers)
 *     build/benchmarks/op_gflops exact [rounds] [batch]                   (5 rounds, each layer's own batch)
 *
 * `exact` runs all f32 layers of 3 x 3 with stride 1 beside themselves under --exact-convolutions, and says how the
 * times compare: their median, and which are above 1.02. GFLOP/s count the direct sum's operations. ways.c compares
 * with another library. */
#include "backend/backend.h"
#include "cpu/conv2d_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 99 };

/* A convolution, or with size 0 a linear layer of c inputs and k outputs. */
static const struct {
    const char *name;
    int64_t n, size, c, k, kernel, stride;
    int count; /* in the network */
} layers[] = {
    {"VGG-16 32px", 64, 32, 3, 64, 3, 1, 1},       {"VGG-16 32px", 64, 32, 64, 64, 3, 1, 1},
    {"VGG-16 32px", 64, 16, 64, 128, 3, 1, 1},     {"VGG-16 32px", 64, 16, 128, 128, 3, 1, 1},
    {"VGG-16 32px", 64, 8, 128, 256, 3, 1, 1},     {"VGG-16 32px", 64, 8, 256, 256, 3, 1, 2},
    {"VGG-16 32px", 64, 4, 256, 512, 3, 1, 1},     {"VGG-16 32px", 64, 4, 512, 512, 3, 1, 2},
    {"VGG-16 32px", 64, 2, 512, 512, 3, 1, 3},     {"VGG-16 224px", 8, 224, 64, 64, 3, 1, 1},
    {"VGG-16 224px", 8, 112, 128, 128, 3, 1, 1},   {"VGG-16 224px", 8, 56, 256, 256, 3, 1, 2},
    {"VGG-16 224px", 8, 28, 512, 512, 3, 1, 2},    {"VGG-16 224px", 8, 14, 512, 512, 3, 1, 3},
    {"VGG-16 224px", 64, 0, 25088, 4096, 1, 1, 1}, {"VGG-16 224px", 64, 0, 4096, 4096, 1, 1, 1},
    {"ResNet-50", 8, 224, 3, 64, 7, 2, 1},         {"ResNet-50", 8, 56, 64, 64, 1, 1, 1},
    {"ResNet-50", 8, 56, 64, 64, 3, 1, 3},         {"ResNet-50", 8, 56, 64, 256, 1, 1, 4},
    {"ResNet-50", 8, 56, 256, 64, 1, 1, 2},        {"ResNet-50", 8, 56, 256, 128, 1, 1, 1},
    {"ResNet-50", 8, 56, 128, 128, 3, 2, 1},       {"ResNet-50", 8, 56, 256, 512, 1, 2, 1},
    {"ResNet-50", 8, 28, 128, 128, 3, 1, 3},       {"ResNet-50", 8, 28, 128, 512, 1, 1, 4},
    {"ResNet-50", 8, 28, 512, 128, 1, 1, 3},       {"ResNet-50", 8, 28, 512, 256, 1, 1, 1},
    {"ResNet-50", 8, 28, 256, 256, 3, 2, 1},       {"ResNet-50", 8, 28, 512, 1024, 1, 2, 1},
    {"ResNet-50", 8, 14, 256, 256, 3, 1, 5},       {"ResNet-50", 8, 14, 256, 1024, 1, 1, 6},
    {"ResNet-50", 8, 14, 1024, 256, 1, 1, 5},      {"ResNet-50", 8, 14, 1024, 512, 1, 1, 1},
    {"ResNet-50", 8, 14, 512, 512, 3, 2, 1},       {"ResNet-50", 8, 14, 1024, 2048, 1, 2, 1},
    {"ResNet-50", 8, 7, 512, 512, 3, 1, 2},        {"ResNet-50", 8, 7, 512, 2048, 1, 1, 3},
    {"ResNet-50", 8, 7, 2048, 512, 1, 1, 2},       {"MobileNetV2", 32, 112, 32, 16, 1, 1, 1},
    {"MobileNetV2", 32, 112, 16, 96, 1, 1, 1},     {"MobileNetV2", 32, 56, 96, 24, 1, 1, 1},
    {"MobileNetV2", 32, 56, 24, 144, 1, 1, 2},     {"MobileNetV2", 32, 56, 144, 24, 1, 1, 1},
    {"MobileNetV2", 32, 28, 144, 32, 1, 1, 1},     {"MobileNetV2", 32, 28, 32, 192, 1, 1, 3},
    {"MobileNetV2", 32, 28, 192, 32, 1, 1, 2},     {"MobileNetV2", 32, 14, 192, 64, 1, 1, 1},
    {"MobileNetV2", 32, 14, 64, 384, 1, 1, 4},     {"MobileNetV2", 32, 14, 384, 64, 1, 1, 3},
    {"MobileNetV2", 32, 14, 384, 96, 1, 1, 1},     {"MobileNetV2", 32, 14, 96, 576, 1, 1, 3},
    {"MobileNetV2", 32, 14, 576, 96, 1, 1, 2},     {"DenseNet-121", 8, 56, 160, 128, 1, 1, 6},
    {"DenseNet-121", 8, 28, 320, 128, 1, 1, 12},   {"DenseNet-121", 8, 14, 640, 128, 1, 1, 24},
    {"DenseNet-121", 8, 7, 768, 128, 1, 1, 16},    {"DenseNet-121", 8, 56, 128, 32, 3, 1, 6},
    {"DenseNet-121", 8, 28, 128, 32, 3, 1, 12},    {"DenseNet-121", 8, 14, 128, 32, 3, 1, 24},
    {"DenseNet-121", 8, 7, 128, 32, 3, 1, 16},     {"ResNet-18 32px", 64, 8, 64, 64, 3, 1, 4},
    {"ResNet-18 32px", 64, 4, 128, 128, 3, 1, 3},  {"ResNet-18 32px", 64, 2, 256, 256, 3, 1, 3},
    {"ResNet-18 32px", 64, 1, 512, 512, 3, 1, 3},  {"U-Net 64px", 16, 64, 32, 32, 3, 1, 2},
    {"U-Net 64px", 16, 64, 96, 32, 3, 1, 1},       {"U-Net 64px", 16, 32, 32, 64, 3, 1, 1},
    {"U-Net 64px", 16, 32, 64, 64, 3, 1, 2},       {"U-Net 64px", 16, 32, 192, 64, 3, 1, 1},
    {"U-Net 64px", 16, 16, 64, 128, 3, 1, 1},      {"U-Net 64px", 16, 16, 128, 128, 3, 1, 2},
    {"U-Net 64px", 16, 16, 384, 128, 3, 1, 1},     {"U-Net 64px", 16, 8, 128, 256, 3, 1, 1},
    {"U-Net 64px", 16, 8, 256, 256, 3, 1, 2},      {"U-Net 64px", 16, 8, 768, 256, 3, 1, 1},
    {"U-Net 64px", 16, 4, 256, 512, 3, 1, 1},      {"U-Net 64px", 16, 4, 512, 512, 3, 1, 1},
    {"U-Net 224px", 4, 224, 32, 32, 3, 1, 2},      {"U-Net 224px", 4, 224, 96, 32, 3, 1, 1},
    {"U-Net 224px", 4, 112, 64, 64, 3, 1, 2},      {"U-Net 224px", 4, 112, 192, 64, 3, 1, 1},
    {"U-Net 224px", 4, 56, 128, 128, 3, 1, 2},     {"U-Net 224px", 4, 56, 384, 128, 3, 1, 1},
    {"U-Net 224px", 4, 28, 256, 256, 3, 1, 2},     {"U-Net 224px", 4, 28, 768, 256, 3, 1, 1},
    {"U-Net 224px", 4, 14, 512, 512, 3, 1, 1},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };
static const char *const pass_name[] = {"forward", "dx", "dw"};

typedef struct bed {
    fri_conv2d_desc conv;
    fri_linear_desc linear;
    bool is_linear;
    int64_t elements[3]; /* of x, w, y */
    void *x, *w, *y, *dx, *dw;
    fri_exec exec;
} bed;

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "op_gflops: %s: %s\n", what, fr_last_error());
    exit(1);
}

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p == NULL) must(FR_ENOMEM, "room");
    memset(p, 0, bytes);
    return p;
}

static const fri_kernels *kernels(void) {
    return &fri_backend_get(FR_CPU)->kernels;
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* ---- a layer ------------------------------------------------------------------------------------------------- */

static fri_conv2d_desc conv_of(int i, fr_dtype t) {
    int64_t pad = layers[i].kernel / 2, out = (layers[i].size + 2 * pad - layers[i].kernel) / layers[i].stride + 1;
    return (fri_conv2d_desc){.dtype = t,
                             .bias_dtype = FR_F32,
                             .n = layers[i].n,
                             .h = layers[i].size,
                             .w = layers[i].size,
                             .c = layers[i].c,
                             .k = layers[i].k,
                             .r = layers[i].kernel,
                             .s = layers[i].kernel,
                             .p = out,
                             .q = out,
                             .stride_h = layers[i].stride,
                             .stride_w = layers[i].stride,
                             .pad_h = pad,
                             .pad_w = pad,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1,
                             .workspace_limit = (size_t)64 << 20};
}

static double gflop(const bed *b) {
    const fri_conv2d_desc *d = &b->conv;
    if (b->is_linear) return 2e-9 * (double)(b->linear.n * b->linear.in * b->linear.out);
    return 2e-9 * (double)(d->n * d->p * d->q * d->k * d->r * d->s * d->c);
}

/* n uniform numbers of the type. */
static void *numbers(const bed *b, fr_dtype t, int64_t n, uint64_t stream, double scale) {
    void *v = room((size_t)n * fr_dtype_size(t));
    must(kernels()->uniform(&b->exec, t, n, 1, stream, -scale, scale, v), "numbers");
    return v;
}

/* batch: 0 for the layer's own. */
static void bed_make(bed *b, int i, int64_t batch, fr_dtype t) {
    *b = (bed){.is_linear = layers[i].size == 0};
    if (b->is_linear) {
        b->linear = (fri_linear_desc){.dtype = t,
                                      .bias_dtype = FR_F32,
                                      .n = layers[i].n,
                                      .in = layers[i].c,
                                      .out = layers[i].k};
        b->elements[0] = b->linear.n * b->linear.in;
        b->elements[1] = b->linear.in * b->linear.out;
        b->elements[2] = b->linear.n * b->linear.out;
    } else {
        b->conv = conv_of(i, t);
        if (batch > 0) b->conv.n = batch;
        b->elements[0] = b->conv.n * b->conv.h * b->conv.w * b->conv.c;
        b->elements[1] = b->conv.k * b->conv.r * b->conv.s * b->conv.c;
        b->elements[2] = b->conv.n * b->conv.p * b->conv.q * b->conv.k;
    }
    b->x = numbers(b, t, b->elements[0], 1, 1);
    b->w = numbers(b, t, b->elements[1], 2, 0.05);
    b->y = numbers(b, t, b->elements[2], 3, 1);
    b->dx = room((size_t)b->elements[0] * fr_dtype_size(t));
    b->dw = room((size_t)b->elements[1] * fr_dtype_size(t));
}

static void bed_free(bed *b) {
    void *const all[] = {b->x, b->w, b->y, b->dx, b->dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- a pass --------------------------------------------------------------------------------------------- */

static size_t workspace_of(const bed *b, int pass) {
    const fri_kernels *k = kernels();
    fri_linear_workspace_fn *const linear[] = {k->linear_forward_workspace, k->linear_backward_input_workspace,
                                               k->linear_backward_weight_workspace};
    fri_conv2d_workspace_fn *const conv[] = {k->conv2d_forward_workspace, k->conv2d_backward_input_workspace,
                                             k->conv2d_backward_weight_workspace};
    size_t bytes = 0;
    must(b->is_linear ? linear[pass](&b->linear, &bytes) : conv[pass](&b->conv, &bytes), "workspace");
    return bytes;
}

static void run_ours(bed *b, int pass) {
    const fri_kernels *k = kernels();
    const fri_exec *e = &b->exec;
    fr_status s = FR_OK;
    if (b->is_linear)
        s = pass == 0   ? k->linear_forward(e, &b->linear, b->x, b->w, NULL, b->y)
            : pass == 1 ? k->linear_backward_input(e, &b->linear, b->w, b->y, b->dx)
                        : k->linear_backward_weight(e, &b->linear, b->x, b->y, b->dw, NULL);
    else
        s = pass == 0   ? k->conv2d_forward(e, &b->conv, b->x, b->w, NULL, b->y)
            : pass == 1 ? k->conv2d_backward_input(e, &b->conv, b->w, b->y, b->dx)
                        : k->conv2d_backward_weight(e, &b->conv, b->x, b->y, b->dw);
    must(s, "kernel");
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Returns the milliseconds of one turn. */
static double row(int i, int pass, fr_dtype t, int rounds) {
    double ms[MAX_ROUNDS];
    bed b;
    bed_make(&b, i, 0, t);
    b.exec.workspace_bytes = workspace_of(&b, pass);
    b.exec.workspace = room(b.exec.workspace_bytes + 64);
    run_ours(&b, pass);
    for (int r = 0; r < rounds; r++) {
        const double begin = milliseconds();
        run_ours(&b, pass);
        ms[r] = milliseconds() - begin;
    }
    const double mine = median(ms, rounds);
    printf("| %s | %lld x %lld x %lld | %lld, %lld x %lld / %lld | %s | %.2f | %.0f | %s |\n", layers[i].name,
           (long long)layers[i].n, (long long)layers[i].size, (long long)layers[i].c, (long long)layers[i].k,
           (long long)layers[i].kernel, (long long)layers[i].kernel, (long long)layers[i].stride, pass_name[pass], mine,
           gflop(&b) / mine * 1e3, b.is_linear ? "" : fri_cpu_conv2d_impl(&b.conv, pass));
    fflush(stdout);
    free(b.exec.workspace);
    bed_free(&b);
    return mine;
}

/* ---- beside exact convolutions --------------------------------------------------------------------------------- */

typedef struct comparison {
    double ratio[3 * LAYERS];
    int n, above;
} comparison;

/* Time of a turn with a separate workspace. */
static double turn(bed *b, int pass, bool exact, void *const workspace[2], const size_t bytes[2]) {
    fr_exact_convolutions_set(exact);
    b->exec.workspace = workspace[exact], b->exec.workspace_bytes = bytes[exact];
    const double begin = milliseconds();
    run_ours(b, pass);
    return milliseconds() - begin;
}

static void exact_row(int i, int pass, int rounds, int64_t batch, comparison *all) {
    double ms[MAX_ROUNDS], exact[MAX_ROUNDS], ratio[MAX_ROUNDS];
    void *workspace[2];
    size_t bytes[2];
    bed b;
    bed_make(&b, i, batch, FR_F32);
    for (int e = 0; e < 2; e++) {
        fr_exact_convolutions_set(e);
        bytes[e] = workspace_of(&b, pass);
        workspace[e] = room(bytes[e] + 64);
        (void)turn(&b, pass, e, workspace, bytes);
    }
    for (int r = 0; r < rounds; r++) {
        ms[r] = turn(&b, pass, false, workspace, bytes);
        exact[r] = turn(&b, pass, true, workspace, bytes);
        ratio[r] = ms[r] / exact[r];
    }
    fr_exact_convolutions_set(false);
    const double mine = median(ms, rounds), of = median(ratio, rounds);
    printf("| %s | %lld x %lld x %lld | %lld | %s | %.3f | %.0f | %.3f | %.2f | %s |\n", layers[i].name,
           (long long)b.conv.n, (long long)layers[i].size, (long long)layers[i].c, (long long)layers[i].k,
           pass_name[pass], mine, gflop(&b) / mine * 1e3, median(exact, rounds), of,
           fri_cpu_conv2d_impl(&b.conv, pass));
    fflush(stdout);
    all->ratio[all->n++] = of;
    all->above += of > 1.02;
    for (int e = 0; e < 2; e++) free(workspace[e]);
    bed_free(&b);
}

static int beside_exact(int rounds, int64_t batch) {
    comparison all = {.n = 0};
    printf("| network | n x size x c | k | pass | ms | GFLOP/s | exact ms | time over exact | ours |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < LAYERS; i++)
        for (int pass = 0; pass < 3 && layers[i].kernel == 3 && layers[i].stride == 1 && layers[i].c > 3; pass++)
            exact_row(i, pass, rounds, batch, &all);
    printf("\n%d layers and directions: median %.2f, above 1.02: %d\n", all.n, median(all.ratio, all.n), all.above);
    return 0;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "f32";
    const bool exact = strcmp(name, "exact") == 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 5, only = argc > 3 ? atoi(argv[3]) : -1;
    fr_dtype t = exact || strcmp(name, "f32") == 0 ? FR_F32
                 : strcmp(name, "bf16") == 0       ? FR_BF16
                 : strcmp(name, "f16") == 0        ? FR_F16
                                                   : FR_I64;
    if (t == FR_I64 || rounds < 1 || rounds > MAX_ROUNDS || (exact ? argc > 3 && only < 1 : only >= LAYERS)) {
        fprintf(stderr,
                "usage: op_gflops [f32|bf16|f16] [rounds, 1..%d] [layer, 0..%d], or exact [rounds] [batch, from 1]\n",
                MAX_ROUNDS, LAYERS - 1);
        return 2;
    }
    char text[160];
    printf("%s, %s, %d rounds\n\n", name, fri_device_describe(FR_CPU, text, sizeof text), rounds);
    if (exact) return beside_exact(rounds, argc > 3 ? only : 0);
    printf("| network | n x size x c | k, kernel / stride | pass | ms | GFLOP/s | method "
           "|\n|---|---|---|---|---|---|---|\n");
    double sum = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int pass = 0; pass < 3; pass++) {
            if (only >= 0 && i != only) continue;
            if (pass == 1 && layers[i].c == 3) continue; /* no gradient for the images */
            sum += layers[i].count * row(i, pass, t, rounds);
        }
    printf("\nall layers, each as often as it occurs: %.1f ms\n", sum);
    return 0;
}
