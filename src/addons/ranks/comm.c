/* comm.c - see comm.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* on_exit, pthread_timedjoin_np */
#endif
#include "addons/ranks/comm.h"

#include "addons/ranks/launcher.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/library.h"
#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    QUEUE = 64,
    LEAVE_SECONDS = 10,
    LATE_SECONDS = 1,
    UNTIL_NAP = 20000 /* nanoseconds */
};

struct fr_comm {
    fr_engine engine;
    const fri_links *links; /* or NULL */
    bool dry, broken;
    double seconds;
    fri_launcher launcher; /* of the launcher's processes */
    char (*host)[FR_ENGINE_HOST];
    bool *late;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t work, over;
    struct {
        fri_comm_job *job;
        void *ctx;
    } queue[QUEUE];
    uint64_t queued, done; /* jobs so far */
    bool stop;
    const char *farewell;       /* sentence of the end; borrowed */
    const char *first_farewell; /* rank 0's */
    fr_status status;           /* the first failure */
    char sentence[2 * FR_ENGINE_TEXT];
};

static fr_status open_engine(void *ctx, fr_comm *c);

int fri_comm_rank(const fr_comm *c) {
    return c != NULL ? c->engine.rank : 0;
}

int fri_comm_size(const fr_comm *c) {
    return c != NULL ? c->engine.size : 1;
}

bool fri_comm_is_dry(const fr_comm *c) {
    return c->dry;
}

const char *fri_comm_name(const fr_comm *c) {
    return c->engine.name;
}

const char *fri_comm_host(const fr_comm *c, int rank) {
    return c != NULL ? c->host[rank] : NULL;
}

const fri_links *fri_comm_links(const fr_comm *c) {
    return c->links;
}

/* ---- the lane -------------------------------------------------------------------------------------------------- */

static bool is_cancelled(void *ctx) {
    fr_comm *c = ctx;
    pthread_mutex_lock(&c->lock);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

static void close_links(fr_comm *c, bool abort) {
    if (c->links != NULL) c->links->close(abort);
    c->links = NULL;
}

/* MPI libraries want a single thread, so the lane makes all calls of the engine. */
static void shut_down_engine(fr_comm *c) {
    close_links(c, c->farewell != NULL || c->broken || c->status < 0);
    if (c->engine.ctx == NULL) return;
    if (c->farewell != NULL)
        c->first_farewell = c->engine.shutdown(c->engine.ctx, c->farewell);
    else
        c->engine.close(c->engine.ctx, c->broken || c->status < 0);
}

static void *lane_main(void *ctx) {
    fr_comm *c = ctx;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->done == c->queued && !c->stop) pthread_cond_wait(&c->work, &c->lock);
        if (c->done == c->queued) break;
        fr_status s = c->status;
        fri_comm_job *job = c->queue[c->done % QUEUE].job;
        void *of_job = c->queue[c->done % QUEUE].ctx;
        pthread_mutex_unlock(&c->lock);
        bool failed = s == FR_OK && (s = job(of_job, c)) < 0;
        pthread_mutex_lock(&c->lock);
        if (failed) {
            c->status = s;
            snprintf(c->sentence, sizeof c->sentence, "%s", fr_last_error());
            close_links(c, true); /* the device would wait for ever */
        }
        c->done++;
        pthread_cond_broadcast(&c->over);
    }
    pthread_mutex_unlock(&c->lock);
    shut_down_engine(c);
    return NULL;
}

fr_status fri_comm_queue(fr_comm *c, fri_comm_job *job, void *ctx, uint64_t *ticket) {
    if (c->dry) {
        *ticket = 0;
        return FR_OK;
    }
    pthread_mutex_lock(&c->lock);
    while (c->queued - c->done == QUEUE) pthread_cond_wait(&c->over, &c->lock);
    c->queue[c->queued % QUEUE].job = job;
    c->queue[c->queued % QUEUE].ctx = ctx;
    *ticket = ++c->queued;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    return FR_OK;
}

