/* rmsprop.c - cost of a step of RMSprop. */
#include "meta/kernels.h"

fr_status fri_meta_rmsprop(const fri_exec *e, const fri_rmsprop_desc *d, int count, const fri_step_item *items,
                           const float *inv_scale, const float *found) {
    const int states = 1 + (d->momentum != 0) + d->centered;
    double state = d->dtype == FR_F64 ? 8 : 4, per = 2 * fri_meta_size(d->dtype) + fri_meta_size(d->grad_dtype);
    int64_t n = fri_meta_elements(count, items);
    return FRI_META_CALL("rmsprop", d->dtype, 12 * (double)n, (per + 2 * states * state) * (double)n, n, count, states);
}
