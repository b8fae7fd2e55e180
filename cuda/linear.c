/* linear.c - the fully connected kernels: three matrix products by cuBLASLt; the bias and its gradient are epilogues.
 *
 * cuBLASLt's matrices are column-major: a row-major matrix is its transpose, so every product is asked for transposed.
 *
 *   forward          y^T  [out, n]  = (w^T)^T x^T         M = out, N = n,   K = in
 *   backward input   dx^T [in, n]   =  w^T dy^T           M = in,  N = n,   K = out
 *   backward weight  dw^T [in, out] =  x^T (dy^T)^T       M = in,  N = out, K = n
 *
 * Splitting K may use the workspace, with partial sums in f32; sums in the output's type are not allowed.
 *
 * A bias of the result's type is added by the forward product (BIAS), and its gradient, the sum of dy over K = n, is
 * made by the product of the weight's gradient (BGRADB: dy is matrix B there). Where cuBLASLt has no algorithm for
 * that, and for a wider bias, bias.cu does it. Its relu epilogues are left alone: they do not pass NaN as ours does. */
#include "base/env.h"
#include "cublaslt.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "kernels.h"

/* Partial sums of up to SPLITS parts of K, as far as they fit WORKSPACE_MOST. Independent of the library, so a dry run
 * knows the size without a device. */
enum { SPLITS = 16, WORKSPACE_MOST = 4 << 20, ALIGNED_MOST = 256 };

typedef enum pass { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT } pass;

static const char *const pass_name[] = {
    [FORWARD] = "linear_forward",
    [BACKWARD_INPUT] = "linear_backward_input",
    [BACKWARD_WEIGHT] = "linear_backward_weight",
};

/* D [m, n] = op(A) op(B), column-major; a_rows x a_columns is A in storage. */
typedef struct product {
    int64_t m, n, k;
    bool a_turned, b_turned;
    int64_t a_rows, a_columns, b_rows, b_columns;
} product;

static product product_of(const fri_linear_desc *d, pass p) {
    switch (p) {
    case FORWARD:
        return (product){.m = d->out,
                         .n = d->n,
                         .k = d->in,
                         .a_turned = true,
                         .a_rows = d->in,
                         .a_columns = d->out,
                         .b_rows = d->in,
                         .b_columns = d->n};
    case BACKWARD_INPUT:
        return (product){.m = d->in,
                         .n = d->n,
                         .k = d->out,
                         .a_rows = d->in,
                         .a_columns = d->out,
                         .b_rows = d->out,
                         .b_columns = d->n};
    default:
        return (product){.m = d->in,
                         .n = d->out,
                         .k = d->n,
                         .b_turned = true,
                         .a_rows = d->in,
                         .a_columns = d->n,
                         .b_rows = d->out,
                         .b_columns = d->n};
    }
}

static size_t workspace_of(const product *p) {
    size_t partial = (size_t)(p->m * p->n) * sizeof(float);
    return partial >= WORKSPACE_MOST / SPLITS ? WORKSPACE_MOST : partial * SPLITS;
}

/* ---- the choice of an algorithm ---------------------------------------------------------------------------- */

enum { KEY = 12 };

typedef struct entry {
    int64_t key[KEY];
    cublasLtMatmulAlgo_t algorithm;
    bool none; /* impossible with the epilogue */
    struct entry *next;
} entry;

static _Thread_local entry *cache; /* a network has few linear layers */

/* Descriptors and operands of a call. */
typedef struct call {
    const fri_cublaslt *lt;
    cublasLtHandle_t handle;
    const char *name;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtEpilogue_t epilogue;
    uint32_t alignment[4]; /* of A, B, D and the epilogue's vector */
} call;

static uint32_t alignment_of(const void *p) {
    uint32_t a = ALIGNED_MOST;
    while (((uintptr_t)p & (a - 1)) != 0) a /= 2;
    return a;
}

static fr_status check(const call *c, cublasStatus_t code) {
    return fri_cublaslt_check(c->lt, code, c->name);
}

