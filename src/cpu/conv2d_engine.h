/* conv2d_engine.h - one convolution pass on f32 data (INDIRECT: also bf16): choice of method, workspace, execution.
 *
 * Methods: a product over pointers to pixels; a product between Winograd transforms (unless exact convolutions are
 * required); loops for depthwise convolutions (weight gradients also of bf16), for groups, and for weight gradients of
 * narrow 1 x 1 convolutions. The choice depends on layer shape, element type and pass, never on the batch size, so a
 * batch cut in two gives equal bits. conv2d.c converts half data in pieces. */
#ifndef FRI_CPU_CONV2D_ENGINE_H
#define FRI_CPU_CONV2D_ENGINE_H

#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/product.h"

typedef enum fri_conv2d_method {
    FRI_CONV2D_NONE, /* not possible; of AUTO: half data, which is widened */
    FRI_CONV2D_AUTO, /* any method but Winograd */
    FRI_CONV2D_INDIRECT,
    FRI_CONV2D_WINOGRAD,
    FRI_CONV2D_DEPTHWISE,
    FRI_CONV2D_POINTWISE,
    FRI_CONV2D_GROUPED,
} fri_conv2d_method;

/* How the work of a Winograd convolution is divided among threads. */
typedef enum fri_conv2d_split {
    FRI_SPLIT_NONE, /* not divided: threads share each chunk of tiles */
    FRI_SPLIT_TILES,
    FRI_SPLIT_OUT, /* output channels */
    FRI_SPLIT_IN,  /* dw: input channels */
} fri_conv2d_split;

typedef struct fri_conv2d_engine {
    fri_conv2d_desc d;
    fri_pass pass;
    fri_conv2d_method method;
    size_t bytes;         /* size of the workspace */
    fr_dtype weight_type; /* f32; INDIRECT for y and dx, WINOGRAD: also f16 and bf16, converted on the way */

    size_t bias_at, weight_at, scratch_at; /* offsets in the workspace: a zero bias, packed weights or taps, scratch of
                                              products */
    size_t room;                           /* for packed weights, at the beginning of the scratch */

    /* Winograd, over chunks of tiles and blocks of input and output channels. */
    int64_t tiles, chunk, in, in_block, out, out_block;
    fri_conv2d_split split;
    int64_t workers;
    size_t worker_bytes;
    bool shared; /* FRI_SPLIT_OUT only: a single chunk, whose V is computed once by all threads */
    size_t v_at, u_at, m_at;

    fri_product product[3]; /* Winograd: writes, adds, last shorter chunk */

    const struct fri_conv2d_own *own; /* own loops, or NULL */
    int64_t parts;                    /* partial sums of own loops for weights, at sum_at */
    size_t sum_at;
    size_t norm_at, strip_at; /* if d.norm is set: scale and shift; normalized rows of x per worker */
} fri_conv2d_engine;

/* Plans a pass. method: requested method, usually FRI_CONV2D_AUTO; e->method: chosen method. */
void fri_conv2d_engine_plan(const fri_conv2d_desc *d, fri_pass pass, fri_conv2d_method method, fri_conv2d_engine *e);

/* Prepares all that depends on the weights only; call once before any number of runs. For forward and backward
 * input. */
void fri_conv2d_engine_prepare(const fri_conv2d_engine *e, const void *w, char *workspace);

/* forward: a = x, b = w; backward input: a = dy, b = w; backward weight: a = x, b = dy. bias or NULL. */
void fri_conv2d_engine_run(const fri_conv2d_engine *e, const void *a, const void *b, const float *bias, void *out,
                           char *workspace);

/* Name of the method of a pass, for reports (static storage), or the error sentence if there is none. */
const char *fri_cpu_conv2d_impl(const fri_conv2d_desc *d, int pass);

/* conv2d_indirect.c: f32, and bf16 where the processor multiplies it */
void fri_conv2d_indirect_plan(fri_conv2d_engine *e);
bool fri_conv2d_indirect_reads_bf16(const fri_conv2d_desc *d, fri_pass pass); /* without conversion; y or dx are f32 */
void fri_conv2d_indirect_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias, float *out,
                             char *workspace);

/* conv2d_winograd.c: tells whether Winograd is faster, and plans it; e->method is FRI_CONV2D_NONE if not possible. */
enum { FRI_WINOGRAD_BYTES = 8 << 20 }; /* maximum of U, V and M; the scratch of products comes on top */
bool fri_conv2d_winograd_pays(const fri_conv2d_desc *d, fri_pass pass);
void fri_conv2d_winograd_plan(fri_conv2d_engine *e);
void fri_conv2d_winograd_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias, float *out,
                             char *workspace);

/* Own loops for f32 (depthwise weight gradients also bf16): whether they are faster, workspace, execution. in: x or
 * dy; prepared weights are in the workspace. */
typedef struct fri_conv2d_own {
    bool (*pays)(const fri_conv2d_desc *d, fri_pass pass);
    bool (*reads_norm)(const fri_conv2d_desc *d); /* for weight gradients */
    void (*plan)(fri_conv2d_engine *e);
    void (*prepare)(const fri_conv2d_engine *e, const float *w, char *workspace);
    void (*run)(const fri_conv2d_engine *e, const float *in, const float *bias, float *out, const char *workspace);
    void (*run_weight)(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, char *workspace);
} fri_conv2d_own;

/* Vectors that normalize x in f32: scale = invstd * gamma and shift = beta, stored in the workspace. */
typedef struct fri_conv2d_reader {
    const float *mean, *scale, *shift; /* mean NULL: x is not normalized */
    fri_activation act;
} fri_conv2d_reader;
fri_conv2d_reader fri_conv2d_reader_of(const fri_conv2d_engine *e, char *workspace);
/* y = normalized rows of `width` channels from c on; x and y begin at that channel. */
static inline void fri_conv2d_read(const fri_conv2d_reader *r, int64_t c, int64_t rows, int64_t width, int64_t ld,
                                   const float *x, float *y) {
    fri_cpu_norm_rows(rows, width, ld, x, r->mean + c, r->scale + c, r->shift + c, r->act, y);
}

/* conv2d_depthwise.c, conv2d_depthwise_weight.c, conv2d_grouped.c, conv2d_pointwise.c, compiled for every vector width
 * (lanes.h). */
enum { FRI_DEPTHWISE_TAPS = 7 }; /* maximum filter size in each direction */
#define FRI_CONV2D_OWN(suffix)                                                                                        \
    extern const fri_conv2d_own fri_conv2d_depthwise##suffix, fri_conv2d_grouped##suffix;                             \
    extern const fri_conv2d_own fri_conv2d_pointwise##suffix;                                                         \
    void fri_conv2d_depthwise_weight_plan##suffix(fri_conv2d_engine *e);                                              \
    bool fri_conv2d_depthwise_weight_reads_norm##suffix(const fri_conv2d_desc *d);                                    \
    void fri_conv2d_depthwise_weight_run##suffix(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, \
                                                 char *workspace);
FRI_CONV2D_OWN()
#if defined(__x86_64__)
FRI_CONV2D_OWN(_v3)
FRI_CONV2D_OWN(_v4)
#endif

/* Allocates a part of a workspace, aligned to a cache line. */
static inline size_t fri_part(size_t *total, size_t bytes) {
    size_t at = *total;
    *total += (bytes + 63) / 64 * 64;
    return at;
}

#endif
