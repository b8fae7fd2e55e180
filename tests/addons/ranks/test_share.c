/* test_share.c - the law of ranks without a launcher: threads are ranks, and the engine between them delays and
 * reorders messages by a seed. The reference is a single process that computes the batches in sequence. */
#include "optim/scaler.h"
#include <criterion/criterion.h>
#include <frugal/ranks.h>
#include <frugal/frugal.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "addons/ranks/comm.h"
#include "support/golden.h"
#include "addons/ranks/share.h"
#include "optim/optimizer.h"

enum { RANKS = 5, STEPS = 3, BATCH = 2, SIZE = 16, CLASSES = 5 };

/* ---- the engine -------------------------------------------------------------------------------------------------- */

typedef struct mail {
    struct mail *next;
    size_t bytes;
    uint64_t pieces; /* number and sizes, equal on both sides */
    unsigned char data[];
} mail;

typedef struct post {
    pthread_mutex_t lock;
    pthread_cond_t came;
    mail *box[RANKS][RANKS]; /* from, to */
    int size;
    uint64_t flip; /* the letter, counted from 1, in which a bit turns; 0: none */
    uint64_t letters;
} post;

typedef struct seat {
    post *office;
    int rank;
    uint64_t random;
} seat;

static uint64_t draw(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static size_t bytes_of(fr_pieces p, int peer) {
    size_t bytes = 0;
    for (int i = p.first[peer]; i < p.first[peer + 1]; i++) bytes += p.piece[i].bytes;
    return bytes;
}

static uint64_t sizes_of(fr_pieces p, int peer) {
    uint64_t sizes = 1;
    for (int i = p.first[peer]; i < p.first[peer + 1]; i++) sizes = sizes * 1000003 + p.piece[i].bytes;
    return sizes;
}

static void send(seat *s, fr_pieces out, int peer) {
    const size_t bytes = bytes_of(out, peer);
    post *o = s->office;
    mail *m = malloc(sizeof *m + bytes), **end = &o->box[s->rank][peer];
    unsigned char *at = m->data;
    *m = (mail){.bytes = bytes, .pieces = sizes_of(out, peer)};
    for (int i = out.first[peer]; i < out.first[peer + 1]; at += out.piece[i++].bytes)
        memcpy(at, out.piece[i].data, out.piece[i].bytes);
    nanosleep(&(struct timespec){0, (long)(draw(&s->random) % 200000)}, NULL);
    pthread_mutex_lock(&o->lock);
    if (bytes > 64 && ++o->letters == o->flip) m->data[bytes / 2 | 3] ^= 0x20; /* of an exponent */
    while (*end != NULL) end = &(*end)->next;
    *end = m;
    pthread_cond_broadcast(&o->came);
    pthread_mutex_unlock(&o->lock);
}

static bool receive(const seat *s, fr_pieces in, int peer) {
    post *o = s->office;
    pthread_mutex_lock(&o->lock);
    while (o->box[peer][s->rank] == NULL) pthread_cond_wait(&o->came, &o->lock);
    mail *m = o->box[peer][s->rank];
    o->box[peer][s->rank] = m->next;
    pthread_mutex_unlock(&o->lock);
    const unsigned char *at = m->data;
    const bool same = m->pieces == sizes_of(in, peer);
    for (int i = in.first[peer]; same && i < in.first[peer + 1]; at += in.piece[i++].bytes)
        memcpy(in.piece[i].data, at, in.piece[i].bytes);
    free(m);
    return same;
}

static fr_status exchange(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *wait) {
    seat *s = ctx;
    const int n = s->office->size, turn = (int)(draw(&s->random) % (uint64_t)n);
    (void)wait;
    for (int i = 0; i < n; i++) {
        const int peer = (i + turn) % n;
        if (peer != s->rank && bytes_of(out, peer) > 0) send(s, out, peer);
    }
    for (int i = n - 1; i >= 0; i--) {
        const int peer = (i + turn) % n;
        if (peer != s->rank && bytes_of(in, peer) > 0 && !receive(s, in, peer)) return FR_ELIBRARY;
    }
    return FR_OK;
}

static const char *no_shutdown(void *ctx, const char *why) {
    (void)ctx, (void)why;
    return "";
}

static const char *error(const void *ctx) {
    (void)ctx;
    return "a rank sends other pieces than are awaited";
}

static void leave(void *ctx, bool broken) {
    (void)ctx, (void)broken;
}

/* ---- the training ------------------------------------------------------------------------------------------------ */

typedef enum kind { SGD, ADAMW, ADAM8, RMSPROP, KINDS } kind;

typedef struct training {
    kind optimizer;
    int64_t micro_batches;
    double clip;  /* 0: none */
    bool half;    /* parameters in bf16, with masters */
    bool scaled;  /* a loss scale; micro-batch 1 of step 1 overflows */
    size_t small; /* bytes of buckets and landing zone; 0: the defaults */
    int window;
    bool checks;   /* replicas, after each step */
    bool averaged; /* final parameters are the averages */
    bool fused;    /* on ranks; one process has no gradient of all micro-batches before the last */
} training;

typedef struct rank_run {
    const training *how;
    fr_comm *comm;    /* NULL: the reference */
    uint64_t streams; /* that a micro-batch draws */
    seat seat;
    unsigned char *bytes; /* parameters, buffers and optimizer state at the end */
    size_t n;
    fr_status status;
    int skipped;
} rank_run;

/* Two linear layers of several slices, batch norm and dropout. */
static fr_module *network(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3});
    x = fr_net_conv2d(n, "conv", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, "norm", x, NULL));
    x = fr_net_dropout(n, NULL, fr_net_maxpool2d(n, NULL, x, 2, NULL), 0.3);
    x = fr_net_relu(n, NULL, fr_net_linear(n, "wide", fr_net_flatten(n, NULL, x, 1), 101, FR_BIAS));
    x = fr_net_linear(n, "head", fr_net_dropout(n, NULL, x, 0.2), CLASSES, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static void keep(rank_run *r, const void *data, size_t n) {
    r->bytes = realloc(r->bytes, r->n + n);
    memcpy(r->bytes + r->n, data, n);
    r->n += n;
}

static fr_status keep_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const size_t n = (size_t)fr_tensor_numel(t) * fr_dtype_size(fr_tensor_dtype(t));
    void *host = malloc(n);
    (void)path, (void)is_parameter;
    fr_status s = fr_tensor_to_host(t, host);
    keep(ctx, host, n);
    free(host);
    return s;
}

