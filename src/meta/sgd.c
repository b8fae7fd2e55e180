/* sgd.c - cost of a step of SGD. */
#include "meta/kernels.h"

fr_status fri_meta_sgd(const fri_exec *e, const fri_sgd_desc *d, int count, const fri_step_item *items,
                       const float *inv_scale, const float *found) {
    bool momentum = count > 0 && items[0].state[0] != NULL;
    double per =
        2 * fri_meta_size(d->dtype) + fri_meta_size(d->grad_dtype) + (momentum ? 2 * fri_meta_size(d->dtype) : 0);
    int64_t n = fri_meta_elements(count, items);
    return FRI_META_CALL("sgd", d->dtype, 5 * (double)n, per * (double)n, n, count, momentum, d->first);
}
