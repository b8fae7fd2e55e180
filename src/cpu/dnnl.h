/* dnnl.h - convolutions and matrix products by oneDNN, where the build has the module libfrugal-onednn.so.
 *
 * An operation is created once per (shape, element types, pass, threads) and kept for the life of the process. The
 * library's `ref:` implementations are never used: if only those exist, *op is NULL. Planning (creating an operation,
 * asking for sizes) needs no data; the first run generates the machine code. The caller provides all scratch, 64-byte
 * aligned. All functions are thread-safe. */
#ifndef FRI_CPU_DNNL_H
#define FRI_CPU_DNNL_H

#include "backend/kernels.h"

typedef enum fri_pass {
    FRI_PASS_FORWARD,
    FRI_PASS_BACKWARD_INPUT,
    FRI_PASS_BACKWARD_WEIGHT,
} fri_pass;

/* C [m, n] = A [m, k] B [k, n] (+ bias [n]); strides in elements, with a 1 in each pair. batch > 0: number of
 * products, without bias, whose matrices are a_batch, b_batch, c_batch elements apart. */
typedef struct fri_matmul_desc {
    fr_dtype a_dtype, b_dtype, c_dtype, bias_dtype;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row; /* element (i, j) of A is a[i * a_row + j * a_col] */
    int64_t batch, a_batch, b_batch, c_batch;
    bool bias;
    bool alone;      /* run by one thread of a parallel region */
    fri_accum accum; /* FRI_ADD: C += A B */
} fri_matmul_desc;

/* Use of an operation, part of the name in reports: alone, as a 1 x 1 convolution, on widened data, between Winograd's
 * transforms. */
typedef enum fri_dnnl_use {
    FRI_DNNL_PLAIN,
    FRI_DNNL_PRODUCT,
    FRI_DNNL_WIDENED,
    FRI_DNNL_PRODUCT_WIDENED,
    FRI_DNNL_WINOGRAD,
    FRI_DNNL_WINOGRAD_WIDENED,
} fri_dnnl_use;
enum { FRI_DNNL_USES = FRI_DNNL_WINOGRAD_WIDENED + 1 };

typedef struct fri_dnnl_op {
    size_t scratch_bytes;         /* for run, pack and unpack alike */
    size_t packed_bytes;          /* of the weights (or their gradient) in the operation's layout; 0: KRSC */
    char name[FRI_DNNL_USES][96]; /* by fri_dnnl_use */
} fri_dnnl_op;

typedef struct fri_dnnl_calls {
    /* Convolution pass described by d, for f32 or bf16 data. A forward convolution always has a bias and follows
     * accumulate and relu. */
    fr_status (*conv2d)(const fri_conv2d_desc *d, fri_pass pass, const fri_dnnl_op **op);
    /* Vectors (m or n of 1) are dense, else *op is NULL. */
    fr_status (*matmul)(const fri_matmul_desc *d, const fri_dnnl_op **op);
    fr_status (*pack)(const fri_dnnl_op *op, const void *krsc, void *packed, void *scratch);
    fr_status (*unpack)(const fri_dnnl_op *op, const void *packed, void *krsc, void *scratch);
    /* Copies weights from one operation's layout to another's, in blocks and without scratch; NULL: KRSC. Both
     * operations have the same weights. */
    fr_status (*repack)(const fri_dnnl_op *from_op, const void *from, const fri_dnnl_op *to_op, void *to);
    /* forward: a = x, b = w, out = y; backward input: a = dy, b = w, out = dx; backward weight: a = x, b = dy,
     * out = dw; matmul: A, B, C. bias is read by operations that have one. */
    fr_status (*run)(const fri_dnnl_op *op, const void *a, const void *b, const void *bias, void *out, void *scratch);
    /* "oneDNN 2.6.3, avx512_core_bf16": version and instruction set in effect; without oneDNN "own kernels, avx2". */
    void (*version)(char *buf, size_t n);
    /* True if oneDNN multiplies bf16 matrices by tiles (AMX), many times as fast as f32 vectors. */
    bool (*has_tiles)(void);
    int major; /* 2 or 3; 0: without oneDNN, when no operation exists */
} fri_dnnl_calls;

/* The module's functions, or those of a processor or a build without oneDNN. */
const fri_dnnl_calls *fri_dnnl(void);

/* Name of the implementation of a pass, for reports (static storage), or the error sentence if there is none. */
const char *fri_cpu_conv2d_impl(const fri_conv2d_desc *d, int pass);

#endif
