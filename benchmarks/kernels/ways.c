/* ways.c - convolutions of ResNet-50, MobileNetV2, DenseNet-121, ResNeXt-50 and RegNetY-400MF by our kernels beside
 * oneDNN's, where oneDNN is installed. Only this program calls oneDNN, as a peer.
 *
 *     taskset -c 0 build/benchmarks/ways [rounds] [network]          (7 rounds; R50, MBV2, D121, RX50, RY4)
 *
 * A row is a layer and pass: milliseconds (processor time, one thread, least of the rounds) and GFLOP/s of the method
 * of a training step, of the product over pointers, and of oneDNN (weights in a layout of oneDNN, converted from and to
 * KRSC in each turn, as in a step). All run in turn. The last lines weight each layer by the layer's number in the
 * network. Results are compared before times are taken. Groups have no peer. The first line has the core's peak, by
 * independent multiply-adds. */
#include "backend/backend.h"
#include "cpu/conv2d_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROUNDS = 99, OURS = 0, PRODUCT = 1, PEER = 2, WAYS = 3 };

static const struct {
    const char *network;
    int64_t n, size, c, k, kernel, stride;
    int count;      /* in the network */
    int64_t groups; /* 0: 1 */
} layers[] = {
    {"R50", 8, 224, 3, 64, 7, 2, 1},        {"R50", 8, 56, 64, 64, 1, 1, 1},
    {"R50", 8, 56, 64, 256, 1, 1, 4},       {"R50", 8, 56, 256, 64, 1, 1, 2},
    {"R50", 8, 56, 256, 128, 1, 1, 1},      {"R50", 8, 56, 128, 128, 3, 2, 1},
    {"R50", 8, 56, 256, 512, 1, 2, 1},      {"R50", 8, 28, 128, 512, 1, 1, 4},
    {"R50", 8, 28, 512, 128, 1, 1, 3},      {"R50", 8, 28, 512, 256, 1, 1, 1},
    {"R50", 8, 28, 256, 256, 3, 2, 1},      {"R50", 8, 28, 512, 1024, 1, 2, 1},
    {"R50", 8, 14, 256, 1024, 1, 1, 6},     {"R50", 8, 14, 1024, 256, 1, 1, 5},
    {"R50", 8, 14, 1024, 512, 1, 1, 1},     {"R50", 8, 14, 512, 512, 3, 2, 1},
    {"R50", 8, 14, 1024, 2048, 1, 2, 1},    {"R50", 8, 7, 512, 2048, 1, 1, 3},
    {"R50", 8, 7, 2048, 512, 1, 1, 2},      {"MBV2", 32, 56, 96, 24, 1, 1, 1},
    {"MBV2", 32, 28, 32, 192, 1, 1, 3},     {"MBV2", 32, 28, 192, 32, 1, 1, 2},
    {"MBV2", 32, 14, 64, 384, 1, 1, 4},     {"MBV2", 32, 14, 384, 64, 1, 1, 3},
    {"MBV2", 32, 14, 96, 576, 1, 1, 3},     {"D121", 8, 56, 160, 128, 1, 1, 6},
    {"D121", 8, 28, 320, 128, 1, 1, 12},    {"D121", 8, 14, 640, 128, 1, 1, 24},
    {"D121", 8, 7, 768, 128, 1, 1, 16},     {"RX50", 4, 24, 128, 128, 3, 1, 3, 32},
    {"RX50", 4, 24, 256, 256, 3, 2, 1, 32}, {"RX50", 4, 12, 256, 256, 3, 1, 3, 32},
    {"RX50", 4, 6, 512, 512, 3, 1, 5, 32},  {"RX50", 4, 3, 1024, 1024, 3, 1, 2, 32},
    {"RY4", 16, 24, 48, 48, 3, 2, 1, 6},    {"RY4", 16, 12, 104, 104, 3, 1, 2, 13},
    {"RY4", 16, 6, 208, 208, 3, 1, 5, 26},  {"RY4", 16, 3, 440, 440, 3, 1, 5, 55},
};
static const char *const pass_name[] = {"forward", "dx", "dw"};

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "ways: %s: %s\n", what, fr_last_error());
    exit(1);
}

