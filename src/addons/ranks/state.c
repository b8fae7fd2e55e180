/* state.c - collective work beside the sums: decisions, rank 0's view of the whole state, comparison. */
#include "addons/ranks/share.h"

#include "base/cache.h"

#include <stdlib.h>
#include <string.h>

/* The flag's owner adds all ranks' flags and distributes the sum; a device's host does not wait. */
static fr_status any_rank_found(void *ctx, fr_tensor *found) {
    fr_share *p = ctx;
    fri_bucket *b = &p->found;
    if (p->dry) return FR_OK;
    *b->member = (fri_member){.tensor = found, .n = 1, .from = fri_data(found), .to = fri_data(found)};
    b->present = p->size;
    b->first = true;
    fri_bump_version(found);
    FRI_TRY(fri_share_queue(b, fri_share_exchange));
    FRI_TRY(fri_share_wait(p, b));
    FRI_TRY(fri_share_queue(b, fri_share_gather));
    return fri_share_wait(p, b);
}

/* The tensor's bytes in host memory, or a copy. */
static fr_status on_host(fr_tensor *t, fr_piece *out) {
    *out = (fr_piece){fri_data(t), fri_nbytes(t)};
    if (fri_device_of(t) == FR_CPU) return FR_OK;
    if ((out->data = malloc(out->bytes)) == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    return fr_tensor_to_host(t, out->data);
}

static void leave_host(const fr_tensor *t, fr_piece p) {
    if (t != NULL && fri_device_of(t) != FR_CPU) free(p.data);
}

/* ---- the state, collected --------------------------------------------------------------------------------------- */

enum { COLLECT, SERVED };
typedef struct wish {
    int64_t what, parameter, slot, outcome;
} wish;

typedef struct collection {
    fr_share *share;
    int i, k;
    void *whole; /* on rank 0 */
} collection;

/* Offset of rank's part of the state in the whole; returns the bytes of the part. */
static size_t part_of(const fr_share *p, int rank, int i, int k, size_t *offset) {
    fri_state_slot slots[FRI_STATE_SLOTS];
    fri_parameter part = p->optimizer->parameters[i];
    (void)fri_optimizer_slots(p->optimizer, part.parameter, slots);
    const size_t size = fr_dtype_size(slots[k].dtype);
    for (int b = 0; b < p->buckets; b++)
        for (int m = 0; m < p->bucket[b].n; m++)
            if (p->bucket[b].member[m].parameter == &p->optimizer->parameters[i])
                part.count = fri_bucket_overlap(&p->bucket[b], rank, m, &part.first);
    *offset = (size_t)fri_optimizer_part_first(&part, &slots[k]) * size;
    if (part.count == 0) return 0;
    (void)fri_optimizer_part_slots(p->optimizer, &part, slots);
    return (size_t)fri_shape_numel(&slots[k].shape) * size;
}

/* A job: the parts go to rank 0; `mine` is the rank's, on the host. */
static fr_status exchange_parts(const collection *w, fr_piece mine, fr_comm *c) {
    const fr_share *p = w->share;
    int out = 0, in = 0;
    size_t offset = 0;
    for (int k = 0; k < p->size; k++) {
        p->first[0][k] = out;
        p->first[1][k] = in;
        if (p->rank != 0 && k == 0 && mine.bytes > 0) p->piece[0][out++] = mine;
        const size_t bytes = p->rank == 0 ? part_of(p, k, w->i, w->k, &offset) : 0;
        if (bytes > 0 && k > 0) p->piece[1][in++] = (fr_piece){(char *)w->whole + offset, bytes};
        if (bytes > 0 && k == 0) memcpy((char *)w->whole + offset, mine.data, bytes);
    }
    p->first[0][p->size] = out;
    p->first[1][p->size] = in;
    return fri_comm_exchange(c, (fr_pieces){p->piece[0], p->first[0]}, (fr_pieces){p->piece[1], p->first[1]});
}

static fr_status collect_parts(void *ctx, fr_comm *c) {
    const collection *w = ctx;
    fr_tensor *mine = w->share->optimizer->parameters[w->i].state[w->k];
    fr_piece part = {0};
    fr_status s = mine != NULL ? on_host(mine, &part) : FR_OK;
    if (s == FR_OK) s = exchange_parts(w, part, c);
    leave_host(mine, part);
    return s;
}

/* Wish of rank 0, told to all. */
static fr_status hear_wish(const fr_share *p, wish *w) {
    FRI_OWNED(fri_free) wish *all = malloc((size_t)p->size * sizeof *all);
    if (all == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    FRI_TRY(fri_comm_agree(p->comm, w, sizeof *w, all));
    *w = all[0];
    return FR_OK;
}

static fr_status run_collection(fr_share *p, int i, int k, void *whole) {
    collection w = {p, i, k, whole};
    uint64_t ticket = 0;
    fr_status s = fri_comm_queue(p->comm, collect_parts, &w, &ticket);
    return s < 0 ? s : fri_comm_wait(p->comm, ticket);
}

static fr_status collect_slot(void *ctx, int i, int k, void *whole) {
    fr_share *p = ctx;
    wish w = {COLLECT, i, k, 0};
    if (p->dry || p->rank != 0)
        return fr_fail(FR_EUSAGE, "ranks: the optimizer's state is collected on rank 0 of a run, not %s",
                       p->dry ? "in a plan" : "on another");
    fr_status s = hear_wish(p, &w);
    return s < 0 ? s : run_collection(p, i, k, whole);
}

const fri_sharing fri_share_calls = {.any = any_rank_found, .collect = collect_slot};

fr_status fri_share_serve(fr_share *p) {
    fr_status s = FR_OK;
    while (s == FR_OK) {
        wish w = {0};
        s = hear_wish(p, &w);
        if (s == FR_OK && w.what == SERVED) return (fr_status)w.outcome;
        if (s == FR_OK) s = run_collection(p, (int)w.parameter, (int)w.slot, NULL);
    }
    return s;
}

fr_status fri_share_served(fr_share *p, fr_status outcome) {
    wish w = {SERVED, 0, 0, outcome};
    return hear_wish(p, &w);
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

static fr_status hash_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *hash = ctx;
    fr_piece bytes;
    (void)path, (void)is_parameter;
    fr_status s = on_host(t, &bytes);
    if (s == FR_OK) *hash = fri_hash(*hash, bytes.data, bytes.bytes);
    leave_host(t, bytes);
    return s;
}

fr_status fri_share_check(fr_share *p) {
    FRI_OWNED(fri_free) uint64_t *all = NULL;
    uint64_t mine = FRI_HASH;
    if (p->dry) return FR_OK;
    FRI_TRY(fr_module_each_tensor(p->module, hash_tensor, &mine));
    all = malloc((size_t)p->size * sizeof *all);
    if (all == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    FRI_TRY(fri_comm_agree(p->comm, &mine, sizeof mine, all));
    for (int i = 1; i < p->size; i++)
        if (all[i] != all[0])
            return fr_fail(FR_EPEER, "rank %d (%s) has other parameters or buffers than rank 0 (%s)", i,
                           fri_comm_host(p->comm, i), fri_comm_host(p->comm, 0));
    return FR_OK;
}
