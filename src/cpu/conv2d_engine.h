/* conv2d_engine.h - one convolution pass on f32 or bf16 data: the way it is made, in how much scratch, and making it.
 *
 * Six ways: the library's convolution; its matrix product on columns in a bounded buffer, on pairs of pixels of the
 * smallest maps, or, for f32 unless exact convolutions are asked for, between Winograd's transforms; and loops of our
 * own for depthwise convolutions and for 1 x 1 ones of few channels. The choice depends on the layer's shape, the
 * element type and the pass, never on the batch size: a batch cut in two computes the same bits.
 * src/cpu/conv2d.c cuts what the engine cannot compute as stored (f16) into pieces that it can. */
#ifndef FRI_CPU_CONV2D_ENGINE_H
#define FRI_CPU_CONV2D_ENGINE_H

#include "cpu/cpu.h"
#include "cpu/dnnl.h"
#include "cpu/product.h"

typedef enum fri_conv2d_method {
    FRI_CONV2D_NONE, /* nothing but reference code computes this type here */
    FRI_CONV2D_AUTO, /* any of the others but Winograd's */
    FRI_CONV2D_DIRECT,
    FRI_CONV2D_IM2COL,
    FRI_CONV2D_WINOGRAD,
    FRI_CONV2D_PIXELS,
    FRI_CONV2D_DEPTHWISE,
    FRI_CONV2D_POINTWISE,
} fri_conv2d_method;

/* Division of a Winograd convolution's work among threads. */
typedef enum fri_conv2d_split {
    FRI_SPLIT_NONE, /* nothing: they share each chunk of tiles */
    FRI_SPLIT_TILES,
    FRI_SPLIT_OUT, /* channels that are made; dw: output channels */
    FRI_SPLIT_IN,  /* dw: input channels */
} fri_conv2d_split;

typedef struct fri_conv2d_engine {
    fri_conv2d_desc d;
    fri_pass pass;
    fri_conv2d_method method;
    size_t bytes; /* of workspace */

    size_t bias_at, weight_at, scratch_at; /* parts of it: a zero bias, packed weights, the library's scratchpad */
    const fri_dnnl_op *direct;

    /* im2col: rows (n, p) of the output are taken `rows` at a time; op[0] writes, op[1] adds, op[2] is for the last,
     * shorter piece. */
    const fri_dnnl_op *op[3];
    bool pointwise; /* the rows of x are the matrix: no col */
    int64_t rows, images;
    size_t col_at, sum_at; /* columns; f32 sums (bf16 dx of `images` images, or dw) */

    /* Winograd: op[0 .. 2] as above, over chunks of tiles and blocks of the channels that are read and made. */
    int64_t tiles, chunk, in, in_block, out, out_block;
    fri_conv2d_split split;
    int64_t workers;
    size_t worker_bytes; /* of each of them; pixels too */
    bool shared;         /* with FRI_SPLIT_OUT: all tiles are a chunk, whose V is made by all threads, once */
    bool apart;          /* each of the 36 products is a call on one thread */
    size_t v_at, u_at, m_at;

    fri_product product[2][2]; /* pixels: [is of the last, narrower block][adds] */

    const struct fri_conv2d_own *own; /* loops of our own, or NULL */
    int64_t parts;                    /* of them, for weights: sums of rows, at sum_at, which are then added */
    size_t norm_at, strip_at; /* where d.norm is set: its scale and shift; rows of x that each worker has made */
} fri_conv2d_engine;

/* How an instance is planned. method: what was asked for, mostly FRI_CONV2D_AUTO; e->method says what was taken. */
fr_status fri_conv2d_engine_plan(const fri_conv2d_desc *d, fri_pass pass, fri_conv2d_method method,
                                 fri_conv2d_engine *e);

/* Lays out what depends on the weights only; needed once before any number of runs. w: forward and backward input. */
fr_status fri_conv2d_engine_prepare(const fri_conv2d_engine *e, const void *w, char *workspace);

