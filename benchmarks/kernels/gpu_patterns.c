/* gpu_patterns.c - cuDNN's fused patterns beside the plain calls: ResNet-50's 22 convolutions after
 * the stem, f16. The library uses none of the patterns.
 *
 *     build/benchmarks/gpu_patterns [BATCH]     (256) milliseconds of both, the fastest of three rounds
 *     build/benchmarks/gpu_patterns --graphs    how many patterns have an engine on the described device; needs no GPU
 *
 * Exit status 77: no device, with the reason. */
#include "backend/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/context.h"
#include "cuda/descriptor.h"

typedef cudnnBackendDescriptor_t desc;

/* Convolutions from c channels of h x h pixels to k, r x r with a stride; their number in the network. */
static const struct {
    int64_t c, h, k, r, stride, times;
} shapes[] = {{64, 56, 64, 1, 1, 1},    {64, 56, 64, 3, 1, 3},    {64, 56, 256, 1, 1, 4},   {256, 56, 64, 1, 1, 2},
              {256, 56, 128, 1, 1, 1},  {128, 56, 128, 3, 2, 1},  {128, 28, 512, 1, 1, 4},  {256, 56, 512, 1, 2, 1},
              {512, 28, 128, 1, 1, 3},  {128, 28, 128, 3, 1, 3},  {512, 28, 256, 1, 1, 1},  {256, 28, 256, 3, 2, 1},
              {256, 14, 1024, 1, 1, 6}, {512, 28, 1024, 1, 2, 1}, {1024, 14, 256, 1, 1, 5}, {256, 14, 256, 3, 1, 5},
              {1024, 14, 512, 1, 1, 1}, {512, 14, 512, 3, 2, 1},  {512, 7, 2048, 1, 1, 3},  {1024, 14, 2048, 1, 2, 1},
              {2048, 7, 512, 1, 1, 2},  {512, 7, 512, 3, 1, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes, MOST = 64, ENGINES = 3, ROUNDS = 3, REPEAT = 10, SCRATCH = 64 << 20 };

typedef enum pattern { CONV_SUMS, NORM_CONV_SUMS, NORM_WEIGHT_GRADIENT, DATA_GRADIENT_SUMS, PATTERNS } pattern;

/* A weight gradient's norm and relu count with the convolution that made the map first. */
static const char *const names[PATTERNS] = {"convolution, sums", "norm, relu, convolution, sums",
                                            "norm, relu, weight gradient", "data gradient, drelu, sums"};

static fri_cudnn_call call = {.name = "gpu_patterns"};
static char *memory; /* of the device; NULL: graphs are only made */
static size_t memory_bytes, used;

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "gpu_patterns: %s: %s\n", what, fr_last_error());
    exit(1);
}

/* Bytes until the next pattern. */
static void *room(size_t bytes) {
    void *at = memory + used;
    used += (bytes + 511) / 512 * 512;
    if (memory == NULL || used <= memory_bytes) return memory != NULL ? at : NULL;
    fprintf(stderr, "gpu_patterns: more than %zu bytes\n", memory_bytes);
    exit(1);
}

/* ---- graphs ------------------------------------------------------------------------------------------------ */

/* A pattern's descriptors, operations, and tensors in memory. */
static struct {
    desc made[4 * MOST], op[8];
    int n, ops;
    int64_t uid[MOST], tensors;
    void *at[MOST];
} graph;

static void drop_graph(void) {
    while (graph.n > 0) fri_descriptor_destroy(call.dnn, &graph.made[--graph.n]);
    graph.ops = 0;
    graph.tensors = 0;
    used = 0;
}

static desc make(cudnnBackendDescriptorType_t type) {
    must(fri_descriptor_make(call, type, &graph.made[graph.n]), "descriptor");
    return graph.made[graph.n++];
}

static void set(desc d, int name, cudnnBackendAttributeType_t type, int64_t n, const void *v) {
    must(fri_descriptor_set(call, d, (cudnnBackendAttributeName_t)name, type, n, v), "attribute");
}