/* One layer and pass: operands, result, and a workspace for each way. */
typedef struct bed {
    fri_conv2d_desc d;
    fri_pass pass;
    float *x, *w, *y, *out;
    int64_t results;
    fri_conv2d_engine engine[2];
    char *workspace[2];
} bed;

/* ---- the peer -------------------------------------------------------------------------------------------------- */

#if defined(HAVE_PEER)
#include <oneapi/dnnl/dnnl.h>

static dnnl_engine_t peer_engine;
static dnnl_stream_t peer_stream;

static void peer_must(dnnl_status_t s, const char *what) {
    if (s == dnnl_success) return;
    fprintf(stderr, "ways: oneDNN: %s: status %d\n", what, (int)s);
    exit(1);
}

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t md;
typedef const_dnnl_memory_desc_t md_ref;
#define REF(m) (m)
#else
typedef dnnl_memory_desc_t md;
typedef const dnnl_memory_desc_t *md_ref;
#define REF(m) (&(m))
#endif

/* A convolution with weights in oneDNN's own layout, and the conversion between that and KRSC. */
typedef struct peer {
    dnnl_primitive_t convolve, reorder;
    dnnl_memory_t x, y, krsc, own;
} peer;

static md md_of(int64_t n, int64_t c, int64_t h, int64_t w, dnnl_format_tag_t tag) {
    md m;
#if DNNL_VERSION_MAJOR >= 3
    peer_must(dnnl_memory_desc_create_with_tag(&m, 4, (dnnl_dims_t){n, c, h, w}, dnnl_f32, tag), "memory_desc");
#else
    peer_must(dnnl_memory_desc_init_by_tag(&m, 4, (dnnl_dims_t){n, c, h, w}, dnnl_f32, tag), "memory_desc");
#endif
    return m;
}

static dnnl_primitive_desc_t describe(const bed *b, const md *x, const md *w, const md *y) {
    const fri_conv2d_desc *d = &b->d;
    const dnnl_dims_t stride = {d->stride_h, d->stride_w}, pad = {d->pad_h, d->pad_w};
    /* Padding of the far side, as the last window reads. */
    const dnnl_dims_t far = {(d->p - 1) * d->stride_h + d->r - d->h - d->pad_h,
                             (d->q - 1) * d->stride_w + d->s - d->w - d->pad_w};
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_primitive_desc_t forward = NULL, of = NULL;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl_dims_t near = {0, 0};
    peer_must(dnnl_convolution_forward_primitive_desc_create(&forward, peer_engine, dnnl_forward_training, direct, *x,
                                                             *w, NULL, *y, stride, near, pad, far, NULL),
              "forward");
    if (b->pass == FRI_PASS_BACKWARD_INPUT)
        peer_must(dnnl_convolution_backward_data_primitive_desc_create(&of, peer_engine, direct, *x, *w, *y, stride,
                                                                       near, pad, far, forward, NULL),
                  "dx");
    if (b->pass == FRI_PASS_BACKWARD_WEIGHT)
        peer_must(dnnl_convolution_backward_weights_primitive_desc_create(&of, peer_engine, direct, *x, *w, NULL, *y,
                                                                          stride, near, pad, far, forward, NULL),
                  "dw");
#else
    dnnl_convolution_desc_t c;
    peer_must(dnnl_convolution_forward_desc_init(&c, dnnl_forward_training, direct, x, w, NULL, y, stride, pad, far),
              "forward");
    peer_must(dnnl_primitive_desc_create(&forward, &c, NULL, peer_engine, NULL), "forward");
    if (b->pass == FRI_PASS_BACKWARD_INPUT)
        peer_must(dnnl_convolution_backward_data_desc_init(&c, direct, x, w, y, stride, pad, far), "dx");
    if (b->pass == FRI_PASS_BACKWARD_WEIGHT)
        peer_must(dnnl_convolution_backward_weights_desc_init(&c, direct, x, w, NULL, y, stride, pad, far), "dw");
    if (b->pass != FRI_PASS_FORWARD) peer_must(dnnl_primitive_desc_create(&of, &c, NULL, peer_engine, forward), "pass");
#endif
    if (of == NULL) return forward;
    dnnl_primitive_desc_destroy(forward);
    return of;
}

