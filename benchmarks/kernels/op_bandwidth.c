/* op_bandwidth.c - every memory-bound kernel against a copy.
 *
 *     build/benchmarks/op_bandwidth [f32|bf16|f16] [rounds] [kernel] [--device cuda] [--images N]
 *                                   (f32, 9 rounds, all kernels, 128 images)
 *
 * One activation of 128 x 56 x 56 x 64 (103 MB in f32: beyond the caches; 20 images have 16 MB). Each kernel runs in
 * turn with a copy of the same array by all threads; the bytes of a kernel are those it must move at least, each
 * operand once per pass that the result depends on; the percentage is the median of the rounds' ratios of GB/s. Before
 * a kernel is timed its result is compared with that of its f64 twin on the CPU. On a GPU the copy is the driver's, and
 * a time is that of 20 calls in a row, divided. Exit status 77: no such device. */
#include "backend/backend.h"
#include "base/threads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { H = 56, W = 56, C = 64, MAX_ROUNDS = 99, CLASSES = 1000 };
static int64_t images = 128;
#define PIXELS (images * H * W)
#define COUNT  (PIXELS * C)
#define ROWS   (COUNT / CLASSES)

/* Buffers of a kernel, in the element type of its table. Statistics are real: f64 in the twin. */
typedef struct arena {
    const fri_kernels *k;
    fri_exec e;
    fr_dtype t;
    void *x, *dy, *y, *buf;                   /* COUNT elements each */
    void *moment1, *moment2;                  /* COUNT real */
    void *mean, *invstd, *gamma, *beta, *out; /* real, CLASSES of each; out also takes scalars */
    void *lse;                                /* real, ROWS */
    uint8_t *bits;                            /* COUNT */
    int64_t *target;                          /* ROWS */
    int64_t *bad;
    float *count; /* Adam's steps */
    const fri_backend *b;
} arena;

static const fri_dropout_desc dropout = {.hw = H * W, .c = C, .p = 0.5, .seed = 1};
static const fri_pool2d_desc halves = {.h = H,
                                       .w = W,
                                       .c = C,
                                       .p = H / 2,
                                       .q = W / 2,
                                       .kernel_h = 2,
                                       .kernel_w = 2,
                                       .stride_h = 2,
                                       .stride_w = 2,
                                       .dilation_h = 1,
                                       .dilation_w = 1};

static fri_pool2d_desc pool(const arena *a, int64_t p, int64_t q) {
    fri_pool2d_desc d = halves;
    d.n = images;
    d.dtype = a->t;
    d.p = p;
    d.q = q;
    return d;
}

static fri_batchnorm2d_desc norm(const arena *a) {
    return (fri_batchnorm2d_desc){.dtype = a->t, .rows = PIXELS, .c = C, .eps = 1e-5, .momentum = 0.1};
}

/* Each channel has separate 3 x 3 weights, in `buf`. */
static fri_conv2d_desc depthwise(const arena *a) {
    return (fri_conv2d_desc){.dtype = a->t,
                             .bias_dtype = a->t,
                             .n = images,
                             .h = H,
                             .w = W,
                             .c = C,
                             .k = C,
                             .r = 3,
                             .s = 3,
                             .p = H,
                             .q = W,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = 1,
                             .pad_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = C};
}

static fri_loss_desc classes(const arena *a) {
    return (fri_loss_desc){.dtype = a->t, .rows = ROWS, .classes = CLASSES, .ignore_index = -100};
}

static fri_dropout_desc dropping(const arena *a) {
    fri_dropout_desc d = dropout;
    d.n = images;
    d.dtype = a->t;
    return d;
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

#define KERNEL(name, call)                  \
    static fr_status run_##name(arena *a) { \
        const fri_exec *e = &a->e;          \
        return a->k->call;                  \
    }
#define KERNEL_OF(name, type, make, call)   \
    static fr_status run_##name(arena *a) { \
        const fri_exec *e = &a->e;          \
        const type d = make;                \
        return a->k->call;                  \
    }
