/* cublaslt.h - cuBLASLt, opened at the first use. */
#ifndef FRI_CUDA_CUBLASLT_H
#define FRI_CUDA_CUBLASLT_H

#include <cublasLt.h>
#include <frugal/base.h>

/* clang-format off */
#define FRI_CUBLASLT_MAP(X)                                                                       \
    X(GetVersion) X(GetStatusString) X(Create)                                                    \
    X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute)                            \
    X(MatrixLayoutCreate) X(MatrixLayoutDestroy)                                                  \
    X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute)          \
    X(MatmulAlgoGetHeuristic) X(Matmul)
/* clang-format on */

typedef struct fri_cublaslt {
#define FRI_CUBLASLT_SLOT(name) __typeof__(cublasLt##name) *name;
    FRI_CUBLASLT_MAP(FRI_CUBLASLT_SLOT)
#undef FRI_CUBLASLT_SLOT
} fri_cublaslt;

/* The library, opened once; NULL: reason holds a line. FRUGAL_CUBLASLT names the file or folder. */
const fri_cublaslt *fri_cublaslt_open(char *reason, size_t bytes);

/* The thread's handle; FR_ELIBRARY, FR_EDEVICE. */
fr_status fri_cublaslt_handle(const fri_cublaslt **lt, cublasLtHandle_t *out);

/* Checks a status of cuBLASLt as fri_cudnn_check does. */
fr_status fri_cublaslt_check(const fri_cublaslt *lt, cublasStatus_t code, const char *call);

#endif
