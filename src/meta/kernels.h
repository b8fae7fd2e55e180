/* kernels.h - shared parts of meta's kernels. A kernel does no work, succeeds, and reports the call to the listener
 * (calls.h) with the target's work. Kernels read descriptors and lengths, and compare pointers with NULL only. */
#ifndef FRI_META_KERNELS_H
#define FRI_META_KERNELS_H

#include "meta/calls.h"
#include "meta/meta.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define FRI_META_DECLARE(name, type, need) type fri_meta_##name;
FRI_META_KERNELS(FRI_META_DECLARE)
#undef FRI_META_DECLARE

/* Reports a call: floating-point operations, bytes if every operand moves once, and the dimensions that decide the
 * time. Without a listener no cost is computed. */
#define FRI_META_CALL(name_, dtype_, flops_, bytes_, ...)                                                     \
    (!fri_meta_listening()                                                                                    \
         ? FR_OK                                                                                              \
         : fri_meta_call(name_, (dtype_), (double)(flops_), (double)(bytes_), (const int64_t[]){__VA_ARGS__}, \
                         (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))))

static inline double fri_meta_size(fr_dtype t) {
    return (double)fr_dtype_size(t);
}

/* A pass over n elements of `per` bytes each. */
static inline fr_status fri_meta_pass(const char *name, fr_dtype t, int64_t n, double flops, double per) {
    return FRI_META_CALL(name, t, flops * (double)n, per * (double)n, n);
}

static inline int64_t fri_meta_elements(int count, const fri_step_item *items) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) n += items[i].n;
    return n;
}

/* The target's function in the slot, or NULL; the returned bytes, or 0. */
#define FRI_META_TARGET(dtype_, slot_) \
    (fri_meta_target() != NULL ? fri_kernels_for(fri_meta_target(), (dtype_))->slot_ : NULL)
#define FRI_META_BYTES(dtype_, slot_, args_) \
    (fri_meta_target() != NULL ? FRI_KERNEL_BYTES(fri_meta_target(), (dtype_), slot_, args_) : 0)

#endif
