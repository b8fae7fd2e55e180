/* conv2d.c - convolution kernels for f32, f16 and bf16 data.
 *
 * f32 data, and bf16 data of depthwise weight gradients, are passed to the engine unchanged. Other half data is
 * converted to f32 in pieces: whole images, or output rows of one large image, are converted into the workspace and
 * computed there. Products and Winograd transforms convert weights as they read them, and transforms convert dw of a
 * single piece as they write it. Where the processor multiplies bf16, x, dy and the weights stay bf16, and results
 * alone are f32. A piece of rows contains its padding as zero rows, so that all pieces have one shape. Rows of dx
 * shared by two pieces are carried over in f32; dw is summed over pieces in order, in f32. Pieces depend on the shape
 * only, but those of y, which change no bit, on the limit, too. */
#include "base/process.h"
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "cpu/half_rows.h"

/* Target size of the f32 copies of x and y and their buffers. On a core of AMD Zen 5, pieces of 4 MiB take 0.94 to 0.98
 * of the time of 16 MiB (bf16 steps of five networks). */
enum { PIECE_BYTES = 4 << 20 };

static const char *const pass_name[] = {
    [FRI_PASS_FORWARD] = "conv2d_forward",
    [FRI_PASS_BACKWARD_INPUT] = "conv2d_backward_input",
    [FRI_PASS_BACKWARD_WEIGHT] = "conv2d_backward_weight",
};

typedef struct plan {
    bool widened;
    bool narrow;                    /* the engine reads the half data itself and writes f32 */
    bool packs;                     /* the engine reads or writes the weights as they are */
    fri_conv2d_engine engine, tail; /* tail: the last, smaller piece; widened only */
    int64_t images, rows;           /* of a piece; rows < P only if images == 1 */
    int64_t reach, overlap;         /* input rows under one output row; rows shared with the next piece */
    size_t x_at, y_at, w_at, bias_at, carry_at, sum_at, engine_at, bytes;
} plan;

static int64_t input_rows(const fri_conv2d_desc *d, const plan *p, int64_t rows) {
    return (rows - 1) * d->stride_h + p->reach;
}

/* f32 convolution of one piece. */
static fri_conv2d_desc piece_desc(const fri_conv2d_desc *d, const plan *p, int64_t images, int64_t rows) {
    fri_conv2d_desc piece = *d;
    piece.dtype = p->narrow ? d->dtype : FR_F32;
    piece.bias_dtype = FR_F32;
    piece.n = images;
    if (p->rows < d->p) {
        piece.h = input_rows(d, p, rows);
        piece.p = rows;
        piece.pad_h = 0;
    }
    return piece;
}

/* True if Winograd is faster for f32 data, and so for f32 copies of half data. */
static bool winograd_pays(const fri_conv2d_desc *d, fri_pass pass) {
    fri_conv2d_desc wide = *d;
    wide.dtype = wide.bias_dtype = FR_F32;
    return !fri_exact_convolutions_get() && fri_conv2d_winograd_pays(&wide, pass);
}

/* Plans the engine of a piece: Winograd, or another method if Winograd is not possible. */
static void plan_piece(const fri_conv2d_desc *piece, fri_pass pass, bool winograd, fri_conv2d_engine *e) {
    if (winograd) fri_conv2d_engine_plan(piece, pass, FRI_CONV2D_WINOGRAD, e);
    if (!winograd || e->method == FRI_CONV2D_NONE) fri_conv2d_engine_plan(piece, pass, FRI_CONV2D_AUTO, e);
}

/* True if the engine converts the weights as it reads them, or dw as it writes each element once. */
static bool converts_weights(const fri_conv2d_engine *e, bool several) {
    const bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
    return (e->method == FRI_CONV2D_INDIRECT && !dw) || (e->method == FRI_CONV2D_WINOGRAD && !(dw && several));
}

