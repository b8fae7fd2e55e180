/* memory.c - see memory.h. */
#include "memory.h"

#include "backend/description.h"

#include "cublaslt.h"
#include "cudnn.h"

#include <pthread.h>
#include <string.h>

fr_status fri_cuda_segment_alloc(size_t bytes, void **out) {
    *out = NULL;
    fr_status s = fri_cuda_context(NULL);
    if (s < 0) return s;
    cudaError_t code = fri_cudart_table->Malloc(out, bytes);
    if (code == cudaErrorMemoryAllocation) {
        (void)fri_cudart_table->GetLastError();
        *out = NULL;
        return FR_ENOMEM; /* without a message: the allocator frees its cache, tries again, and reports */
    }
    return fri_cuda_check((int)code, "cudaMalloc");
}

/* cudaFree waits for the device, so no running work can still use the segment. */
void fri_cuda_segment_free(void *segment, size_t bytes) {
    (void)bytes;
    if (segment != NULL && fri_cudart_table->Free(segment) != cudaSuccess) (void)fri_cudart_table->GetLastError();
}

void fri_cuda_memory_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = 0;
    if (fri_cuda_context(NULL) < 0) return;
    if (fri_cudart_table->MemGetInfo(free_bytes, total_bytes) == cudaSuccess) return;
    (void)fri_cudart_table->GetLastError();
    *free_bytes = *total_bytes = 0;
}

/* Context and libraries of a described device: at most the 700 MiB of src/plan/arena.c. */
fr_status fri_cuda_room(size_t *bytes) {
    const fri_cublaslt *lt = NULL;
    cublasLtHandle_t products = NULL;
    cudnnHandle_t convolutions = NULL;
    size_t total = 0;
    if (!fri_cudnn_device_is_here()) return fri_description_room(bytes);
    FRI_TRY(fri_cuda_context(NULL));
    FRI_TRY(fri_cudnn_handle(fri_cuda_stream(), &convolutions));
    FRI_TRY(fri_cublaslt_handle(&lt, &products));
    fri_cuda_memory_info(bytes, &total);
    return FR_OK;
}

fr_status fri_cuda_set_bytes(const fri_exec *e, const char *kernel, void *p, int value, size_t bytes) {
    return fri_cuda_check((int)fri_cudart_table->MemsetAsync(p, value, bytes, fri_cuda_stream_of(e)), kernel);
}

/* ---- staging ----------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *memory; /* pinned, FRI_STAGING_SLOTS * FRI_STAGING_BYTES */
    cudaEvent_t done[FRI_STAGING_SLOTS];
    bool in_flight[FRI_STAGING_SLOTS];
    int next;
    bool refused; /* no pinned memory: the driver stages */
} ring;

static bool pinning_off;

void fri_cuda_pin_memory(bool on) {
    pthread_mutex_lock(&lock);
    pinning_off = !on;
    pthread_mutex_unlock(&lock);
}

static void take_ring(void) {
    const fri_cudart *rt = fri_cudart_table;
    void *memory = NULL;
    if (ring.memory != NULL || ring.refused) return;
    ring.refused = true;
    if (rt->HostAlloc(&memory, (size_t)FRI_STAGING_SLOTS * FRI_STAGING_BYTES, cudaHostAllocPortable) != cudaSuccess) {
        (void)rt->GetLastError();
        return;
    }
    for (int i = 0; i < FRI_STAGING_SLOTS; i++)
        if (rt->EventCreateWithFlags(&ring.done[i], FRI_FENCE_EVENT) != cudaSuccess) {
            (void)rt->GetLastError();
            (void)rt->FreeHost(memory);
            return;
        }
    ring.memory = memory;
    ring.refused = false;
}

/* The events are left to the process's end: a stream may still use events. */
void fri_cuda_staging_forget(void) {
    pthread_mutex_lock(&lock);
    if (ring.memory != NULL) (void)fri_cudart_table->FreeHost(ring.memory);
    memset(&ring, 0, sizeof ring);
    pthread_mutex_unlock(&lock);
}

static fr_status stage_piece(cudaStream_t stream, const char *src, char *dst, size_t bytes) {
    fr_status s = FR_OK;
    int i = ring.next;
    char *slot = ring.memory + (size_t)i * FRI_STAGING_BYTES;
    if (ring.in_flight[i] && fri_cudart_table->EventQuery(ring.done[i]) != cudaSuccess) {
        (void)fri_cudart_table->GetLastError();
        FRI_CUDART(s, EventSynchronize, (ring.done[i]));
    }
    ring.in_flight[i] = false;
    memcpy(slot, src, bytes);
    FRI_CUDART(s, MemcpyAsync, (dst, slot, bytes, cudaMemcpyHostToDevice, stream));
    FRI_CUDART(s, EventRecord, (ring.done[i], stream));
    ring.in_flight[i] = true;
    ring.next = (i + 1) % FRI_STAGING_SLOTS;
done:
    return s;
}

static fr_status to_device(cudaStream_t stream, const char *src, char *dst, size_t bytes) {
    fr_status s = FR_OK;
    pthread_mutex_lock(&lock);
    if (!pinning_off) take_ring();
    if (pinning_off || ring.memory == NULL) { /* the call itself waits until the bytes may be reused */
        FRI_CUDART(s, MemcpyAsync, (dst, src, bytes, cudaMemcpyHostToDevice, stream));
        FRI_CUDART(s, StreamSynchronize, (stream));
        goto done;
    }
    for (size_t at = 0; at < bytes; at += FRI_STAGING_BYTES) {
        size_t piece = bytes - at < FRI_STAGING_BYTES ? bytes - at : (size_t)FRI_STAGING_BYTES;
        FR_TRY(s, stage_piece(stream, src + at, dst + at, piece));
    }
done:
    pthread_mutex_unlock(&lock);
    return s;
}

fr_status fri_cuda_copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    fr_status s = FR_OK;
    if (bytes == 0) return FR_OK;
    FR_TRY(s, fri_cuda_context(NULL));
    cudaStream_t stream = fri_cuda_stream_of(e);
    switch (kind) {
    case FRI_COPY_HOST_TO_DEVICE: FR_TRY(s, to_device(stream, src, dst, bytes)); break;
    case FRI_COPY_DEVICE_TO_DEVICE:
        FRI_CUDART(s, MemcpyAsync, (dst, src, bytes, cudaMemcpyDeviceToDevice, stream));
        break;
    case FRI_COPY_DEVICE_TO_HOST:
        FRI_CUDART(s, MemcpyAsync, (dst, src, bytes, cudaMemcpyDeviceToHost, stream));
        FRI_CUDART(s, StreamSynchronize, (stream));
        break;
    }
done:
    return s;
}
