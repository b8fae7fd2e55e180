/* fake_cudnn.h - cuDNN's graph API without cuDNN: engines are rows of a table, and executing one moves a clock.
 *
 * Enough of it for planning, keeping and timing convolution plans; any graph gets the same engines. */
#ifndef TESTS_CUDA_FAKE_CUDNN_H
#define TESTS_CUDA_FAKE_CUDNN_H

#include <stdint.h>

#include "cuda/fake.h"

enum { FAKE_ENGINES = 8 };

typedef struct fake_engine {
    int64_t workspace;
    double ms; /* of one execution */
    double warm_up_ms;
    bool nondeterministic, unbindable, fails;
    int executions;
    int64_t fused_workspace; /* for a graph of more than one operation */
} fake_engine;

typedef struct fake_cudnn_state {
    fake_engine engine[FAKE_ENGINES];
    int n, in_list_a; /* engines; the first ones are the heuristics', the others the fallback's */
    int searches;     /* lists that were asked for */
    int descriptors;  /* alive */
    bool not_fused;   /* a graph of more than one operation has no engine */
    int pointers;     /* of the last execution, and which: */
    const void *x, *w, *y, *b;
    int operations; /* of the graph that the last executed plan was searched for with */
} fake_cudnn_state;

extern fake_cudnn_state fake_dnn;

/* fake_begin, with this library behind cuDNN's name; no engine. */
void fake_cudnn_begin(void);

#endif
