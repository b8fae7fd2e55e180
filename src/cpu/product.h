/* product.h - a matrix product by oneDNN in which a row's bits do not depend on the number of rows. */
#ifndef FRI_CPU_PRODUCT_H
#define FRI_CPU_PRODUCT_H

#include "cpu/dnnl.h"

typedef struct fri_product {
    fri_matmul_desc d;
    const fri_dnnl_op *op; /* for the whole product */
    /* Blocks of columns of C, computed by one thread each, if bits would depend on the rows. 0: op computes all of
     * C. */
    int64_t blocks, block;
    const fri_dnnl_op *part[2][2];                         /* [last block][copied rows] */
    size_t rows_at, result_at, scratch_at, scratch, bytes; /* of workspace; scratch: a block's */
} fri_product;

/* p->op is NULL if the library has no suitable product. */
fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p);

/* C = A B + bias, or C += A B; bias is read if d->bias. The workspace is 64-byte aligned. */
fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace);

#endif
