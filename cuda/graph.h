/* graph.h - steps that are recorded once and run again (CUDA graphs, by stream capture).
 *
 * The compute stream is captured in the thread-local mode: other threads, a loader's for one, go on calling the driver.
 * While it is, whoever would wait, ask for memory or copy from or to the host gets a failure that says so, and nothing
 * else: CUDA would invalidate the capture and name no one. */
#ifndef FRI_CUDA_GRAPH_H
#define FRI_CUDA_GRAPH_H

#include "context.h"

extern const fri_graphs fri_cuda_graphs;

/* FR_EUSAGE if this thread records: `what` ("a copy from the host") cannot be in a recorded step. */
fr_status fri_cuda_refuse_in_graph(const char *what);

#endif
