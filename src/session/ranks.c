/* ranks.c - messages between the ranks of a training besides gradients: options are compared at the start, positions
 * at each step, statistics at the end. */
#include "io/session_files.h"
#include "session/data.h"
#include "session/flags.h"
#include "backend/backend.h"
#include "base/cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static fr_status no_memory(void) {
    return fr_fail(FR_ENOMEM, "trainer: no host memory for the numbers of all ranks");
}

fr_status fri_ranks_from_first(const fri_config *c, void *data, size_t bytes) {
    if (c->ranks == 1 || c->opts.plan || c->opts.summary) return FR_OK;
    FRI_OWNED(fri_free) char *all = malloc(bytes * (size_t)c->ranks);
    FRI_TRY(all != NULL ? c->rank_calls->agree(c->comm, data, bytes, all) : no_memory());
    memcpy(data, all, bytes);
    return FR_OK;
}

fr_status fri_ranks_least(const fri_config *c, size_t *n) {
    if (c->ranks == 1 || fri_without_data(&c->opts)) return FR_OK;
    FRI_OWNED(fri_free) size_t *all = malloc((size_t)c->ranks * sizeof *all);
    FRI_TRY(all != NULL ? c->rank_calls->agree(c->comm, n, sizeof *n, all) : no_memory());
    for (int i = 0; i < c->ranks; i++)
        if (all[i] < *n) *n = all[i];
    return FR_OK;
}

/* ---- comparing options --------------------------------------------------------------------------------------- */

enum { TEXT = 512 };
typedef struct same_run {
    char version[32];
    char data[FRI_FINGERPRINT_BYTES];
    char environment[TEXT];
    uint64_t flag[FRI_FLAGS_MOST];
} same_run;

/* First difference between two ranks in words, or NULL. File paths and the number of decoding threads may differ. */
static const char *find_difference(const same_run *a, const same_run *b, char text[3 * TEXT]) {
    if (strcmp(a->version, b->version) != 0) return "different versions of frugal";
    int i = 0;
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f), i++)
        if (a->flag[i] != b->flag[i]) {
            snprintf(text, 3 * TEXT, "different values of --%s", f->name);
            return text;
        }
    if (strcmp(a->data, b->data) != 0) {
        snprintf(text, 3 * TEXT, "different data: %s; %s", b->data, a->data);
        return text;
    }
    if (strcmp(a->environment, b->environment) == 0) return NULL;
    snprintf(text, 3 * TEXT, "environments in which different bits come out: %s; %s", b->environment, a->environment);
    return text;
}

static fr_status describe_run(const fri_run *r, same_run *out) {
    const fri_config *c = r->config;
    char text[FR_FLAG_TEXT_BYTES];
    snprintf(out->version, sizeof out->version, "%s", fr_version());
    (void)fri_device_describe_bits(c->opts.device, fri_compute_dtype(&c->opts), out->environment,
                                   sizeof out->environment);
    int i = 0;
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f), i++)
        if (f->file == FR_FILE_NONE && f->offset != offsetof(fr_train_opts, data.workers) &&
            f->group != FR_GROUP_OUTPUT)
            out->flag[i] = fri_hash(FRI_HASH, fr_flag_text(f, &c->opts, text), strlen(text));
    return r->data.train != NULL ? fri_dataset_fingerprint(r->data.train, out->data) : FR_OK;
}

fr_status fri_ranks_compare(const fri_run *r) {
    const fri_config *c = r->config;
    char text[3 * TEXT];
    same_run mine = {0};
    FRI_OWNED(fri_free) same_run *all = NULL;
    if (c->ranks == 1 || fri_without_data(&c->opts)) return FR_OK;
    FRI_TRY(describe_run(r, &mine));
    all = malloc((size_t)c->ranks * sizeof *all);
    FRI_TRY(all != NULL ? c->rank_calls->agree(c->comm, &mine, sizeof mine, all) : no_memory());
    for (int i = 1; i < c->ranks; i++) {
        const char *what = find_difference(&all[0], &all[i], text);
        if (what != NULL)
            return fr_fail(FR_EPEER, "rank %d (%s) and rank 0 (%s) have %s", i, c->rank_calls->host(c->comm, i),
                           c->rank_calls->host(c->comm, 0), what);
    }
    return FR_OK;
}

