/* cpu.h - shared by the CPU kernels: declarations, element access, division of loops.
 *
 * Sources with own loops are compiled twice: `real` is float for f32, f16 and bf16 data, and double for f64 data
 * (FRI_REAL_F64). Functions of the second build have an f64 in their symbols (FRI_CPU_SYMBOL), so that both builds
 * link into one library and `grep fri_cpu_relu_forward` finds a single definition. Data of storage type `real` is
 * processed in place; half data passes through blocks on the stack: fri_cpu_load, a row function on real,
 * fri_cpu_store.
 *
 * Threads: a loop is cut into pieces (fri_parallel), which call row functions. Pieces depend on the shape only, never
 * on the number of threads, and partial sums are combined in the order of pieces, so results have equal bits for any
 * number of threads. A piece reads its loop's arguments from a struct on the stack of the kernel. */
#ifndef FRI_CPU_CPU_H
#define FRI_CPU_CPU_H

#include "backend/arith.h"
#include "backend/backend.h"
#include "base/threads.h"

/* All kernels of a type share a signature; most CPU kernels need neither stream nor workspace. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef fri_real real;

#ifdef FRI_REAL_F64
#define FRI_REAL_DTYPE       FR_F64
#define FRI_CPU_SYMBOL(name) __asm__("fri_cpu_f64_" #name)
#else
#define FRI_REAL_DTYPE FR_F32
#define FRI_CPU_SYMBOL(name)
#endif

/* Adds AVX2 and AVX-512 versions to the baseline; the loader chooses. Not under sanitizers, whose runtime starts
 * after the choice. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FRI_SANITIZED 1
#endif
#if defined(FRI_CLONES) /* set by a test */
#elif defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(FRI_SANITIZED)
#define FRI_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FRI_CLONES
#endif

enum {
    FRI_BLOCK = 1024,            /* elements converted at a time: 4 KiB of f32 on the stack stay in L1 */
    FRI_CHUNK = 16384,           /* elements per task: 64 KiB of f32 */
    FRI_PARALLEL_MIN = 2 * 16384 /* elements below which waking threads costs more than the work */
};

static inline int64_t fri_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t fri_min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t fri_max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- element access -------------------------------------------------------------------------------------- */

/* FR_OK, or FR_EUNSUPPORTED with op and type if this build's kernels do not read the storage type. */
fr_status fri_cpu_accepts(const char *op, fr_dtype t) FRI_CPU_SYMBOL(accepts);

/* y = act(norm(x)) for rows of `width` channels, ld apart, with the bits of batchnorm2d_apply. */
void fri_cpu_norm_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *mean, const real *scale,
                       const real *shift, fri_activation act, real *y) FRI_CPU_SYMBOL(norm_rows);

/* Convert n elements of another storage type to and from real (rounding to nearest even). */
void fri_cpu_widen(fr_dtype t, int64_t n, const void *x, real *y) FRI_CPU_SYMBOL(widen);
void fri_cpu_narrow(fr_dtype t, int64_t n, const real *x, void *y) FRI_CPU_SYMBOL(narrow);

static inline const void *fri_cpu_at(fr_dtype t, const void *base, int64_t first) {
    return (const char *)base + (size_t)first * fr_dtype_size(t);
}

/* Prefetches data FRI_AHEAD bytes after the current position into the L2 cache. If a kernel reads several rows of
 * short pixels in turn, the processor does not detect the streams. Addresses after the end are harmless. */
enum { FRI_AHEAD = 8192, FRI_LINE = 64 };
static inline void fri_cpu_prefetch_bytes(const void *from, size_t bytes) {
    uintptr_t p = (uintptr_t)from + FRI_AHEAD, end = p + bytes;
    for (; p < end; p += FRI_LINE) __builtin_prefetch((const void *)p, 0, 2);
}

/* Prefetches the bytes after elements first .. first+n. */
static inline void fri_cpu_prefetch(fr_dtype t, const void *base, int64_t first, int64_t n) {
    fri_cpu_prefetch_bytes(fri_cpu_at(t, base, first), (size_t)n * fr_dtype_size(t));
}

/* Elements first .. first+n of base as real: base itself if it has the storage type, else converted into buf. */
static inline const real *fri_cpu_load(fr_dtype t, const void *base, int64_t first, int64_t n, real *buf) {
    if (t == FRI_REAL_DTYPE) return (const real *)base + first;
    fri_cpu_widen(t, n, fri_cpu_at(t, base, first), buf);
    return buf;
}

/* Returns memory to compute elements first .. of base in: base itself, or buf. fri_cpu_store copies buf to base. */
static inline real *fri_cpu_target(fr_dtype t, void *base, int64_t first, real *buf) {
    return t == FRI_REAL_DTYPE ? (real *)base + first : buf;
}

static inline void fri_cpu_store(fr_dtype t, void *base, int64_t first, int64_t n, const real *values) {
    if (t == FRI_REAL_DTYPE) return; /* computed in place */
    fri_cpu_narrow(t, n, values, (char *)base + (size_t)first * fr_dtype_size(t));
}

/* The workspace of an f64 kernel that needs none. */
#define FRI_NO_WORKSPACE(op, pass)                                                             \
    fr_status fri_cpu_f64_##op##_##pass##_workspace(const fri_##op##_desc *d, size_t *bytes) { \
        *bytes = 0;                                                                            \
        return FR_OK;                                                                          \
    }

/* ---- loops ----------------------------------------------------------------------------------------------- */

