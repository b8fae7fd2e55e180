/* backend.h - a backend: a device's memory functions and its kernel tables.
 *
 * A const table per backend, filled by name. A NULL kernel gives FR_EUNSUPPORTED with op, element type and device
 * (FRI_KERNEL below), never a silent detour to a different device. */
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

/* ---- streams beside the kernels' stream ------------------------------------------------------------- */

typedef enum fri_stream_id {
    FRI_STREAM_COMPUTE, /* kernels, and the copies of `copy` */
    FRI_STREAM_INPUT,   /* batches on their way to the device */
    FRI_STREAM_OFFLOAD, /* saved activations on their way out and back */
    FRI_STREAM_RANKS,   /* transfers between the ranks of a run, and sums */
    FRI_STREAM_COUNT,
} fri_stream_id;

/* A point in a stream's order. Number 0 has always passed. */
typedef struct fri_fence {
    fri_stream_id stream;
    uint64_t number;
} fri_fence;

typedef struct fri_streams {
    /* The point after all queued work of the stream. */
    fr_status (*mark)(fri_stream_id stream, fri_fence *out);
    /* Makes later work of the stream run after f. The host does not wait. */
    fr_status (*follow)(fri_stream_id stream, fri_fence f);
    /* The host waits until f has passed; passed: only asks. */
    fr_status (*wait)(fri_fence f);
    bool (*passed)(fri_fence f);
    /* Queues a copy without waiting: host memory is of host_alloc and stays until a later fence has passed. */
    fr_status (*copy)(fri_stream_id stream, fri_copy_kind kind, const void *src, void *dst, size_t bytes);
    /* Fills *out so that a kernel, or the backend's `copy`, runs in the stream. */
    fr_status (*exec)(fri_stream_id stream, fri_exec *out);
    /* Page-locked memory. FR_ENOMEM (without a message) if exhausted. */
    fr_status (*host_alloc)(size_t bytes, void **out);
    void (*host_free)(void *p, size_t bytes);
} fri_streams;

typedef struct fri_backend {
    const char *name;
    fr_device device;

    /* True if the device can be used; else *reason is a static sentence of a line. */
    bool (*available)(const char **reason);

    /* Driver memory: called by the allocator only. FR_ENOMEM (without a message) if exhausted. */
    fr_status (*segment_alloc)(size_t bytes, void **out);
    void (*segment_free)(void *segment, size_t bytes);
    /* Bytes free and in total on the device, or 0 and 0 if undefined. */
    void (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    /* Bytes free for a run with context and libraries loaded, of the device or of the description for plans; 0: not
     * known. NULL: memory decides nothing. */
    fr_status (*room)(size_t *bytes);
    /* Reports memory outside the allocator's segments. NULL: none. */
    void (*memory_use)(fr_memory_use *out);

    /* Copies in stream order; to the host, returns after the copy. */
    fr_status (*copy)(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes);
    /* Kernels in use, for people and for measured times: "2 threads, avx512"; NULL: no facts. */
    void (*describe)(char *buf, size_t bytes);
    /* Facts behind the bits of results on data of a type, "fused multiply-adds"; NULL: `describe`. */
    void (*describe_bits)(fr_dtype compute, char *buf, size_t bytes);
    int numerics; /* from 1; raised by a commit with different result bits */
    /* A line about the sizes from *_workspace so far, "" if empty; NULL: always empty. */
    void (*remark)(char *buf, size_t bytes);
    /* Whether copies from the host go through pinned memory, so the host does not wait; NULL: no pinning. */
    void (*pin_memory)(bool on);
    /* Waits for all queued work of the stream. */
    fr_status (*synchronize)(const fri_exec *e);
    /* Calls of an asynchronous device; NULL: synchronous. */
    const fri_streams *streams;

    fri_kernels kernels;     /* f32, f16, bf16 data, and the copies of every type */
    fri_kernels kernels_f64; /* f64 data; all NULL on a device without f64 */
} fri_backend;

/* The table for a device, NULL if the build lacks the device. src/backend/registry.c is the only file that names the
 * backends. */
const fri_backend *fri_backend_get(fr_device d);

/* Tests replace a device's table; NULL restores the default. */
void fri_backend_override(fr_device d, const fri_backend *b);

static inline const fri_kernels *fri_kernels_for(const fri_backend *b, fr_dtype t) {
    return t == FR_F64 ? &b->kernels_f64 : &b->kernels;
}

/* The failure for a NULL kernel slot. */
fr_status fri_kernel_missing(const char *kernel, fr_dtype t, const fri_backend *b);

#ifndef __cplusplus /* nvcc sees types only */

#include "base/thread.h"

/* Watch of the thread's kernel calls; NULL: none. The cost model's calibration times kernels with a watch. */
typedef struct fri_kernel_watch {
    void (*begin)(void *ctx, const char *kernel);
    void (*end)(void *ctx, const char *kernel, const fri_backend *b);
    void *ctx;
} fri_kernel_watch;

static inline void fri_kernel_begins(const char *kernel) {
    if (fri_here.kernel_watch != NULL) fri_here.kernel_watch->begin(fri_here.kernel_watch->ctx, kernel);
}

static inline fr_status fri_kernel_ended(const char *kernel, const fri_backend *b, fr_status s) {
    if (fri_here.kernel_watch != NULL) fri_here.kernel_watch->end(fri_here.kernel_watch->ctx, kernel, b);
    return s;
}

/* FRI_KERNEL(s, backend, dtype, relu_forward, (&exec, dtype, n, x, y)): calls the kernel or explains the absence. */
#define FRI_KERNEL(backend_, dtype_, name_, args_)          \
    (fri_kernels_for((backend_), (dtype_))->name_ == NULL   \
         ? fri_kernel_missing(#name_, (dtype_), (backend_)) \
         : (fri_kernel_begins(#name_),                      \
            fri_kernel_ended(#name_, (backend_), fri_kernels_for((backend_), (dtype_))->name_ args_)))

/* Elementwise kernel on all elements of x: the arguments after the number of elements. */
#define FRI_PASS(x_, name_, ...) \
    FRI_KERNEL(fri_backend_of(x_), (x_)->dtype, name_, (FRI_EXEC, (x_)->dtype, fri_numel(x_), __VA_ARGS__))

/* A kernel slot with bytes as result; 0 if missing (and then the kernel is missing, too). */
#define FRI_KERNEL_BYTES(backend_, dtype_, name_, args_)              \
    (fri_kernels_for((backend_), (dtype_))->name_ == NULL ? (size_t)0 \
                                                          : fri_kernels_for((backend_), (dtype_))->name_ args_)

#endif
/* Kernels in use, "2 threads, avx512", into buf, "" if nothing; returns buf. */
const char *fri_device_describe(fr_device d, char *buf, size_t bytes);

/* Facts behind the bits of results on data of a type, into buf; returns buf. Equal facts give equal bits. */
const char *fri_device_describe_bits(fr_device d, fr_dtype compute, char *buf, size_t bytes);

#endif