static peer peer_make(const bed *b) {
    const fri_conv2d_desc *d = &b->d;
    const bool dw = b->pass == FRI_PASS_BACKWARD_WEIGHT;
    md x = md_of(d->n, d->c, d->h, d->w, dnnl_nhwc), y = md_of(d->n, d->k, d->p, d->q, dnnl_nhwc);
    md w = md_of(d->k, d->c, d->r, d->s, dnnl_format_tag_any), krsc = md_of(d->k, d->c, d->r, d->s, dnnl_ohwi);
    dnnl_primitive_desc_t pd = describe(b, &x, &w, &y), turn = NULL;
    const md_ref own = dnnl_primitive_desc_query_md(pd, dw ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    peer p = {0};
    peer_must(dnnl_primitive_create(&p.convolve, pd), "primitive");
    peer_must(dnnl_memory_create(&p.x, REF(x), peer_engine, b->pass == FRI_PASS_BACKWARD_INPUT ? b->out : b->x), "x");
    peer_must(dnnl_memory_create(&p.y, REF(y), peer_engine, b->pass == FRI_PASS_FORWARD ? b->out : b->y), "y");
    peer_must(dnnl_memory_create(&p.krsc, REF(krsc), peer_engine, dw ? b->out : b->w), "KRSC");
    peer_must(dnnl_memory_create(&p.own, own, peer_engine, DNNL_MEMORY_ALLOCATE), "weights");
    peer_must(dnnl_reorder_primitive_desc_create(&turn, dw ? own : REF(krsc), peer_engine, dw ? REF(krsc) : own,
                                                 peer_engine, NULL),
              "reorder");
    peer_must(dnnl_primitive_create(&p.reorder, turn), "reorder");
    dnnl_primitive_desc_destroy(turn);
    dnnl_primitive_desc_destroy(pd);
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < 4; i++) dnnl_memory_desc_destroy((md[]){x, y, w, krsc}[i]);
#endif
    return p;
}

static void peer_run(const peer *p, fri_pass pass) {
    const bool dw = pass == FRI_PASS_BACKWARD_WEIGHT, dx = pass == FRI_PASS_BACKWARD_INPUT;
    const dnnl_exec_arg_t turn[] = {{DNNL_ARG_FROM, dw ? p->own : p->krsc}, {DNNL_ARG_TO, dw ? p->krsc : p->own}};
    const dnnl_exec_arg_t args[] = {{dx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, p->x},
                                    {dw ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, p->own},
                                    {pass == FRI_PASS_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, p->y}};
    if (!dw) peer_must(dnnl_primitive_execute(p->reorder, peer_stream, 2, turn), "reorder");
    peer_must(dnnl_primitive_execute(p->convolve, peer_stream, 3, args), "run");
    if (dw) peer_must(dnnl_primitive_execute(p->reorder, peer_stream, 2, turn), "reorder");
    peer_must(dnnl_stream_wait(peer_stream), "wait");
}

static void peer_free(peer *p) {
    dnnl_memory_t all[] = {p->x, p->y, p->krsc, p->own};
    for (int i = 0; i < 4; i++) dnnl_memory_destroy(all[i]);
    dnnl_primitive_destroy(p->convolve);
    dnnl_primitive_destroy(p->reorder);
}

/* OpenMP's threads are counted when the program starts: begins again with one. */
static bool peer_begin(char **argv) {
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads == NULL || strcmp(threads, "1") != 0) {
        setenv("OMP_NUM_THREADS", "1", 1);
        execv("/proc/self/exe", argv);
    }
    peer_must(dnnl_engine_create(&peer_engine, dnnl_cpu, 0), "engine");
    peer_must(dnnl_stream_create(&peer_stream, peer_engine, dnnl_stream_default_flags), "stream");
    return true;
}
#else
typedef struct peer {
    int none;
} peer;

static peer peer_make(const bed *b) {
    (void)b;
    return (peer){0};
}

static void peer_run(const peer *p, fri_pass pass) {
    (void)p, (void)pass;
}

static void peer_free(peer *p) {
    (void)p;
}