fr_status fri_comm_wait(fr_comm *c, uint64_t ticket) {
    pthread_mutex_lock(&c->lock);
    while (c->done < ticket) pthread_cond_wait(&c->over, &c->lock);
    fr_status s = c->status;
    pthread_mutex_unlock(&c->lock);
    return s < 0 ? fr_fail(s, "%s", c->sentence) : FR_OK; /* the sentence is not written again */
}

fr_status fri_comm_timeout_set(fr_comm *c, double seconds) {
    pthread_mutex_lock(&c->lock);
    c->seconds = seconds;
    pthread_mutex_unlock(&c->lock);
    return FR_OK;
}

static double peer_timeout(fr_comm *c) {
    pthread_mutex_lock(&c->lock);
    const double seconds = c->seconds;
    pthread_mutex_unlock(&c->lock);
    return seconds;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static fr_status explain_failure(fr_comm *c, fr_status s, double seconds) {
    char who[256] = "";
    int late = 0;
    for (int i = 0; i < c->engine.size; i++) {
        if (!c->late[i]) continue;
        size_t at = strlen(who);
        if (late++ < 3) snprintf(who + at, sizeof who - at, "%srank %d (%s)", at > 0 ? ", " : "", i, c->host[i]);
    }
    c->broken = true;
    if (s != FR_EPEER || late == 0) return fr_fail(s, "%s", c->engine.error(c->engine.ctx));
    return fr_fail(s, "no word from %s%s for %g s", who, late > 3 ? " and others" : "", seconds);
}

fr_status fri_comm_exchange(fr_comm *c, fr_pieces out, fr_pieces in) {
    fr_wait wait = {.seconds = peer_timeout(c), .cancelled = is_cancelled, .ctx = c, .late = c->late};
    memset(c->late, 0, (size_t)c->engine.size * sizeof *c->late);
    fr_status s = c->engine.exchange(c->engine.ctx, out, in, &wait);
    return s < 0 ? explain_failure(c, s, wait.seconds) : FR_OK;
}

typedef struct agreement {
    const void *mine;
    size_t bytes;
    char *all;
} agreement;

fr_status fri_comm_agree_here(fr_comm *c, const void *mine, size_t bytes, void *all) {
    const int n = c->engine.size;
    FRI_OWNED(fri_free) fr_piece *piece = malloc(2 * (size_t)n * sizeof *piece);
    FRI_OWNED(fri_free) int *first = malloc((size_t)(n + 1) * sizeof *first);
    if (piece == NULL || first == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    for (int i = 0; i < n; i++) {
        piece[i] = (fr_piece){(void *)(uintptr_t)mine, bytes};
        piece[n + i] = (fr_piece){(char *)all + (size_t)i * bytes, bytes};
        first[i] = i;
    }
    first[n] = n;
    FRI_TRY(fri_comm_exchange(c, (fr_pieces){piece, first}, (fr_pieces){piece + n, first}));
    memcpy((char *)all + (size_t)c->engine.rank * bytes, mine, bytes);
    return FR_OK;
}

/* Devices wait for each other without knowing the late rank: answering ranks are not to blame. */
static fr_status find_late_ranks(fr_comm *c, double seconds) {
    const char *reason = "", here = 1;
    char *all = malloc((size_t)c->engine.size);
    (void)fri_comm_timeout_set(c, LATE_SECONDS);
    if (all != NULL) (void)fri_comm_agree_here(c, &here, sizeof here, all);
    free(all);
    for (int i = 0; i < c->engine.size; i++)
        if (c->late[i]) return explain_failure(c, FR_EPEER, seconds);
    return fr_fail(FR_EPEER, "%s has moved no data between the ranks for %g s", c->links->name(&reason), seconds);
}

fr_status fri_comm_until(fr_comm *c, fr_status (*over)(void *ctx), void *ctx) {
    const struct timespec nap = {0, UNTIL_NAP};
    const double began = fri_now(),
                 seconds = peer_timeout(c); /* at the start: a first step's wait may last into the next */
    for (;;) {
        fr_status s = over(ctx);
        if (s != FR_END) return s;
        if (c->engine.peer_left(c->engine.ctx)) s = fr_fail(FR_EPEER, "%s", c->engine.error(c->engine.ctx));
        if (s == FR_END && is_cancelled(c)) s = fr_fail(FR_EPEER, "the wait was ended");
        if (s == FR_END && fri_now() - began > seconds) s = find_late_ranks(c, seconds);
        c->broken = c->broken || s < 0;
        if (s < 0) return s;
        nanosleep(&nap, NULL);
    }
}

static fr_status agree_on_setup(void *ctx, fr_comm *c) {
    const agreement *a = ctx;
    return fri_comm_agree_here(c, a->mine, a->bytes, a->all);
}

fr_status fri_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all) {
    agreement a = {mine, bytes, all};
    uint64_t ticket = 0;
    if (c->dry) {
        for (int i = 0; i < c->engine.size; i++) memcpy((char *)all + (size_t)i * bytes, mine, bytes);
        return FR_OK;
    }
    fr_status s = fri_comm_queue(c, agree_on_setup, &a, &ticket);
    return s < 0 ? s : fri_comm_wait(c, ticket);
}

void fri_comm_links_set(fr_comm *c, const fri_links *links, const char *name) {
    const size_t at = strlen(c->engine.name);
    c->links = links;
    snprintf(c->engine.name + at, sizeof c->engine.name - at, " and %s", name);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static fr_status comm_create(const fr_engine *engine, bool dry, double seconds, fr_comm **out) {
    const size_t n = (size_t)engine->size;
    fr_comm *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    c->engine = *engine;
    c->dry = dry;
    c->seconds = seconds;
    c->first_farewell = "";
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->over, NULL);
    c->host = calloc(n, sizeof *c->host);
    c->late = calloc(n, sizeof *c->late);
    *out = c;
    return c->host != NULL && c->late != NULL ? FR_OK : fr_fail(FR_ENOMEM, "ranks: out of host memory");
}

/* Signals are the program's own threads'. */
static fr_status start_lane(fr_comm *c) {
    sigset_t all, was;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    c->started = pthread_create(&c->thread, NULL, lane_main, c) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return c->started ? FR_OK : fr_fail(FR_ENOMEM, "ranks: the system cannot start a thread");
}

/* The library waits forever for a missing rank; then the program abandons the lane. */
static fr_status wait_for_engine(fr_comm *c, const fri_launcher *l) {
    struct timespec until;
    uint64_t ticket = 0;
    int late = 0;
    FRI_TRY(fri_comm_queue(c, open_engine, (void *)(uintptr_t)l, &ticket));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)c->seconds + 1;
    pthread_mutex_lock(&c->lock);
    while (c->done < ticket && late == 0) late = pthread_cond_timedwait(&c->over, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
    if (late == 0) return fri_comm_wait(c, ticket);
    pthread_detach(c->thread);
    return fr_fail(FR_EPEER, "%s started %d ranks, but they did not connect within %g s", l->name, l->size, c->seconds);
}

/* Every rank learns all hosts. */
static fr_status rendezvous(fr_comm *c) {
    char host[FR_ENGINE_HOST] = "";
    gethostname(host, sizeof host - 1);
    return fri_comm_agree(c, host, sizeof host, c->host);
}

static fr_status keep_or_release(fr_status s, fr_comm *c, fr_comm **out) {
    if (s < 0) {
        c->broken = true;
        fri_comm_release(&c);
    } else {
        *out = c;
    }
    return s;
}

fr_status fri_comm_on(const fr_engine *engine, double seconds, fr_comm **out) {
    fr_comm *c = NULL;
    fr_status s = comm_create(engine, false, seconds, &c);
    if (c == NULL) return s;
    if (s == FR_OK) s = start_lane(c);
    if (s == FR_OK) s = rendezvous(c);
    return keep_or_release(s, c, out);
}

fr_status fri_comm_dry(int rank, int size, fr_comm **out) {
    const fr_engine engine = {.name = "none", .rank = rank, .size = size};
    if (size < 1 || rank < 0 || rank >= size)
        return fr_fail(FR_EINVAL, "ranks: rank %d of %d; it must be one of 0..size - 1", rank, size);
    fr_status s = comm_create(&engine, true, 0, out);
    if (s < 0) fri_comm_release(out);
    return s;
}

static void end_now(int status, void *ctx) {
    (void)ctx;
    fflush(NULL);
    _exit(status);
}

/* MPICH 4.0's MPI_Finalize over TCP sometimes does not return, because a finished rank no longer answers. All work is
 * done by then, so the program abandons the lane and ends without the library's handlers. False: abandoned. */
static bool lane_ended(const fr_comm *c) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_SECONDS;
    if (pthread_timedjoin_np(c->thread, NULL, &until) == 0) return true;
    pthread_detach(c->thread);
    on_exit(end_now, NULL);
    return false;
}