/* Runs the pieces of a loop over `elements` elements, on several threads if the elements are many. */
static inline void fri_cpu_pieces(int64_t elements, int64_t pieces, fri_piece *piece, const void *context) {
    fri_parallel(pieces, elements >= FRI_PARALLEL_MIN ? fr_threads_get() : 1, piece, context);
}

/* Pieces of a loss: its functions make an element worth more. */
static inline void fri_cpu_loss_pieces(const fri_loss_desc *d, int64_t pieces, fri_piece *piece, const void *context) {
    fri_cpu_pieces(8 * d->rows * d->classes, pieces, piece, context);
}

/* Elements first .. last of an array. */
typedef void fri_cpu_range(const void *context, int64_t first, int64_t last);
/* Cuts n elements into ranges of FRI_CHUNK and runs them as pieces. */
void fri_cpu_ranges(int64_t n, fri_cpu_range *range, const void *context) FRI_CPU_SYMBOL(ranges);

/* y[i] = f(a[i], b[i]) for n elements; y may be a or b; b may be NULL if the function ignores it. */
typedef void fri_cpu_map_row(const void *args, int64_t n, const real *a, const real *b, real *y);
/* sum of f(a[i], b[i]) over n elements. */
typedef double fri_cpu_reduce_row(const void *args, int64_t n, const real *a, const real *b);

/* A sum's rows add into this many f64 lanes, element i into lane i % FRI_LANES, so the order of additions is equal
 * for all instruction sets; fri_cpu_lane_total adds the lanes as a tree. */
enum { FRI_LANES = 16 };

/* Runs a statement of element i and lane l for n elements. */
#define FRI_EACH_LANE(n, statement)                           \
    do {                                                      \
        const int64_t whole_ = (n) / FRI_LANES * FRI_LANES;   \
        for (int64_t at_ = 0; at_ < whole_; at_ += FRI_LANES) \
            for (int l = 0; l < FRI_LANES; l++) {             \
                const int64_t i = at_ + l;                    \
                statement;                                    \
            }                                                 \
        for (int64_t i = whole_; i < (n); i++) {              \
            const int64_t l = i - whole_;                     \
            statement;                                        \
        }                                                     \
    } while (0)

static inline double fri_cpu_lane_total(double lane[FRI_LANES]) {
    for (int half = FRI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

/* Runs row over all n elements in parallel; b or NULL. */
fr_status fri_cpu_map(const char *op, fr_dtype t, int64_t n, fri_cpu_map_row *row, const void *args, const void *a,
                      const void *b, void *y) FRI_CPU_SYMBOL(map);

/* Defines a fri_cpu_map_row: y[i] is an expression of a[i], b[i], p and q. args: p and q, or NULL. */
#define FRI_MAP_ROW(name, expression)                                                                 \
    FRI_CLONES static void name(const void *args, int64_t n, const real *a, const real *b, real *y) { \
        const real *const given = args;                                                               \
        const real p = given != NULL ? given[0] : 0, q = given != NULL ? given[1] : 0;                \
        (void)p, (void)q;                                                                             \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (expression);                     \
    }

/* *total = sum of row over all n elements, partial sums per FRI_CHUNK in the workspace (fri_cpu_sum_workspace). */
fr_status fri_cpu_reduce(const fri_exec *e, const char *op, fr_dtype t, int64_t n, fri_cpu_reduce_row *row,
                         const void *args, const void *a, const void *b, double *total) FRI_CPU_SYMBOL(reduce);

/* Returns e->workspace, or FR_EINTERNAL if the workspace is smaller than `need`. */
fr_status fri_cpu_workspace(const fri_exec *e, const char *op, size_t need, void **out);

/* Philox numbers for counters first .. first+count: out[4 * i + lane]. */
void fri_cpu_philox(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, uint32_t *out);

/* Means over rectangular windows, shared by average and adaptive average pooling. */
fr_status fri_cpu_window_mean_forward(const char *op, const fri_pool2d_desc *d, bool adaptive, const void *x, void *y)
    FRI_CPU_SYMBOL(window_mean_forward);
fr_status fri_cpu_window_mean_backward(const char *op, const fri_pool2d_desc *d, bool adaptive, const void *dy,
                                       void *dx) FRI_CPU_SYMBOL(window_mean_backward);

/* log(sum(exp(x))) of a row of d->classes; NaN if any element is NaN. */
double fri_cpu_log_sum_exp(const fri_loss_desc *d, int64_t row, const void *x) FRI_CPU_SYMBOL(log_sum_exp);

/* ---- the kernels ----------------------------------------------------------------------------------------- */

#define FRI_CPU_DECLARE(name, type, need) type fri_cpu_##name FRI_CPU_SYMBOL(name);
FRI_LOOP_KERNELS(FRI_CPU_DECLARE)
#undef FRI_CPU_DECLARE
#define FRI_CPU_DECLARE(name, type, need) type fri_cpu_##name;
FRI_MEMORY_KERNELS(FRI_CPU_DECLARE)
FRI_LIBRARY_KERNELS(FRI_CPU_DECLARE)
#undef FRI_CPU_DECLARE
#define FRI_CPU_DECLARE_F64(name, type, need) type fri_cpu_f64_##name;
FRI_LOOP_KERNELS(FRI_CPU_DECLARE_F64)
FRI_LIBRARY_KERNELS(FRI_CPU_DECLARE_F64)
#undef FRI_CPU_DECLARE_F64

#endif
