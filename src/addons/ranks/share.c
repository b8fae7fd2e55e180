/* share.c - the ranks' part in a step: gradients leave inside backward, bucket by bucket; parameters come back. */
#include "addons/ranks/share.h"

#include "autograd/state.h"

#include <stdlib.h>

int64_t fr_share_rounds(const fr_share *p) {
    return p != NULL ? (p->opts.micro_batches + p->size - 1) / p->size : 1;
}

int64_t fr_share_micro_batch(const fr_share *p, int64_t round) {
    if (p == NULL) return round;
    const int64_t v = round * p->size + p->rank;
    return v < p->opts.micro_batches ? v : -1;
}

uint64_t fri_share_bytes(const fr_share *p) {
    return p != NULL ? p->bytes : 0;
}

double fri_share_exchanged(const fr_share *p) {
    return p != NULL ? p->exchanged : 0;
}

double fri_share_waited(const fr_share *p) {
    return p != NULL ? p->waited : 0;
}

fr_status fri_share_wait(fr_share *p, const fri_bucket *b) {
    if (p->dry) return FR_OK;
    const double began = fri_now();
    fr_status s = fri_comm_wait(p->comm, b->ticket);
    p->waited += fri_now() - began;
    return s == FR_OK ? fri_share_follow(b) : s;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Allocates the sums of the rank's part. */
static fr_status make_sums(fri_bucket *b) {
    fr_status s = FR_OK;
    for (int i = 0; i < b->n && s == FR_OK; i++) {
        fri_parameter *of = b->member[i].parameter;
        if (of->count == 0) continue;
        const fr_shape shape = FRI_SHAPE(of->count);
        const fri_scope scope = fri_scope_begin("exchange", fri_intern(of->path));
        s = fri_tensor_new(&shape, b->dtype, fri_device_of(of->parameter), FR_MEM_GRADIENT, &of->sum);
        fri_scope_end(scope);
        if (s == FR_OK) b->member[i].to = fri_data(of->sum);
    }
    return s;
}

static fr_status hand_out(fr_share *p, fri_bucket *b) {
    for (int i = 0; i < b->n; i++) fri_bump_version(b->member[i].tensor);
    return p->dry ? FR_OK : fri_share_queue(b, fri_share_gather);
}

/* A fused optimizer updates the rank's part during backward, after the last read of the parameters. */
static fr_status update_now(fr_share *p, fri_bucket *b) {
    fr_status s = FR_OK;
    for (int i = 0; i < b->n && s == FR_OK; i++) {
        fri_parameter *of = b->member[i].parameter;
        s = fri_optimizer_complete(p->optimizer, of);
        fr_tensor_release(&of->sum);
        of->summed = false;
    }
    return s == FR_OK ? hand_out(p, b) : s;
}

/* Waits for the oldest running bucket, and frees the gradients. */
static fr_status finish_one(fr_share *p) {
    fri_bucket *b = &p->bucket[p->finished++];
    fr_status s = fri_share_wait(p, b);
    for (int i = 0; i < b->n && s == FR_OK; i++) {
        fri_member *m = &b->member[i];
        m->parameter->summed = true;
        if (fr_tensor_get_grad(m->tensor) != NULL) s = fr_tensor_set_grad(m->tensor, NULL);
    }
    return s == FR_OK && p->optimizer->fused && p->round == fr_share_rounds(p) - 1 ? update_now(p, b) : s;
}

static fr_status queue_next(fr_share *p) {
    fri_bucket *b = &p->bucket[p->queued++];
    b->present = fri_share_present(p, p->round);
    b->first = p->round == 0;
    if (b->first) FRI_TRY(make_sums(b));
    for (int i = 0; i < b->n; i++) {
        const fr_tensor *g = fr_tensor_get_grad(b->member[i].tensor);
        b->member[i].from = g != NULL ? fri_data(g) : NULL;
    }
    if (!p->dry) FRI_TRY(fri_share_queue(b, fri_share_exchange));
    while (p->queued - p->finished > p->opts.window) FRI_TRY(finish_one(p));
    return FR_OK;
}

/* Buckets leave in order, equal on all ranks. */
static fr_status on_gradient(void *ctx, fr_tensor *leaf) {
    fri_member *m = ctx;
    fr_share *p = m->bucket->share;
    FRI_OWNED(fri_phase_over) fr_phase was = fr_phase_begin(FR_PHASE_BACKWARD);
    (void)leaf;
    if (p->round < 0)
        return fr_fail(FR_EUSAGE, "ranks: a backward pass outside of fr_share_round_begin and fr_share_round_end");
    m->ready = true;
    m->bucket->ready++;
    while (p->queued < p->buckets && p->bucket[p->queued].ready == p->bucket[p->queued].n) FRI_TRY(queue_next(p));
    return FR_OK;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void begin_buckets(fr_share *p) {
    for (int i = 0; i < p->buckets; i++) {
        p->bucket[i].ready = 0;
        for (int k = 0; k < p->bucket[i].n; k++) p->bucket[i].member[k].ready = false;
    }
    p->queued = p->finished = 0;
}

fr_status fr_share_round_begin(fr_share *p, int64_t round) {
    FRI_NOT_NULL(p);
    const int64_t v = fr_share_micro_batch(p, round);
    if (round == 0) p->rng = fr_rng_get();
    p->round = round;
    begin_buckets(p);
    if (p->opts.sync_batch_norm) fri_share_sync_begin(p);
    fr_rng_set(
        (fr_rng){.seed = p->rng.seed, .next_stream = p->rng.next_stream + (uint64_t)(v < 0 ? 0 : v) * p->opts.streams});
    return fri_statistics_begin(p, round == 0, v >= 0);
}

/* A missing gradient, or a forward with an unexpected number of random draws. */
static fr_status check_round(const fr_share *p, int64_t v) {
    const uint64_t drawn = fr_rng_get().next_stream - p->rng.next_stream - (uint64_t)v * p->opts.streams;
    for (int i = p->queued; i < p->buckets; i++)
        for (int k = 0; k < p->bucket[i].n; k++)
            if (!p->bucket[i].member[k].ready)
                return fr_fail(FR_EUNSUPPORTED,
                               "ranks: %s got no gradient; on several ranks each parameter that trains gets one in "
                               "every micro-batch",
                               p->bucket[i].member[k].parameter->path);
    if (drawn == p->opts.streams) return FR_OK;
    return fr_fail(FR_EUSAGE, "ranks: a micro-batch drew %llu random streams, %llu were announced",
                   (unsigned long long)drawn, (unsigned long long)p->opts.streams);
}

static fr_status move_statistics(fr_share *p, fri_comm_job *job) {
    fri_bucket *b = &p->statistics;
    if (b->n == 0 || p->dry) return FR_OK;
    b->present = fri_share_present(p, p->round);
    FRI_TRY(fri_share_queue(b, job));
    return fri_share_wait(p, b);
}

fr_status fr_share_round_end(fr_share *p, int64_t round) {
    FRI_NOT_NULL(p);
    const int64_t v = fr_share_micro_batch(p, round);
    fr_phase phase = fr_phase_begin(FR_PHASE_BACKWARD);
    fr_status s = FR_OK;
    fri_share_sync_end(p);
    if (v >= 0) FR_TRY(s, check_round(p, v));
    while (p->queued < p->buckets) FR_TRY(s, queue_next(p));
    while (p->finished < p->buckets) FR_TRY(s, finish_one(p));
    s = move_statistics(p, fri_share_exchange);
done:
    p->round = s < 0 ? -1 : p->round;
    fr_phase_end(phase);
    return s;
}

/* Distributes the owners' parameters; `queued`: transfers are running. */
static fr_status gather_parameters(fr_share *p, bool queued) {
    for (int i = 0; i < p->buckets && !queued; i++) FRI_TRY(hand_out(p, &p->bucket[i]));
    return p->buckets > 0 ? fri_share_wait(p, &p->bucket[p->buckets - 1]) : FR_OK; /* and for earlier buckets */
}

fr_status fri_share_ema_swap(fr_share *p) {
    if (p->optimizer->ema == 0) return FR_OK;
    fr_status s = fr_optimizer_ema_swap(p->optimizer);
    return s == FR_OK ? gather_parameters(p, false) : s;
}

fr_status fr_share_step_end(fr_share *p) {
    FRI_NOT_NULL(p);
    FRI_TRY(fri_statistics_end(p));
    FRI_TRY(gather_parameters(p, p->optimizer->fused));
    FRI_TRY(move_statistics(p, fri_share_gather));
    fr_rng_set((fr_rng){.seed = p->rng.seed,
                        .next_stream = p->rng.next_stream + (uint64_t)p->opts.micro_batches * p->opts.streams});
    p->bytes = p->sending;
    p->sending = 0;
    p->round = -1;
    return FR_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static fr_status check_optimizer(const fr_optimizer *o, const fr_share_opts *opts) {
    if (o->sharing != NULL) return fr_fail(FR_EUSAGE, "ranks: the optimizer is shared already");
    for (int i = 0; i < o->n; i++)
        if (o->parameters[i].made) return fr_fail(FR_EUSAGE, "ranks: share the optimizer before its first step");
    if (opts->micro_batches < 0 || opts->bucket_bytes == 0 || opts->landing_bytes == 0 || opts->window < 0)
        return fr_fail(FR_EINVAL,
                       "ranks: micro_batches %lld, bucket_bytes %zu, landing_bytes %zu, window %d: one is "
                       "out of range",
                       (long long)opts->micro_batches, opts->bucket_bytes, opts->landing_bytes, opts->window);
    return FR_OK;
}

/* Number of elements: at least 1 from each further rank, at most the largest part. */
static fr_status make_landing(fr_share *p) {
    size_t most = (size_t)p->statistics.largest * fr_dtype_size(p->statistics.dtype);
    for (int i = 0; i < p->buckets; i++) {
        const size_t bytes = (size_t)p->bucket[i].largest * fr_dtype_size(p->bucket[i].dtype);
        if (bytes > most) most = bytes;
    }
    const size_t others = (size_t)p->size - 1;
    size_t each = p->opts.landing_bytes / others / sizeof(double) * sizeof(double);
    if (each < sizeof(double)) each = sizeof(double);
    if (each > most) each = most;
    const fr_shape shape = FRI_SHAPE((int64_t)(each * others));
    return fri_tensor_new(&shape, FR_U8, p->device, FR_MEM_WORKSPACE, &p->landing);
}

static fr_status make_memory(fr_share *p) {
    const char *op = fri_scope_op_push("exchange");
    fr_status s = FR_OK;
    s = make_landing(p);
    if (s == FR_OK) s = fri_statistics_memory(p);
    fri_scope_op_pop(op);
    return s;
}

static fr_status set_hooks(fr_share *p, bool on) {
    fr_status s = FR_OK;
    for (int i = 0; i < p->buckets; i++)
        for (int k = 0; k < p->bucket[i].n && s == FR_OK; k++) {
            fri_member *m = &p->bucket[i].member[k];
            m->bucket = &p->bucket[i];
            s = fr_tensor_set_grad_hook(m->tensor, on ? on_gradient : NULL, m);
        }
    return s;
}

static void release_memory(fr_share *p) {
    fri_share_device_end(p);
    fr_tensor_release(&p->landing);
    for (int i = 0; i < 2; i++) {
        free(p->piece[i]);
        free(p->staged[i]);
        free(p->first[i]);
        p->piece[i] = p->staged[i] = NULL;
        p->first[i] = NULL;
        p->staging[i] = NULL;
    }
    free(p->gathered);
    p->gathered = NULL;
}

/* Allocates the buckets and their staging buffers of equal sizes. */
static fr_status make_parts(fr_share *p) {
    FRI_TRY(fri_buckets_make(p));
    for (int i = 0; i < p->buckets; i++) p->bucket[i].share = p;
    p->statistics.share = p->found.share = p;
    for (int i = 0; i < p->statistics.n; i++) p->statistics.member[i].bucket = &p->statistics;
    FRI_TRY(make_memory(p));
    if (!p->dry) FRI_TRY(fri_share_make_scratch(p));
    if (!p->dry) FRI_TRY(fri_share_device_begin(p));
    return set_hooks(p, true);
}

static fr_status make_sharing(fr_share *p) {
    FRI_TRY(make_parts(p));
    p->sharing = fri_share_calls;
    p->sharing.ctx = p;
    p->optimizer->sharing = &p->sharing;
    return FR_OK;
}

fr_status fr_share_create(fr_module *m, fr_optimizer *o, fr_comm *c, const fr_share_opts *opts, fr_share **out) {
    FRI_NOT_NULL(m, o, c, out);
    const fr_share_opts with = opts != NULL ? *opts : fr_share_opts_default();
    const fr_device device = fri_device_of(o->parameters[0].parameter);
    FRI_TRY(check_optimizer(o, &with));
    if (fri_comm_size(c) < 2) return fr_fail(FR_EUSAGE, "ranks: there is 1 rank; sharing needs at least 2");
    FRI_OWNED(fr_share_release) fr_share *p = calloc(1, sizeof *p);
    if (p == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    *p = (fr_share){.module = fr_module_retain(m),
                    .optimizer = o,
                    .comm = c,
                    .opts = with,
                    .rank = fri_comm_rank(c),
                    .size = fri_comm_size(c),
                    .dry = fri_comm_is_dry(c) || device == FR_META,
                    .device = device,
                    .round = -1};
    if (with.micro_batches == 0) p->opts.micro_batches = p->size;
    if (with.sync_batch_norm && p->opts.micro_batches != p->size)
        return fr_fail(FR_EINVAL, "ranks: %lld micro-batches on %d ranks; synchronized batch norms need one per rank",
                       (long long)p->opts.micro_batches, p->size);
    FRI_TRY(make_sharing(p));
    fr_share_release(out);
    FRI_MOVE(out, p);
    return FR_OK;
}

void fr_share_release(fr_share **share) {
    if (share == NULL || *share == NULL) return;
    fr_share *p = *share;
    *share = NULL;
    fri_share_sync_end(p);
    (void)set_hooks(p, false);
    if (p->optimizer->sharing == &p->sharing) p->optimizer->sharing = NULL;
    release_memory(p);
    fri_buckets_free(p);
    fr_module_release(&p->module);
    for (int i = 0; i < 2; i++) free(p->numbers.of[i]);
    free(p->norm);
    fr_tensor_release(&p->counts);
    free(p->counted);
    free(p);
}
