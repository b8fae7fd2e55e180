/* product.h - matrix products of f32 (igemm.h), in which a row's bits do not depend on the number of rows. */
#ifndef FRI_CPU_PRODUCT_H
#define FRI_CPU_PRODUCT_H

#include "backend/kernels.h"
#include "cpu/igemm.h"

typedef enum fri_pass {
    FRI_PASS_FORWARD,
    FRI_PASS_BACKWARD_INPUT,
    FRI_PASS_BACKWARD_WEIGHT,
} fri_pass;

/* C [m, n] = A [m, k] B [k, n] (+ bias [n]); strides in elements, with a 1 in each pair. batch > 0: number of
 * products, without bias, whose matrices are a_batch, b_batch, c_batch elements apart. */
typedef struct fri_matmul_desc {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row; /* element (i, j) of A is a[i * a_row + j * a_col] */
    int64_t batch, a_batch, b_batch, c_batch;
    bool bias;
    bool alone;      /* run by one thread of a parallel region */
    fri_accum accum; /* FRI_ADD: C += A B */
} fri_matmul_desc;

enum { FRI_BATCH_THREADS = 16 }; /* maximum number of threads that share a batch of our products */

typedef struct fri_product {
    fri_matmul_desc d;
    size_t room, scratch, bytes; /* size of packed weights, of a task's scratch, and of the whole workspace */
} fri_product;

/* The product of a layer y [rows, out] = x [rows, in] w^T + b, or of its gradients. dw = dy^T x: A is dy. */
fri_matmul_desc fri_product_of_layer(fri_pass pass, int64_t rows, int64_t in, int64_t out);

void fri_product_plan(const fri_matmul_desc *d, fri_product *p);

/* C = A B + bias, or C += A B; bias is read if d->bias. The workspace is 64-byte aligned. */
void fri_product_run(const fri_product *p, const float *a, const float *b, const float *bias, float *c,
                     char *workspace);

/* Bytes for packed weights of a product C [rows, columns] of `terms` terms, at most `limit` (0: none); 0 if packing
 * once would not pay. */
size_t fri_igemm_room(int64_t rows, int64_t terms, int64_t columns, size_t limit);

/* Runs an indirect product on threads; over_pixels: run_pixels (igemm.h). The workspace begins with `room` bytes for
 * packed weights, fri_igemm_bytes() follow: for as many tasks as the product, or a larger one, has. Neither the room
 * nor the division changes bits. */
size_t fri_igemm_bytes(const fri_igemm *s, bool over_pixels);
bool fri_igemm_reads_bf16(void); /* the processor multiplies bf16 */
void fri_igemm_run(const fri_igemm *s, bool over_pixels, size_t room, char *workspace);

#endif
