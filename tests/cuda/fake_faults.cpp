/* fake_faults.cpp - see fake_faults.h. In C++ because its templates forward the arguments of a function of any type. */
#include "fake_faults.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <frugal/base.h>

extern "C" {
#include "cuda/cublaslt.h"
#include "cuda/cudnn.h"
#include "fake.h"
}

#include <string.h>
#include <type_traits>

static fri_cudart cudart, cudart_wrapped;
static fri_cudnn dnn, dnn_wrapped;
static fri_cublaslt lt, lt_wrapped;

#define CUDART_NAME(name) "cuda" #name,
#define DNN_NAME(name)    "cudnn" #name,
#define LT_NAME(name)     "cublasLt" #name,
static const char *const names[] = {FRI_CUDART_MAP(CUDART_NAME) FRI_CUDNN_MAP(DNN_NAME) FRI_CUBLASLT_MAP(LT_NAME)};

#define CUDART_INDEX(name) AT_CUDART_##name,
#define DNN_INDEX(name)    AT_DNN_##name,
#define LT_INDEX(name)     AT_LT_##name,
enum { FRI_CUDART_MAP(CUDART_INDEX) FRI_CUDNN_MAP(DNN_INDEX) FRI_CUBLASLT_MAP(LT_INDEX) FUNCTIONS };

static int calls[FUNCTIONS], armed = -1, due_at;
static bool fired;

static bool due(int function) {
    if (++calls[function] != due_at || function != armed) return false;
    armed = -1;
    return fired = true;
}

static bool works_first(int function) {
    return strstr(names[function], "Synchronize") != nullptr || strstr(names[function], "Free") != nullptr ||
           strstr(names[function], "Destroy") != nullptr;
}

static cudaError_t failure(int function, cudaError_t) {
    return fake.sticky = function == AT_CUDART_Malloc || function == AT_CUDART_HostAlloc ? cudaErrorMemoryAllocation
                                                                                         : cudaErrorUnknown;
}

static cudnnStatus_t failure(int, cudnnStatus_t) {
    return CUDNN_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t failure(int, cublasStatus_t) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
}

template <typename R>
constexpr bool is_status =
    std::is_same_v<R, cudaError_t> || std::is_same_v<R, cudnnStatus_t> || std::is_same_v<R, cublasStatus_t>;

template <int I, auto *REAL, auto SLOT, typename F> struct failing;

template <int I, auto *REAL, auto SLOT, typename R, typename... A> struct failing<I, REAL, SLOT, R (*)(A...)> {
    static R call(A... a) {
        if constexpr (is_status<R> && I != AT_CUDART_GetLastError) {
            const bool fails = due(I);
            if (fails && !works_first(I)) return failure(I, R());
            const R answer = (REAL->*SLOT)(a...);
            return fails ? failure(I, R()) : answer;
        } else {
            return (REAL->*SLOT)(a...);
        }
    }
};

static void *(*symbol_before)(const char *name);

/* The functions of a library put in place by a test; all else keeps its placeholder address. */
static void *symbol(const char *name) {
    void *at = symbol_before != nullptr ? symbol_before(name) : nullptr;
    if (at == nullptr) return nullptr;
#define FIND(library, prefix, name_)                                    \
    if (strcmp(name, prefix #name_) == 0) {                             \
        memcpy((void *)&library.name_, &at, sizeof at);                 \
        memcpy(&at, (const void *)&library##_wrapped.name_, sizeof at); \
    }
#define FIND_DNN(name_) FIND(dnn, "cudnn", name_)
#define FIND_LT(name_)  FIND(lt, "cublasLt", name_)
    FRI_CUDNN_MAP(FIND_DNN)
    FRI_CUBLASLT_MAP(FIND_LT)
    return at;
}

extern "C" void fake_faults_begin(void) {
    cudart = *fri_cudart_table;
#define WRAP(table, index, type, name) \
    table##_wrapped.name = failing<index##name, &table, &type::name, decltype(type::name)>::call;
#define WRAP_CUDART(name) WRAP(cudart, AT_CUDART_, fri_cudart, name)
#define WRAP_DNN(name)    WRAP(dnn, AT_DNN_, fri_cudnn, name)
#define WRAP_LT(name)     WRAP(lt, AT_LT_, fri_cublaslt, name)
    FRI_CUDART_MAP(WRAP_CUDART)
    FRI_CUDNN_MAP(WRAP_DNN)
    FRI_CUBLASLT_MAP(WRAP_LT)
    symbol_before = fake.symbol;
    fake.symbol = symbol;
    fri_cuda_use(&cudart_wrapped);
    fake_faults_arm(-1, 0);
}

extern "C" int fake_faults_functions(void) {
    return FUNCTIONS;
}

extern "C" const char *fake_faults_name(int function) {
    return names[function];
}

extern "C" int fake_faults_calls(int function) {
    return calls[function];
}

extern "C" void fake_faults_arm(int function, int nth) {
    memset(calls, 0, sizeof calls);
    armed = function;
    due_at = nth;
    fired = false;
}

extern "C" bool fake_faults_fired(void) {
    return fired;
}