typedef struct reading {
    rank_run *run;
    fr_optimizer *optimizer;
} reading;

static fr_status keep_state(void *ctx, const char *name, fr_tensor *t) {
    const reading *r = ctx;
    const size_t n = (size_t)fr_tensor_numel(t) * fr_dtype_size(fr_tensor_dtype(t));
    void *host = calloc(1, n);
    fr_status s = fri_optimizer_state_to_host(r->optimizer, name, host);
    keep(r->run, name, strlen(name));
    keep(r->run, host, n);
    free(host);
    return s;
}

/* Loss and gradients of micro-batch v. */
static fr_status batch(const rank_run *r, fr_module *m, fr_grad_scaler *scaler, int step, int64_t v) {
    float image[BATCH * SIZE * SIZE * 3];
    int64_t target[BATCH];
    uint64_t seed = (uint64_t)(1000 * step + v);
    fr_tensor *x = NULL, *t = NULL, *loss = NULL;
    fr_status s = FR_OK;
    for (size_t i = 0; i < sizeof image / sizeof *image; i++) image[i] = (float)(draw(&seed) % 1000) / 500 - 1;
    for (int i = 0; i < BATCH; i++) target[i] = (int64_t)(draw(&seed) % CLASSES);
    FR_TRY(s, fr_tensor_from_host(image, 4, (int64_t[]){BATCH, SIZE, SIZE, 3}, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_tensor_from_host(target, 1, (int64_t[]){BATCH}, FR_I64, FR_CPU, &t));
    if (r->how->half) FR_TRY(s, fr_cast(x, FR_BF16, &x));
    FR_TRY(s, fr_module_forward(m, x, &x));
    FR_TRY(s, fr_cross_entropy(x, t, NULL, &loss));
    FR_TRY(s, fr_scale(loss, 1.0 / (double)r->how->micro_batches, &loss));
    FR_TRY(s, fr_grad_scaler_scale(scaler, loss, &loss));
    if (r->how->scaled && step == 1 && v == 1) FR_TRY(s, fr_scale(loss, INFINITY, &loss));
    s = fr_backward(loss, NULL);
done:
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_tensor_release(&loss);
    return s;
}

static fr_status step(rank_run *r, fr_module *m, fr_optimizer *o, fr_grad_scaler *scaler, fr_share *share, int number) {
    const int64_t rounds = share != NULL ? fr_share_rounds(share) : r->how->micro_batches;
    fr_step_scope scope;
    double norm = 0;
    bool skipped = false;
    fr_status s = FR_OK;
    FR_TRY(s, fr_step_begin(&scope));
    for (int64_t i = 0; i < rounds; i++) {
        const int64_t v = fr_share_micro_batch(share, i);
        if (share != NULL) FR_TRY(s, fr_share_round_begin(share, i));
        if (v >= 0) FR_TRY(s, batch(r, m, scaler, number, v));
        if (share != NULL) FR_TRY(s, fr_share_round_end(share, i));
    }
    if (r->how->clip > 0) FR_TRY(s, fr_grad_scaler_unscale(scaler, o));
    if (r->how->clip > 0)
        FR_TRY(s, share != NULL ? fr_share_clip_grad_norm(share, r->how->clip, &norm)
                                : fr_clip_grad_norm(m, r->how->clip, &norm));
    FR_TRY(s, fr_grad_scaler_step(scaler, o));
    FR_TRY(s, fr_grad_scaler_update(scaler, &skipped));
    r->skipped += skipped;
    fr_optimizer_zero_grad(o);
    if (share != NULL) FR_TRY(s, fr_share_step_end(share));
    if (share != NULL && r->how->checks) FR_TRY(s, fri_share_check(share));
    s = fr_step_end(&scope);
done:
    return s;
}

static fr_status make_optimizer(const training *t, fr_module *m, fr_optimizer **o) {
    fr_status s = FR_OK;
    if (t->half) FR_TRY(s, fr_module_to_dtype(m, FR_BF16));
    FR_TRY(s, t->optimizer == SGD ? fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3), o)
              : t->optimizer == RMSPROP
                  ? fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 1e-3, .momentum = 0.9, .centered = true), o)
              : t->optimizer == ADAMW ? fr_adamw(m, NULL, o)
                                      : fr_adam8(m, NULL, o));
    FR_TRY(s, fr_optimizer_ema(*o, t->averaged ? 0.5 : 0));
    s = fr_optimizer_master_weights(*o, t->half);
