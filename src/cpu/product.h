/* product.h - matrix products: by the library where it is faster and a row's bits do not depend on the number of rows,
 * else by our own loops (sweep.h), for any f32. */
#ifndef FRI_CPU_PRODUCT_H
#define FRI_CPU_PRODUCT_H

#include "cpu/dnnl.h"
#include "cpu/sweep.h"

enum { FRI_BATCH_THREADS = 16 }; /* that share a batch of our products, at most */

typedef struct fri_product {
    fri_matmul_desc d;
    bool there;            /* somebody computes it */
    const fri_dnnl_op *op; /* the library's; NULL: ours */
    size_t bytes;          /* of workspace */
} fri_product;

/* p->there is false where neither computes these types. */
fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p);

/* C = A B + bias, or C += A B; bias is read where d says so. The workspace is 64-byte aligned. */
fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace);

/* The name in reports. */
const char *fri_product_name(const fri_product *p);

/* A sweep cut for threads; pixels: a sum over pixels. No bit depends on the cut. */
size_t fri_sweep_bytes(void);
void fri_sweep_run(const fri_sweep *s, bool pixels, char *workspace);

#endif
