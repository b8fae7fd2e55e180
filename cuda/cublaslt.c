/* cublaslt.c - see cublaslt.h. */
#include "cublaslt.h"

#include "base/env.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "context.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_cublaslt table;
static bool loaded;

/* cuBLASLt's soname carries the toolkit's major version. */
#define STRING_OF(x)  #x
#define VERSION_OF(x) STRING_OF(x)
#define SONAME        "libcublasLt.so." VERSION_OF(CUBLAS_VER_MAJOR)

static bool load(char *reason, size_t bytes) {
    void *library = fri_cuda_open("FRUGAL_CUBLASLT", fri_env_get()->cublaslt, SONAME, reason, bytes);
    if (library == NULL) return false;
    bool all = true;
#define LOAD(name) all &= fri_cuda_symbol(library, SONAME, "cublasLt" #name, &table.name, reason, bytes);
    FRI_CUBLASLT_MAP(LOAD)
#undef LOAD
    return all;
}

const fri_cublaslt *fri_cublaslt_open(char *reason, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (!loaded) loaded = load(reason, bytes);
    pthread_mutex_unlock(&lock);
    return loaded ? &table : NULL;
}

fr_status fri_cublaslt_check(const fri_cublaslt *lt, cublasStatus_t code, const char *call) {
    if (code == CUBLAS_STATUS_SUCCESS) return FR_OK;
    if (code == CUBLAS_STATUS_ALLOC_FAILED) return fri_cuda_library_no_memory(call, "cuBLASLt", (int)code);
    return fr_fail(FR_ELIBRARY, "%s: cuBLASLt: %s (%d)", call, lt->GetStatusString(code), (int)code);
}

fr_status fri_cublaslt_handle(const fri_cublaslt **lt, cublasLtHandle_t *out) {
    static _Thread_local cublasLtHandle_t handle;
    char reason[256];
    FRI_TRY(fri_cuda_context(NULL));
    if ((*lt = fri_cublaslt_open(reason, sizeof reason)) == NULL) return fr_fail(FR_ELIBRARY, "cuda: %s", reason);
    if (handle == NULL) FRI_TRY(fri_cublaslt_check(*lt, (*lt)->Create(&handle), "cublasLtCreate"));
    *out = handle;
    return FR_OK;
}