static void plan_widened(const fri_conv2d_desc *d, fri_pass pass, plan *p) {
    enum { TILE = 4 }; /* tile height of Winograd: pieces of whole tiles give equal y under any limit */
    const bool winograd = winograd_pays(d, pass);
    size_t target = PIECE_BYTES;
    const size_t limit = pass == FRI_PASS_FORWARD ? d->workspace_limit : 0;
    if (limit > 0 && limit < target) target = limit;
    int64_t fit = (int64_t)(target / sizeof(float));
    int64_t x_row = d->w * d->c, y_row = d->q * d->k, weights = d->k * d->r * d->s * (d->c / d->groups);
    p->widened = true;
    p->narrow = !winograd && fri_conv2d_indirect_reads_bf16(d, pass);
    p->reach = (d->r - 1) * d->dilation_h + 1;
    p->overlap = fri_max_i64(0, p->reach - d->stride_h);
    p->images = fri_min_i64(d->n, fit / (d->h * x_row + d->p * y_row));
    p->rows = d->p;
    if (p->images == 0) {
        p->images = 1;
        int64_t rows = (fit - (p->reach - d->stride_h) * x_row) / (d->stride_h * x_row + y_row);
        p->rows = fri_min_i64(d->p, fri_max_i64(1, rows));
        if (winograd && p->rows < d->p) p->rows = fri_min_i64(d->p, fri_max_i64(TILE, p->rows - p->rows % TILE));
    }
    fri_conv2d_desc piece = piece_desc(d, p, p->images, p->rows);
    plan_piece(&piece, pass, winograd, &p->engine);
    size_t engine_bytes = p->engine.bytes;
    int64_t tail_images = d->n % p->images, tail_rows = d->p % p->rows;
    if (tail_images > 0 || tail_rows > 0) {
        fri_conv2d_desc rest = piece_desc(d, p, tail_images > 0 ? tail_images : 1, tail_rows > 0 ? tail_rows : d->p);
        fri_conv2d_engine_plan(&rest, pass, p->engine.method, &p->tail);
        if (p->tail.method == FRI_CONV2D_NONE) plan_piece(&rest, pass, winograd, &p->tail);
        if (p->tail.bytes > engine_bytes) engine_bytes = p->tail.bytes;
    }
    bool dw = pass == FRI_PASS_BACKWARD_WEIGHT, several = p->images < d->n || p->rows < d->p;
    p->x_at = fri_part(&p->bytes, (size_t)(p->images * piece.h * x_row) * sizeof(float));
    p->y_at = fri_part(&p->bytes, (size_t)(p->images * piece.p * y_row) * sizeof(float));
    p->packs = converts_weights(&p->engine, several) &&
               (p->tail.method == FRI_CONV2D_NONE || converts_weights(&p->tail, several));
    if (p->packs && !p->narrow) p->engine.weight_type = p->tail.weight_type = d->dtype;
    if (!p->packs) p->w_at = fri_part(&p->bytes, (size_t)weights * sizeof(float));
    if (pass == FRI_PASS_FORWARD) p->bias_at = fri_part(&p->bytes, (size_t)d->k * sizeof(float));
    if (pass == FRI_PASS_BACKWARD_INPUT && p->rows < d->p)
        p->carry_at = fri_part(&p->bytes, (size_t)(p->overlap * x_row) * sizeof(float));
    if (dw && several) p->sum_at = fri_part(&p->bytes, (size_t)weights * sizeof(float));
    p->engine_at = fri_part(&p->bytes, engine_bytes);
}

