/* autograd.h - gradients, and the switches that decide what backward costs in memory.
 *
 * Reverse mode, eager: an op on a tensor that requires grad records a node; fr_backward walks the nodes from the newest
 * to the oldest and frees them. All state here (grad mode, autocast, switches) belongs to the thread. */
#ifndef FRUGAL_AUTOGRAD_H
#define FRUGAL_AUTOGRAD_H

#include <frugal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- leaves ------------------------------------------------------------------------------------------------ */

/* Makes a leaf collect its gradient (torch.Tensor.requires_grad_). FR_EUSAGE on the result of an op, FR_EDTYPE on
 * integers. */
FR_API fr_status fr_tensor_set_requires_grad(fr_tensor *t, bool on);
FR_API bool fr_tensor_requires_grad(const fr_tensor *t);
FR_API bool fr_tensor_is_leaf(const fr_tensor *t);

/* The leaf's gradient, NULL if there is none. Borrowed: valid until the gradient is cleared or t is released. */
FR_API fr_tensor *fr_tensor_get_grad(const fr_tensor *t);
/* Puts a gradient in place (retained); NULL frees it. Shape and dtype must be the leaf's. */
FR_API fr_status fr_tensor_set_grad(fr_tensor *t, fr_tensor *grad);

/* fn runs inside fr_backward as soon as the leaf's gradient is complete (PyTorch: post-accumulate-grad hook). It may
 * update the leaf and free the gradient. NULL removes it. One hook per leaf, which stays while the leaf is frozen;
 * FR_EUSAGE if t is no leaf that requires grad or did. */
typedef fr_status fr_grad_hook_fn(void *ctx, fr_tensor *leaf);
FR_API fr_status fr_tensor_set_grad_hook(fr_tensor *leaf, fr_grad_hook_fn *fn, void *ctx);

/* ---- backward ---------------------------------------------------------------------------------------------- */

/* d(t)/d(leaf) is added to .grad of every leaf that t depends on. `grad` is the gradient of t, same shape and dtype, or
 * NULL: then t must have one element and 1 is used. The graph is freed as it is walked.
 * FR_EUSAGE: t requires no grad, the graph was already used, a saved tensor was overwritten (the sentence names both
 * ops). */
FR_API fr_status fr_backward(fr_tensor *t, fr_tensor *grad);

/* ---- modes ------------------------------------------------------------------------------------------------- */

/* with torch.no_grad(): returns what was on before; hand it to the end. */
FR_API bool fr_no_grad_begin(void);
FR_API void fr_no_grad_end(bool was);
FR_API bool fr_grad_enabled(void);

/* Mixed precision: ops on PyTorch's lists run in `dtype` (FR_F16 or FR_BF16) or in f32. */
typedef struct fr_autocast_state {
    bool enabled;
    fr_dtype dtype;
} fr_autocast_state;
FR_API fr_status fr_autocast_begin(fr_dtype dtype, fr_autocast_state *was);
FR_API void fr_autocast_end(fr_autocast_state was);
FR_API fr_autocast_state fr_autocast_get(void);

/* ---- switches ---------------------------------------------------------------------------------------------- */

/* How much scratch each convolution of a program may take; see fr_scratch_create. */
typedef struct fr_scratch fr_scratch;

/* Switches that save memory. A switch never changes results, except where docs/memory.md says so and states the bound.
 * The defaults are the best lossless set that costs no time: in-place, encode, early release. */
typedef struct fr_switches {
    bool inplace;        /* x = op(x) reuses x's storage when nobody else can see it; backward reuses dy */
    bool encode;         /* relu: 1 bit, max pool: 1 byte, masks shared, dropout: no mask */
    bool rebuild;        /* batch norm, relu, add, concat outputs are made again in backward */
    bool early_release;  /* a saved tensor goes at its last use inside a node's backward */
    bool offload;        /* large saved activations wait in a file (fr_offload_open) until backward needs them */
    bool cache_casts;    /* autocast: low-precision copies of parameters live from forward to backward, as in PyTorch */
    fr_dtype pool_index; /* index type of max pooling when encode is off: FR_I64 (PyTorch), FR_I32 or FR_U8 */
    size_t workspace_limit; /* bytes of library scratch to prefer staying under, per op */
    fr_scratch *scratch;    /* of convolutions, beside workspace_limit; borrowed. NULL: nothing more */
} fr_switches;

/* Scratch that raises no peak. Under switches that hold it, the convolutions of a pass over a program, real or on meta,
 * note what is requested on their device when they ask for scratch. From fr_scratch_settle on each may take what is
 * left of `peak` bytes beside the most that was requested at any of its calls, in whole MiB, or workspace_limit if that
 * is more: forward and the two gradients on their own, and all calls of one shape alike, so that a recomputation runs
 * the same kernel. Settling again takes another peak. Of one thread. Release clears its switches. FR_ENOMEM. */
FR_API fr_status fr_scratch_create(fr_scratch **out);
FR_API void fr_scratch_settle(fr_scratch *scratch, size_t peak);
FR_API void fr_scratch_release(fr_scratch **scratch);

