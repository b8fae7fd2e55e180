/* conv2d_plan.h - plans: searched for, kept, timed, executed. Private to conv2d*.c. */
#ifndef FRI_CUDA_CONV2D_PLAN_H
#define FRI_CUDA_CONV2D_PLAN_H

#include "conv2d_graph.h"

typedef struct fri_cuda_conv2d_plan {
    fri_cuda_conv2d_choice choice;
    char *json; /* cuDNN's text of the plan, source of a handle's plan */
    int64_t json_bytes;
    cudnnBackendDescriptor_t bound; /* read with a handle, at the first execution; NULL before */
} fri_cuda_conv2d_plan;

/* The plan, from the thread's cache or made now. Borrowed: lives until the thread ends. Without an engine, *out is NULL
 * for a fused pass; further passes return FR_EUNSUPPORTED. */
fr_status fri_cuda_conv2d_plan_get(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan **out);

/* ---- conv2d_search.c ---- */

enum { FRI_CONV2D_PLANS = 64 };

/* The heuristics' choice. */
fr_status fri_cuda_conv2d_search(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *out);
/* Every plan within the workspace limit, the heuristics' first; only the heuristics' choice if none is. */
fr_status fri_cuda_conv2d_search_all(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass,
                                     fri_cuda_conv2d_plan out[FRI_CONV2D_PLANS], int *n);
void fri_cuda_conv2d_plan_drop(fri_cuda_conv2d_plan *p);

/* ---- conv2d_run.c ---- */

typedef struct fri_cuda_conv2d_data {
    const void *x, *w, *y; /* data or gradients; the pass decides about the written operand */
    const void *b;         /* of the pass with a bias */
    void *workspace;
} fri_cuda_conv2d_data;

/* Queues the plan on the stream; the first time binds the plan to the thread's handle. */
fr_status fri_cuda_conv2d_run(void *stream, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *p,
                              const fri_cuda_conv2d_data *data);
/* Times the plans on temporary driver memory, and waits for each. *best: the fastest, with the time; -1 without a
 * timing (no memory, no runnable plan). */
fr_status fri_cuda_conv2d_time(const fri_conv2d_desc *d, fri_cuda_conv2d_pass pass, fri_cuda_conv2d_plan *plans, int n,
                               int *best);

#endif
