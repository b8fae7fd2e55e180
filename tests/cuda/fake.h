/* fake.h - a CUDA runtime without a GPU: its memory is malloc's, its streams run nothing until somebody waits.
 *
 * Copies are queued per stream and done as late as the rules allow: at the next wait that covers them, or when another
 * stream that was told to follow them runs. So a test sees a staging slot that is written again too early, a caller
 * that reads before it waited, and memory that is used again while a copy of another stream still needs it. Any
 * function can be made to fail.
 *
 * fake_kernels also gives the device kernels, the CPU's: each first runs what the compute stream has queued. Then whole
 * trainings run on it, and must give the CPU's numbers. */
#ifndef TESTS_CUDA_FAKE_H
#define TESTS_CUDA_FAKE_H

#include "cuda/runtime.h"

typedef struct fake_state {
    int devices;
    int major, minor;
    int driver;              /* what cudaDriverGetVersion answers */
    size_t cudnn;            /* what cudnnGetVersion answers */
    cudaError_t no_code;     /* what cudaFuncGetAttributes answers */
    cudaError_t count_error; /* what cudaGetDeviceCount answers */
    size_t memory;           /* bytes that cudaMalloc has left */
    bool no_pinned;
    cudaError_t copy_error; /* what cudaMemcpyAsync answers */
    cudaError_t sticky;     /* what cudaGetLastError answers and clears */
    int segments;           /* of cudaMalloc, alive */
    int copies, event_waits, stream_waits, device_waits, frees, streams, events;
    int spins;          /* waits for an event that was made without cudaEventBlockingSync: on a core */
    int waiting_copies; /* from or to memory that is not page-locked: the real ones wait */
    int records, follows, queries;
    int launches;     /* kernels */
    int stalls;       /* the compute stream was told to follow what another one was given after its last kernel */
    size_t queued;    /* copies that have not been done */
    double clock_ms;  /* what events take the time from */
    const char *name; /* of the device; NULL: "Fake 0" */
    void *(*symbol)(const char *name); /* a library's functions; NULL, or answering NULL: some address */
} fake_state;

/* A device of compute capability 9.0 with 1 GiB, both libraries there; changed before fake_begin's caller goes on. */
extern fake_state fake;

/* Puts the fake in place of cudart, cuDNN, cuBLASLt and NVML. */
void fake_begin(void);

/* Makes the device's kernels the CPU's, on this thread. Call after fake_begin. */
void fake_kernels(void);

/* Queues a call of another library in a stream. The call is asked as late as a copy, until it answers that it is
 * over. */
void fake_queue_call(cudaStream_t stream, bool (*over)(void *ctx), void *ctx);

/* Libraries whose name contains `name` cannot be opened from now on; NULL: all can. */
void fake_hide(const char *name);
/* Symbols whose name contains `name` are not found. */
void fake_lack(const char *name);

/* NVML: what its functions answer. */
typedef struct fake_nvml_state {
    int init_error, handle_error, process_error;
    unsigned processes;     /* listed, this one last */
    bool hide_own;          /* as in a container */
    unsigned long long own; /* bytes of this process; ~0: not known */
    int calls;              /* of any function */
} fake_nvml_state;
extern fake_nvml_state fake_nvml_says;

/* NVML's function of that name. */
void *fake_nvml(const char *name);

#endif
