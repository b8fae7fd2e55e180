/* bucket.c - see share.h. */
#include "addons/ranks/share.h"

#include "base/status.h"

#include <stdlib.h>

/* ---- parts ------------------------------------------------------------------------------------------------------- */

int64_t fri_bucket_overlap(const fri_bucket *b, int rank, int i, int64_t *first) {
    const fri_cut *from = &b->cut[rank], *to = &b->cut[rank + 1];
    const int64_t begin = i < from->member ? b->member[i].n : i == from->member ? from->at : 0;
    const int64_t end = i < to->member ? b->member[i].n : i == to->member ? to->at : 0;
    *first = begin;
    return end > begin ? end - begin : 0;
}

int64_t fri_bucket_part(const fri_bucket *b, int rank) {
    int64_t sum = 0, first = 0;
    for (int i = b->cut[rank].member; i < b->n && i <= b->cut[rank + 1].member; i++)
        sum += fri_bucket_overlap(b, rank, i, &first);
    return sum;
}

/* The first cut between units at or behind element `target` of the bucket. */
static fri_cut cut_at(const fri_bucket *b, int64_t target, int64_t unit) {
    int i = 0;
    for (; i < b->n && target >= b->member[i].n; i++) target -= b->member[i].n;
    if (i == b->n) return (fri_cut){i, 0};
    const int64_t at = (target + unit - 1) / unit * unit;
    return at < b->member[i].n ? (fri_cut){i, at} : (fri_cut){i + 1, 0};
}

static fr_status cut_bucket(const fr_share *p, fri_bucket *b, int64_t unit) {
    b->cut = malloc((size_t)(p->size + 1) * sizeof *b->cut);
    if (b->cut == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    for (int k = 0; k <= p->size; k++) /* elements * size stays below 2^63: 2^40 elements, 2^23 ranks */
        b->cut[k] = cut_at(b, (b->elements * k + p->size - 1) / p->size, unit);
    for (int k = 0; k < p->size; k++) {
        const int64_t part = fri_bucket_part(b, k);
        if (part > b->largest) b->largest = part;
    }
    return FR_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

fr_status fri_bucket_add(fri_bucket *b, fri_member m) {
    FRI_TRY(FRI_ROOM(b->member, b->n, "ranks"));
    b->member[b->n++] = m;
    b->elements += m.n;
    return FR_OK;
}

/* The last bucket of the type, unless full; else a new bucket. */
static fr_status bucket_for(fr_share *p, fr_dtype dtype, fri_bucket **out) {
    for (int i = p->buckets - 1; i >= 0; i--) {
        fri_bucket *b = &p->bucket[i];
        if (b->dtype != dtype) continue;
        *out = b;
        if ((size_t)b->elements * fr_dtype_size(dtype) < p->opts.bucket_bytes) return FR_OK;
        break;
    }
    FRI_TRY(FRI_ROOM(p->bucket, p->buckets, "ranks"));
    *out = &p->bucket[p->buckets++];
    **out = (fri_bucket){.dtype = dtype};
    return FR_OK;
}

/* Range of each parameter for the rank's updates. */
static void assign_owners(const fr_share *p, const fri_bucket *b) {
    for (int i = 0; i < b->n; i++) {
        fri_parameter *of = b->member[i].parameter;
        if (of != NULL) of->count = fri_bucket_overlap(b, p->rank, i, &of->first);
    }
}

static void free_bucket(fri_bucket *b) {
    fr_tensor_release(&b->moved);
    free(b->member);
    free(b->cut);
}

fr_status fri_buckets_make(fr_share *p) {
    fr_optimizer *o = p->optimizer;
    fri_bucket *b = NULL;
    for (int i = o->n - 1; i >= 0; i--) {
        fri_parameter *of = &o->parameters[i];
        if (!of->parameter->requires_grad) continue;
        FRI_TRY(bucket_for(p, of->parameter->dtype, &b));
        FRI_TRY(
            fri_bucket_add(b, (fri_member){.tensor = of->parameter, .n = fri_numel(of->parameter), .parameter = of}));
    }
    for (int i = 0; i < p->buckets; i++) {
        FRI_TRY(cut_bucket(p, &p->bucket[i], FRI_SHARE_UNIT));
        assign_owners(p, &p->bucket[i]);
    }
    FRI_TRY(fri_bucket_add(&p->found, (fri_member){.n = 1}));
    FRI_TRY(cut_bucket(p, &p->found, 1));
    FRI_TRY(fri_statistics_find(p));
    if (p->statistics.n > 0) FRI_TRY(cut_bucket(p, &p->statistics, 1));
    return FR_OK;
}

void fri_buckets_free(fr_share *p) {
    for (int i = 0; i < p->buckets; i++) free_bucket(&p->bucket[i]);
    free_bucket(&p->statistics);
    free_bucket(&p->found);
    free(p->bucket);
}