static fr_status make_plan(const fri_conv2d_desc *d, fri_pass pass, plan *p) {
    memset(p, 0, sizeof *p);
    FRI_TRY(fri_cpu_accepts(pass_name[pass], d->dtype));
    if (d->n == 0) return FR_OK;
    if (d->dtype == FR_F32 || (d->dtype == FR_BF16 && pass == FRI_PASS_BACKWARD_WEIGHT))
        plan_piece(d, pass, d->dtype == FR_F32 && winograd_pays(d, pass), &p->engine);
    p->bytes = p->engine.bytes;
    if (p->engine.method != FRI_CONV2D_NONE) return FR_OK;
    memset(p, 0, sizeof *p);
    plan_widened(d, pass, p);
    return FR_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

static const char *half_at(const fri_conv2d_desc *d, const void *base, int64_t elements) {
    return (const char *)base + (size_t)elements * fr_dtype_size(d->dtype);
}

/* Reads input rows first .. first + rows of image n, or `images` whole images: converted to f32, or as they are. Rows
 * outside the image are zero. */
static const void *take_x(const fri_conv2d_desc *d, const plan *p, int64_t n, int64_t images, int64_t first,
                          int64_t rows, const void *x, void *copy) {
    const int64_t line = d->w * d->c, image = d->h * line;
    if (p->rows == d->p) {
        const char *at = half_at(d, x, n * image);
        if (p->narrow) return at;
        fri_cpu_widen_rows(d->dtype, images, image, at, image, copy);
        return copy;
    }
    const int64_t from = fri_max_i64(first, 0), to = fri_max_i64(from, fri_min_i64(first + rows, d->h));
    const char *at = half_at(d, x, n * image + from * line);
    memset(copy, 0, (size_t)(rows * line) * sizeof(float));
    if (p->narrow)
        memcpy((char *)(uintptr_t)half_at(d, copy, (from - first) * line), at,
               (size_t)((to - from) * line) * fr_dtype_size(d->dtype));
    else
        fri_cpu_widen_rows(d->dtype, to - from, line, at, line, (float *)copy + (from - first) * line);
    return copy;
}

/* Writes the part of dx that is complete after a piece; the rest is carried to the next piece of the image. */
static void narrow_dx(const fri_conv2d_desc *d, const plan *p, int64_t n, int64_t images, int64_t row, int64_t rows,
                      float *wide, float *carry, void *dx) {
    int64_t line = d->w * d->c, image = d->h * line;
    char *out = (char *)dx + (size_t)(n * image) * fr_dtype_size(d->dtype);
    if (p->rows == d->p) {
        fri_cpu_narrow_rows(d->dtype, images, image, wide, out, image);
        return;
    }
    bool last = row + rows == d->p;
    int64_t height = input_rows(d, p, rows), step = rows * d->stride_h, first = row * d->stride_h - d->pad_h;
    if (row == 0) /* rows not touched by a window, and gaps between windows */
        memset(out, 0, (size_t)image * fr_dtype_size(d->dtype));
    else
        fri_cpu_add_rows(p->overlap * line, carry, wide);
    int64_t done = last ? height : fri_min_i64(height, step);
    int64_t from = fri_max_i64(first, 0), to = fri_max_i64(from, fri_min_i64(first + done, d->h));
    fri_cpu_narrow_rows(d->dtype, to - from, line, wide + (from - first) * line,
                        out + (size_t)(from * line) * fr_dtype_size(d->dtype), line);
    if (!last) memcpy(carry, wide + step * line, (size_t)(p->overlap * line) * sizeof *carry);
}

static void run_widened(const fri_conv2d_desc *d, fri_pass pass, const plan *p, const void *a, const void *b,
                        const void *bias, void *out, char *workspace) {
    float *x = (float *)(void *)(workspace + p->x_at), *y = (float *)(void *)(workspace + p->y_at);
    float *w = (float *)(void *)(workspace + p->w_at), *sum = (float *)(void *)(workspace + p->sum_at);
    float *wide_bias = (float *)(void *)(workspace + p->bias_at);
    char *scratch = workspace + p->engine_at;
    int64_t weights = d->k * d->r * d->s * (d->c / d->groups), y_row = d->q * d->k;
    bool dw = pass == FRI_PASS_BACKWARD_WEIGHT;
    const void *dy = dw ? b : a;
    const fri_conv2d_engine *prepared = NULL;
    const void *filter = p->packs ? b : w, *x_part = x, *y_part = y;
    if (!dw && !p->packs) fri_cpu_widen_rows(d->dtype, 1, weights, b, weights, w);
    if (bias != NULL && d->bias_dtype != FR_F32) {
        fri_cpu_widen(d->bias_dtype, d->k, bias, wide_bias);
        bias = wide_bias;
    }
    for (int64_t n = 0; n < d->n; n += p->images) {
        int64_t images = fri_min_i64(p->images, d->n - n);
        for (int64_t row = 0; row < d->p; row += p->rows) {
            int64_t rows = fri_min_i64(p->rows, d->p - row), y_elements = images * rows * y_row;
            int64_t first = row * d->stride_h - d->pad_h, y_first = (n * d->p + row) * y_row;
            const fri_conv2d_engine *e = images < p->images || rows < p->rows ? &p->tail : &p->engine;
            if (e != prepared) fri_conv2d_engine_prepare(e, filter, scratch);
            prepared = e;
            if (pass != FRI_PASS_BACKWARD_INPUT) x_part = take_x(d, p, n, images, first, input_rows(d, p, rows), a, x);
            if (pass != FRI_PASS_FORWARD && p->narrow)
                y_part = half_at(d, dy, y_first);
            else if (pass != FRI_PASS_FORWARD)
                fri_cpu_widen_rows(d->dtype, 1, y_elements, half_at(d, dy, y_first), y_elements, y);
            switch (pass) {
            case FRI_PASS_FORWARD:
                fri_conv2d_engine_run(e, x_part, filter, bias, y, scratch);
                fri_cpu_narrow_rows(d->dtype, 1, y_elements, y, (char *)(uintptr_t)half_at(d, out, y_first),
                                    y_elements);
                break;
            case FRI_PASS_BACKWARD_INPUT:
                fri_conv2d_engine_run(e, y_part, filter, NULL, x, scratch);
                narrow_dx(d, p, n, images, row, rows, x, (float *)(void *)(workspace + p->carry_at), out);
                break;
            case FRI_PASS_BACKWARD_WEIGHT:
                fri_conv2d_engine_run(e, x_part, y, NULL, p->packs ? out : n + row == 0 ? w : sum, scratch);
                if (n + row > 0) fri_cpu_add_rows(weights, sum, w);
                break;
            }
        }
    }
    if (dw && !p->packs) fri_cpu_narrow_rows(d->dtype, 1, weights, w, out, weights);
}

/* ---- the kernels ----------------------------------------------------------------------------------------- */

static fr_status workspace_of(const fri_conv2d_desc *d, fri_pass pass, size_t *bytes) {
    plan p;
    fr_status s = make_plan(d, pass, &p);
    if (s >= 0) *bytes = p.bytes;
    return s;
}

static fr_status run(const fri_exec *e, const fri_conv2d_desc *d, fri_pass pass, const void *a, const void *b,
                     const void *bias, void *out) {
    plan p;
    void *workspace = NULL;
    fr_status s = make_plan(d, pass, &p);
    if (s >= 0) s = fri_cpu_workspace(e, pass_name[pass], p.bytes, &workspace);
    if (s < 0 || d->n == 0) return s;
    if (p.widened) {
        run_widened(d, pass, &p, a, b, bias, out, workspace);
    } else {
        fri_conv2d_engine_prepare(&p.engine, b, workspace);
        fri_conv2d_engine_run(&p.engine, a, b, bias, out, workspace);
    }
    return FR_OK;
}

fr_status fri_cpu_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_FORWARD, bytes);
}