/* Sets descriptors by pairs of name and descriptor, up to a name 0, and finalizes. */
static desc finish(desc d, const int *name, const desc *of) {
    for (; *name != 0; name++, of++) set(d, *name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, of);
    must(fri_descriptor_finalize(call, d), "graph");
    return d;
}
#define FINISH(d, names, ...) finish(d, (const int[]){names, 0}, (const desc[]){__VA_ARGS__})
#define LIST(...)             __VA_ARGS__

static const cudnnDataType_t half = CUDNN_DATA_HALF, full = CUDNN_DATA_FLOAT;

/* A tensor [n, h, h, c]; an inner one is f32 and never in memory. */
static desc tensor(cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w, bool inner) {
    const int64_t dim[4] = {n, c, h, w}, stride[4] = {h * w * c, 1, w * c, c}, alignment = 16;
    const int64_t uid = graph.n + 1;
    desc t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (inner) set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    must(fri_descriptor_finalize(call, t), "tensor");
    if (inner) return t;
    graph.uid[graph.tensors] = uid;
    graph.at[graph.tensors++] = room((size_t)(n * c * h * w) * (type == CUDNN_DATA_HALF ? 2 : 4));
    return t;
}

static desc channels(cudnnDataType_t type, int64_t c) {
    return tensor(type, 1, c, 1, 1, false);
}

/* An elementwise operation; returns its f32 result. `dy` is of a gradient. */
static desc pointwise(cudnnPointwiseMode_t mode, desc x, desc b, desc y, desc dy) {
    desc p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &full);
    must(fri_descriptor_finalize(call, p), "operation");
    desc o = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const int pw = CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, xs = CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
              ys = CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    if (dy != NULL)
        FINISH(o, LIST(pw, xs, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC), p, x, dy,
               y);
    else if (b != NULL)
        FINISH(o, LIST(pw, xs, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, ys), p, x, b, y);
    else
        FINISH(o, LIST(pw, xs, ys), p, x, y);
    graph.op[graph.ops++] = o;
    return y;
}

