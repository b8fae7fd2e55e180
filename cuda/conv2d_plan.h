/* conv2d_plan.h - plans: searched for, kept, timed, executed. Private to conv2d*.c. */
#ifndef FRI_CUDA_CONV2D_PLAN_H
#define FRI_CUDA_CONV2D_PLAN_H

#include "conv2d_graph.h"

typedef struct fri_cuda_conv2d_plan {
    fri_cuda_conv2d_choice choice;
    char *json; /* the plan as cuDNN writes it: what a handle's own plan is read from */
    int64_t json_bytes;
    cudnnBackendDescriptor_t bound; /* read with a handle, at the first execution; NULL before */
} fri_cuda_conv2d_plan;

/* The plan, from the thread's cache or made now. Borrowed: lives until the thread ends. Without an engine that will do
 * *out is NULL for a fused pass, and for the others FR_EUNSUPPORTED is returned. */
fr_status fri_cuda_conv2d_plan_get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan **out);

/* ---- conv2d_search.c ---- */

enum { FRI_CONV2D_PLANS = 64 };

/* The heuristics' choice. */
fr_status fri_cuda_conv2d_search(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *out);
/* Every plan within the workspace limit, the heuristics' first; their choice alone where none is. */
fr_status fri_cuda_conv2d_search_all(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_plan out[FRI_CONV2D_PLANS], int *n);
void fri_cuda_conv2d_plan_drop(fri_cuda_conv2d_plan *p);

/* ---- conv2d_run.c ---- */

typedef struct fri_cuda_conv2d_data {
    const void *x, *w, *y; /* data or gradients; which of them is written depends on the pass */
    const void *b;         /* of the pass with a bias */
    void *workspace;
} fri_cuda_conv2d_data;

/* Queues the plan on the stream; at its first time it becomes one of this thread's handle. */
fr_status fri_cuda_conv2d_run(void *stream, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p,
                              const fri_cuda_conv2d_data *data);
/* Times the plans on memory of its own, which the driver gives for as long as that takes, and waits for each.
 * *best: the fastest, its time filled in; -1 where none could be timed (no memory, no plan that runs). */
fr_status fri_cuda_conv2d_time(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *plans, int n,
                               int *best);

#endif
