/* adam.c - cost of a step of Adam, with moments of 32 bits and of 8. */
#include "meta/kernels.h"

fr_status fri_meta_adam(const fri_exec *e, const fri_adam_desc *d, int count, const fri_step_item *items,
                        const float *inv_scale, const float *found) {
    double per = 6 * fri_meta_size(d->dtype) + fri_meta_size(d->grad_dtype);
    int64_t n = fri_meta_elements(count, items);
    return FRI_META_CALL("adam", d->dtype, 12 * (double)n, per * (double)n, n, count);
}

fr_status fri_meta_adam8(const fri_exec *e, const fri_adam_desc *d, const float *maps, int count,
                         const fri_step_item *items, const float *inv_scale, const float *found) {
    double per = 2 * fri_meta_size(d->dtype) + fri_meta_size(d->grad_dtype) + 4;
    int64_t n = fri_meta_elements(count, items);
    return FRI_META_CALL("adam8", d->dtype, 40 * (double)n, per * (double)n, n, count);
}