/* The list of those that are on or off, all with the same bits: for programs that offer, try or name them. */
typedef enum fr_switch_cost {
    FR_SWITCH_FREE,    /* of no time: on by default */
    FR_SWITCH_COMPUTE, /* something is computed again */
    FR_SWITCH_MOVE,    /* bytes go to a file and back */
} fr_switch_cost;
typedef struct fr_switch {
    const char *name; /* "early-release", as the trainers' flag */
    size_t offset;    /* of its bool in fr_switches */
    bool saves;       /* the value that needs less memory; the other one is PyTorch's */
    fr_switch_cost cost;
} fr_switch;
FR_API const fr_switch *fr_switch_at(int i); /* from 0, by cost; NULL behind the last */
static inline bool *fr_switch_field(const fr_switch *w, fr_switches *s) {
    return (bool *)((char *)s + w->offset);
}

FR_API fr_switches fr_switches_default(void);
FR_API fr_switches fr_switches_all_off(void); /* what PyTorch eager keeps */
FR_API fr_switches fr_switches_get(void);
FR_API void fr_switches_set(fr_switches s);

/* The file of the offload switch; each thread has its own. path NULL: a temporary file in the first of $TMPDIR,
 * /var/tmp and /tmp that is not in memory itself (tmpfs), or, for CUDA tensors, page-locked host memory. It must not
 * exist; it is unlinked as soon as it is open, so nothing is left behind. Without this call the switch opens a
 * temporary file at its first use. FR_EIO names the file. */
FR_API fr_status fr_offload_open(const char *path);
/* A sentence if the file lies in memory, where it saves nothing, or had to avoid $TMPDIR for that; else "". */
FR_API const char *fr_offload_warning(void);
FR_API void fr_offload_close(void); /* does nothing while a graph still has bytes in the file */
struct fr_memory_stats;
/* Bytes in the file, now and at most. FR_EUSAGE if none is open. */
FR_API fr_status fr_offload_stats_get(struct fr_memory_stats *out);

/* ---- a training step ------------------------------------------------------------------------------------------ */

/* Bounds one step: end restores grad mode, autocast, switches and scopes, also after an error in between, and marks the
 * step in the event log. */
typedef struct fr_step_scope {
    bool grad_enabled;
    fr_autocast_state autocast;
    fr_switches switches;
    bool statistics_frozen;
    fr_phase phase;
    const char *op, *module;
} fr_step_scope;
FR_API fr_status fr_step_begin(fr_step_scope *scope);
FR_API fr_status fr_step_end(fr_step_scope *scope);

/* While frozen, a training forward leaves batch norm's running statistics and counters as they are: for a second
 * forward of the same batch. Returns what was set before. */
FR_API bool fr_statistics_freeze(bool frozen);

/* ---- checkpointing -------------------------------------------------------------------------------------------- */

/* A function of tensors: reads in[0..n_in), fills all slots out[0..n_out) (NULL at entry; one that stays so is
 * FR_EINVAL). It must do the same each time and pass on any negative status at once. */
typedef fr_status fr_checkpoint_fn(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out);

/* out = fn(in), without keeping what fn saves for backward: the first backward that needs it runs fn again, under the
 * random numbers and autocast state of the forward, up to the last tensor needed (torch.utils.checkpoint,
 * non-reentrant). Batch-norm statistics are written by the forward only. Nests. ctx belongs to the graph, which calls
 * ctx_free (or NULL) after its last use, also on failure. */
FR_API fr_status fr_checkpoint(fr_checkpoint_fn *fn, void *ctx, void (*ctx_free)(void *ctx), fr_tensor *const *in,
                               int n_in, fr_tensor **out, int n_out);

/* ---- looking --------------------------------------------------------------------------------------------------- */

typedef struct fr_graph_stats {
    uint64_t nodes;                 /* alive on this thread */
    uint64_t inplace, out_of_place; /* ops that were permitted to run in place: did, did not */
    uint64_t encoded, absorbed, rebuilt, offloaded, recomputed_segments; /* since the start */
    uint64_t growing_steps; /* steps in a row (fr_step_end) that each left more nodes than the one before. 3: the graph
                               grows, as when losses are summed without fr_tensor_item */
} fr_graph_stats;
FR_API fr_graph_stats fr_graph_stats_get(void);

/* While on, the results of all ops of this thread and the gradients they make are read for inf and NaN, and the first
 * op that made one is remembered (torch.autograd.set_detect_anomaly, but nothing fails). Each value is read once more
 * on the host, which takes time, and no device memory. Turning it on forgets what was found. Returns what was set.
 * FRUGAL_CHECK_NAN=1 makes the op itself fail. */
FR_API bool fr_detect_anomaly(bool on);

typedef struct fr_anomaly {
    const char *op, *module; /* names that live as long as the process; op is NULL if nothing was found */
    bool backward;           /* it is a gradient that the op's backward made, not the op's result */
} fr_anomaly;
FR_API fr_anomaly fr_anomaly_get(void);

#ifdef __cplusplus
}
#endif
#endif