/* bias: the epilogue's vector. */
static fr_status describe(call *c, const fri_linear_desc *d, const product *p, const void *bias) {
    const cudaDataType_t type = d->dtype == FR_F32 ? CUDA_R_32F : d->dtype == FR_F16 ? CUDA_R_16F : CUDA_R_16BF;
    const cublasComputeType_t compute =
        d->dtype == FR_F32 && fri_env_get()->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t a = p->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const fri_cublaslt *lt = c->lt;
    FRI_TRY(check(c, lt->MatmulDescCreate(&c->product, compute, CUDA_R_32F)));
    FRI_TRY(check(c, lt->MatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a)));
    FRI_TRY(check(c, lt->MatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b)));
    if (c->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        FRI_TRY(check(c, lt->MatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &c->epilogue,
                                                    sizeof c->epilogue)));
        FRI_TRY(
            check(c, lt->MatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)));
    }
    FRI_TRY(check(c, lt->MatrixLayoutCreate(&c->a, type, (uint64_t)p->a_rows, (uint64_t)p->a_columns, p->a_rows)));
    FRI_TRY(check(c, lt->MatrixLayoutCreate(&c->b, type, (uint64_t)p->b_rows, (uint64_t)p->b_columns, p->b_rows)));
    return check(c, lt->MatrixLayoutCreate(&c->d, type, (uint64_t)p->m, (uint64_t)p->n, p->m));
}

static fr_status ask_heuristic(call *c, size_t workspace, cublasLtMatmulAlgo_t *out) {
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const fri_cublaslt *lt = c->lt;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    static const cublasLtMatmulPreferenceAttributes_t alignments[3] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    FRI_TRY(check(c, lt->MatmulPreferenceCreate(&c->preference)));
    FRI_TRY(check(c, lt->MatmulPreferenceSetAttribute(c->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &workspace, sizeof workspace)));
    FRI_TRY(check(c, lt->MatmulPreferenceSetAttribute(c->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &schemes, sizeof schemes)));
    for (int i = 0; i < 3; i++)
        FRI_TRY(check(c, lt->MatmulPreferenceSetAttribute(c->preference, alignments[i], &c->alignment[i],
                                                          sizeof c->alignment[i])));
    /* C is D's memory with beta 0: not read, but the alignment counts. */
    FRI_TRY(check(c, lt->MatmulPreferenceSetAttribute(c->preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                      &c->alignment[2], sizeof c->alignment[2])));
    cublasStatus_t code =
        lt->MatmulAlgoGetHeuristic(c->handle, c->product, c->a, c->b, c->d, c->d, c->preference, 1, &best, &found);
    bool refused = code == CUBLAS_STATUS_NOT_SUPPORTED ||
                   (code == CUBLAS_STATUS_INVALID_VALUE && c->epilogue != CUBLASLT_EPILOGUE_DEFAULT);
    if (!refused) FRI_TRY(check(c, code));
    if (refused || found < 1)
        return fr_fail(FR_EUNSUPPORTED, "%s: cuBLASLt has no algorithm within %zu bytes of workspace", c->name,
                       workspace);
    *out = best.algo;
    return FR_OK;
}

/* *out is NULL without an algorithm for the epilogue; a failure without epilogue. */
static fr_status algorithm_of(call *c, const fri_linear_desc *d, const product *p, size_t workspace,
                              const cublasLtMatmulAlgo_t **out) {
    const int64_t key[KEY] = {p->m,
                              p->n,
                              p->k,
                              p->a_turned,
                              p->b_turned,
                              d->dtype,
                              c->epilogue,
                              c->alignment[0],
                              c->alignment[1],
                              c->alignment[2],
                              c->alignment[3],
                              fri_env_get()->tf32};
    for (entry *e = cache; e != NULL; e = e->next)
        if (memcmp(e->key, key, sizeof key) == 0) {
            *out = e->none ? NULL : &e->algorithm;
            return FR_OK;
        }
    entry *e = calloc(1, sizeof *e);
    if (e == NULL) return fr_fail(FR_ENOMEM, "%s: out of host memory", c->name);
    fr_status s = ask_heuristic(c, workspace, &e->algorithm);
    e->none = s == FR_EUNSUPPORTED && c->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    if (s < 0 && !e->none) {
        free(e);
        return s;
    }
    memcpy(e->key, key, sizeof key);
    e->next = cache;
    cache = e;
    *out = e->none ? NULL : &e->algorithm;
    return FR_OK;
}

/* Runs a product; with an epilogue, `bias` is the vector. *ran is false, and no kernel ran, if no algorithm has the
 * epilogue. */