static bool peer_begin(char **argv) {
    (void)argv;
    return false;
}
#endif

/* ---- a row ----------------------------------------------------------------------------------------------------- */

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p == NULL) must(FR_ENOMEM, "room");
    return memset(p, 0, bytes + 64);
}

static float *numbers(int64_t n, uint64_t stream) {
    float *v = room((size_t)n * sizeof *v);
    must(fri_backend_get(FR_CPU)->kernels.uniform(&(fri_exec){0}, FR_F32, n, 1, stream, -0.5, 0.5, v), "numbers");
    return v;
}

static bed bed_make(size_t i, fri_pass pass) {
    const int64_t pad = layers[i].kernel / 2;
    const int64_t out = (layers[i].size + 2 * pad - layers[i].kernel) / layers[i].stride + 1;
    bed b = {.pass = pass,
             .d = {.dtype = FR_F32,
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
                   .groups = layers[i].groups > 0 ? layers[i].groups : 1,
                   .workspace_limit = (size_t)64 << 20}};
    const fri_conv2d_desc *d = &b.d;
    const int64_t n[] = {d->n * d->p * d->q * d->k, d->n * d->h * d->w * d->c, d->k * d->r * d->s * d->c / d->groups};
    b.y = numbers(n[0], 1), b.x = numbers(n[1], 2), b.w = numbers(n[2], 3);
    b.results = n[pass];
    b.out = room((size_t)b.results * sizeof(float));
    for (int way = 0; way < 2; way++) {
        fri_conv2d_engine_plan(d, pass, way == OURS ? FRI_CONV2D_AUTO : FRI_CONV2D_INDIRECT, &b.engine[way]);
        b.workspace[way] = room(b.engine[way].bytes);
    }
    return b;
}

