/* launch.c - programs started several times by a launcher: connects the ranks, silences all but rank 0, ends
 * together. */
#include "trainer/command.h"

#include <frugal/addon.h>
#include <frugal/number.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Suppresses output and files of this rank; rank 0 prints and writes for all. */
static fr_status fall_silent(fri_config *c) {
    FILE *nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL) return fr_fail(FR_EIO, "/dev/null cannot be opened: %s", strerror(errno));
    c->out = c->err = nowhere;
    c->opts.quiet = true;
    c->opts.files.report = c->opts.files.track = c->opts.files.trace = c->opts.files.track_lines =
        c->opts.files.memory_plot = NULL;
    c->opts.files.log = c->opts.files.export_weights = NULL;
    return FR_OK;
}

/* True for a plan of several ranks, which runs in a single process. */
static bool is_planned(const fr_train_opts *o) {
    return o->plan || o->summary || o->device == FR_META;
}

/* Reads FRUGAL_PEER_TIMEOUT in seconds. */
static fr_status read_timeout(double *seconds) {
    const char *text = getenv("FRUGAL_PEER_TIMEOUT");
    char *end = NULL;
    *seconds = text != NULL ? fr_strtod(text, &end) : 120;
    if (text == NULL || (end != text && *end == '\0' && *seconds >= 0.1 && *seconds < 1e6)) return FR_OK;
    return fr_fail(FR_EINVAL, "FRUGAL_PEER_TIMEOUT=%.40s: must be a number of seconds from 0.1 to 1e6", text);
}

static fr_status open_ranks(fri_config *c, int started) {
    const fr_train_opts *o = &c->opts;
    FRI_TRY(read_timeout(&c->peer_timeout));
    if (is_planned(o)) {
        const int n = o->ranks != FR_TRAIN_AUTO ? (int)o->ranks : started;
        return n > 1 ? c->rank_calls->dry(0, n, &c->comm) : FR_OK;
    }
    if (o->ranks != FR_TRAIN_AUTO && o->ranks != started && started == 1)
        return fr_fail(FR_EINVAL,
                       "--ranks %" PRId64 ": one was started; run it as mpirun -n %" PRId64 " %s ..., or add --plan",
                       o->ranks, o->ranks, c->program->name);
    if (o->ranks != FR_TRAIN_AUTO && o->ranks != started)
        return fr_fail(FR_EINVAL, "--ranks %" PRId64 ": the launcher started %d; give that number", o->ranks, started);
    return c->rank_calls->open(FRI_LONG_TIMEOUT * c->peer_timeout, &c->comm);
}

/* Processes started by a launcher train alone if the add-on `ranks` is not built. */
static fr_status find_calls(fri_config *c) {
    for (const fr_addon *const *a = fr_addons(); *a != NULL && c->rank_calls == NULL; a++) c->rank_calls = (*a)->ranks;
    if (c->rank_calls != NULL || c->opts.ranks == FR_TRAIN_AUTO) return FR_OK;
    return fr_addon_missing("--ranks", "ranks");
}

fr_status fri_ranks_begin(fri_config *c) {
    int rank = 0, started = 1;
    c->ranks = 1;
    if (c->opts.ranks == 1) return FR_OK;
    FRI_TRY(find_calls(c));
    if (c->rank_calls == NULL) return FR_OK;
    FRI_TRY(c->rank_calls->launched(&rank, &started));
    if (rank > 0) FRI_TRY(fall_silent(c));
    const fr_status s = open_ranks(c, started);
    c->rank = c->rank_calls->rank(c->comm);
    c->ranks = c->rank_calls->size(c->comm);
    return s;
}

void fri_ranks_note(const fri_run *r) {
    const fri_config *c = r->config;
    if (c->ranks == 1 || c->opts.quiet || is_planned(&c->opts)) return;
    fprintf(c->out, "%d ranks%s%s; the same training on one process: --accumulate %" PRId64 "\n", c->ranks,
            c->rank_calls->engine(c->comm)[0] != '\0' ? ", " : "", c->rank_calls->engine(c->comm),
            c->opts.memory.accumulate);
}

enum { SENTENCE_BYTES = 1024 };
#define ENDED " ended "

/* Writes "rank 1 (hostb) ended in step 7: " and the reason. */
static void explain_end(const fri_run *r, const char *reason, char sentence[SENTENCE_BYTES]) {
    const fri_config *c = r->config;
    char when[48] = "before the first step";
    if (r->data.loader != NULL) snprintf(when, sizeof when, "in step %" PRId64, r->at.step + 1);
    snprintf(sentence, SENTENCE_BYTES, "rank %d (%s)" ENDED "%s: %s", c->rank, c->rank_calls->host(c->comm, c->rank),
             when, reason);
}

static const char *reason_of(const char *sentence) {
    const char *at = strncmp(sentence, "rank ", 5) == 0 ? strstr(sentence, ENDED) : NULL;
    const char *colon = at != NULL ? strstr(at, ": ") : NULL;
    return colon != NULL ? colon + 2 : sentence;
}

static void print_sentence(const fri_config *c, const char *sentence, FILE *err) {
    fprintf(err, "%s: %s\n", c->program->name, sentence);
    fflush(err);
}

/* Prints the failure of a run. With several ranks, rank 0 prints a common failure before ranks disconnect, because a
 * launcher kills all ranks when the first exits. Failures before the first step are printed without rank and step. */
void fri_ranks_failed(const fri_run *r, fr_status s, FILE *err) {
    const fri_config *c = r->config;
    char error[SENTENCE_BYTES / 2], sentence[SENTENCE_BYTES];
    const char *first = "";
    int rank = 0, started = 1;
    const bool launched =
        c->opts.ranks != 1 && c->rank_calls != NULL && c->rank_calls->launched(&rank, &started) == FR_OK;
    if (c->ranks < 2 || c->comm == NULL || is_planned(&c->opts)) {
        if (launched && rank > 0) sleep(1); /* rank 0 gets time to print first */
        if (!launched || rank == 0 || s == FR_EPEER) print_sentence(c, fr_last_error(), err);
        return;
    }
    snprintf(error, sizeof error, "%.*s", (int)strcspn(fr_last_error(), "\n"), fr_last_error());
    if (s == FR_EPEER && reason_of(error) != error)
        snprintf(sentence, sizeof sentence, "%s", error); /* error of another rank, named in the sentence */
    else
        explain_end(r, error, sentence);
    if (c->rank == 0) print_sentence(c, r->data.loader != NULL ? sentence : fr_last_error(), err);
    c->rank_calls->shutdown(c->comm, sentence, &first);
    if (c->rank > 0 && strcmp(reason_of(first), reason_of(sentence)) != 0) print_sentence(c, sentence, err);
}
