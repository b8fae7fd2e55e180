/* env.c - see env.h. */
#include "base/env.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static fri_env env;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool env_is_on(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' && strcmp(v, "0") != 0;
}

static void read_environment(void) {
    env.no_pool = env_is_on("FRUGAL_NO_POOL");
    env.check_nan = env_is_on("FRUGAL_CHECK_NAN");
    env.poison = env_is_on("FRUGAL_POISON");
    env.sync = env_is_on("FRUGAL_SYNC");
    env.tf32 = env_is_on("FRUGAL_TF32");
    env.cuda_device = getenv("FRUGAL_CUDA_DEVICE");
    env.threads = getenv("FRUGAL_THREADS");
    env.cudnn = getenv("FRUGAL_CUDNN");
    env.cublaslt = getenv("FRUGAL_CUBLASLT");
    env.nvml = getenv("FRUGAL_NVML");
    env.nccl = getenv("FRUGAL_NCCL");
    env.mpi = getenv("FRUGAL_MPI");
    env.isa = getenv("FRUGAL_ISA");
    env.test_device = getenv("FRUGAL_TEST_DEVICE");
}

const fri_env *fri_env_get(void) {
    pthread_once(&once, read_environment);
    return &env;
}
