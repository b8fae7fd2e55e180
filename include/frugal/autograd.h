/* autograd.h - gradients, and the switches that decide how much memory backward needs.
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

/* The leaf's gradient, or NULL. Borrowed: valid until the gradient is cleared or t is released. The dtype is the
 * leaf's, or autocast's compute type under the switch half_gradients. */
FR_API fr_tensor *fr_tensor_get_grad(const fr_tensor *t);
/* Puts a gradient in place (retained); NULL frees it. Shape and dtype must be the leaf's. */
FR_API fr_status fr_tensor_set_grad(fr_tensor *t, fr_tensor *grad);

/* fn runs inside fr_backward as soon as the leaf's gradient is complete (PyTorch: post-accumulate-grad hook). The
 * hook may update the leaf and free the gradient. NULL removes the hook. A leaf has one hook, also while frozen;
 * FR_EUSAGE if t is no leaf, or never required grad. */
typedef fr_status fr_grad_hook_fn(void *ctx, fr_tensor *leaf);
FR_API fr_status fr_tensor_set_grad_hook(fr_tensor *leaf, fr_grad_hook_fn *fn, void *ctx);

/* ---- backward ---------------------------------------------------------------------------------------------- */

/* d(t)/d(leaf) is added to .grad of every leaf below t. `grad` is the gradient of t, with t's shape and dtype; NULL
 * means 1, for a t of one element. Backward frees the graph.
 * FR_EUSAGE: t requires no grad, the graph was already used, a saved tensor was overwritten (the sentence names both
 * ops). */
FR_API fr_status fr_backward(fr_tensor *t, fr_tensor *grad);

/* ---- modes ------------------------------------------------------------------------------------------------- */

/* with torch.no_grad(): returns the old state, which fr_no_grad_end takes. */
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

/* ---- switches ---------------------------------------------------------------------------------------------- */

/* Switches that save memory. A switch never changes results, with the exceptions and bounds in docs/memory.md. The
 * defaults are all switches that move nothing out of memory: in-place, encode, early release, rebuild. half_gradients
 * is off by default, because fr_tensor_get_grad and hooks then see FR_F16 or FR_BF16; sessions and trainers set it. */
typedef struct fr_switches {
    bool inplace;        /* x = op(x) writes over x's storage if x has no other reader; backward reuses dy */
    bool encode;         /* relu: 1 bit, max pool: 1 byte, masks shared, dropout: no mask */
    bool rebuild;        /* batch norm, relu, add, concat outputs are made again in backward */
    bool early_release;  /* backward frees a saved tensor at the last use */
    bool offload;        /* large saved activations wait in a file (fr_offload_open) until backward needs them */
    bool cache_casts;    /* autocast: low-precision copies of parameters live from forward to backward, as in PyTorch */
    bool half_gradients; /* autocast: a weight's gradient stays in the compute type until another one is added */
    fr_dtype pool_index; /* index type of max pooling when encode is off: FR_I64 (PyTorch), FR_I32 or FR_U8 */
    size_t workspace_limit;             /* bytes of library scratch to prefer staying under, per op */
    struct fri_scratch_limits *scratch; /* per convolution, set by a session; borrowed. NULL: none */
} fr_switches;

FR_API fr_switches fr_switches_default(void);
FR_API fr_switches fr_switches_all_off(void); /* what PyTorch eager keeps */
FR_API fr_switches fr_switches_get(void);
FR_API void fr_switches_set(fr_switches s);

/* Opens the thread's offload file. path NULL: a temporary file in the first of $TMPDIR, /var/tmp and /tmp on a disk
 * (no tmpfs), or, for CUDA tensors, page-locked host memory. A file at `path` must not exist yet; the open file is
 * unlinked at once. Without a call the switch opens a temporary file at the first use. FR_EIO names the file. */
FR_API fr_status fr_offload_open(const char *path);
FR_API void fr_offload_close(void); /* does nothing while a graph still has bytes in the file */

/* ---- a training step ------------------------------------------------------------------------------------------ */

/* Bounds a step: end restores grad mode, autocast, switches and scopes, also after an error in between, and marks the
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

/* ---- checkpointing -------------------------------------------------------------------------------------------- */

/* A function of tensors: reads in[0..n_in), fills all slots out[0..n_out), which are NULL at entry (a slot left NULL
 * is FR_EINVAL). The function must be repeatable, and must pass on a negative status at once. */
typedef fr_status fr_checkpoint_fn(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out);

/* out = fn(in), without keeping the tensors that fn saves for backward: the first backward in need runs fn again,
 * with the forward's random numbers and autocast state, up to the last tensor needed (torch.utils.checkpoint,
 * non-reentrant). Batch-norm statistics are written by the forward only. Nests. ctx belongs to the graph, which calls
 * ctx_free (or NULL) after its last use, also on failure. */
FR_API fr_status fr_checkpoint(fr_checkpoint_fn *fn, void *ctx, void (*ctx_free)(void *ctx), fr_tensor *const *in,
                               int n_in, fr_tensor **out, int n_out);

/* ---- looking --------------------------------------------------------------------------------------------------- */

typedef struct fr_graph_stats {
    uint64_t nodes;                 /* alive on this thread */
    uint64_t inplace, out_of_place; /* ops with permission to run in place: did, did not */
    uint64_t encoded, absorbed, rebuilt, offloaded, recomputed_segments; /* since the start */
    uint64_t growing_steps; /* steps in a row (fr_step_end) with more nodes left than at the step before. 3: the
                             * graph grows, as when losses are summed without fr_tensor_item */
} fr_graph_stats;
FR_API fr_graph_stats fr_graph_stats_get(void);

/* While on, the library searches the results and gradients of the thread's ops for inf and NaN, and remembers the
 * first op with such a value (torch.autograd.set_detect_anomaly, without a failure). The search reads each value once
 * more on the host: time, but no device memory. Switching on forgets earlier findings. Returns the old setting.
 * FRUGAL_CHECK_NAN=1 makes the op fail. */
FR_API bool fr_detect_anomaly(bool on);

typedef struct fr_anomaly {
    const char *op, *module; /* static names; op is NULL without a finding */
    bool backward;           /* in a gradient of the op's backward, not in the op's result */
} fr_anomaly;

#ifdef __cplusplus
}
#endif
#endif