done:
    return s;
}

static fr_status train(rank_run *r) {
    const training *t = r->how;
    fr_share_opts opts = *FR_SHARE_OPTS(.micro_batches = t->micro_batches, .streams = r->streams, .window = t->window);
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_share *share = NULL;
    fr_grad_scaler *scaler = NULL;
    fr_status s = FR_OK;
    fr_seed(7);
    m = network();
    reading reads = {r, NULL};
    FR_TRY(s, make_optimizer(t, m, &o));
    FR_TRY(s, fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = t->scaled, .init_scale = 1024), FR_CPU, &scaler));
    reads.optimizer = o;
    if (t->small > 0) opts.bucket_bytes = opts.landing_bytes = t->small;
    if (r->comm != NULL && t->fused && t->window > 0) FR_TRY(s, fr_optimizer_fuse(o, true));
    if (r->comm != NULL) FR_TRY(s, fr_share_create(m, o, r->comm, &opts, &share));
    if (r->comm != NULL && t->fused) FR_TRY(s, fr_optimizer_fuse(o, true));
    for (int i = 0; i < STEPS; i++) FR_TRY(s, step(r, m, o, scaler, share, i));
    FR_TRY(s, share != NULL ? fri_share_ema_swap(share) : fr_optimizer_ema_swap(o));
    FR_TRY(s, fr_module_each_tensor(m, keep_tensor, r));
    const uint64_t stream = fr_rng_get().next_stream;
    keep(r, &stream, sizeof stream);
    if (fr_comm_rank(r->comm) > 0) {
        s = fri_share_serve(share);
        goto done;
    }
    FR_TRY(s, fri_optimizer_each_state(o, keep_state, &reads));
    if (share != NULL) s = fri_share_served(share, FR_OK);
done:
    fr_share_release(&share);
    fr_grad_scaler_release(&scaler);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    return s;
}

