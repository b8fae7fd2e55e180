/* env.h - every environment variable the library reads, read once. docs/env.md is the table for users. */
#ifndef FRI_BASE_ENV_H
#define FRI_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fri_env {
    bool no_pool;            /* FRUGAL_NO_POOL=1: every allocation is its own segment (for sanitizers) */
    bool check_nan;          /* FRUGAL_CHECK_NAN=1: every op's result is checked, the first bad op is named */
    bool poison;             /* FRUGAL_POISON=1: new device memory is full of NaN */
    bool sync;               /* FRUGAL_SYNC=1: CUDA launches are checked at once */
    bool tf32;               /* FRUGAL_TF32=1: f32 linear layers on CUDA may round factors to TF32 */
    const char *cuda_device; /* FRUGAL_CUDA_DEVICE: file with the device description for plans, or NULL */
    const char *threads;     /* FRUGAL_THREADS: threads of the CPU backend, or NULL */
    const char *cudnn, *cublaslt, *nvml; /* FRUGAL_CUDNN, ...: file or folder of a CUDA library, or NULL */
    const char *nccl;                    /* FRUGAL_NCCL: likewise, or "off" */
    const char *mpi;                     /* FRUGAL_MPI: file of the engine between ranks, or NULL */
    const char *isa;                     /* FRUGAL_ISA: level of our loops (cpu/isa.h), or NULL */
    const char *test_device;             /* FRUGAL_TEST_DEVICE: device the test suite runs on, or NULL for cpu */
} fri_env;

const fri_env *fri_env_get(void);

#endif
