/* gather.c - cost of gathering: an element read and written, and an index. */
#include "meta/kernels.h"

fr_status fri_meta_gather(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *x, void *y,
                          int64_t *bad) {
    double n = (double)d->lines * (double)d->n;
    return FRI_META_CALL("gather", d->dtype, 0, (2 * fri_meta_size(d->dtype) + 8) * n, d->lines, d->n, d->extent);
}