static void *run(void *ctx) {
    rank_run *r = ctx;
    fr_engine engine = {.name = "post",
                        .rank = r->seat.rank,
                        .size = r->seat.office->size,
                        .exchange = exchange,
                        .shutdown = no_shutdown,
                        .error = error,
                        .close = leave,
                        .ctx = &r->seat};
    (void)fr_threads_set(1);
    r->status = fri_comm_on(&engine, 30, &r->comm);
    if (r->status == FR_OK) r->status = train(r);
    if (r->status < 0) fprintf(stderr, "rank %d: %s\n", r->seat.rank, fr_last_error());
    fr_comm_release(&r->comm);
    return NULL;
}

/* Trains on `size` ranks; r[i] is rank i's. */
static void run_ranks(const training *t, int size, uint64_t seed, uint64_t flip, rank_run r[RANKS]) {
    static post office;
    pthread_t thread[RANKS];
    office = (post){.size = size, .flip = flip};
    pthread_mutex_init(&office.lock, NULL);
    pthread_cond_init(&office.came, NULL);
    for (int i = 0; i < size; i++) {
        r[i] = (rank_run){.how = t, .streams = 2, .seat = {&office, i, seed + (uint64_t)i}};
        cr_assert_eq(pthread_create(&thread[i], NULL, run, &r[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(thread[i], NULL);
}

static const training trainings[] = {
    {SGD, 1, .window = 1},
    {SGD, 4, .small = 30000, .window = 0},
    {SGD, 4, .clip = 0.1, .small = 4000, .window = 2},
    {ADAMW, 3, .small = 70000, .window = 1},
    {ADAMW, 5, .clip = 0.05, .window = 1, .checks = true},
    {ADAM8, 4, .small = 200000, .window = 1},
    {ADAM8, 2, .clip = 0.2, .small = 1000, .window = 1},
    {ADAMW, 4, .half = true, .small = 50000, .window = 1},
    {SGD, 3, .half = true, .clip = 0.1, .window = 1},
    {SGD, 4, .scaled = true, .small = 50000, .window = 1},
    {ADAMW, 3, .scaled = true, .clip = 0.1, .window = 1},
    {ADAMW, 4, .fused = true, .small = 50000, .window = 1, .checks = true},
    {ADAM8, 3, .fused = true, .small = 20000, .window = 0},
    {SGD, 5, .fused = true, .half = true, .window = 2},
    {ADAMW, 4, .averaged = true, .small = 50000, .window = 1},
    {SGD, 3, .averaged = true, .half = true, .fused = true, .window = 1},
    {RMSPROP, 4, .clip = 0.1, .small = 50000, .window = 1},
    {RMSPROP, 3, .half = true, .scaled = true, .averaged = true, .window = 1},
};
enum { TRAININGS = sizeof trainings / sizeof *trainings };

/* Every rank has the parameters, buffers and random numbers of the reference, and rank 0 collects its state. */
Test(share, ranks_make_the_bits_of_one_process) {
    for (int t = 0; t < TRAININGS; t++) {
        rank_run one = {.how = &trainings[t]};
        must(fr_threads_set(1));
        must(train(&one));
        for (int size = 2; size <= RANKS; size++) {
            rank_run r[RANKS];
            run_ranks(&trainings[t], size, (uint64_t)(17 * t + size), 0, r);
            for (int i = 0; i < size; i++) {
                cr_expect_eq(r[i].status, FR_OK, "training %d, rank %d of %d", t, i, size);
                cr_expect(r[i].n <= one.n && memcmp(r[i].bytes, one.bytes, r[i].n) == 0,
                          "training %d, rank %d of %d: other bits than one process", t, i, size);
                cr_expect_eq(r[i].skipped, trainings[t].scaled, "training %d, rank %d of %d: %d steps skipped", t, i,
                             size, r[i].skipped);
                cr_expect(i > 0 || r[i].n == one.n, "training %d on %d: %zu bytes of state, %zu on one process", t,
                          size, r[i].n, one.n);
                free(r[i].bytes);
            }
        }
        free(one.bytes);
    }
}

/* Letters 3 and 4 are the parameters that the ranks send in the first step, 7 and 8 in the second. */
Test(share, a_bit_that_turns_on_its_way_is_found) {
    const training t = {ADAMW, 2, .window = 1, .checks = true};
    for (uint64_t letter = 3; letter <= 8; letter += letter == 4 ? 3 : 1) {
        rank_run r[RANKS];
        run_ranks(&t, 2, 3, letter, r);
        for (int i = 0; i < 2; i++) {
            cr_expect_eq(r[i].status, FR_EPEER, "letter %d: rank %d did not notice", (int)letter, i);
            free(r[i].bytes);
        }
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Bytes beside activations: P + (G + O) / N and the landing zone, of VGG-16 with Adam on meta. */
static void measure(int rank, int size, bool fused, fr_memory_stats *summed, fr_memory_stats *after) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_comm *c = NULL;
    fr_share *share = NULL;
    fr_pool *pool = NULL;
    fr_pool_state was;
    fr_step_scope scope;
    fr_tensor *x = NULL, *t = NULL, *loss = NULL;
    must(fr_pool_create(FR_META, &pool));
    must(fr_pool_begin(pool, &was));
    must(fr_vgg(16, FR_MODEL_OPTS(.device = FR_META), &m));
    must(fr_adam(m, NULL, &o));
    must(fri_comm_dry(rank, size, &c));
    must(fr_share_create(m, o, c, FR_SHARE_OPTS(.streams = 2), &share));
    if (fused) must(fr_optimizer_fuse(o, true));
    must(fr_step_begin(&scope));
    must(fr_share_round_begin(share, 0));
    must(fr_tensor_empty(4, (int64_t[]){1, 224, 224, 3}, FR_F32, FR_META, &x));
    must(fr_tensor_empty(1, (int64_t[]){1}, FR_I64, FR_META, &t));
    must(fr_module_forward(m, x, &x));
    must(fr_cross_entropy(x, t, NULL, &loss));
    fr_tensor_release(&x);
    must(fr_backward(loss, NULL));
    must(fr_share_round_end(share, 0));
    must(fr_memory_stats_get(FR_META, summed));
    must(fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
    must(fr_share_step_end(share));
    must(fr_step_end(&scope));
    must(fr_memory_stats_get(FR_META, after));
    fr_tensor_release(&t);
    fr_tensor_release(&loss);
    fr_share_release(&share);
    fr_comm_release(&c);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    fr_pool_end(was);
    fr_pool_release(&pool);
}

Test(share, bytes_follow_the_formula) {
    const double p = 138357544 * 4.0, slice = 16384 * 4.0, buckets = 12;
    const int sizes[] = {2, 3, 8, 64, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i], ranks[] = {0, n / 2, n - 1};
        for (int k = 0; k < 3; k++) {
            fr_memory_stats summed, after;
            measure(ranks[k], n, false, &summed, &after);
            const double g = (double)summed.requested_by[FR_MEM_GRADIENT];
            const double o = (double)after.requested_by[FR_MEM_OPTIMIZER];
            cr_expect(fabs(g - p / n) <= buckets * slice, "rank %d of %d: gradients %.0f, G/N is %.0f", ranks[k], n, g,
                      p / n);
            cr_expect(fabs(o - 2 * p / n) <= 2 * buckets * slice, "rank %d of %d: state %.0f, O/N is %.0f", ranks[k], n,
                      o, 2 * p / n);
            cr_expect_eq(after.allocated_by[FR_MEM_GRADIENT], 0);
            cr_expect_leq(after.allocated_by[FR_MEM_WORKSPACE], 16 << 20);
            const double beside = p + g + o + (double)after.allocated_by[FR_MEM_WORKSPACE];
            /* Backward holds the bucket in transit and the next bucket: fc1 and fc2, not the convolutions' 59 MB. */
            cr_expect_leq((double)summed.at_peak_requested[FR_MEM_GRADIENT], 0.9 * p + g,
                          "rank %d of %d: %zu bytes of gradients", ranks[k], n,
                          summed.at_peak_requested[FR_MEM_GRADIENT]);
            if (n == 8) cr_expect_leq(beside, 795e6, "rank %d of 8 holds %.0f bytes", ranks[k], beside);
        }
    }
}

/* A fused step's sums are released with their buckets; only O / N remains besides the parameters. */
Test(share, a_fused_step_holds_no_sums) {
    fr_memory_stats plain, fused;
    for (int size = 2; size <= 8; size *= 2) {
        measure(0, size, false, &plain, &(fr_memory_stats){0});
        measure(0, size, true, &fused, &(fr_memory_stats){0});
        cr_expect_gt(plain.requested_by[FR_MEM_GRADIENT], 0);
        cr_expect_eq(fused.requested_by[FR_MEM_GRADIENT], 0, "%d ranks: %zu bytes", size,
                     fused.requested_by[FR_MEM_GRADIENT]);
        const size_t state = 2 * plain.requested_by[FR_MEM_GRADIENT], counts = 512;
        cr_expect_eq(fused.requested_by[FR_MEM_OPTIMIZER], state + counts, "%d ranks: %zu bytes of state, O/N is %zu",
                     size, fused.requested_by[FR_MEM_OPTIMIZER], state);
    }
}

static fr_status count_steps(void *ctx, const char *name, fr_tensor *t) {
    const size_t end = strlen(name);
    float steps = 0;
    if (end < 5 || strcmp(name + end - 5, ".step") != 0) return FR_OK;
    cr_assert_eq(fr_tensor_numel(t), 1);
    fr_status s = fr_tensor_to_host(t, &steps);
    cr_expect_eq(steps, 1, "%s: %g steps", name, (double)steps);
    ++*(int *)ctx;
    return s;
}

/* Steps after zero_grad find no gradient and change no parameter. */
Test(share, zero_grad_forgets_the_sums) {
    const training how = {ADAMW, 2};
    rank_run r = {.how = &how, .streams = 2};
    fr_module *m = network();
    fr_optimizer *o = NULL;
    fr_grad_scaler *scaler = NULL;
    fr_share *share = NULL;
    int counted = 0;
    must(fr_adamw(m, NULL, &o));
    must(fri_comm_dry(0, 2, &r.comm));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = false), FR_CPU, &scaler));
    must(fr_share_create(m, o, r.comm, FR_SHARE_OPTS(.streams = 2), &share));
    must(step(&r, m, o, scaler, share, 0));
    must(fr_optimizer_step(o));
    must(fri_optimizer_each_state(o, count_steps, &counted));
    cr_expect_gt(counted, 0);
    fr_share_release(&share);
    fr_comm_release(&r.comm);
    fr_grad_scaler_release(&scaler);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* ---- refusals ------------------------------------------------------------------------------------------------ */

Test(share, misuse_is_refused) {
    fr_module *m = network();
    fr_optimizer *o = NULL;
    fr_comm *one = NULL, *two = NULL;
    fr_share *share = NULL, *again = NULL;
    fr_grad_scaler *scaler = NULL;
    must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
    must(fri_comm_dry(0, 1, &one));
    must(fri_comm_dry(1, 2, &two));
    cr_expect_eq(fri_comm_dry(2, 2, &two), FR_EINVAL);
    cr_expect_eq(fr_share_create(m, o, one, NULL, &share), FR_EUSAGE);
    must(fr_share_create(m, o, two, NULL, &share));
    cr_expect_eq(fr_share_create(m, o, two, NULL, &again), FR_EUSAGE);
    must(fr_share_round_begin(share, 0));
    cr_expect_eq(fr_share_round_end(share, 0), FR_EUNSUPPORTED, "no parameter got a gradient");
    cr_expect_not_null(strstr(fr_last_error(), "got no gradient"));
    must(fr_optimizer_fuse(o, true));
    must(fr_grad_scaler_create(NULL, FR_CPU, &scaler));
    cr_expect_eq(fri_grad_scaler_check_begin(scaler, o), FR_EUNSUPPORTED);
    fr_grad_scaler_release(&scaler);
    fr_share_release(&share);
    fr_comm_release(&one);
    fr_comm_release(&two);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

static fr_status note_limit(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *wait) {
    (void)out, (void)in;
    *(double *)ctx = wait->seconds;
    return FR_OK;
}

Test(share, a_wait_has_the_limit_of_when_it_begins) {
    double limit = 0;
    char one = 1, all = 0;
    fr_comm *c = NULL;
    const fr_engine engine =
        {.size = 1, .exchange = note_limit, .shutdown = no_shutdown, .error = error, .close = leave, .ctx = &limit};
    cr_assert(fri_comm_on(&engine, 30, &c) == FR_OK, "%s", fr_last_error());
    cr_expect(limit == 30, "%g", limit);
    cr_expect(fri_comm_timeout_set(c, 6) == FR_OK && fr_comm_agree(c, &one, 1, &all) == FR_OK && limit == 6, "%g",
              limit);
    fr_comm_release(&c);
}