static void convolve(pattern which, const fri_conv2d_desc *d, desc x, desc w, desc y) {
    const int64_t pad[2] = {d->pad_h, d->pad_w}, stride[2] = {d->stride_h, d->stride_w}, one[2] = {1, 1}, two = 2;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const float alpha = 1, beta = 0;
    desc v = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), o;
    set(v, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(v, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &full);
    set(v, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(v, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(v, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(v, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, one);
    set(v, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    must(fri_descriptor_finalize(call, v), "convolution");
#define CONVOLUTION(TYPE, NAME, X, W, Y)                                                                            \
    o = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_##TYPE##_DESCRIPTOR);                                              \
    set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);                           \
    set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_BETA, CUDNN_TYPE_FLOAT, 1, &beta);                             \
    FINISH(o,                                                                                                       \
           LIST(CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##X, \
                CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##W, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##Y),      \
           v, x, w, y)
    if (which == DATA_GRADIENT_SUMS) {
        CONVOLUTION(BACKWARD_DATA, BWD_DATA, DX, W, DY);
    } else if (which == NORM_WEIGHT_GRADIENT) {
        CONVOLUTION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
    } else {
        CONVOLUTION(FORWARD, FORWARD, X, W, Y);
    }
    graph.op[graph.ops++] = o;
}

/* Sums of y and y * y. */
static void sum_squares(desc y, int64_t k) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    desc o = make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(o, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &full);
    graph.op[graph.ops++] = FINISH(o,
                                   LIST(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
                                        CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC),
                                   y, channels(full, k), channels(full, k));
}

/* The data gradient, relu's gradient where x normalized again is negative, and the sums of a batch norm's gradient. */
static void norm_gradient(const fri_conv2d_desc *d, desc dy, desc w) {
    const int64_t n = d->n, c = d->c, h = d->h;
    desc x = tensor(half, n, c, h, h, false), dx = tensor(half, n, c, h, h, false), f[5], v[4];
    for (int i = 0; i < 5; i++) f[i] = tensor(full, n, c, h, h, true);
    for (int i = 0; i < 4; i++) v[i] = channels(full, c); /* mean, inverse std, scale, bias */
    convolve(DATA_GRADIENT_SUMS, d, f[4], w, dy);
    pointwise(CUDNN_POINTWISE_SUB, x, v[0], f[0], NULL);
    pointwise(CUDNN_POINTWISE_MUL, f[0], v[1], f[1], NULL);
    pointwise(CUDNN_POINTWISE_MUL, f[1], v[2], f[2], NULL);
    pointwise(CUDNN_POINTWISE_ADD, f[2], v[3], f[3], NULL);
    pointwise(CUDNN_POINTWISE_RELU_BWD, f[3], NULL, dx, f[4]);
    desc o = make(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    set(o, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &full);
    graph.op[graph.ops++] =
        FINISH(o,
               LIST(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
                    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
                    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
                    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
                    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
                    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS),
               v[0], v[1], v[2], x, dx, channels(full, c), channels(full, c), channels(full, c), channels(full, c),
               channels(full, c));
}

static void build(pattern which, const fri_conv2d_desc *d) {
    const bool norm = which == NORM_CONV_SUMS || which == NORM_WEIGHT_GRADIENT;
    desc w = tensor(half, d->k, d->c, d->r, d->r, false), y = tensor(half, d->n, d->k, d->p, d->p, false), x;
    if (which == DATA_GRADIENT_SUMS) {
        norm_gradient(d, y, w);
        return;
    }
    x = tensor(half, d->n, d->c, d->h, d->h, false);
    for (int i = 0; i < 3 && norm; i++) {
        static const cudnnPointwiseMode_t mode[3] = {CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_ADD,
                                                     CUDNN_POINTWISE_RELU_FWD};
        desc b = i < 2 ? channels(half, d->c) : NULL;
        x = pointwise(mode[i], x, b, tensor(full, d->n, d->c, d->h, d->h, true), NULL);
    }
    convolve(which, d, x, w, y);
    if (which != NORM_WEIGHT_GRADIENT) sum_squares(y, d->k);
}

/* ---- engines ----------------------------------------------------------------------------------------------- */

/* Finalized plans for the described device, the heuristics' first; their number. */
static int plans_of(desc plan[ENGINES]) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    desc device = NULL, g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), configuration[MOST];
    int64_t n = 0;
    int found = 0;
    must(fri_cudnn_device(&device), "device");
    set(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.ops, graph.op);
    must(fri_descriptor_finalize(call, g), "graph");
    desc h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g);
    set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    if (fri_descriptor_finalize(call, h) < 0) return 0;
    for (int i = 0; i < MOST; i++) configuration[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    must(fri_descriptor_get(call, h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &n,
                            configuration),
         "engines");
    for (int i = 0; i < n && i < MOST && found < ENGINES; i++) {
        desc p = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration[i]);
        set(p, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
        if (fri_descriptor_finalize(call, p) >= 0) plan[found++] = p;
    }
    return found;
}

/* The plan again, for a handle: from its text, as cuDNN documents for plans without a device. NULL: not runnable. */
static desc bind_plan(desc plan, cudnnHandle_t handle, void **workspace) {
    const int json = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t length = 0, bytes = 0, n;
    must(fri_descriptor_get(call, plan, json, CUDNN_TYPE_CHAR, 0, &length, NULL), "plan");
    char *text = calloc(1, (size_t)length + 1);
    if (text == NULL) exit(1);
    must(fri_descriptor_get(call, plan, json, CUDNN_TYPE_CHAR, length, &length, text), "plan");
    desc p = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(p, json, CUDNN_TYPE_CHAR, length, text);
    set(p, FRI_CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    const bool runs = fri_descriptor_finalize(call, p) >= 0;
    free(text);
    if (!runs ||
        fri_descriptor_get(call, p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes) < 0)
        return NULL;
    *workspace = room((size_t)bytes);
    return p;
}

/* ---- times ------------------------------------------------------------------------------------------------- */

static const fri_backend *gpu;

/* A bound plan, or operands of the plain calls. */
typedef struct job {
    cudnnHandle_t handle;
    desc plan, pack;
    const fri_conv2d_desc *d;
    pattern which;
    void *x, *w, *y, *v, *scratch; /* v: a vector of channels */
} job;

static fr_status run_plan(const job *j) {
    return fri_cudnn_check(call.dnn, call.dnn->BackendExecute(j->handle, j->plan, j->pack), "execute");
}

/* Calls of the library in the pattern's place, everything kept. */
static fr_status run_plain(const job *j) {
    const fri_kernels *k = &gpu->kernels;
    const fri_conv2d_desc *d = j->d;
    const fri_exec e = {.workspace = j->scratch, .workspace_bytes = SCRATCH};
    const fri_batchnorm2d_desc of_x = {.dtype = FR_F16, .rows = d->n * d->h * d->h, .c = d->c, .eps = 1e-5},
                               of_y = {.dtype = FR_F16, .rows = d->n * d->p * d->p, .c = d->k, .eps = 1e-5};
    if (j->which == NORM_WEIGHT_GRADIENT) return k->conv2d_backward_weight(&e, d, j->x, j->y, j->w);
    if (j->which == DATA_GRADIENT_SUMS) {
        fr_status s = k->conv2d_backward_input(&e, d, j->w, j->y, j->x);
        return s < 0 ? s
                     : k->batchnorm2d_backward(&e, &of_x, true, j->x, j->v, j->v, j->v, j->v, FRI_ACTIVATION_RELU, j->x,
                                               NULL, j->v, j->v);
    }
    fr_status s = FR_OK;
    if (j->which == NORM_CONV_SUMS)
        s = k->batchnorm2d_apply(&e, &of_x, j->x, j->v, j->v, j->v, j->v, NULL, FRI_ACTIVATION_RELU, j->x);
    if (s >= 0) s = k->conv2d_forward(&e, d, j->x, j->w, NULL, j->y);
    return s < 0 ? s : k->batchnorm2d_stats(&e, &of_y, j->y, j->v, j->v, NULL, NULL);
}

/* Milliseconds of a call, the fastest round; 0: the call failed. */
static double time_calls(fr_status (*run)(const job *), const job *j) {
    double least = 0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first loads the code */
        struct timespec a, b;
        must(gpu->synchronize(NULL), "wait");
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < REPEAT; i++)
            if (run(j) < 0) return 0;
        if (gpu->synchronize(NULL) < 0) return 0;
        clock_gettime(CLOCK_MONOTONIC, &b);
        const double ms = ((double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6) / REPEAT;
        if (round > 0 && (least == 0 || ms < least)) least = ms;
    }
    return least;
}

static double time_plain(pattern which, const fri_conv2d_desc *d) {
    used = 0;
    job j = {.d = d, .which = which};
    j.x = room((size_t)(d->n * d->h * d->h * d->c) * 2);
    j.w = room((size_t)(d->k * d->r * d->r * d->c) * 2);
    j.y = room((size_t)(d->n * d->p * d->p * d->k) * 2);
    j.v = room(4 * 2048);
    j.scratch = room(SCRATCH);
    return time_calls(run_plain, &j);
}

/* The fastest engine of the graph; 0: none. */
static double time_fused(void) {
    desc plan[ENGINES];
    const int n = plans_of(plan);
    const size_t before = used;
    double least = 0;
    for (int i = 0; i < n; i++) {
        void *workspace = NULL;
        job j = {0};
        used = before;
        must(fri_cudnn_handle(fri_cuda_stream(), &j.handle), "handle");
        if ((j.plan = bind_plan(plan[i], j.handle, &workspace)) == NULL) continue;
        j.pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        set(j.pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, graph.tensors, graph.uid);
        set(j.pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, graph.tensors, graph.at);
        set(j.pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
        must(fri_descriptor_finalize(call, j.pack), "operands");
        const double ms = time_calls(run_plan, &j);
        if (ms > 0 && (least == 0 || ms < least)) least = ms;
    }
    return least;
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static fri_conv2d_desc shape(int i, int64_t batch) {
    fri_conv2d_desc d = {.dtype = FR_F16, .bias_dtype = FR_F16, .n = batch, .c = shapes[i].c, .k = shapes[i].k};
    d.h = d.w = shapes[i].h;
    d.r = d.s = shapes[i].r;
    d.pad_h = d.pad_w = d.r / 2;
    d.stride_h = d.stride_w = shapes[i].stride;
    d.dilation_h = d.dilation_w = d.groups = 1;
    d.p = d.q = d.h / d.stride_h;
    d.workspace_limit = SCRATCH;
    return d;
}

static void write_row(int i, pattern which, const fri_conv2d_desc *d) {
    const double plain = time_plain(which, d);
    used = 0;
    build(which, d);
    const double fused = time_fused();
    drop_graph();
    printf("| %" PRId64 " to %" PRId64 ", %" PRId64 " x %" PRId64 ", %" PRId64 " x %" PRId64 " / %" PRId64 " | %" PRId64
           " | %s |",
           d->c, d->k, d->h, d->h, d->r, d->r, d->stride_h, shapes[i].times, names[which]);
    if (plain > 0 && fused > 0)
        printf(" %.4f | %.4f | %.2f |\n", plain, fused, fused / plain);
    else
        printf(" %.4f | none runs |\n", plain);
}

static int count_graphs(int64_t batch) {
    char why[256];
    int found[PATTERNS] = {0}, all = 0;
    if ((call.dnn = fri_cudnn_open(why, sizeof why)) == NULL) {
        printf("gpu_patterns: skipped: %s\n", why);
        return 77;
    }
    for (int i = 0; i < SHAPES * PATTERNS; i++) {
        const fri_conv2d_desc d = shape(i / PATTERNS, batch);
        desc plan[ENGINES];
        build((pattern)(i % PATTERNS), &d);
        found[i % PATTERNS] += plans_of(plan) > 0;
        drop_graph();
    }
    for (int k = 0; k < PATTERNS; k++) {
        printf("%s: %d of %d have an engine on %s\n", names[k], found[k], SHAPES, fri_cudnn_device_name());
        all += found[k];
    }
    return all < SHAPES * PATTERNS;
}

int main(int argc, char **argv) {
    const int64_t batch = argc > 1 && atoll(argv[1]) > 0 ? atoll(argv[1]) : 256;
    char why[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--graphs") == 0) return count_graphs(batch);
    if (argc > 2 || (argc == 2 && atoll(argv[1]) < 1)) {
        fprintf(stderr, "usage: gpu_patterns [BATCH] | --graphs\n");
        return 2;
    }
    if (!fr_device_available(FR_CUDA)) {
        printf("gpu_patterns: skipped: %s\n", fr_device_reason(FR_CUDA));
        return 77;
    }
    fr_cudnn_deterministic_set(false);
    fr_cudnn_benchmark_set(true);
    gpu = fri_backend_get(FR_CUDA);
    call.dnn = fri_cudnn_open(why, sizeof why);
    memory_bytes = (size_t)(batch * 56 * 56 * 256 * 2) * 3 + ((size_t)256 << 20);
    void *all = NULL;
    must(gpu->segment_alloc(memory_bytes, &all), "memory");
    memory = all;
    const fri_exec none = {0};
    must(gpu->kernels.fill(&none, FR_F16, (int64_t)(memory_bytes / 2), 1, memory), "numbers");
    printf("| convolution | times | pattern | plain ms | fused ms | ratio |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < SHAPES * PATTERNS; i++) {
        const fri_conv2d_desc d = shape(i / PATTERNS, batch);
        write_row(i / PATTERNS, (pattern)(i % PATTERNS), &d);
    }
    gpu->segment_free(all, memory_bytes);
    return 0;
}