KERNEL(fill, fill(e, a->t, COUNT, 0.25, a->y))
KERNEL(copy_rows, copy_rows(e, PIXELS, (size_t)C *fr_dtype_size(a->t), a->x, (size_t)C *fr_dtype_size(a->t), a->y,
                            (size_t)C *fr_dtype_size(a->t)))
KERNEL(add, add(e, a->t, COUNT, a->x, a->dy, a->y))
KERNEL(mul, mul(e, a->t, COUNT, a->x, a->dy, a->y))
KERNEL(scale, scale(e, a->t, COUNT, 0.3, a->x, a->y))
KERNEL(sum, sum(e, a->t, COUNT, 1.0 / 1024, a->x, a->y))
KERNEL(broadcast, broadcast(e, a->t, COUNT, 0.5, a->x, a->y))
KERNEL(relu_forward, relu_forward(e, a->t, COUNT, a->x, a->y))
KERNEL(relu_backward, relu_backward(e, a->t, COUNT, a->x, a->dy, a->y))
KERNEL(relu_encode, relu_encode(e, a->t, COUNT, FRI_MASK_RELU, a->x, a->bits))
KERNEL(relu_backward_bits, relu_backward_bits(e, a->t, COUNT, 0, a->bits, a->dy, a->y))
KERNEL(add_mask, add_mask(e, a->t, COUNT, a->bits, a->x, a->dy, a->y))
KERNEL(leaky_relu_forward, leaky_relu_forward(e, a->t, COUNT, 0.1, a->x, a->y))
KERNEL(leaky_relu_backward, leaky_relu_backward(e, a->t, COUNT, 0.1, a->x, a->dy, a->y))
#define ACTIVATION(word)                                     \
    KERNEL(word, word##_forward(e, a->t, COUNT, a->x, a->y)) \
    KERNEL(word##_gradient, word##_backward(e, a->t, COUNT, a->x, a->dy, a->y))
ACTIVATION(silu)
ACTIVATION(gelu)
ACTIVATION(tanh)
ACTIVATION(elu)
ACTIVATION(softplus)
KERNEL(uniform, uniform(e, a->t, COUNT, 1, 2, -1, 1, a->y))
KERNEL(normal, normal(e, a->t, COUNT, 1, 2, 0, 1, a->y))
KERNEL_OF(dropout, fri_dropout_desc, dropping(a), dropout(e, &d, a->x, a->y))
KERNEL_OF(bn_stats, fri_batchnorm2d_desc, norm(a), batchnorm2d_stats(e, &d, a->x, a->mean, a->invstd, NULL, NULL))
KERNEL_OF(bn_apply, fri_batchnorm2d_desc, norm(a),
          batchnorm2d_apply(e, &d, a->x, a->mean, a->invstd, a->gamma, a->beta, NULL, true, a->y))
KERNEL_OF(bn_apply_add, fri_batchnorm2d_desc, norm(a),
          batchnorm2d_apply(e, &d, a->x, a->mean, a->invstd, a->gamma, a->beta, a->dy, true, a->y))
KERNEL_OF(bn_backward, fri_batchnorm2d_desc, norm(a),
          batchnorm2d_backward(e, &d, true, a->x, a->mean, a->invstd, a->gamma, NULL, false, a->dy, a->y, a->out,
                               a->beta))
KERNEL_OF(bn_backward_relu, fri_batchnorm2d_desc, norm(a),
          batchnorm2d_backward(e, &d, true, a->x, a->mean, a->invstd, a->gamma, NULL, true, a->dy, a->y, a->out,
                               a->beta))
KERNEL_OF(maxpool_forward, fri_pool2d_desc, pool(a, H / 2, W / 2), maxpool2d_forward(e, &d, a->x, a->y, FR_U8, a->bits))
KERNEL_OF(maxpool_backward, fri_pool2d_desc, pool(a, H / 2, W / 2),
          maxpool2d_backward(e, &d, FR_U8, a->bits, a->dy, a->y))
KERNEL_OF(avgpool_forward, fri_pool2d_desc, pool(a, H / 2, W / 2), avgpool2d_forward(e, &d, a->x, a->y))
KERNEL_OF(avgpool_backward, fri_pool2d_desc, pool(a, H / 2, W / 2), avgpool2d_backward(e, &d, a->dy, a->y))
KERNEL_OF(global_pool_forward, fri_pool2d_desc, pool(a, 1, 1), adaptive_avgpool2d_forward(e, &d, a->x, a->y))
KERNEL_OF(global_pool_backward, fri_pool2d_desc, pool(a, 1, 1), adaptive_avgpool2d_backward(e, &d, a->dy, a->y))
#define HALF_SIZE \
    { .dtype = a->t, .n = images, .h = H / 2, .w = W / 2, .c = C, .p = H, .q = W }
KERNEL_OF(nearest_forward, fri_upsample_desc, HALF_SIZE, upsample_forward(e, &d, a->x, a->y))
KERNEL_OF(nearest_backward, fri_upsample_desc, HALF_SIZE, upsample_backward(e, &d, a->dy, a->y))
KERNEL_OF(loss_forward, fri_loss_desc, classes(a),
          cross_entropy_forward(e, &d, a->x, a->target, NULL, a->out, a->lse, a->beta, a->bad))
KERNEL_OF(loss_backward, fri_loss_desc, classes(a),
          cross_entropy_backward(e, &d, a->x, a->target, NULL, a->lse, a->beta, a->out, a->y))

KERNEL_OF(depthwise_forward, fri_conv2d_desc, depthwise(a), conv2d_forward(e, &d, a->x, a->buf, NULL, a->y))
KERNEL_OF(depthwise_dx, fri_conv2d_desc, depthwise(a), conv2d_backward_input(e, &d, a->buf, a->dy, a->y))
KERNEL_OF(depthwise_dw, fri_conv2d_desc, depthwise(a), conv2d_backward_weight(e, &d, a->x, a->dy, a->y))

static fr_status run_cast(arena *a) {
    const bool narrow = a->t == FR_F32; /* the moments have room for f32 in any case, y for the type of x alone */
    return a->k->cast(&a->e, a->t, narrow ? FR_BF16 : FR_F32, COUNT, a->x, narrow ? (void *)a->bits : a->moment1);
}
static fr_status run_norm_squared(arena *a) {
    fri_array array = {COUNT, a->x};
    return a->k->norm_squared(&a->e, a->t, 1, &array, a->out);
}
static fr_status run_sgd(arena *a) {
    fri_sgd_desc d = {.dtype = a->t, .grad_dtype = a->t, .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4};
    fri_step_item item = {.n = COUNT, .param = a->y, .grad = a->dy, .state = {a->buf}};
    return a->k->sgd(&a->e, &d, 1, &item, NULL, NULL);
}
static fr_status run_adam(arena *a) {
    fri_adam_desc d = {.dtype = a->t, .grad_dtype = a->t, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    fri_step_item item = {.n = COUNT,
                          .param = a->y,
                          .grad = a->dy,
                          .state = {a->moment1, a->moment2},
                          .step = a->count};
    return a->k->adam(&a->e, &d, 1, &item, NULL, NULL);
}

/* Result that the check compares: y's first `elements`, the bits, or `out`. */
typedef enum shown { SHOW_Y, SHOW_BITS, SHOW_OUT, SHOW_STATS, SHOW_NOTHING } shown;

/* Bytes moved = elements * size of an element + bytes, both per element of the activation. */
static const struct {
    const char *name;
    fr_status (*run)(arena *a);
    double elements, bytes;
    shown shown;
    double shown_share; /* of COUNT; below 0: elements */
} kernels[] = {
    {"fill", run_fill, 1, 0, SHOW_Y, 1},
    {"copy_rows (concat)", run_copy_rows, 2, 0, SHOW_Y, 1},
    {"cast", run_cast, 1, -1, SHOW_NOTHING, 0},
    {"add", run_add, 3, 0, SHOW_Y, 1},
    {"mul", run_mul, 3, 0, SHOW_Y, 1},
    {"scale", run_scale, 2, 0, SHOW_Y, 1},
    {"sum", run_sum, 1, 0, SHOW_Y, -1},
    {"broadcast", run_broadcast, 1, 0, SHOW_Y, 1},
    {"relu_forward", run_relu_forward, 2, 0, SHOW_Y, 1},
    {"relu_backward", run_relu_backward, 3, 0, SHOW_Y, 1},
    {"relu_encode", run_relu_encode, 1, 0.125, SHOW_BITS, 0.125},
    {"relu_backward_bits", run_relu_backward_bits, 2, 0.125, SHOW_Y, 1},
    {"add_mask", run_add_mask, 3, 0.125, SHOW_Y, 1},
    {"leaky_relu_forward", run_leaky_relu_forward, 2, 0, SHOW_Y, 1},
    {"leaky_relu_backward", run_leaky_relu_backward, 3, 0, SHOW_Y, 1},
#define ROWS_OF(word)                                             \
    {#word "_forward", run_##word, 2, 0, SHOW_Y, 1}, {            \
#word "_backward", run_##word##_gradient, 3, 0, SHOW_Y, 1 \
    }
    ROWS_OF(silu),
    ROWS_OF(gelu),
    ROWS_OF(tanh),
    ROWS_OF(elu),
    ROWS_OF(softplus),
    {"uniform", run_uniform, 1, 0, SHOW_Y, 1},
    {"normal", run_normal, 1, 0, SHOW_NOTHING, 0},
    {"dropout", run_dropout, 2, 0, SHOW_Y, 1},
    {"batchnorm2d_stats", run_bn_stats, 1, 0, SHOW_STATS, 0},
    {"batchnorm2d_apply", run_bn_apply, 2, 0, SHOW_Y, 1},
    {"batchnorm2d_apply, add", run_bn_apply_add, 3, 0, SHOW_Y, 1},
    {"batchnorm2d_backward", run_bn_backward, 5, 0, SHOW_Y, 1},
    {"batchnorm2d_backward, relu", run_bn_backward_relu, 5, 0, SHOW_Y, 1},
    {"maxpool2d_forward", run_maxpool_forward, 1.25, 0.25, SHOW_Y, 0.25},
    {"maxpool2d_backward", run_maxpool_backward, 1.25, 0.25, SHOW_Y, 1},
    {"avgpool2d_forward", run_avgpool_forward, 1.25, 0, SHOW_Y, 0.25},
    {"avgpool2d_backward", run_avgpool_backward, 1.25, 0, SHOW_Y, 1},
    {"global pool forward", run_global_pool_forward, 1, 0, SHOW_Y, 1.0 / (H * W)},
    {"global pool backward", run_global_pool_backward, 1, 0, SHOW_Y, 1},
    {"upsample nearest forward", run_nearest_forward, 1.25, 0, SHOW_Y, 1},
    {"upsample nearest backward", run_nearest_backward, 1.25, 0, SHOW_Y, 0.25},
    {"depthwise conv2d forward", run_depthwise_forward, 2, 0, SHOW_Y, 1},
    {"depthwise conv2d dx", run_depthwise_dx, 2, 0, SHOW_Y, 1},
    {"depthwise conv2d dw", run_depthwise_dw, 2, 0, SHOW_Y, -9.0 * C},
    {"cross_entropy_forward", run_loss_forward, 1, 0, SHOW_OUT, 0},
    {"cross_entropy_backward", run_loss_backward, 2, 0, SHOW_Y, 1},
    {"norm_squared", run_norm_squared, 1, 0, SHOW_NOTHING, 0},
    {"sgd with momentum", run_sgd, 5, 0, SHOW_Y, 1},
    {"adam", run_adam, 3, 16, SHOW_Y, 1},
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* ---- the bed ----------------------------------------------------------------------------------------------------- */

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "op_bandwidth: %s: %s\n", what, fr_last_error());
    exit(1);
}

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        fprintf(stderr, "op_bandwidth: out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static fr_dtype real_of(const arena *a) {
    return a->t == FR_F64 ? FR_F64 : FR_F32;
}

/* Numbers in [-1, 1) in x, dy and y, in [0, 1) in the optimizer's state; the twin holds the rounded numbers. */
static void arena_fill(arena *a, const arena *like) {
    const fri_backend *b = fri_backend_get(FR_CPU);
    void *const big[] = {a->x, a->dy, a->y, a->buf};
    void *const moments[] = {a->moment1, a->moment2};
    void *const small[] = {a->mean, a->invstd, a->gamma, a->beta, a->out};
    for (int i = 0; i < 4; i++) {
        if (like != NULL) {
            void *const from[] = {like->x, like->dy, like->y, like->buf};
            must(b->kernels.cast(&a->e, like->t, a->t, COUNT, from[i], big[i]), "cast");
        } else {
            must(a->k->uniform(&a->e, a->t, COUNT, 5, (uint64_t)i, i > 2 ? 0 : -1, 1, big[i]), "numbers");
        }
    }
    for (int i = 0; i < 2; i++)
        must(a->k->uniform(&a->e, real_of(a), COUNT, 6, (uint64_t)i, 0, 1, moments[i]), "numbers");
    for (int i = 0; i < 5; i++) {
        must(b->kernels.fill(&a->e, real_of(a), CLASSES, 0.5 + 0.1 * i, small[i]), "fill");
    }
    must(b->kernels.fill(&a->e, real_of(a), ROWS, 7, a->lse), "fill");
    for (int64_t i = 0; i < COUNT; i++) a->bits[i] = (uint8_t)(i % 4);
    for (int64_t i = 0; i < ROWS; i++) a->target[i] = i * 7 % CLASSES;
    *a->count = 3;
}

enum { ARRAYS = 16 };

/* Every array and the bytes, in a fixed order. */
static void arrays_of(arena *a, void **at[ARRAYS], size_t bytes[ARRAYS]) {
    const size_t n = (size_t)COUNT * fr_dtype_size(a->t), moment = (size_t)COUNT * fr_dtype_size(real_of(a));
    void *const all[ARRAYS] = {&a->x,   &a->dy,      &a->y,       &a->buf, &a->mean, &a->invstd, &a->gamma, &a->beta,
                               &a->out, &a->moment1, &a->moment2, &a->lse, &a->bits, &a->target, &a->bad,   &a->count};
    const size_t size[ARRAYS] =
        {n,           n,      n,      n,        CLASSES * 8,       CLASSES * 8, CLASSES * 8, CLASSES * 8,
         CLASSES * 8, moment, moment, ROWS * 8, (size_t)COUNT * 2, ROWS * 8,    8,           8};
    for (int i = 0; i < ARRAYS; i++) {
        at[i] = all[i];
        bytes[i] = size[i];
    }
}

static void *room_on(const fri_backend *b, size_t bytes) {
    void *p = NULL;
    if (b->device == FR_CPU) return room(bytes);
    must(b->segment_alloc(bytes, &p), "device memory");
    return p;
}

static void arena_make(arena *a, fr_dtype t, const fri_backend *b) {
    void **at[ARRAYS];
    size_t bytes[ARRAYS];
    *a = (arena){.k = fri_kernels_for(b, t), .t = t, .b = b};
    fri_batchnorm2d_desc d = norm(a);
    fri_loss_desc c = classes(a);
    const fri_conv2d_desc w = depthwise(a);
    size_t conv[3] = {0};
    must(a->k->conv2d_forward_workspace(&w, &conv[0]), "workspace");
    must(a->k->conv2d_backward_input_workspace(&w, &conv[1]), "workspace");
    must(a->k->conv2d_backward_weight_workspace(&w, &conv[2]), "workspace");
    a->e.workspace_bytes = a->k->batchnorm2d_workspace(&d) + a->k->sum_workspace(t, COUNT) +
                           a->k->cross_entropy_workspace(&c) + conv[0] + conv[1] + conv[2] + 4096;
    a->e.workspace = room_on(b, a->e.workspace_bytes);
    arrays_of(a, at, bytes);
    for (int i = 0; i < ARRAYS; i++) *at[i] = room_on(b, bytes[i]);
}

/* Copies all arrays between host and device arena. */
static void arena_move(arena *from, arena *to) {
    const bool there = to->b->device != FR_CPU;
    void **src[ARRAYS], **dst[ARRAYS];
    size_t bytes[ARRAYS];
    arrays_of(from, src, bytes);
    arrays_of(to, dst, bytes);
    for (int i = 0; i < ARRAYS; i++)
        must((there ? to : from)
                 ->b->copy(&(there ? to : from)->e, there ? FRI_COPY_HOST_TO_DEVICE : FRI_COPY_DEVICE_TO_HOST, *src[i],
                           *dst[i], bytes[i]),
             "copy");
}

static double element(const void *p, fr_dtype t, int64_t i) {
    double v = 0;
    fri_exec e = {0};
    const char *at = (const char *)p + i * (int64_t)fr_dtype_size(t);
    must(fri_backend_get(FR_CPU)->kernels.cast(&e, t, FR_F64, 1, at, &v), "cast");
    return v;
}

/* Compares with the twin at every 997th element; half types may differ by a rounding. */
static void check(int i, const arena *a, const arena *twin) {
    const double tolerance = a->t == FR_F32 ? 2e-5 : a->t == FR_BF16 ? 1.0 / 128 : 1.0 / 1024;
    const void *p = a->y, *q = twin->y;
    fr_dtype t = a->t, u = twin->t;
    const double share = kernels[i].shown_share;
    int64_t n = (int64_t)(share < 0 ? -share : share * (double)COUNT + 0.5);
    if (kernels[i].shown == SHOW_NOTHING) return;
    if (kernels[i].shown == SHOW_BITS) p = a->bits, q = twin->bits, t = u = FR_U8;
    if (kernels[i].shown == SHOW_OUT) p = a->out, q = twin->out, t = real_of(a), u = FR_F64, n = 1;
    if (kernels[i].shown == SHOW_STATS) p = a->invstd, q = twin->invstd, t = real_of(a), u = FR_F64, n = C;
    double largest = 1e-30, worst = 0;
    for (int64_t j = 0; j<n; j += n> 1000 ? 997 : 1) {
        double x = element(p, t, j), y = element(q, u, j);
        largest = fmax(largest, fabs(y));
        worst = fmax(worst, fabs(x - y));
    }
    if (worst <= tolerance * largest) return;
    fprintf(stderr, "op_bandwidth: %s differs from its f64 twin by %g of %g\n", kernels[i].name, worst, largest);
    exit(1);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

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

enum { REPEAT = 20 }; /* calls in a row on a device, so the wait does not count */

static double device_copy_ms(const arena *a, void *to, size_t bytes) {
    must(a->b->synchronize(&a->e), "wait");
    double began = milliseconds();
    for (int i = 0; i < REPEAT; i++) must(a->b->copy(&a->e, FRI_COPY_DEVICE_TO_DEVICE, a->x, to, bytes), "copy");
    must(a->b->synchronize(&a->e), "wait");
    return (milliseconds() - began) / REPEAT;
}

static double run_ms(int i, arena *a) {
    const int times = a->b->device == FR_CPU ? 1 : REPEAT;
    must(a->b->synchronize(&a->e), "wait");
    double began = milliseconds();
    for (int k = 0; k < times; k++) must(kernels[i].run(a), kernels[i].name);
    must(a->b->synchronize(&a->e), "wait");
    return (milliseconds() - began) / times;
}

typedef struct copying {
    const char *from;
    char *to;
    size_t bytes, parts;
} copying;

static void copy_part(const void *context, int64_t i, int thread) {
    const copying *c = context;
    const size_t size = c->bytes / c->parts, at = size * (size_t)i;
    (void)thread;
    memcpy(c->to + at, c->from + at, (size_t)i + 1 == c->parts ? c->bytes - at : size);
}

/* Each thread copies a part; reads and writes count. */
static double copy_ms(const arena *a, void *to, size_t bytes) {
    const int threads = fr_threads_get();
    const copying c = {a->x, to, bytes, (size_t)threads};
    if (a->b->device != FR_CPU) return device_copy_ms(a, to, bytes);
    double began = milliseconds();
    fri_parallel(threads, threads, copy_part, &c);
    return milliseconds() - began;
}

/* The CPU reads twice for the statistics, CUDA once. */
static double moved(int i, const arena *a) {
    const fr_dtype t = a->t;
    double size = (double)fr_dtype_size(t);
    double passes = kernels[i].run == run_bn_stats && a->b->device != FR_CPU ? 1 : kernels[i].elements;
    double bytes = kernels[i].bytes >= 0 ? kernels[i].bytes
                   : t == FR_F32         ? 2
                                         : 4; /* a cast writes the opposite
                                                                                    * width */
    return (double)COUNT * (passes * size + bytes);
}

static int usage(void) {
    fprintf(stderr,
            "usage: op_bandwidth [f32|bf16|f16] [rounds, 1..%d] [part of a kernel's name] [--device cpu|cuda] "
            "[--images 1..]\n",
            MAX_ROUNDS);
    return 2;
}

int main(int argc, char **argv) {
    const char *word[3] = {"f32", "9", ""}; /* type, rounds, part of a name */
    fr_device device = FR_CPU;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a row that is known stays if the rest is cut off */
    for (int i = 1, n = 0; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            if (fr_device_parse(argv[++i], &device) < 0 || device == FR_META) return usage();
        } else if (strcmp(argv[i], "--images") == 0 && i + 1 < argc) {
            images = atoi(argv[++i]);
        } else if (n < 3) {
            word[n++] = argv[i];
        } else {
            return usage();
        }
    }
    const char *name = word[0], *only = word[2];
    const int rounds = atoi(word[1]);
    fr_dtype t = strcmp(name, "f32") == 0    ? FR_F32
                 : strcmp(name, "bf16") == 0 ? FR_BF16
                 : strcmp(name, "f16") == 0  ? FR_F16
                                             : FR_I64;
    if (t == FR_I64 || images < 1 || rounds < 1 || rounds > MAX_ROUNDS) return usage();
    if (!fr_device_available(device)) {
        printf("op_bandwidth: skipped: %s\n", fr_device_reason(device));
        return 77;
    }
    static arena host, twin, there;
    const bool away = device != FR_CPU;
    arena *a = away ? &there : &host;
    arena_make(&host, t, fri_backend_get(FR_CPU));
    arena_make(&twin, FR_F64, fri_backend_get(FR_CPU));
    if (away) arena_make(&there, t, fri_backend_get(device));
    size_t bytes = (size_t)COUNT * fr_dtype_size(t);
    void *copied = room_on(a->b, bytes);
    char library[160] = "";
    a->b->describe(library, sizeof library);
    printf("%s, %lld x %d x %d x %d, %s, %d rounds\n\n", name, (long long)images, H, W, C, library, rounds);
    printf("| kernel | MB moved | ms | GB/s | of a copy |\n|---|---|---|---|---|\n");
    for (int i = 0; i < KERNELS; i++) {
        double ms[MAX_ROUNDS], share[MAX_ROUNDS];
        if (strstr(kernels[i].name, only) == NULL) continue;
        arena_fill(&host, NULL);
        arena_fill(&twin, &host);
        if (away) arena_move(&host, &there);
        must(kernels[i].run(a), kernels[i].name);
        must(kernels[i].run(&twin), kernels[i].name);
        if (away) arena_move(&there, &host);
        check(i, &host, &twin);
        for (int r = 0; r < rounds; r++) {
            double copy = 2.0 * (double)bytes / copy_ms(a, copied, bytes);
            ms[r] = run_ms(i, a);
            share[r] = moved(i, a) / ms[r] / copy;
        }
        double time = median(ms, rounds);
        printf("| %s | %.1f | %.3f | %.1f | %.0f %% |\n", kernels[i].name, moved(i, a) * 1e-6, time,
               moved(i, a) / time * 1e-6, 100 * median(share, rounds));
    }
    return 0;
}
