/* base.h - status codes, error messages, element types and devices.
 *
 * Everything in frugal reports failure by a status and a sentence: the status is for programs, the sentence,
 * fr_last_error(), is for people. The library never exits, aborts or prints.
 *
 * NULL, in every function of libfrugal: where the header gives it a meaning ("or NULL", options, callbacks' ctx, an
 * array of no elements), it has that. Elsewhere a function that returns a status answers FR_EINVAL with a sentence that
 * names itself and the argument; any other does nothing and returns 0, false or NULL. To release NULL, or a pointer to
 * NULL, is always fine.
 *
 * Threads. Any number of threads may train and infer at the same time, each with its own modules, tensors, optimizers
 * and loaders. A handle belongs to one thread at a time: counts of references are not locked, so it is handed over at
 * a moment when both threads agree, together with every other handle on the same memory (views, and the graph that
 * made it).
 *
 * Of the thread are: the last error; grad mode, autocast, switches, anomaly detection and the open training step; the
 * random generator; the number of threads that ops use (fr_threads_set); the pool that memory comes from and the dry
 * run that is under way. A new thread starts with the defaults. Of the process are: each device's default pool, the
 * caches of library primitives, the table of module paths, cuDNN's settings below and the environment variables; all
 * of it is locked.
 *
 * Callbacks. A callback that fails returns its status, and the call that it was made from undoes what it began and
 * returns that status. A callback must return: an exception or longjmp through a call of the library leaves the
 * thread's modes as the call had set them, and leaks.
 *
 * fork. A child of a process that has taken memory from the library gets FR_EUSAGE where it needs memory, and frees
 * nothing, because locks and threads of its parent are not there; it may call exec. A child of a process that has not
 * used the library uses it like any other. */
#ifndef FRUGAL_BASE_H
#define FRUGAL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Options. A call with options takes a pointer to a struct, or NULL for the defaults, which are PyTorch's.
 * FR_CONV2D_OPTS(.stride = 2) points to one with the defaults but for what is named; C++ wants the names in order of
 * declaration. It is valid to the end of the block in C, to the end of the call in C++. fr_conv2d_opts_default() is a
 * struct of defaults, to be changed field by field. Options in options: .conv = *FR_CONV2D_OPTS(.stride = 2).
 *
 * In C++ the defaults belong to the members. In C the macro FR_CONV2D_DEFAULTS holds those that are not 0, and what the
 * caller names overrides them; the compiler's warning about that is off from here on. */
