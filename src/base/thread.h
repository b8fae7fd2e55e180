/* thread.h - what the library is doing on a thread: the one struct of such state, for all floors.
 *
 * A part belongs to the file that is named with it, which has the functions for it; others call those. Caches stay in
 * their own files: library handles and chosen kernels (cuda/), pinned places and late checks (tensor/readback.c), the
 * offload file (autograd/offload.c), an event log (memory/event.c). A thread begins without scopes and listeners, with
 * the defaults. */
#ifndef FRI_BASE_THREAD_H
#define FRI_BASE_THREAD_H

#include <frugal/autograd.h> /* types only; .ci/check-includes has an exception */

struct fri_kernel_call;
struct fri_net_pass;
struct fr_module;

typedef struct fri_call_listener {
    void (*fn)(void *ctx, const struct fri_kernel_call *c); /* NULL: none */
    void *ctx;
} fri_call_listener;

typedef struct fri_unit_watch {
    void (*fn)(void *ctx, int unit, bool done, const struct fri_net_pass *p, int at);
    void *ctx;
} fri_unit_watch;

typedef struct fri_module_watch {
    void (*fn)(void *ctx, const struct fr_module *m, const fr_tensor *x);
    void *ctx;
} fri_module_watch;

typedef struct fri_autograd_state {
    bool grad_disabled; /* zero-initialized state means: grad mode on */
    fr_autocast_state autocast;
    bool switches_set;
    fr_switches switches;
    struct fri_segment_record *recording; /* checkpoint with a running forward, or NULL */
    struct fri_recompute *recompute;      /* running recomputation, or NULL */
    struct fri_backward_run *pass;        /* running backward, or NULL */
    uint64_t visits;                      /* walks over graphs so far; a walk's number marks visited nodes */
    uint64_t steps;                       /* number of the last one: fri_step_number */
    int open_steps;                       /* begun and not ended */
    fr_graph_stats stats;
    uint64_t nodes_at_step_end;
    bool statistics_frozen;
    const struct fri_statistics_sync *sync;
    struct fri_casts *casts; /* ops/casts.h; NULL outside of a forward */
    struct fr_node *doomed;  /* node.c: nodes to destroy next */
    bool destroying;
    bool detect_anomaly; /* anomaly.c, and the first anomaly */
    fr_anomaly anomaly;
} fri_autograd_state;

typedef struct fri_thread {
    char message[4096]; /* status.c; large enough for an out-of-memory report with table */
    fr_rng rng;         /* rng.c: the default generator */
    const char *op;     /* tag.c: the scopes */
    const char *module;
    fr_phase phase;
    int threads;                                 /* threads.c: of a loop; 0: not chosen yet */
    bool in_loop;                                /* threads.c: runs a piece, so further loops run alone */
    const struct fri_kernel_watch *kernel_watch; /* backend.h: watch for kernels, or NULL */
    const struct fri_backend *meta_target;       /* meta/backend.c */
    fri_call_listener calls;                     /* meta/calls.c */
    struct fr_pool *pools[FR_DEVICE_COUNT];      /* memory/pool.c; NULL: the device's default pool */
    struct fri_event_log *events;                /* memory/event.c; NULL: the thread's own */
    fri_autograd_state autograd;                 /* autograd/state.c */
    fri_module_watch modules;                    /* net/module.c */
    fri_unit_watch units;                        /* net/plan.c */
    struct fr_plan *plan;                        /* plan/plan.c: the running plan, or NULL */
    bool in_summary;                             /* plan/summary.c */
} fri_thread;

extern _Thread_local fri_thread fri_here;

#endif
