/* fake_cublaslt.h - cuBLASLt without cuBLASLt: records the epilogue asked of the last product. */
#ifndef TESTS_CUDA_FAKE_CUBLASLT_H
#define TESTS_CUDA_FAKE_CUBLASLT_H

#include "cuda/cublaslt.h"
#include "cuda/fake.h"

typedef struct fake_cublaslt_state {
    cublasLtEpilogue_t without; /* an epilogue without an algorithm; 0: all have one */
    cublasStatus_t refusal;     /* status of a refusal; success: no algorithm is found */
    cublasStatus_t product;     /* what a product answers */
    int heuristics, products, descriptors;
    cublasLtEpilogue_t epilogue; /* of the last product, */
    const void *bias;            /* its vector, */
    const void *a, *b, *d;       /* and its matrices */
    size_t workspace;
} fake_cublaslt_state;

extern fake_cublaslt_state fake_lt;

/* fake_begin, with the fake library behind cuBLASLt's name. */
void fake_cublaslt_begin(void);

#endif
