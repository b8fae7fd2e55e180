/* context.h - the device in use, detected once; streams are made at the first use.
 *
 * available() creates no CUDA context (that costs hundreds of MiB): it counts devices, reads their properties and opens
 * the libraries. The context appears with the first stream, allocation or copy. */
#ifndef FRI_CUDA_CONTEXT_H
#define FRI_CUDA_CONTEXT_H

#include "backend/backend.h"
#include "runtime.h"

#include "check.h"

typedef struct fri_cuda_device {
    int count, index; /* devices seen; the one in use */
    int major, minor; /* compute capability */
    int processors;
    size_t total_bytes;
    char name[256];
} fri_cuda_device;

/* True if the device can be used; else *reason is a line in static storage. */
bool fri_cuda_available(const char **reason);

/* The device, with streams, current on the thread; FR_EDEVICE with the reason if unusable. */
fr_status fri_cuda_context(const fri_cuda_device **out);

/* Events for waits of the host, which sleeps and leaves the core to the loader's threads. */
enum { FRI_FENCE_EVENT = cudaEventDisableTiming | cudaEventBlockingSync };

/* Waits until the stream is done, on a core; reports failures of the stream's work. For results and the end of a run:
 * steps wait for fences. */
fr_status fri_cuda_synchronize(const fri_exec *e);

void fri_cuda_describe(char *buf, size_t bytes);

/* Forgets all detected facts; for tests that change the table. */
void fri_cuda_forget(void);

static inline void *fri_cuda_stream_of(const fri_exec *e) {
    return e != NULL && e->stream != NULL ? e->stream : fri_cuda_stream();
}

#endif