/* ---- during a run -------------------------------------------------------------------------------------------- */

typedef struct rank_position {
    int64_t step, signal;
} rank_position;

fr_status fri_ranks_timeout(const fri_run *r, bool step) {
    const fri_config *c = r->config;
    return c->comm != NULL ? c->rank_calls->timeout(c->comm, (step ? 1 : FRI_LONG_TIMEOUT) * c->peer_timeout) : FR_OK;
}

fr_status fri_ranks_check_step(fri_run *r, int64_t step) {
    const fri_config *c = r->config;
    const rank_position mine = {step, fri_signal_here(r)};
    FRI_OWNED(fri_free) rank_position *all = malloc((size_t)c->ranks * sizeof *all);
    FRI_TRY(all != NULL ? c->rank_calls->agree(c->comm, &mine, sizeof mine, all) : no_memory());
    for (int i = 0; i < c->ranks; i++) {
        if (all[i].signal != 0 && r->at.common_signal == 0) r->at.common_signal = (int)all[i].signal;
        if (all[i].step != step)
            return fr_fail(FR_EPEER, "rank %d (%s) is at step %" PRId64 ", rank %d at step %" PRId64, i,
                           c->rank_calls->host(c->comm, i), all[i].step, c->rank, step);
    }
    return FR_OK;
}

fr_status fri_ranks_numbers(const fri_run *r, const fri_batch_numbers *mine, int64_t n, int64_t most,
                            fri_batch_numbers **out) {
    const fri_config *c = r->config;
    const size_t each = (size_t)most * sizeof *mine;
    fri_batch_numbers *sent = calloc((size_t)most, sizeof *sent), *all = malloc(each * (size_t)c->ranks);
    fri_batch_numbers *ordered = malloc(each * (size_t)c->ranks);
    fr_status s = sent != NULL && all != NULL && ordered != NULL ? FR_OK : no_memory();
    if (s == FR_OK && n > 0) memcpy(sent, mine, (size_t)n * sizeof *mine);
    if (s == FR_OK) s = c->rank_calls->agree(c->comm, sent, each, all);
    for (int64_t b = 0; s == FR_OK && b < most * c->ranks; b++) ordered[b] = all[b % c->ranks * most + b / c->ranks];
    free(sent);
    free(all);
    if (s < 0) free(ordered);
    *out = s == FR_OK ? ordered : NULL;
    return s;
}

static uint64_t larger_size(size_t a, size_t b) {
    return a > b ? a : b;
}

fr_status fri_ranks_report(fri_run *r) {
    const fri_config *c = r->config;
    const fr_rank_calls *of = c->rank_calls;
    if (c->ranks == 1) return FR_OK;
    fri_rank_numbers mine = {.peak_requested =
                                 larger_size(r->memory.training.peak_requested, r->memory.evaluation.peak_requested),
                             .peak_reserved =
                                 larger_size(r->memory.training.peak_reserved, r->memory.evaluation.peak_reserved),
                             .planned = r->memory.arena.used ? r->memory.arena.placement.extent : 0,
                             .departures = r->memory.arena.departures,
                             .links = c->link_bytes,
                             .step_bytes = of->bytes(r->net.share),
                             .exchanged = of->exchanged(r->net.share),
                             .waited = of->waited(r->net.share)};
    snprintf(mine.host, sizeof mine.host, "%s", of->host(c->comm, c->rank));
    r->rank = malloc((size_t)c->ranks * sizeof *r->rank);
    return r->rank != NULL ? of->agree(c->comm, &mine, sizeof mine, r->rank) : no_memory();
}
