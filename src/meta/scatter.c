/* scatter.c - cost of scattering: an element read and written, a further read if added, and an index. */
#include "meta/kernels.h"

fr_status fri_meta_scatter(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *src, bool add,
                           void *x, int64_t *bad) {
    double n = (double)d->lines * (double)d->n, per = (src != NULL ? 2 : 1) + (add ? 1 : 0);
    return FRI_META_CALL("scatter", d->dtype, add ? n : 0, (per * fri_meta_size(d->dtype) + 8) * n, d->lines, d->n,
                         d->extent);
}
