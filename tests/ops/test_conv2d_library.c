/* test_conv2d_library.c - the convolutions of oneDNN, whichever of its implementations a shape gets, in memory full of
 * NaN against loops in f64: shapes drawn over groups, odd channels, widths, strides, dilations and paddings, each pass
 * of f32 and bf16, with and without a limit of scratch memory. FRUGAL_CONV_SHAPES: how many shapes. */
#include <stdio.h>

#include "ops/conv2d_ways.h"

enum { NAMES = 64, SUMS = 1 << 21 };

typedef struct tried {
    char name[96];
    fri_pass pass;
    int runs, wrong;
} tried;

typedef struct tally {
    tried row[NAMES];
    int rows, shapes, none;
} tally;

static const char *const pass_of[] = {"y", "dx", "dw"};

static tried *row_of(tally *t, const char *name, fri_pass pass) {
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].pass == pass && strcmp(t->row[i].name, name) == 0) return &t->row[i];
    cr_assert_lt(t->rows, NAMES);
    tried *row = &t->row[t->rows++];
    row->pass = pass;
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

static int64_t one_of(unsigned *state, int n, const int *of) {
    *state = *state * 1664525u + 1013904223u;
    return of[(*state >> 16) % (unsigned)n];
}
#define ONE_OF(...) one_of(state, sizeof((const int[]){__VA_ARGS__}) / sizeof(int), (const int[]){__VA_ARGS__})