/* forward: a = x, b = w; backward input: a = dy, b = w; backward weight: a = x, b = dy. bias or NULL. */
fr_status fri_conv2d_engine_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                char *workspace);

/* conv2d_im2col.c */
fr_status fri_conv2d_im2col_plan(fri_conv2d_engine *e);
fr_status fri_conv2d_im2col_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                char *workspace);

/* conv2d_winograd.c: where it pays; and its plan, whose method is FRI_CONV2D_NONE where it cannot be done. */
enum { FRI_WINOGRAD_BYTES = 8 << 20 }; /* of workspace, at most */
bool fri_conv2d_winograd_pays(const fri_conv2d_desc *d, fri_pass pass);
fr_status fri_conv2d_winograd_plan(fri_conv2d_engine *e);
fr_status fri_conv2d_winograd_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                  char *workspace);

/* conv2d_pixels.c, likewise. */
bool fri_conv2d_pixels_pays(const fri_conv2d_desc *d);
fr_status fri_conv2d_pixels_plan(fri_conv2d_engine *e);
fr_status fri_conv2d_pixels_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias,
                                float *out, char *workspace);

/* Loops of our own, f32, depthwise weights' gradients in bf16 too: where they pay, what they need, and how they run.
 * in: x or dy; prepared weights are in the workspace. */
typedef struct fri_conv2d_own {
    bool (*pays)(const fri_conv2d_desc *d, fri_pass pass);
    bool (*reads_norm)(const fri_conv2d_desc *d); /* weights' gradients */
    void (*plan)(fri_conv2d_engine *e);
    void (*prepare)(const fri_conv2d_engine *e, const float *w, char *workspace);
    void (*run)(const fri_conv2d_engine *e, const float *in, const float *bias, float *out, const char *workspace);
    void (*run_weight)(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, char *workspace);
} fri_conv2d_own;

/* Vectors with which x is normalized, f32: scale = invstd * gamma and shift = beta lie in the workspace. */
typedef struct fri_conv2d_reader {
    const float *mean, *scale, *shift; /* mean NULL: x is read as it is */
    fri_activation act;
} fri_conv2d_reader;
fri_conv2d_reader fri_conv2d_reader_of(const fri_conv2d_engine *e, char *workspace);
/* y = normalized rows of `width` channels from c on; x and y begin at that channel. */
static inline void fri_conv2d_read(const fri_conv2d_reader *r, int64_t c, int64_t rows, int64_t width, int64_t ld,
                                   const float *x, float *y) {
    fri_cpu_norm_rows(rows, width, ld, x, r->mean + c, r->scale + c, r->shift + c, r->act, y);
}

/* conv2d_depthwise.c, conv2d_depthwise_weight.c, conv2d_pointwise.c, each for every width of a vector (lanes.h). */
enum { FRI_DEPTHWISE_TAPS = 7 }; /* of a filter, in each direction, at most */
#define FRI_CONV2D_OWN(suffix)                                                                                        \
    extern const fri_conv2d_own fri_conv2d_depthwise##suffix, fri_conv2d_pointwise##suffix;                           \
    void fri_conv2d_depthwise_weight_plan##suffix(fri_conv2d_engine *e);                                              \
    bool fri_conv2d_depthwise_weight_reads_norm##suffix(const fri_conv2d_desc *d);                                    \
    void fri_conv2d_depthwise_weight_run##suffix(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, \
                                                 char *workspace);
FRI_CONV2D_OWN()
#if defined(__x86_64__)
FRI_CONV2D_OWN(_v3)
FRI_CONV2D_OWN(_v4)
#endif

/* Parts of a workspace: each starts on a cache line. */
static inline size_t fri_part(size_t *total, size_t bytes) {
    size_t at = *total;
    *total += (bytes + 63) / 64 * 64;
    return at;
}

#endif
