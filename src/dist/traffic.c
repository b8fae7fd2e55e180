/* traffic.c - what a step's exchange moves, counted from the buckets without moving anything. */
#include "dist/share.h"

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Bytes of the bucket, and of this rank's part of it. */
static uint64_t whole_of(const fri_bucket *b) {
    return (uint64_t)b->elements * fr_dtype_size(b->dtype);
}

static uint64_t part_of(const fri_bucket *b) {
    return b->n > 0 ? (uint64_t)fri_bucket_part(b, b->share->rank) * fr_dtype_size(b->dtype) : 0;
}

/* What a step sends of this bucket: its sums in each round with a micro-batch, its values at the end. */
static uint64_t sent_of(const fri_bucket *b) {
    const fr_share *p = b->share;
    uint64_t batches = 0;
    for (int64_t i = 0; i < fr_share_rounds(p); i++) batches += fr_share_micro_batch(p, i) >= 0;
    return batches * (whole_of(b) - part_of(b)) + part_of(b) * (uint64_t)(p->size - 1);
}

void fr_share_traffic_of(const fr_share *p, fr_share_traffic *out) {
    if (out == NULL) return;
    *out = (fr_share_traffic){0};
    if (p == NULL || p->size == 1) return;
    const uint64_t peers = (uint64_t)p->size - 1;
    out->sent = sent_of(&p->statistics);
    for (int i = 0; i < p->buckets; i++) {
        const fri_bucket *b = &p->bucket[i];
        const uint64_t whole = whole_of(b), part = part_of(b);
        out->sent += sent_of(b);
        out->last = larger(whole - part, peers * part);
        out->sums += out->last;
        out->values += larger(whole - part, peers * part);
    }
    out->exchanges = p->buckets;
}