static int64_t size_of(int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
    const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

/* Padding of a window: none, so that sizes stay, or so much that its ends meet padding only. */
static int64_t padding(unsigned *state, int64_t reach) {
    const int64_t kind = ONE_OF(0, 1, 1, 2, 3);
    return kind == 0 ? 0 : kind == 1 ? reach / 2 : kind == 2 ? reach : 1;
}

static fri_conv2d_desc draw(unsigned *state) {
    static const int channels[][3] = {{3, 8, 1},    {8, 8, 8},   {16, 16, 1},  {17, 17, 1},  {24, 24, 1},  {32, 48, 1},
                                      {64, 64, 1},  {16, 16, 4}, {48, 48, 3},  {32, 32, 32}, {24, 24, 24}, {40, 40, 5},
                                      {5, 7, 1},    {1, 1, 1},   {64, 128, 2}, {15, 30, 15}, {6, 9, 3},    {33, 66, 1},
                                      {72, 72, 72}, {48, 16, 1}, {2, 32, 1},   {128, 20, 1}, {96, 96, 6},  {7, 7, 7}};
    const int *c = channels[one_of(state, 24, (const int[]){0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                                            12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})];
    fri_conv2d_desc d = {.n = ONE_OF(1, 1, 3),
                         .h = ONE_OF(1, 2, 5, 14, 30),
                         .w = ONE_OF(1, 3, 7, 14, 28, 29, 30, 48, 61, 113),
                         .c = c[0],
                         .k = c[1],
                         .groups = c[2],
                         .r = ONE_OF(1, 1, 2, 3, 3, 3, 5, 7),
                         .stride_h = ONE_OF(1, 1, 1, 2, 3),
                         .dilation_h = ONE_OF(1, 1, 2, 2, 3, 5),
                         .bias = true};
    const bool square = ONE_OF(0, 1, 1);
    d.s = square ? d.r : ONE_OF(1, 2, 3, 4);
    d.stride_w = square ? d.stride_h : ONE_OF(1, 1, 2, 3);
    d.dilation_w = square ? d.dilation_h : ONE_OF(1, 1, 2, 3);
    d.pad_h = padding(state, (d.r - 1) * d.dilation_h);
    d.pad_w = padding(state, (d.s - 1) * d.dilation_w);
    d.p = size_of(d.h, d.pad_h, d.dilation_h, d.r, d.stride_h);
    d.q = size_of(d.w, d.pad_w, d.dilation_w, d.s, d.stride_w);
    return d;
}

/* The largest error as a share of the largest value, or of what sums of so many products usually are. */
static double error_of(const ways_data *t) {
    const fri_conv2d_desc *d = &t->d;
    const int64_t window = d->r * d->s, terms = t->pass == FRI_PASS_FORWARD          ? window * d->c / d->groups
                                                : t->pass == FRI_PASS_BACKWARD_INPUT ? window * d->k / d->groups
                                                                                     : d->n * d->p * d->q;
    char *got = ways_run(t, FRI_CONV2D_DIRECT);
    double largest = sqrt((double)terms) / 3, error = 0;
    for (int64_t i = 0; i < t->results; i++) {
        const double by = fabs(ways_value(t, got, i) - t->expected[i]);
        if (!(by <= error)) error = by; /* NaN, too */
        largest = fmax(largest, fabs(t->expected[i]));
    }
    free(got);
    return error / largest;
}

static void try_pass(tally *t, const fri_conv2d_desc *d, fri_pass pass) {
    fri_conv2d_engine e;
    must(fri_conv2d_engine_plan(d, pass, FRI_CONV2D_DIRECT, &e));
    if (e.method == FRI_CONV2D_NONE) {
        t->none++;
        return;
    }
    tried *row = row_of(t, e.direct->name[FRI_DNNL_PLAIN], pass);
    ways_data data = ways_make(d, pass);
    const double off = error_of(&data);
    const bool right = off < (d->dtype == FR_F32 ? 1e-5 : 8e-3);
    row->runs++;
    row->wrong += !right;
    cr_expect(right,
              "%s of %s by %s: x [%d, %d, %d, %d], w [%d, %d, %d, %d], groups %d, stride %d x %d, padding %d x %d, "
              "dilation %d x %d, y %d x %d, limit %zu: off by %g of the largest value",
              pass_of[pass], fr_dtype_name(d->dtype), row->name, (int)d->n, (int)d->h, (int)d->w, (int)d->c, (int)d->k,
              (int)d->r, (int)d->s, (int)(d->c / d->groups), (int)d->groups, (int)d->stride_h, (int)d->stride_w,
              (int)d->pad_h, (int)d->pad_w, (int)d->dilation_h, (int)d->dilation_w, (int)d->p, (int)d->q,
              d->workspace_limit, off);
    ways_drop(&data);
}

static void try_shape(tally *t, fri_conv2d_desc d) {
    static const size_t limits[] = {0, 1};
    t->shapes++;
    for (int i = 0; i < 4; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
            d.dtype = d.bias_dtype = i % 2 ? FR_BF16 : FR_F32;
            d.workspace_limit = limits[i / 2];
            try_pass(t, &d, pass);
        }
}

Test(conv2d_library, every_implementation_that_a_shape_gets_is_right, .timeout = 3600) {
    const char *wanted = getenv("FRUGAL_CONV_SHAPES");
    const int shapes = wanted != NULL ? atoi(wanted) : 150;
    tally t = {0};
    unsigned state = 1;
    cpu_only("oneDNN is the CPU's");
    if (fri_dnnl()->major == 0) cr_skip_test("oneDNN is not used here");
    while (t.shapes < shapes) {
        const fri_conv2d_desc d = draw(&state);
        if (d.p < 1 || d.q < 1 || d.n * d.p * d.q * d.k * d.r * d.s * (d.c / d.groups) > SUMS) continue;
        try_shape(&t, d);
    }
    if (wanted != NULL) {
        fprintf(stderr, "%d shapes, %d passes without an implementation\n", t.shapes, t.none);
        for (int i = 0; i < t.rows; i++)
            fprintf(stderr, "%-3s %-40s %6d runs, %d wrong\n", pass_of[t.row[i].pass], t.row[i].name, t.row[i].runs,
                    t.row[i].wrong);
    }
    cr_expect_gt(t.rows, 3, "%d implementations", t.rows);
}

/* The smallest shapes that were wrong: on AVX-512 with bf16, on AMX, on AVX2. */
Test(conv2d_library, shapes_that_were_wrong) {
    static const int shape[][9] = {/* h w c k groups kernel stride padding dilation */
                                   {30, 48, 8, 8, 8, 3, 1, 2, 2},   {14, 16, 96, 64, 1, 1, 2, 1, 1},
                                   {14, 3, 128, 20, 1, 1, 3, 1, 1}, {14, 16, 128, 64, 1, 1, 2, 1, 1},
                                   {14, 7, 64, 20, 1, 1, 3, 1, 1},  {5, 29, 33, 66, 1, 1, 1, 0, 2},
                                   {5, 3, 33, 66, 1, 3, 1, 2, 2},   {14, 48, 1, 16, 1, 1, 2, 0, 1},
                                   {30, 3, 40, 40, 5, 3, 2, 0, 1},  {5, 61, 48, 16, 1, 3, 1, 1, 1}};
    tally t = {0};
    cpu_only("oneDNN is the CPU's");
    if (fri_dnnl()->major == 0) cr_skip_test("oneDNN is not used here");
    must(fr_threads_set(2));
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const int *v = shape[i];
        fri_conv2d_desc d = {.n = 3, .h = v[0], .w = v[1], .c = v[2], .k = v[3], .groups = v[4], .r = v[5], .s = v[5]};
        d.stride_h = d.stride_w = v[6];
        d.pad_w = v[7];
        d.pad_h = i == 0 ? v[7] : 0;
        d.dilation_h = d.dilation_w = v[8];
        d.p = size_of(d.h, d.pad_h, d.dilation_h, d.r, d.stride_h);
        d.q = size_of(d.w, d.pad_w, d.dilation_w, d.s, d.stride_w);
        try_shape(&t, d);
    }
}
