/* product.h - matrix products in which a row's bits do not depend on the number of rows: by oneDNN with AVX-512 and for
 * half data, otherwise by our tiles (igemm.h). */
#ifndef FRI_CPU_PRODUCT_H
#define FRI_CPU_PRODUCT_H

#include "cpu/dnnl.h"
#include "cpu/igemm.h"

enum { FRI_BATCH_THREADS = 16 }; /* maximum number of threads that share a batch of our products */

typedef struct fri_product {
    fri_matmul_desc d;
    bool possible;
    const fri_dnnl_op *op; /* the library's; NULL: ours */
    size_t room, bytes;    /* size of packed weights, and of the whole workspace */
} fri_product;

/* The product of a layer y [rows, out] = x [rows, in] w^T + b, or of its gradients. dw = dy^T x: A is dy. */
fri_matmul_desc fri_product_of_layer(fri_pass pass, fr_dtype t, fr_dtype bias_t, int64_t rows, int64_t in, int64_t out);

/* p->possible is false if neither computes these types. */
fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p);

/* C = A B + bias, or C += A B; bias is read if d->bias. The workspace is 64-byte aligned. */
fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace);

/* True if the library computes f32 products of so many terms. Without AVX-512 it does not, because gemm:jit adds in
 * another order the rows beyond a multiple of six; oneDNN 3 splits a sum over 1,024 terms in two, except for a single
 * row. If A is transposed, its rows are channels, whose number does not depend on the batch: the library's. */
bool fri_product_by_library(int64_t terms, bool transposed);

/* Bytes for packed weights of a product C [rows, columns] of `terms` terms, at most `limit` (0: none); 0 if packing
 * once would not pay. */
size_t fri_igemm_room(int64_t rows, int64_t terms, int64_t columns, size_t limit);

/* Runs an indirect product on threads; over_pixels: run_pixels (igemm.h). The workspace begins with `room` bytes for
 * packed weights, fri_igemm_bytes() follow. Neither the room nor the division changes bits. */
size_t fri_igemm_bytes(void);
void fri_igemm_run(const fri_igemm *s, bool over_pixels, size_t room, char *workspace);

#endif
