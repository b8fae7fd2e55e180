/* statistics.c - the running values of batch norms, moved by the samples of all micro-batches in order. */
#include "addons/ranks/share.h"

#include "base/status.h"

#include <stdlib.h>

/* ---- which ------------------------------------------------------------------------------------------------------- */

/* A shared module is listed once. */
static bool is_listed(const fr_share *p, const fr_module *m) {
    for (int i = 0; i < p->norms; i++)
        if (p->norm[i] == m) return true;
    return false;
}

static bool is_norm(const fr_module *m) {
    const fri_layer_call *call = m->class_->fri_call;
    return call != NULL && (call->kind == FRI_LAYER_NORM || call->kind == FRI_LAYER_INPLACE_NORM);
}

static fr_status find_norm(fr_share *p, fr_module *m) {
    if (is_norm(m) && fri_norm_trains(m) && !is_listed(p, m)) {
        const double momentum = ((const fr_norm_state *)m->state)->momentum;
        FRI_TRY(FRI_ROOM(p->norm, p->norms, "ranks"));
        p->norm[p->norms++] = m;
        for (int i = FR_NORM_MEAN; i <= FR_NORM_VAR; i++) {
            fr_tensor *t = m->tensors[i].tensor;
            p->statistics.dtype = t->dtype;
            FRI_TRY(fri_bucket_add(&p->statistics, (fri_member){.tensor = t, .n = fri_numel(t), .momentum = momentum}));
        }
    }
    for (int i = 0; i < m->n_children; i++) FRI_TRY(find_norm(p, m->children[i]));
    return FR_OK;
}

fr_status fri_statistics_find(fr_share *p) {
    p->norms = 0;
    if (p->opts.sync_batch_norm) return FR_OK; /* each rank updates a part by the sample */
    return find_norm(p, p->module);
}

fr_status fri_statistics_memory(fr_share *p) {
    fri_bucket *b = &p->statistics;
    if (b->n == 0) return FR_OK;
    const fr_shape part = FRI_SHAPE(fri_bucket_part(b, p->rank)), counts = FRI_SHAPE(2 * p->norms);
    if (part.dim[0] > 0) FRI_TRY(fri_tensor_new(&part, b->dtype, p->device, FR_MEM_OTHER, &b->moved));
    FRI_TRY(fri_tensor_new(&counts, FR_I64, p->device, FR_MEM_OTHER, &p->counts));
    p->counted = malloc(fri_nbytes(p->counts));
    return p->counted != NULL ? FR_OK : fr_fail(FR_ENOMEM, "ranks: out of host memory");
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static fr_tensor *batches_of(const fr_module *m) {
    return m->tensors[FR_NORM_BATCHES].tensor;
}

static fr_status copy_statistics(const fr_tensor *like, const void *from, void *to, size_t bytes) {
    return fri_backend_of(like)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_DEVICE, from, to, bytes);
}

/* Copies the norms' numbers of batches to p->counts, from element `at` on, or back, on the device without a wait of the
 * host. */
static fr_status copy_counts(const fr_share *p, int64_t at, bool back) {
    for (int i = 0; i < p->norms; i++) {
        void *own = fri_data(batches_of(p->norm[i])), *all = fri_share_at(p->counts, at + i);
        FRI_TRY(copy_statistics(p->counts, back ? all : own, back ? own : all, sizeof *p->counted));
    }
    return FR_OK;
}

/* Copies running values of the rank's part to the buffer for updates. */
static fr_status keep_part(fr_share *p) {
    fri_bucket *b = &p->statistics;
    int64_t at = 0, first = 0;
    for (int i = 0; i < b->n; i++) {
        const int64_t n = fri_bucket_overlap(b, p->rank, i, &first);
        if (n == 0) continue;
        b->member[i].to = fri_share_at(b->moved, at);
        FRI_TRY(copy_statistics(b->moved, fri_share_at(b->member[i].tensor, first), b->member[i].to,
                                (size_t)n * fr_dtype_size(b->dtype)));
        at += n;
    }
    return copy_counts(p, 0, false);
}

/* Sets running values to -0, so the forward leaves the sample's step. */
fr_status fri_statistics_begin(fr_share *p, bool first, bool mine) {
    fri_bucket *b = &p->statistics;
    if (b->n == 0 || p->device == FR_META) return FR_OK;
    if (first) FRI_TRY(keep_part(p));
    for (int i = 0; i < b->n && mine; i++) {
        FRI_TRY(fri_tensor_fill(b->member[i].tensor, -0.0));
        b->member[i].from = fri_data(b->member[i].tensor);
    }
    for (int i = 0; i < p->norms && mine; i++) FRI_TRY(fri_tensor_fill(batches_of(p->norm[i]), 0));
    return FR_OK;
}

/* The step's only wait for the device: the host reads how often each norm ran before the step and in the rank's last
 * round. A norm that ran twice in a round is an error. */
fr_status fri_statistics_end(fr_share *p) {
    if (p->statistics.n == 0 || p->device == FR_META) return FR_OK;
    const bool ran = fr_share_micro_batch(p, 0) >= 0 && !p->dry;
    FRI_TRY(copy_counts(p, p->norms, false));
    FRI_TRY(fr_tensor_to_host(p->counts, p->counted));
    for (int i = 0; i < p->norms; i++) {
        if (ran && p->counted[p->norms + i] != 1)
            return fr_fail(FR_EUNSUPPORTED,
                           "ranks: a batch norm ran %lld times in one micro-batch; on several ranks each runs once",
                           (long long)p->counted[p->norms + i]);
        p->counted[i] += p->opts.micro_batches;
    }
    FRI_TRY(fri_backend_of(p->counts)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, p->counted, fri_data(p->counts),
                                            (size_t)p->norms * sizeof *p->counted));
    return copy_counts(p, 0, true);
}
