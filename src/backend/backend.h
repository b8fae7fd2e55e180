/* backend.h - a backend: a device's memory functions and its kernel tables.
 *
 * One const table per backend, filled by name. A NULL kernel is answered by FR_EUNSUPPORTED naming op, element type and
 * device (FRI_KERNEL below); there is no silent detour to another device. */
#ifndef FRI_BACKEND_BACKEND_H
#define FRI_BACKEND_BACKEND_H

#include "backend/kernel_map.h"
#include "base/status.h"

#define FRI_KERNEL_SLOT(name, type, need) type *name;
typedef struct fri_kernels {
    FRI_KERNEL_MAP(FRI_KERNEL_SLOT)
} fri_kernels;

typedef enum fri_copy_kind {
    FRI_COPY_HOST_TO_DEVICE,
    FRI_COPY_DEVICE_TO_HOST,
    FRI_COPY_DEVICE_TO_DEVICE,
} fri_copy_kind;

/* ---- streams beside the one that kernels run in ------------------------------------------------------------- */

typedef enum fri_stream_id {
    FRI_STREAM_COMPUTE, /* kernels, and the copies that `copy` queues */
    FRI_STREAM_INPUT,   /* batches on their way to the device */
    FRI_STREAM_OFFLOAD, /* saved activations on their way out and back */
    FRI_STREAM_RANKS,   /* what the ranks of a run send each other, and its sums */
    FRI_STREAM_COUNT,
} fri_stream_id;

/* A point in a stream's order. Number 0 has always passed. */
typedef struct fri_fence {
    fri_stream_id stream;
    uint64_t number;
} fri_fence;

typedef struct fri_streams {
    /* The point behind everything queued on the stream so far. */
    fr_status (*mark)(fri_stream_id stream, fri_fence *out);
    /* Makes all work that is queued on the stream from now on run after f. The host does not wait. */
    fr_status (*follow)(fri_stream_id stream, fri_fence f);
    /* The host waits until f has passed; passed: it only asks. */
    fr_status (*wait)(fri_fence f);
    bool (*passed)(fri_fence f);
    /* Queued, and nobody waits: what is on the host is memory of host_alloc and stays until a fence behind it
     * passed. */
    fr_status (*copy)(fri_stream_id stream, fri_copy_kind kind, const void *src, void *dst, size_t bytes);
    /* Fills *out so that a kernel, or the backend's `copy`, runs in the stream. */
    fr_status (*exec)(fri_stream_id stream, fri_exec *out);
    /* Page-locked memory. FR_ENOMEM (without a message) when there is none. */
    fr_status (*host_alloc)(size_t bytes, void **out);
    void (*host_free)(void *p, size_t bytes);
} fri_streams;

typedef struct fri_backend {
    const char *name;
    fr_device device;

    /* True if the device can be used; else *reason is a static one-line sentence. */
    bool (*available)(const char **reason);

    /* Driver memory: called by the allocator only. FR_ENOMEM (without a message) when there is none. */
    fr_status (*segment_alloc)(size_t bytes, void **out);
    void (*segment_free)(void *segment, size_t bytes);
    /* Bytes free and in total on the device, or 0 and 0 where that has no meaning. */
    void (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    /* Reports memory that is held beside the allocator's segments. NULL: the backend holds none. */
    void (*memory_use)(fr_memory_use *out);

    /* Copies in stream order; to the host it returns when the bytes are there. */
    fr_status (*copy)(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes);
    /* What results and scratch sizes depend on, "2 threads, oneDNN 2.6.3, avx512_core"; NULL if nothing. */
    void (*describe)(char *buf, size_t bytes);
    int numerics; /* from 1; a commit that changes the bits of a result raises it */
    /* A line about how the sizes that *_workspace answered so far came about, "" if there is nothing to say; NULL:
     * there never is. */
    void (*remark)(char *buf, size_t bytes);
    /* Whether copies from the host go through pinned memory, so that they do not wait; NULL: there is nothing to
     * pin. */
    void (*pin_memory)(bool on);
    /* Waits for everything queued on the stream. */
    fr_status (*synchronize)(const fri_exec *e);
    /* A device that works while the host goes on; NULL: calls return when their work is done. */
    const fri_streams *streams;
    const char *lacks; /* why kernels are missing, after a colon; NULL: there is no more to say */

    fri_kernels kernels;     /* f32, f16, bf16 data, and the copies of every type */
    fri_kernels kernels_f64; /* f64 data; all NULL where the device has none */
} fri_backend;

/* The table for a device, NULL if this build does not hold it. src/backend/registry.c is the only file that names the
 * backends. */
const fri_backend *fri_backend_get(fr_device d);

/* Tests put a table of their own in a device's place; NULL restores the default. */
void fri_backend_override(fr_device d, const fri_backend *b);

static inline const fri_kernels *fri_kernels_for(const fri_backend *b, fr_dtype t) {
    return t == FR_F64 ? &b->kernels_f64 : &b->kernels;
}

/* The failure for a kernel slot that is NULL. */
fr_status fri_kernel_missing(const char *kernel, fr_dtype t, const fri_backend *b);

#ifndef __cplusplus /* nvcc sees types only */

#include "base/thread.h"
#include "base/threads.h"

/* Watch that is told when kernels run on this thread; NULL: none. The cost model's calibration times them so. */
typedef struct fri_kernel_watch {
    void (*begin)(void *ctx, const char *kernel);
    void (*end)(void *ctx, const char *kernel, const fri_backend *b);
    void *ctx;
} fri_kernel_watch;

static inline void fri_kernel_begins(const char *kernel) {
    fri_threads_choose();
    if (fri_here.kernel_watch != NULL) fri_here.kernel_watch->begin(fri_here.kernel_watch->ctx, kernel);
}

static inline fr_status fri_kernel_ended(const char *kernel, const fri_backend *b, fr_status s) {
    if (fri_here.kernel_watch != NULL) fri_here.kernel_watch->end(fri_here.kernel_watch->ctx, kernel, b);
    return s;
}

/* FRI_KERNEL(s, backend, dtype, relu_forward, (&exec, dtype, n, x, y)): calls the kernel or explains its absence. */
#define FRI_KERNEL(backend_, dtype_, name_, args_)          \
    (fri_kernels_for((backend_), (dtype_))->name_ == NULL   \
         ? fri_kernel_missing(#name_, (dtype_), (backend_)) \
         : (fri_kernel_begins(#name_),                      \
            fri_kernel_ended(#name_, (backend_), fri_kernels_for((backend_), (dtype_))->name_ args_)))

/* Likewise for a kernel slot that answers a number of bytes; 0 where it is missing (the kernel itself will be, too). */
#define FRI_KERNEL_BYTES(backend_, dtype_, name_, args_)              \
    (fri_kernels_for((backend_), (dtype_))->name_ == NULL ? (size_t)0 \
                                                          : fri_kernels_for((backend_), (dtype_))->name_ args_)

#endif
#endif
