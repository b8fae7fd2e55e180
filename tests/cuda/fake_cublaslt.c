/* fake_cublaslt.c - see fake_cublaslt.h. */
#include "cuda/fake_cublaslt.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

fake_cublaslt_state fake_lt;

typedef struct product {
    cublasLtEpilogue_t epilogue;
    const void *bias;
} product;

static __typeof__(cublasLtGetStatusString) status_string;
static __typeof__(cublasLtCreate) create;
static __typeof__(cublasLtMatmulDescCreate) product_create;
static __typeof__(cublasLtMatmulDescDestroy) product_destroy;
static __typeof__(cublasLtMatmulDescSetAttribute) product_set;
static __typeof__(cublasLtMatrixLayoutCreate) layout_create;
static __typeof__(cublasLtMatrixLayoutDestroy) layout_destroy;
static __typeof__(cublasLtMatmulPreferenceCreate) preference_create;
static __typeof__(cublasLtMatmulPreferenceDestroy) preference_destroy;
static __typeof__(cublasLtMatmulPreferenceSetAttribute) preference_set;
static __typeof__(cublasLtMatmulAlgoGetHeuristic) heuristic;
static __typeof__(cublasLtMatmul) multiply;

static const char *status_string(cublasStatus_t code) {
    return code == CUBLAS_STATUS_SUCCESS ? "success" : "fake refusal";
}

static cublasStatus_t create(cublasLtHandle_t *out) {
    *out = (cublasLtHandle_t)(uintptr_t)0x3000;
    fake.memory -= fake.handle;
    return CUBLAS_STATUS_SUCCESS;
}

static void *made(size_t bytes) {
    fake_lt.descriptors++;
    return calloc(1, bytes);
}

static cublasStatus_t destroyed(void *p) {
    fake_lt.descriptors--;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    (void)compute;
    (void)scale;
    product *p = made(sizeof *p);
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product_destroy(cublasLtMatmulDesc_t p) {
    return destroyed(p);
}

static cublasStatus_t product_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, const void *value,
                                  size_t bytes) {
    product *p = (product *)(void *)d;
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) memcpy(&p->epilogue, value, bytes);
    if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) memcpy(&p->bias, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                    int64_t pitch) {
    (void)type;
    (void)columns;
    if (pitch < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *out = made(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t p) {
    return destroyed(p);
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out) {
    *out = made(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t p) {
    return destroyed(p);
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t bytes) {
    (void)p;
    (void)name;
    (void)value;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t *best,
                                int *found) {
    (void)handle;
    (void)a;
    (void)b;
    (void)c;
    (void)out;
    (void)preference;
    (void)most;
    const product *p = (const product *)(const void *)d;
    bool refused = fake_lt.without != 0 && p->epilogue == fake_lt.without;
    fake_lt.heuristics++;
    memset(best, 0, sizeof *best);
    *found = !refused;
    return refused ? fake_lt.refusal : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                               cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                               const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *out,
                               cublasLtMatrixLayout_t layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                               size_t bytes, cudaStream_t stream) {
    const product *p = (const product *)(const void *)d;
    (void)handle;
    (void)alpha;
    (void)a_layout;
    (void)b_layout;
    (void)beta;
    (void)c;
    (void)c_layout;
    (void)layout;
    (void)algorithm;
    (void)workspace;
    (void)stream;
    fake_lt.products++;
    fake_lt.epilogue = p->epilogue;
    fake_lt.bias = p->bias;
    fake_lt.a = a;
    fake_lt.b = b;
    fake_lt.d = out;
    fake_lt.workspace = bytes;
    return fake_lt.product;
}

typedef void function(void);

static const struct {
    const char *name;
    function *at;
} symbols[] = {
    {"cublasLtGetStatusString", (function *)status_string},
    {"cublasLtCreate", (function *)create},
    {"cublasLtMatmulDescCreate", (function *)product_create},
    {"cublasLtMatmulDescDestroy", (function *)product_destroy},
    {"cublasLtMatmulDescSetAttribute", (function *)product_set},
    {"cublasLtMatrixLayoutCreate", (function *)layout_create},
    {"cublasLtMatrixLayoutDestroy", (function *)layout_destroy},
    {"cublasLtMatmulPreferenceCreate", (function *)preference_create},
    {"cublasLtMatmulPreferenceDestroy", (function *)preference_destroy},
    {"cublasLtMatmulPreferenceSetAttribute", (function *)preference_set},
    {"cublasLtMatmulAlgoGetHeuristic", (function *)heuristic},
    {"cublasLtMatmul", (function *)multiply},
};

static void *symbol_of(const char *name) {
    void *at = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, name) == 0) memcpy(&at, &symbols[i].at, sizeof at);
    return at;
}

void fake_cublaslt_begin(void) {
    fake_lt = (fake_cublaslt_state){0};
    fake_begin();
    fake.symbol = symbol_of;
}
