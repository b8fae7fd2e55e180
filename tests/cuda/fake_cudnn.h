/* fake_cudnn.h - cuDNN's graph API without cuDNN: engines are rows of a table, and executing an engine moves a clock.
 *
 * Complete enough to plan and time convolutions; all graphs get equal engines. The input of a graph is recorded. */
#ifndef TESTS_CUDA_FAKE_CUDNN_H
#define TESTS_CUDA_FAKE_CUDNN_H

#include <stdint.h>

#include "cuda/fake.h"

enum { FAKE_ENGINES = 8 };

typedef struct fake_engine {
    int64_t workspace;
    double ms; /* of one execution */
    double warm_up_ms;
    bool nondeterministic, no_tensor_core, strict_nan; /* as its notes say */
    bool unbindable, fails;
    int executions;
    int64_t fused_workspace; /* for a graph of several operations */
    bool fused_strict_nan;   /* likewise */
} fake_engine;

/* Parts of a graph. */
typedef struct fake_graph {
    int64_t x[4]; /* dimensions of the convolution's input; 0: there is none */
} fake_graph;

typedef struct fake_cudnn_state {
    fake_engine engine[FAKE_ENGINES];
    int n, in_list_a; /* engines; the first are the heuristics', the rest the fallback's */
    double ramp_ms;   /* until then the device's clock is low, and executions take five times as long */
    int searches;     /* lists that were asked for */
    int descriptors;  /* alive */
    bool no_memory;   /* for a handle's plan */
    bool not_fused;   /* a graph of more than one operation has no engine */
    int pointers;     /* of the last execution, with its operands: */
    const void *x, *w, *y, *b;
    int operations;   /* of the graph that the last executed plan was searched for with */
    fake_graph graph; /* likewise */
} fake_cudnn_state;

extern fake_cudnn_state fake_dnn;

/* fake_begin, with the fake library behind cuDNN's name; no engine. */
void fake_cudnn_begin(void);

#endif