static fr_status run_product(const fri_exec *e, const fri_linear_desc *d, pass which, const void *a, const void *b,
                             cublasLtEpilogue_t epilogue, const void *bias, void *out, bool *ran) {
    const float one = 1, zero = 0;
    const product p = product_of(d, which);
    const size_t workspace = workspace_of(&p);
    const cublasLtMatmulAlgo_t *algorithm = NULL;
    call c = {.name = pass_name[which],
              .epilogue = epilogue,
              .alignment = {alignment_of(a), alignment_of(b), alignment_of(out), alignment_of(bias)}};
    fr_status s = FR_OK;
    *ran = true;
    if (d->dtype != FR_F32 && d->dtype != FR_F16 && d->dtype != FR_BF16) return fri_cuda_no_type(c.name, d->dtype);
    if (p.m * p.n == 0) return FR_OK;
    if (p.k == 0) return fri_cuda_fill(e, d->dtype, p.m * p.n, 0, out);
    FRI_TRY(fri_cuda_workspace(e, c.name, workspace));
    FR_TRY(s, fri_cublaslt_handle(&c.lt, &c.handle));
    FR_TRY(s, describe(&c, d, &p, bias));
    FR_TRY(s, algorithm_of(&c, d, &p, workspace, &algorithm));
    *ran = algorithm != NULL;
    if (!*ran) goto done;
    FR_TRY(s, check(&c, c.lt->Matmul(c.handle, c.product, &one, a, c.a, b, c.b, &zero, out, c.d, out, c.d, algorithm,
                                     e->workspace, workspace, fri_cuda_stream_of(e))));
    FR_TRY(s, fri_cuda_launched(c.name));
done:
    if (c.preference != NULL) c.lt->MatmulPreferenceDestroy(c.preference);
    if (c.d != NULL) c.lt->MatrixLayoutDestroy(c.d);
    if (c.b != NULL) c.lt->MatrixLayoutDestroy(c.b);
    if (c.a != NULL) c.lt->MatrixLayoutDestroy(c.a);
    if (c.product != NULL) c.lt->MatmulDescDestroy(c.product);
    return s;
}

static fr_status run_plain(const fri_exec *e, const fri_linear_desc *d, pass which, const void *a, const void *b,
                           void *out) {
    bool ran;
    return run_product(e, d, which, a, b, CUBLASLT_EPILOGUE_DEFAULT, NULL, out, &ran);
}

static fr_status workspace_bytes(const fri_linear_desc *d, pass which, size_t *bytes) {
    const product p = product_of(d, which);
    *bytes = p.k == 0 ? 0 : workspace_of(&p);
    return FR_OK;
}

/* True if cuBLASLt's epilogue takes the vector: type, a start at 16 bytes, and a product to end. */
static bool can_fuse(const fri_linear_desc *d, int64_t k, const void *vector) {
    return d->bias_dtype == d->dtype && (uintptr_t)vector % 16 == 0 && k > 0 && d->n > 0 && d->in > 0 && d->out > 0;
}

/* ---- the kernels ------------------------------------------------------------------------------------------- */

fr_status fri_cuda_linear_forward_workspace(const fri_linear_desc *d, size_t *bytes) {
    return workspace_bytes(d, FORWARD, bytes);
}

fr_status fri_cuda_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    bool fused = b != NULL && can_fuse(d, d->in, b);
    if (fused) FRI_TRY(run_product(e, d, FORWARD, w, x, CUBLASLT_EPILOGUE_BIAS, b, y, &fused));
    if (fused) return FR_OK;
    FRI_TRY(run_plain(e, d, FORWARD, w, x, y));
    return b != NULL ? fri_cuda_bias_add(e, d->dtype, d->bias_dtype, d->n, d->out, b, y) : FR_OK;
}

fr_status fri_cuda_linear_backward_input_workspace(const fri_linear_desc *d, size_t *bytes) {
    return workspace_bytes(d, BACKWARD_INPUT, bytes);
}

fr_status fri_cuda_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return run_plain(e, d, BACKWARD_INPUT, w, dy, dx);
}

/* Includes memory for bias.cu, because only the device tells whether the library sums the bias's gradient. */
fr_status fri_cuda_linear_backward_weight_workspace(const fri_linear_desc *d, size_t *bytes) {
    const size_t sum = d->bias_gradient ? fri_cuda_bias_workspace(d->dtype, d->n, d->out) : 0;
    fr_status s = workspace_bytes(d, BACKWARD_WEIGHT, bytes);
    if (*bytes < sum) *bytes = sum;
    return s;
}

fr_status fri_cuda_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                          void *dw, void *db) {
    bool fused = db != NULL && can_fuse(d, d->n, db);
    if (fused) FRI_TRY(run_product(e, d, BACKWARD_WEIGHT, x, dy, CUBLASLT_EPILOGUE_BGRADB, db, dw, &fused));
    if (fused) return FR_OK;
    FRI_TRY(run_plain(e, d, BACKWARD_WEIGHT, x, dy, dw));
    return db != NULL ? fri_cuda_linear_backward_bias(e, d, dy, db) : FR_OK;
}

fr_status fri_cuda_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    return fri_cuda_column_sum(e, "linear_backward_bias", d->dtype, d->n, d->out, dy, d->bias_dtype, db);
}
