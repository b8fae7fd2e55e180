/* base.h - status codes, error messages, element types and devices.
 *
 * Functions report a failure by a status, for programs, and a sentence, fr_last_error(), for people. The library
 * never exits, aborts or prints.
 *
 * NULL, in every function of libfrugal: where the header gives it a meaning ("or NULL", options, callbacks' ctx, an
 * array of no elements), NULL has this meaning. Elsewhere a function with a status returns FR_EINVAL and a sentence
 * with the names of function and argument; a function without a status returns 0, false or NULL. Releasing NULL, or a
 * pointer to NULL, is always fine.
 *
 * Threads. Any number of threads may train and infer concurrently, each with its own modules, tensors, optimizers and
 * loaders. A handle belongs to one thread at a time, because reference counts are not locked. A program hands a
 * handle over at a synchronized moment, together with all handles on the memory (views, the graph).
 *
 * Of the thread are: the last error; grad mode, autocast, switches, anomaly detection and the open training step; the
 * random generator; the number of threads for ops (fr_threads_set); the memory pool and a running dry run. A new
 * thread starts with the defaults. Of the process are: each device's default pool, the caches of library primitives,
 * the table of module paths, cuDNN's settings below and the environment variables, all behind locks.
 *
 * Callbacks. A callback reports failure by a status; the library call then undoes its work and returns the status. A
 * callback must return: an exception or longjmp through a library call leaks, and leaves the thread's modes as set by
 * the call.
 *
 * fork. A child of a process with memory of the library gets FR_EUSAGE for every allocation and frees nothing,
 * because the parent's locks and threads do not exist in the child; the child may call exec. If the parent has not
 * used the library, the child can. */
#ifndef FRUGAL_BASE_H
#define FRUGAL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Options. A call with options takes a pointer to a struct, or NULL for PyTorch's defaults. FR_CONV2D_OPTS(.stride =
 * 2) points to a struct of defaults with the named members changed; C++ wants the names in order of declaration. The
 * pointer is valid to the end of the block in C, to the end of the call in C++. fr_conv2d_opts_default() is a struct
 * of defaults, to be changed field by field. Options in options: .conv = *FR_CONV2D_OPTS(.stride = 2).
 *
 * In C++ the defaults belong to the members. In C the macro FR_CONV2D_DEFAULTS holds the defaults other than 0, and
 * the caller's members override the macro's; the compiler's warning about overridden members is off from here on. */
#ifdef __cplusplus
template <class T> inline const T *fr_opts_of(const T &opts) {
    return &opts; /* a temporary of the caller, alive until the end of the full expression */
}
#define FR_DEFAULT(...)              = __VA_ARGS__
#define FR_OPTS(type, defaults, ...) fr_opts_of(type{__VA_ARGS__})
#else
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#elif defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
#define FR_DEFAULT(...)
#define FR_OPTS(type, defaults, ...) (&(type){defaults, __VA_ARGS__})
#endif
#define FR_OPTS_DEFAULT(type, opts)           \
    static inline type type##_default(void) { \
        return *opts;                         \
    }

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FR_API __attribute__((visibility("default")))
#else
#define FR_API
#endif

#define FR_VERSION_MAJOR 0
#define FR_VERSION_MINOR 4
#define FR_VERSION_PATCH 0

/* The version of the library that runs, "0.4.0"; FR_VERSION_... are the headers' at compile time. Before 1.0 both
 * must agree in major and minor. Static storage. */
FR_API const char *fr_version(void);

/* The status codes: name, value, meaning. Errors are negative, FR_OK is 0, and FR_END is positive: the end of an
 * epoch or of a stream, no error. */
#define FR_STATUS_MAP(X)                                                                                    \
    X(FR_OK, 0, "success")                                                                                  \
    X(FR_END, 1, "end of the epoch or stream")                                                              \
    X(FR_ENOMEM, -1, "out of memory (host, device, or the limit set by the caller)")                        \
    X(FR_ESHAPE, -2, "shapes or ranks do not fit together")                                                 \
    X(FR_EDTYPE, -3, "element types do not fit together or are not supported by the op")                    \
    X(FR_EDEVICE, -4, "tensors live on different devices, or the device is absent")                         \
    X(FR_EINVAL, -5, "an argument has a value that is never valid")                                         \
    X(FR_EUSAGE, -6, "a call in the wrong order or state (second backward, saved tensor overwritten, ...)") \
    X(FR_EUNSUPPORTED, -7, "the backend has no kernel for this op, element type or device")                 \
    X(FR_EIO, -8, "a file could not be opened, read or written")                                            \
    X(FR_EFORMAT, -9, "a file was read but its content is not what its format demands")                     \
    X(FR_ELIBRARY, -10, "a library below (CUDA, cuDNN, NCCL, ...) reported a failure")                      \
    X(FR_EINTERNAL, -11, "a broken invariant inside frugal: please report it")                              \
    X(FR_EPEER, -12, "another rank failed, is late, or disagrees")                                          \
    X(FR_EDATA, -13, "a training state belongs to other data than the run's")

