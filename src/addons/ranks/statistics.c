/* statistics.c - the running values of batch norms, moved by the samples of all micro-batches in order. */
#include "addons/ranks/share.h"

#include "base/status.h"

#include <stdlib.h>

/* ---- which ------------------------------------------------------------------------------------------------------- */

static fr_status add(fri_bucket *b, fr_tensor *t, double momentum) {
    FRI_TRY(FRI_ROOM(b->member, b->n, "ranks"));
    b->member[b->n++] = (fri_member){.tensor = t, .n = fri_numel(t), .momentum = momentum};
    b->elements += fri_numel(t);
    return FR_OK;
}

/* A module that several places share stands there once. */
static bool known(const fr_share *p, const fr_module *m) {
    for (int i = 0; i < p->norms; i++)
        if (p->norm[i] == m) return true;
    return false;
}

static bool is_norm(const fr_module *m) {
    const fri_layer_call *call = m->class_->fri_call;
    return call != NULL && (call->kind == FRI_LAYER_NORM || call->kind == FRI_LAYER_INPLACE_NORM);
}

static fr_status find(fr_share *p, fr_module *m) {
    if (is_norm(m) && fri_norm_trains(m) && !known(p, m)) {
        const fr_norm_state *n = m->state;
        FRI_TRY(FRI_ROOM(p->norm, p->norms, "ranks"));
        p->norm[p->norms++] = m;
        p->statistics.dtype = m->tensors[FR_NORM_MEAN].tensor->dtype;
        FRI_TRY(add(&p->statistics, m->tensors[FR_NORM_MEAN].tensor, n->momentum));
        FRI_TRY(add(&p->statistics, m->tensors[FR_NORM_VAR].tensor, n->momentum));
    }
    for (int i = 0; i < m->n_children; i++) FRI_TRY(find(p, m->children[i]));
    return FR_OK;
}

fr_status fri_statistics_find(fr_share *p) {
    free(p->counted);
    p->counted = NULL;
    p->norms = 0;
    if (p->opts.sync_batch_norm) return FR_OK; /* each rank moves its own by the same sample */
    fr_status s = find(p, p->module);
    if (s == FR_OK && p->norms > 0 && (p->counted = calloc((size_t)p->norms, sizeof *p->counted)) == NULL)
        s = fr_fail(FR_ENOMEM, "ranks: out of host memory");
    return s;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static fr_tensor *batches_of(const fr_module *m) {
    return m->tensors[FR_NORM_BATCHES].tensor;
}

static fr_status set_batches(const fr_module *m, int64_t n) {
    fr_tensor *t = batches_of(m);
    return fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, &n, fri_data(t), sizeof n);
}

/* Running values of this rank's part go aside, to where they move. */
static fr_status keep_part(fr_share *p) {
    fri_bucket *b = &p->statistics;
    int64_t at = 0, first = 0;
    for (int i = 0; i < b->n; i++) {
        const int64_t n = fri_bucket_overlap(b, p->rank, i, &first);
        if (n == 0) continue;
        b->member[i].to = fri_share_at(b->moved, at);
        FRI_TRY(fri_backend_of(b->moved)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_DEVICE,
                                               fri_share_at(b->member[i].tensor, first), b->member[i].to,
                                               (size_t)n * fr_dtype_size(b->dtype)));
        at += n;
    }
    for (int i = 0; i < p->norms; i++) FRI_TRY(fr_tensor_to_host(batches_of(p->norm[i]), &p->counted[i]));
    return FR_OK;
}

/* Running values begin at -0 and become the step that the sample makes. */
fr_status fri_statistics_begin(fr_share *p, bool first, bool mine) {
    fri_bucket *b = &p->statistics;
    if (b->n == 0 || p->device == FR_META) return FR_OK;
    if (first) FRI_TRY(keep_part(p));
    for (int i = 0; i < b->n && mine; i++) {
        FRI_TRY(fri_tensor_fill(b->member[i].tensor, -0.0));
        b->member[i].from = fri_data(b->member[i].tensor);
    }
    for (int i = 0; i < p->norms && mine; i++) FRI_TRY(set_batches(p->norm[i], 0));
    return FR_OK;
}

/* Norms that ran twice in a round have made two steps in one. */
static fr_status check_once(const fr_share *p) {
    int64_t n = 0;
    for (int i = 0; i < p->norms; i++) {
        FRI_TRY(fr_tensor_to_host(batches_of(p->norm[i]), &n));
        if (n != 1)
            return fr_fail(FR_EUNSUPPORTED,
                           "ranks: a batch norm ran %lld times in one micro-batch; on several ranks each runs once",
                           (long long)n);
    }
    return FR_OK;
}

fr_status fri_statistics_end(fr_share *p) {
    if (p->statistics.n == 0 || p->device == FR_META) return FR_OK;
    if (fr_share_micro_batch(p, 0) >= 0 && !p->dry) FRI_TRY(check_once(p));
    for (int i = 0; i < p->norms; i++) FRI_TRY(set_batches(p->norm[i], p->counted[i] + p->opts.micro_batches));
    return FR_OK;
}
