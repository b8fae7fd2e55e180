/* calls.c - see calls.h. */
#include "meta/calls.h"

#include <string.h>

fri_call_listener fri_meta_listen(fri_call_listener l) {
    fri_call_listener was = fri_here.calls;
    fri_here.calls = l;
    return was;
}

bool fri_meta_listening(void) {
    return fri_here.calls.fn != NULL;
}

fr_status fri_meta_call(const char *name, fr_dtype dtype, double flops, double bytes, const int64_t *dim, int n) {
    fri_kernel_call c = {.name = name, .dtype = dtype, .flops = flops, .bytes = bytes, .n = n};
    if (n > FRI_CALL_DIMS) c.n = FRI_CALL_DIMS;
    memcpy(c.dim, dim, (size_t)c.n * sizeof *dim);
    if (fri_here.calls.fn != NULL) fri_here.calls.fn(fri_here.calls.ctx, &c);
    return FR_OK;
}