void fri_comm_release(fr_comm **p) {
    fr_comm *c = *p;
    *p = NULL;
    if (c == NULL) return;
    if (c->started) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_cond_signal(&c->work);
        pthread_mutex_unlock(&c->lock);
        if (!lane_ended(c)) return; /* the lane, with c */
    }
    pthread_cond_destroy(&c->over);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c->host);
    free(c->late);
    free(c);
}

void fri_comm_shutdown(fr_comm *c, const char *why, const char **first) {
    if (first != NULL) *first = "";
    if (c->dry) return;
    pthread_mutex_lock(&c->lock);
    c->farewell = why;
    c->stop = true; /* ends the lane and the lane's waits */
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    if (c->started) pthread_join(c->thread, NULL);
    c->started = false;
    if (first != NULL && c->engine.rank != 0) *first = c->first_farewell;
}

/* ---- the engine ------------------------------------------------------------------------------------------------ */

/* An engine stays loaded: MPI libraries cannot be unloaded and loaded again. */
static fr_status load_engine(const fri_launcher *l, fr_engine *engine) {
    char name[64], path[FRI_MODULE_PATH], reason[512] = "";
    snprintf(name, sizeof name, "mpi-%s", l->plugin);
    void *library = fri_module_open(name, "src/addons/ranks", fri_env_get()->mpi, RTLD_NOW | RTLD_GLOBAL, path);
    if (library == NULL)
        return fr_fail(FR_ELIBRARY, "%s started %d ranks, but the engine that connects them cannot be opened: %s",
                       l->name, l->size, dlerror());
    fr_engine_open_fn *open = (fr_engine_open_fn *)dlsym(library, "fr_engine_open");
    if (open == NULL) return fr_fail(FR_ELIBRARY, "ranks: '%s' is not an engine: it has no fr_engine_open", path);
    fr_status s = open(FR_ENGINE_VERSION, engine, reason, sizeof reason);
    return s < 0 ? fr_fail(s, "ranks: '%s': %s", path, reason) : FR_OK;
}

