/* expandable.h - segments that grow: addresses are reserved once, memory is mapped behind them as it is needed.
 *
 * The driver's virtual memory calls are looked up through the runtime (cudaGetDriverEntryPointByVersion); libcuda is
 * never linked. FRUGAL_EXPANDABLE_SEGMENTS=1 asks for it; a device that lacks it goes on with cudaMalloc, and the
 * reason is in the run's first lines. */
#ifndef FRI_CUDA_EXPANDABLE_H
#define FRI_CUDA_EXPANDABLE_H

#include "context.h"

/* NULL: not asked for, or the device lacks it. Without a device: what a plan for one that has it needs. */
const fri_expandable *fri_cuda_expandable(void);

/* "" unless it was asked for and is not there: one line. */
const char *fri_cuda_expandable_reason(void);

/* For tests that change the table of the runtime. */
void fri_cuda_expandable_forget(void);

#endif
