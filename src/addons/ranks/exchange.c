/* exchange.c - the lane's work on a bucket: parts to the owners, sums in the order of micro-batches, results to all
 * ranks. The backend's kernels add, as a single process does between two micro-batches. */
#include "addons/ranks/share.h"

#include <stdlib.h>

enum { BLOCK = 16384 }; /* elements per call on a CPU, few enough for a single thread */

static int64_t min_number(int64_t a, int64_t b) {
    return a < b ? a : b;
}

fr_status fri_share_make_scratch(fr_share *p) {
    size_t most = (size_t)p->statistics.n;
    for (int i = 0; i < p->buckets; i++)
        if ((size_t)p->bucket[i].n > most) most = (size_t)p->bucket[i].n;
    const size_t n = (size_t)p->size;
    if ((p->gathered = malloc(n)) == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    for (int i = 0; i < 2; i++) {
        /* pieces of a member for a rank are consecutive, one more than cuts per chunk. Pieces of a rank's part come
         * from, or go to, each further rank */
        p->piece[i] = malloc((most + 2) * n * sizeof *p->piece[i]);
        p->staged[i] = malloc((most + 2) * n * sizeof *p->staged[i]);
        p->first[i] = malloc((n + 1) * sizeof *p->first[i]);
        if (p->piece[i] == NULL || p->staged[i] == NULL || p->first[i] == NULL)
            return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    }
    return FR_OK;
}

/* Elements [from, to) of rank's part, in the members' `base`; data at `of`. Returns the number of pieces. */
typedef void *address_fn(const fri_bucket *b, int i, int64_t element);

static int pieces_of(const fri_bucket *b, int rank, int64_t from, int64_t to, address_fn *of, fr_piece *out) {
    const size_t size = fr_dtype_size(b->dtype);
    int64_t at = 0, first = 0;
    int count = 0;
    for (int i = b->cut[rank].member; i < b->n && i <= b->cut[rank + 1].member && at < to; i++) {
        const int64_t n = fri_bucket_overlap(b, rank, i, &first);
        const int64_t begin = from > at ? from - at : 0, end = to - at < n ? to - at : n;
        if (end > begin) out[count++] = (fr_piece){of(b, i, first + begin), (size_t)(end - begin) * size};
        at += n;
    }
    return count;
}

static void *gradient_at(const fri_bucket *b, int i, int64_t element) {
    return (char *)b->member[i].from + (size_t)element * fr_dtype_size(b->dtype);
}

static void *value_at(const fri_bucket *b, int i, int64_t element) {
    return fri_share_at(b->member[i].tensor, element);
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

static fr_status copy_elements(const fri_bucket *b, void *to, const void *from, int64_t n) {
    return fri_backend_of(b->member[0].tensor)
        ->copy(&b->share->exec, FRI_COPY_DEVICE_TO_DEVICE, from, to, (size_t)n * fr_dtype_size(b->dtype));
}

/* Elements of a member, from all micro-batches. */
typedef struct block {
    const fri_member *m;
    int64_t n;
    void *to;           /* the sum */
    const void *mine;   /* the rank's; NULL: none */
    const char *landed; /* rank 0's, or 1's to rank 0; the rest follow */
    size_t stride;      /* bytes between two of the rest */
} block;

static const void *block_of_rank(const fri_bucket *b, const block *k, int64_t v) {
    const int rank = b->share->rank;
    return v == rank ? k->mine : k->landed + (size_t)(v < rank ? v : v - 1) * k->stride;
}

/* to = all, or to + all, in order; a running value is scaled down first. */
static fr_status add_block(const fri_bucket *b, const block *k) {
    const fri_backend *be = fri_backend_of(k->m->tensor);
    const fri_exec *e = &b->share->exec;
    const bool moves = k->m->momentum != 0, begins = b->first; /* running values have a momentum, and an initial
                                                                * value */
    const void *sum = begins ? block_of_rank(b, k, 0) : k->to;
    for (int64_t v = begins; v < b->present; v++) {
        if (moves) FRI_TRY(FRI_KERNEL(be, b->dtype, scale, (e, b->dtype, k->n, 1 - k->m->momentum, k->to, k->to)));
        FRI_TRY(FRI_KERNEL(be, b->dtype, add, (e, b->dtype, k->n, sum, block_of_rank(b, k, v), k->to)));
        sum = k->to;
    }
    return sum != k->to ? copy_elements(b, k->to, sum, k->n) : FR_OK;
}

/* Adds elements [from, to) of the rank's part, with all further ranks' data from the landing zone. Block by block, so a
 * sum stays in the cache until complete. */
static fr_status add_chunk(const fri_bucket *b, int64_t from, int64_t to) {
    const fr_share *p = b->share;
    const size_t size = fr_dtype_size(b->dtype);
    const int64_t most = p->streams != NULL ? INT64_MAX : BLOCK;
    int64_t at = 0, first = 0;
    for (int i = b->cut[p->rank].member; i < b->n && i <= b->cut[p->rank + 1].member && at < to; i++) {
        const int64_t n = fri_bucket_overlap(b, p->rank, i, &first), end = min_number(n, to - at);
        for (int64_t e = from > at ? from - at : 0, count = 0; e < end; e += count) {
            count = min_number(end - e, most);
            const block k = {.m = &b->member[i],
                             .n = count,
                             .to = (char *)b->member[i].to + (size_t)e * size,
                             .mine = b->member[i].from != NULL ? gradient_at(b, i, first + e) : NULL,
                             .landed = (const char *)fri_data(p->landing) + (size_t)(at + e - from) * size,
                             .stride = (size_t)(to - from) * size};
            FRI_TRY(add_block(b, &k));
        }
        at += n;
    }
    return FR_OK;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* Elements per transfer between two ranks, so all ranks' data fit into the landing zone. */
static int64_t chunk_of(const fri_bucket *b) {
    const fr_share *p = b->share;
    return (int64_t)(fri_nbytes(p->landing) / fr_dtype_size(b->dtype)) / (p->size - 1);
}

/* Pieces in order of sending, from *landing on. */
static int landing_pieces(const fri_bucket *b, int64_t from, int64_t to, char **landing, fr_piece *out) {
    const int count = pieces_of(b, b->share->rank, from, to, value_at, out);
    for (int i = 0; i < count; i++) {
        out[i].data = *landing;
        *landing += out[i].bytes;
    }
    return count;
}

/* Chunk [from, from + chunk) of each owner's part: sends the chunk to the owner, and receives into the landing zone
 * from ranks with a micro-batch, in order. */
static fr_status move_chunk(fri_bucket *b, int64_t from, int64_t chunk, fr_comm *c) {
    fr_share *p = b->share;
    const bool sends = p->rank < b->present;
    char *landing = fri_data(p->landing);
    int out = 0, in = 0;
    for (int k = 0; k < p->size; k++) {
        p->first[0][k] = out;
        p->first[1][k] = in;
        if (k == p->rank) continue;
        if (sends) out += pieces_of(b, k, from, from + chunk, gradient_at, &p->piece[0][out]);
        if (k < b->present) in += landing_pieces(b, from, from + chunk, &landing, &p->piece[1][in]);
    }
    p->first[0][p->size] = out;
    p->first[1][p->size] = in;
    for (int i = 0; i < out; i++) p->sending += p->piece[0][i].bytes;
    return fri_share_carry(p, false, c);
}

static fr_status add_up(fri_bucket *b, fr_comm *c) {
    const fr_share *p = b->share;
    const int64_t chunk = chunk_of(b), part = fri_bucket_part(b, p->rank);
    for (int64_t from = 0; from < b->largest; from += chunk) {
        const int64_t to = min_number(part, from + chunk);
        FRI_TRY(move_chunk(b, from, chunk, c));
        if (to > from) FRI_TRY(add_chunk(b, from, to));
    }
    return FR_OK;
}

/* Copies the running values of the rank's part back. */
static fr_status put_back(const fri_bucket *b) {
    int64_t first = 0;
    for (int i = 0; i < b->n && b->moved != NULL; i++) {
        const int64_t n = fri_bucket_overlap(b, b->share->rank, i, &first);
        if (n > 0) FRI_TRY(copy_elements(b, value_at(b, i, first), b->member[i].to, n));
    }
    return FR_OK;
}

/* Elements [from, to) of each owner's part. */
static fr_status hand_chunk(fri_bucket *b, int64_t from, int64_t to, fr_comm *c) {
    fr_share *p = b->share;
    int out = 0, in = 0;
    for (int k = 0; k < p->size; k++) {
        p->first[0][k] = out;
        p->first[1][k] = in;
        if (k == p->rank) continue;
        out += pieces_of(b, p->rank, from, to, value_at, &p->piece[0][out]);
        in += pieces_of(b, k, from, to, value_at, &p->piece[1][in]);
    }
    p->first[0][p->size] = out;
    p->first[1][p->size] = in;
    for (int i = 0; i < out; i++) p->sending += p->piece[0][i].bytes;
    return fri_share_carry(p, true, c);
}

static fr_status hand_round(fri_bucket *b, fr_comm *c) {
    const int64_t chunk = b->share->staging[0] != NULL ? chunk_of(b) : b->largest;
    fr_status s = put_back(b);
    for (int64_t from = 0; from < b->largest && s == FR_OK; from += chunk) s = hand_chunk(b, from, from + chunk, c);
    return s;
}

static fr_status run_timed(fri_bucket *b, fr_comm *c, fr_status (*part)(fri_bucket *b, fr_comm *c)) {
    const double began = fri_now();
    fr_status s = fri_share_job_begin(b);
    if (s == FR_OK) s = part(b, c);
    if (s == FR_OK) s = fri_share_job_end(b, c);
    b->share->exchanged += fri_now() - began;
    return s;
}

fr_status fri_share_exchange(void *bucket, fr_comm *c) {
    return run_timed(bucket, c, add_up);
}

fr_status fri_share_gather(void *bucket, fr_comm *c) {
    return run_timed(bucket, c, hand_round);
}
