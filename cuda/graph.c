/* graph.c - see graph.h. */
#include "graph.h"

fr_status fri_cuda_refuse_in_graph(const char *what) {
    return fri_here.in_graph ? fr_fail(FR_EUSAGE, "cuda: %s cannot be part of a recorded step", what) : FR_OK;
}

static fr_status begin(void) {
    fr_status s = FR_OK;
    FR_TRY(s, fri_cuda_refuse_in_graph("the beginning of another one"));
    FR_TRY(s, fri_cuda_context(NULL));
    FRI_CUDART(s, StreamBeginCapture, (fri_cuda_stream(), cudaStreamCaptureModeThreadLocal));
    fri_here.in_graph = true;
done:
    return s;
}

/* After a call that could not be recorded EndCapture fails, too, and the stream is as it was before. */
static fr_status end(void **out) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    fr_status s = FR_OK;
    *out = NULL;
    fri_here.in_graph = false;
    FRI_CUDART(s, StreamEndCapture, (fri_cuda_stream(), &graph));
    FRI_CUDART(s, GraphInstantiate, (&executable, graph, 0));
    *out = executable;
done:
    if (graph != NULL) (void)fri_cudart_table->GraphDestroy(graph);
    return s;
}

static fr_status launch(void *graph) {
    fr_status s = fri_cuda_refuse_in_graph("another recorded step");
    if (s < 0) return s;
    FRI_CUDART(s, GraphLaunch, ((cudaGraphExec_t)graph, fri_cuda_stream()));
done:
    return s;
}

/* What still runs is freed when it is done. */
static void free_graph(void *graph) {
    if (graph != NULL && fri_cudart_table->GraphExecDestroy((cudaGraphExec_t)graph) != cudaSuccess)
        (void)fri_cudart_table->GetLastError();
}

const fri_graphs fri_cuda_graphs = {.begin = begin, .end = end, .launch = launch, .free = free_graph};
