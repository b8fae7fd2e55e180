/* strided.c - cost of copies between regular places. */
#include "meta/kernels.h"

fr_status fri_meta_copy_strided(const fri_exec *e, const fri_strided_desc *d, const void *x, void *y) {
    const int last = d->rank - 1;
    double n = 1;
    int64_t lines = 1;
    for (int i = 0; i < d->rank; i++) n *= (double)d->extent[i];
    for (int i = 0; i < last; i++) lines *= d->extent[i];
    return FRI_META_CALL("copy_strided", FR_U8, 0, 2 * (double)d->size * n, lines, last < 0 ? 1 : d->extent[last],
                         last < 0 ? 1 : d->x_stride[last], last < 0 ? 1 : d->y_stride[last], (int64_t)d->size);
}