typedef enum fr_status {
#define FR_STATUS_ENUM(name, value, text) name = value,
    FR_STATUS_MAP(FR_STATUS_ENUM)
#undef FR_STATUS_ENUM
} fr_status;

/* The name of a code ("FR_ESHAPE"); "unknown status" for a value outside the list. Static storage. */
FR_API const char *fr_status_name(fr_status s);

/* The sentence of the last failure on the calling thread, "" without a failure. Borrowed: valid until the thread's
 * next failing call. */
FR_API const char *fr_last_error(void);

/* Stores the formatted sentence for fr_last_error and returns s; callbacks, layers and ops of a program call it. A
 * sentence names the value found and the value expected. Control characters are escaped, a long sentence is shortened
 * in the middle. */
FR_API fr_status fr_fail(fr_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a prefix before the current sentence: "layer4.0.conv1: " + what the op said. Returns s. */
FR_API fr_status fr_fail_prefix(fr_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes text from a file or a command line into out[bytes], safe for a terminal: control characters (below 0x20,
 * 0x7f, U+0080 to U+009F) and bytes that are no UTF-8 become \x1b. With `lines` newlines stay. A long text loses the
 * middle to "...". bytes >= 16. Returns out. */
FR_API const char *fr_text_printable(const char *text, bool lines, char *out, size_t bytes);

/* Levenshtein's distance, for the nearest of some names; longer words have the distance FR_TEXT_LONGEST. */
enum { FR_TEXT_LONGEST = 64 };
FR_API int fr_text_distance(const char *a, const char *b);

/* Runs an expression of type fr_status; on failure jumps to the label `done`, where the caller cleans up.
 *     fr_status s = FR_OK;
 *     FR_TRY(s, fr_relu(x, &x));
 *  done:
 *     return s; */
#define FR_TRY(s, expression)   \
    do {                        \
        (s) = (expression);     \
        if ((s) < 0) goto done; \
    } while (0)

/* Element types. Arithmetic is defined on the float types; f64 exists on the CPU only, for gradient checks. */
typedef enum fr_dtype {
    FR_F32,
    FR_F16,
    FR_BF16,
    FR_F64,
    FR_I64,
    FR_I32,
    FR_I16,
    FR_I8,
    FR_U8,
    FR_BOOL,
} fr_dtype;
enum { FR_DTYPE_COUNT = 10 };

FR_API size_t fr_dtype_size(fr_dtype t);      /* bytes per element; 0 for a value outside the enum */
FR_API const char *fr_dtype_name(fr_dtype t); /* "f32", "bf16", ...; "?" for a value outside the enum */
FR_API bool fr_dtype_is_float(fr_dtype t);    /* f32, f16, bf16, f64 */

/* Devices. Meta tensors have shape, type and a place in the allocator, but no data. */
typedef enum fr_device {
    FR_CPU,
    FR_CUDA,
    FR_META,
} fr_device;
enum { FR_DEVICE_COUNT = 3 };

FR_API const char *fr_device_name(fr_device d);                     /* "cpu", "cuda", "meta" */
FR_API bool fr_device_available(fr_device d);                       /* false: fr_device_reason says why */
FR_API const char *fr_device_reason(fr_device d);                   /* one line; "" when available. Static storage */
FR_API fr_status fr_device_parse(const char *name, fr_device *out); /* FR_EINVAL names the known devices */
/* true if the host continues while kernels of the device run (for meta: kernels of the plan's target) */
FR_API bool fr_device_is_asynchronous(fr_device d);

/* Category of a byte of device memory. Every allocation has a category; at any instant the categories add up to the
 * total. */
typedef enum fr_category {
    FR_MEM_PARAMETER,  /* parameters and buffers of modules */
    FR_MEM_GRADIENT,   /* .grad of leaves */
    FR_MEM_OPTIMIZER,  /* optimizer state */
    FR_MEM_ACTIVATION, /* saved for backward: tensors, masks, codes, indices */
    FR_MEM_TEMPORARY, /* everything in use between ops: results not saved, non-leaf gradients, casts, rebuilt tensors */
    FR_MEM_WORKSPACE, /* library scratch, reordered or padded weights and inputs */
    FR_MEM_INPUT,     /* batches and labels */
    FR_MEM_OTHER,
} fr_category;
enum { FR_CATEGORY_COUNT = 8 };

/* Memory as the operating system or the driver counts it; 0: not known. */
typedef struct fr_memory_use {
    size_t process;       /* held by the process, including memory outside the engine */
    size_t device, total; /* in use on the device by all processes; all memory of the device. 0 on the CPU */
    const char *source;   /* source of the numbers; static storage */
} fr_memory_use;

FR_API const char *fr_category_name(fr_category c); /* "parameter", "gradient", ... */

/* The part of a training step that runs. Ops and the trainer set it; reports group by it. */
typedef enum fr_phase {
    FR_PHASE_NONE,
    FR_PHASE_FORWARD,
    FR_PHASE_BACKWARD,
    FR_PHASE_OPTIMIZER,
    FR_PHASE_EVALUATION,
} fr_phase;
enum { FR_PHASE_COUNT = 5 };

FR_API const char *fr_phase_name(fr_phase p); /* "forward", ... */

/* Phase p owns the thread's allocations and kernels between begin and end. A training loop sets the phase around the
 * optimizer step; the library sets forward and backward. begin returns the previous phase; end takes this value. */
FR_API fr_phase fr_phase_begin(fr_phase p);
FR_API void fr_phase_end(fr_phase was);
FR_API fr_phase fr_phase_get(void);

enum { FR_MAX_RANK = 6 };

/* rank 0 is a scalar: one element. */
typedef struct fr_shape {
    int rank;
    int64_t dim[FR_MAX_RANK];
} fr_shape;

/* Tag of an allocation: category, phase, and the current scope. */
typedef struct fr_tag {
    fr_category category;
    fr_dtype dtype;
    fr_shape shape;
    const char *op;     /* "conv2d"; "" outside any op. Static storage, as `module` */
    const char *module; /* path, "features.0"; "" outside any module */
    fr_phase phase;
} fr_tag;

/* Threads of the CPU backend for calls of the calling thread. Default: FRUGAL_THREADS, else OMP_NUM_THREADS, else the
 * processors of the process, by affinity and container quota. Results have equal bits at any number of threads.
 * Set: 1 <= n <= 4096; FR_EUSAGE with both numbers if the process may not start n threads (ulimit -u, pids.max).
 * Threads start at once, serve all callers of the process, and sleep without work. */
FR_API int fr_threads_get(void);
FR_API fr_status fr_threads_set(int n);

/* cuDNN's engines for convolutions, for the whole process; the CPU is deterministic anyway. Changes
 * apply to shapes not seen before.
 *   deterministic  (torch.backends.cudnn.deterministic) only engines with equal bits in every run. On at the start,
 *                  unlike PyTorch: a seed determines a run.
 *   benchmark      (torch.backends.cudnn.benchmark) times every engine within the workspace limit once per shape and
 *                  thread, and keeps the fastest. Timing takes memory from the driver for a moment, before the
 *                  planned run reserves memory. Off at the start. */
FR_API void fr_cudnn_deterministic_set(bool on);
FR_API void fr_cudnn_benchmark_set(bool on);

/* Whether f32 convolutions multiply each input with each weight, for the whole process. Off at the start: on the CPU,
 * where it is faster, a 3 x 3 convolution of stride 1 uses Winograd's F(4 x 4, 3 x 3), with some ten times the error
 * of plain sums (bound: docs/ops/conv2d.md); on CUDA factors are rounded to TF32 (10 bits of fraction), as in
 * PyTorch. On: neither. Linear layers are exact except under FRUGAL_TF32. A plan and the run must have equal
 * settings. */
FR_API void fr_exact_convolutions_set(bool on);

/* Seeds the thread's default generator, as torch.manual_seed. The numbers do not depend on the thread count. */
FR_API void fr_seed(uint64_t seed);

/* The state of the thread's generator (torch.get_rng_state, set_rng_state). A draw (a dropout, a weight
 * initialization) takes a stream number; numbers of a stream are indexed by element, so a result depends on neither
 * thread count nor device. */
typedef struct fr_rng {
    uint64_t seed;
    uint64_t next_stream;
} fr_rng;
FR_API fr_rng fr_rng_get(void);
FR_API void fr_rng_set(fr_rng state);

#ifdef __cplusplus
}
#endif
#endif