fr_status fri_cpu_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                 const void *b, void *y) {
    return run(e, d, FRI_PASS_FORWARD, x, w, b, y);
}

fr_status fri_cpu_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_BACKWARD_INPUT, bytes);
}

fr_status fri_cpu_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                        void *dx) {
    return run(e, d, FRI_PASS_BACKWARD_INPUT, dy, w, NULL, dx);
}

fr_status fri_cpu_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_BACKWARD_WEIGHT, bytes);
}

bool fri_cpu_conv2d_reads_norm(const fri_conv2d_desc *d) {
    plan p;
    return d->dtype == FR_F32 && d->n > 0 && make_plan(d, FRI_PASS_BACKWARD_WEIGHT, &p) >= 0 && p.engine.own != NULL &&
           p.engine.own->reads_norm(d);
}

fr_status fri_cpu_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                         void *dw) {
    return run(e, d, FRI_PASS_BACKWARD_WEIGHT, x, dy, NULL, dw);
}

fr_status fri_cpu_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    fr_status s = fri_cpu_accepts("conv2d_backward_bias", d->dtype);
    if (s >= 0) fri_cpu_sum_rows(d->dtype, d->n * d->p * d->q, d->k, dy, d->bias_dtype, db);
    return s;
}

const char *fri_cpu_conv2d_impl(const fri_conv2d_desc *d, int pass) {
    plan p;
    if (make_plan(d, (fri_pass)pass, &p) < 0) return fr_last_error();
    if (p.engine.method == FRI_CONV2D_WINOGRAD) return p.widened ? "widened:winograd:f4x3" : "winograd:f4x3";
    if (p.narrow) return "bf16:indirect";
    if (p.engine.method == FRI_CONV2D_INDIRECT) return p.widened ? "widened:indirect" : "indirect";
    if (p.engine.method == FRI_CONV2D_DEPTHWISE) return p.widened ? "widened:depthwise" : "depthwise";
    if (p.engine.method == FRI_CONV2D_GROUPED) return p.widened ? "widened:grouped" : "grouped";
    if (p.engine.method == FRI_CONV2D_POINTWISE) return p.widened ? "widened:pointwise" : "pointwise";
    return "nothing to do";
}