static void bed_free(bed *b) {
    void *const all[] = {b->x, b->w, b->y, b->out, b->workspace[0], b->workspace[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void run(bed *b, int way, const peer *p) {
    const bool dx = b->pass == FRI_PASS_BACKWARD_INPUT, dw = b->pass == FRI_PASS_BACKWARD_WEIGHT;
    if (way == PEER) {
        peer_run(p, b->pass);
        return;
    }
    const fri_conv2d_engine *e = &b->engine[way];
    fri_conv2d_engine_prepare(e, b->w, b->workspace[way]);
    fri_conv2d_engine_run(e, dx ? b->y : b->x, dw ? b->y : b->w, NULL, b->out, b->workspace[way]);
}

static void check(bed *b, const peer *p, const char *name) {
    float *ours = room((size_t)b->results * sizeof *ours);
    double worst = 0, largest = 1e-30;
    run(b, OURS, p);
    memcpy(ours, b->out, (size_t)b->results * sizeof *ours);
    run(b, PEER, p);
    for (int64_t i = 0; i < b->results; i++) {
        worst = fmax(worst, fabs((double)ours[i] - (double)b->out[i]));
        largest = fmax(largest, fabs((double)ours[i]));
    }
    free(ours);
    if (worst <= 1e-3 * largest) return;
    fprintf(stderr, "ways: %s: our result differs from oneDNN's by %g of %g\n", name, worst, largest);
    exit(1);
}

/* Adds each way's milliseconds and the operations of a layer to the sums. */
static void row(size_t i, fri_pass pass, int rounds, int ways, double sum[WAYS], double *work) {
    double least[WAYS] = {0};
    char name[96];
    bed b = bed_make(i, pass);
    const fri_conv2d_desc *d = &b.d;
    const double gflop = 2e-9 * (double)(d->n * d->p * d->q * d->k * d->r * d->s * d->c / d->groups);
    peer p = peer_make(&b);
    snprintf(name, sizeof name, "%s, %lld x %lld x %lld, %lld -> %lld, %s", layers[i].network, (long long)d->n,
             (long long)d->h, (long long)d->w, (long long)d->c, (long long)d->k, pass_name[pass]);
    if (ways > PEER) check(&b, &p, name);
    printf("| %s, %lld x %lld / %lld |", name, (long long)d->r, (long long)d->s, (long long)d->stride_h);
    for (int r = -1; r < rounds; r++)
        for (int way = 0; way < ways; way++) {
            const double begin = milliseconds();
            run(&b, way, &p);
            const double took = milliseconds() - begin;
            if (r == 0 || (r > 0 && took < least[way])) least[way] = took;
        }
    for (int way = 0; way < ways; way++) {
        printf(" %.2f | %.0f |", least[way], gflop / least[way] * 1e3);
        sum[way] += layers[i].count * least[way];
    }
    *work += layers[i].count * gflop;
    if (ways > PEER) printf(" %.2f |", least[OURS] / least[PEER]);
    printf("\n");
    fflush(stdout);
    peer_free(&p);
    bed_free(&b);
}

/* Independent multiply-adds in registers: operations in billions. */
#define PEAK(name, bytes, ...)                                                                   \
    __VA_ARGS__ static double name(int64_t n, float by, float *kept) {                           \
        typedef float vector __attribute__((vector_size(bytes)));                                \
        vector sum[10] = {0};                                                                    \
        const vector factor = (vector){0} + by;                                                  \
        for (int64_t i = 0; i < n; i++)                                                          \
            _Pragma("GCC unroll 10") for (int k = 0; k < 10; k++) sum[k] = sum[k] * factor + by; \
        for (int k = 0; k < 10; k++) *kept += sum[k][0];                                         \
        return 2e-9 * 10 * (bytes / 4) * (double)n;                                              \
    }
#if defined(__x86_64__)
PEAK(peak_avx512, 64, __attribute__((target("avx512f,fma"), optimize("fp-contract=fast"))))
PEAK(peak_avx2, 32, __attribute__((target("avx2,fma"), optimize("fp-contract=fast"))))
#endif
PEAK(peak_baseline, 16, )

static double peak(void) {
    double least = INFINITY, work = 0;
    float kept = 0;
    for (int r = 0; r < 5; r++) {
        const double begin = milliseconds();
#if defined(__x86_64__)
        work = fri_cpu_lanes() == FRI_LANES_AVX512 ? peak_avx512(4000000, 0.5f, &kept)
               : fri_cpu_lanes() == FRI_LANES_AVX2 ? peak_avx2(4000000, 0.5f, &kept)
                                                   : peak_baseline(4000000, 0.5f, &kept);
#else
        work = peak_baseline(4000000, 0.5f, &kept);
#endif
        least = fmin(least, milliseconds() - begin);
    }
    return kept > 0 ? work / least * 1e3 : 0;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 7;
    const char *only = argc > 2 ? argv[2] : NULL;
    static const char *const way_name[WAYS] = {"as in a step", "product over pointers", "oneDNN"};
    double sum[WAYS] = {0}, work = 0;
    char text[160];
    if (argc > 3 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: ways [rounds, 1..%d] [R50, MBV2, D121, RX50 or RY4]\n", MOST_ROUNDS);
        return 2;
    }
    const int ways = peer_begin(argv) ? WAYS : PEER;
    must(fr_threads_set(1), "threads");
    const double most = peak();
    printf("%s, %.0f GFLOP/s of a core; %s\n\n| layer |", fri_device_describe(FR_CPU, text, sizeof text), most,
           ways > PEER ? "beside oneDNN" : "oneDNN was not found when this program was built");
    for (int way = 0; way < ways; way++) printf(" %s, ms | GFLOP/s |", way_name[way]);
    printf("%s\n|%.*s\n", ways > PEER ? " ratio |" : "", ways > PEER ? 32 : 20, "---|---|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int pass = 0; pass < 3; pass++) {
            if (only != NULL && strcmp(layers[i].network, only) != 0) continue;
            if (pass == FRI_PASS_BACKWARD_INPUT && layers[i].c == 3) continue; /* no gradient for the images */
            row(i, (fri_pass)pass, rounds, ways, sum, &work);
        }
    printf("\n");
    for (int way = 0; way < ways; way++)
        printf("%s: %.1f ms, %.0f GFLOP/s, %.0f %% of the peak\n", way_name[way], sum[way], work / sum[way] * 1e3,
               100 * work / sum[way] * 1e3 / most);
    if (ways > PEER) printf("ours over oneDNN's: %.3f\n", sum[OURS] / sum[PEER]);
    return 0;
}
