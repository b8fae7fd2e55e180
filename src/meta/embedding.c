/* embedding.c - cost of embeddings. */
#include "meta/kernels.h"

fr_status fri_meta_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                     const void *w, void *y, int64_t *bad) {
    return FRI_META_CALL("embedding_forward", d->dtype, 0, 2 * fri_meta_size(d->dtype) * (double)d->n * (double)d->dim,
                         d->n, d->dim);
}

fr_status fri_meta_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                      const void *dy, void *dw) {
    double moved = 2 * (double)d->n + (double)d->vocabulary;
    return FRI_META_CALL("embedding_backward", d->dtype, (double)d->n * (double)d->dim,
                         fri_meta_size(d->dtype) * moved * (double)d->dim, d->n, d->vocabulary, d->dim);
}