#ifdef __cplusplus
template <class T> inline const T *fr_opts_of(const T &opts) {
    return &opts; /* a temporary of the caller: it lives until the end of the full expression */
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
#define FR_VERSION_MINOR 1
#define FR_VERSION_PATCH 0

/* The version of the library that runs, "0.1.0"; FR_VERSION_... are those of the headers a program was compiled with.
 * Before 1.0 they must agree in major and minor. Static storage. */
FR_API const char *fr_version(void);

/* The one list of status codes: name, value, what a program may conclude. Errors are negative, FR_OK is 0, and
 * FR_END is the one positive code: the end of an epoch or of a stream, which is no error. */
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
    X(FR_ELIBRARY, -10, "a library below (oneDNN, CUDA, cuDNN, ...) reported a failure")                    \
    X(FR_EINTERNAL, -11, "a broken invariant inside frugal: please report it")                              \
    X(FR_EPEER, -12, "another rank failed, is late, or disagrees")

typedef enum fr_status {
#define FR_STATUS_ENUM(name, value, text) name = value,
    FR_STATUS_MAP(FR_STATUS_ENUM)
#undef FR_STATUS_ENUM
} fr_status;

/* The name of a code ("FR_ESHAPE"); "unknown status" for a value outside the list. Static storage. */
FR_API const char *fr_status_name(fr_status s);

/* The sentence that belongs to the last failure on this thread, "" if there was none. Borrowed: valid until the
 * next failing call on the same thread. */
FR_API const char *fr_last_error(void);

/* Stores the formatted sentence for fr_last_error and returns s; callbacks, layers and ops of a program call it. A
 * sentence names the value found and the value expected. Control characters are escaped, a sentence that is too long is
 * shortened in the middle. */
FR_API fr_status fr_fail(fr_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a prefix before the current sentence: "layer4.0.conv1: " + what the op said. Returns s. */
FR_API fr_status fr_fail_prefix(fr_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes text, which came from a file or a command line, into out[bytes] so that a terminal shows it and obeys none of
 * it: control characters (below 0x20, 0x7f, U+0080 to U+009F) and bytes that are no UTF-8 become \x1b. With `lines`
 * newlines stay. What is too long loses its middle to "...". bytes >= 16. Returns out. */
FR_API const char *fr_text_printable(const char *text, bool lines, char *out, size_t bytes);
/* Writes the whole text into an XML file: & < > become entities. */
FR_API void fr_text_xml(FILE *out, const char *text);

/* Levenshtein's distance, for the nearest of some names; words longer than FR_TEXT_LONGEST count as that far away. */
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
FR_API bool fr_device_built(fr_device d);                           /* does this build hold the device's backend? */
/* Do the kernels of this device, or of the one that meta stands for in a plan, run while the host goes on? */
FR_API bool fr_device_is_asynchronous(fr_device d);
/* Description of the facts that results and scratch sizes depend on, "2 threads, oneDNN 2.6.3, avx512_core", into buf,
 * "" if nothing; returns buf. */
FR_API const char *fr_device_describe(fr_device d, char *buf, size_t bytes);
/* The number of the device's arithmetic, which a version that changes the bits of a result raises; 0: no such device in
 * this build. */
FR_API int fr_device_numerics(fr_device d);
/* Copies from the host to a device go through page-locked memory, so that they do not wait; of the process. On at the
 * start; no matter on the CPU. */
FR_API void fr_pin_memory_set(bool on);

/* Category of a byte of device memory. Every allocation carries one; at any instant the categories add up to the
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
    size_t process;       /* held by this process, what the engine does not see included */
    size_t device, total; /* in use on the device by everybody; all of it. 0 on the CPU */
    const char *source;   /* who counted; static storage */
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

/* Phase p owns the allocations and kernels of this thread between begin and end. A training loop sets the phase around
 * the optimizer step; the library sets forward and backward. begin returns the previous phase, which end takes. */
FR_API fr_phase fr_phase_begin(fr_phase p);
FR_API void fr_phase_end(fr_phase was);
FR_API fr_phase fr_phase_get(void);

enum { FR_MAX_RANK = 6 };

/* rank 0 is a scalar: one element. */
typedef struct fr_shape {
    int rank;
    int64_t dim[FR_MAX_RANK];
} fr_shape;

/* Tag of an allocation: category, phase, and the scope that was current. */
typedef struct fr_tag {
    fr_category category;
    fr_dtype dtype;
    fr_shape shape;
    const char *op;     /* "conv2d"; "" outside any op. Static storage, as `module` */
    const char *module; /* path, "features.0"; "" outside any module */
    fr_phase phase;
} fr_tag;

/* Threads that the CPU backend uses for the calls of this thread. Until it is set: FRUGAL_THREADS, else
 * OMP_NUM_THREADS, else the processors that the process may use, by its affinity and the quota of its container.
 * Results are reproducible bit for bit at a fixed thread count. Set: 1 <= n <= 4096; FR_EUSAGE with both numbers if
 * the process may not start so many (ulimit -u, pids.max): that is tried here, because OpenMP's run time ends the
 * process where it finds out. */
FR_API int fr_threads_get(void);
FR_API fr_status fr_threads_set(int n);
/* Starts them now, and not at the first op: threads that the program starts later can then not take their place. */
FR_API void fr_threads_start(void);

/* Engines that cuDNN may choose for convolutions, for the whole process; other devices have no such choice and are
 * deterministic. The first two apply to convolutions of shapes that were not seen before.
 *   deterministic  (torch.backends.cudnn.deterministic) engines that give the same bits each time, and no others. On at
 *                  the start, unlike in PyTorch: same seed, same run.
 *   benchmark      (torch.backends.cudnn.benchmark) every engine whose scratch is within the workspace limit is timed
 *                  once per shape and thread, and the fastest kept. Timing takes memory of its own from the driver for
 *                  a moment, before the planned run reserves any. Off at the start. */
FR_API bool fr_cudnn_deterministic_get(void);
FR_API void fr_cudnn_deterministic_set(bool on);
FR_API bool fr_cudnn_benchmark_get(void);
FR_API void fr_cudnn_benchmark_set(bool on);

/* Whether f32 convolutions multiply each input with each weight, for the whole process. Off at the start: on the CPU,
 * where it is faster, a 3 x 3 convolution of stride 1 is made by Winograd's F(4 x 4, 3 x 3), whose error is some ten
 * times that of plain sums (docs/ops/conv2d.md has the bound); on CUDA factors are rounded to TF32, whose fraction has
 * 10 bits, as in PyTorch. On: neither. Linear layers are exact but under FRUGAL_TF32. A plan and the run it is for have
 * the same setting. */
FR_API bool fr_exact_convolutions_get(void);
FR_API void fr_exact_convolutions_set(bool on);

/* Seeds the thread's default generator, as torch.manual_seed. Same seed, same numbers on any thread count. */
FR_API void fr_seed(uint64_t seed);

/* The state of that generator (torch.get_rng_state, set_rng_state). A draw (one dropout, one weight initialization)
 * takes a stream number; the numbers inside it are indexed by element, so they depend on neither thread count nor
 * device. */
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
