/* calls.h - work of the kernels of a dry run, one description per call.
 *
 * A run on meta reports the kernels of a run on the target, in order, so a listener sees the target's
 * work: rebuilt, recomputed, encoded and moved bytes included. The cost model turns the work into time. */
#ifndef FRI_META_CALLS_H
#define FRI_META_CALLS_H

#include "base/thread.h"

enum { FRI_CALL_DIMS = 16 };

typedef struct fri_kernel_call {
    const char *name; /* the kernel's slot in struct fri_kernels, or "copy", "transfer"; static storage */
    fr_dtype dtype;
    double flops, bytes;
    int n;
    int64_t dim[FRI_CALL_DIMS]; /* with name and dtype: all inputs of the time */
} fri_kernel_call;

/* A listener per thread. Returns the old listener, for the restore. */
fri_call_listener fri_meta_listen(fri_call_listener l);
bool fri_meta_listening(void);
fr_status fri_meta_call(const char *name, fr_dtype dtype, double flops, double bytes, const int64_t *dim, int n);

#endif