/* A job. */
static fr_status open_engine(void *ctx, fr_comm *c) {
    const fri_launcher *l = ctx;
    fr_engine engine = {0};
    FRI_TRY(load_engine(l, &engine));
    if (engine.size != l->size || engine.rank != l->rank)
        return fr_fail(FR_EPEER,
                       "%s says rank %d of %d, but %s sees rank %d of %d: the program and its launcher belong to "
                       "different MPIs",
                       l->name, l->rank, l->size, engine.name, engine.rank, engine.size);
    c->engine = engine;
    return FR_OK;
}

fr_status fri_comm_open(double seconds, fr_comm **out) {
    fri_launcher l;
    fr_comm *c = NULL;
    fr_status s = fri_launcher_find(&l);
    if (s < 0 || l.size == 1) return s;
    const fr_engine none = {.rank = l.rank, .size = l.size};
    s = comm_create(&none, false, seconds, &c);
    if (c == NULL) return s;
    c->launcher = l;
    if (s == FR_OK) s = start_lane(c);
    if (s == FR_OK) s = wait_for_engine(c, &c->launcher);
    if (s == FR_EPEER && c->done == 0) return s; /* still in use by the lane */
    if (s == FR_OK) s = rendezvous(c);
    return keep_or_release(s, c, out);
}
