/* fake.h - a CUDA runtime without a GPU: its memory is malloc's, its streams run nothing until somebody waits.
 *
 * Copies are queued per stream and done as late as the rules allow: at the next wait for the stream, or when a stream
 * runs that was told to follow. So a test sees a staging slot written again too early, a caller that reads before its
 * wait, and memory used again while a copy of a second stream still needs the bytes. Any function can be made to
 * fail. fake_kernels also gives the device kernels, the CPU's: each first runs the queue of the compute stream. Then
 * whole trainings run on the device, and must give the CPU's numbers. */
#ifndef TESTS_CUDA_FAKE_H
#define TESTS_CUDA_FAKE_H

#include "cuda/runtime.h"

typedef struct fake_state {
    int devices;
    int major, minor;
    int driver;              /* answer of cudaDriverGetVersion */
    size_t cudnn;            /* answer of cudnnGetVersion */
    cudaError_t no_code;     /* what cudaFuncGetAttributes answers */
    cudaError_t count_error; /* answer of cudaGetDeviceCount */
    size_t memory;           /* bytes left to cudaMalloc */
    size_t least;            /* the smallest `memory` after a cudaMalloc */
    size_t handle;           /* bytes of a library's handle */
    size_t others;           /* bytes taken by further programs once a run has asked for the room */
    bool no_pinned;
    cudaError_t copy_error; /* answer of cudaMemcpyAsync */
    cudaError_t sticky;     /* answered and cleared by cudaGetLastError */
    int segments;           /* of cudaMalloc, alive */
    int copies, event_waits, stream_waits, device_waits, frees, streams, events;
    int spins;          /* waits on a core: for an event made without cudaEventBlockingSync */
    int waiting_copies; /* from or to memory that is not page-locked: on a GPU such copies wait */
    int records, follows, queries;
    int launches;     /* kernels */
    int stalls;       /* the compute stream was told to follow what another one was given after its last kernel */
    size_t queued;    /* copies that have not been done */
    double clock_ms;  /* clock of events */
    const char *name; /* of the device; NULL: "Fake 0" */
    void *(*symbol)(const char *name); /* a library's functions; NULL, or answering NULL: some address */
} fake_state;

/* A device of compute capability 9.0 with 1 GiB and both libraries; change the fields right after fake_begin. */
extern fake_state fake;

/* Puts the fake in place of cudart, cuDNN, cuBLASLt and NVML. */
void fake_begin(void);

/* Makes the device's kernels the CPU's, on the calling thread. Call after fake_begin. */
void fake_kernels(void);

/* Queues a call of a library in a stream. The call is asked as late as a copy, until `over` returns true. */
void fake_queue_call(cudaStream_t stream, bool (*over)(void *ctx), void *ctx);

/* Hides libraries whose name contains `name`, so that opening fails; NULL: hides none. */
void fake_hide(const char *name);
/* Symbols whose name contains `name` are not found. */
void fake_lack(const char *name);

/* NVML: answers of its functions. */
typedef struct fake_nvml_state {
    int init_error, handle_error, process_error;
    unsigned processes;     /* listed, the own process last */
    bool hide_own;          /* as in a container */
    unsigned long long own; /* bytes of this process; ~0: not known */
    int calls;              /* of any function */
} fake_nvml_state;
extern fake_nvml_state fake_nvml_says;

/* NVML's function of the name. */
void *fake_nvml(const char *name);

#endif
