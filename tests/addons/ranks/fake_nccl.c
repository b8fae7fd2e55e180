/* fake_nccl.c - see fake_nccl.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "addons/ranks/fake_nccl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cuda/fake.h"
#include "cuda/fake_order.h"
#include "cuda/fake_kernels.h"
#include "src/addons/ranks/nccl.h"

enum { RANKS = 16, MOST = 4096 };

typedef struct move {
    char *data;
    size_t bytes, done;
    int peer;
    bool out;
} move;

/* A group of sends and receives in its stream. */
typedef struct group {
    move *moves;
    int n, number;
} group;

static int rank, size, listener = -1, peer[RANKS], in_group, error;
static char place[64]; /* of the sockets */
static group now;
static bool stalling;
static int groups;
static cudaStream_t stream;

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

static struct sockaddr_un address_of(int of) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s-%d", place, of); /* abstract: nothing to remove */
    return a;
}

static int get_version(int *version) {
    *version = 22809;
    return FRI_NCCL_SUCCESS;
}

static int get_unique_id(fri_nccl_id *out) {
    unsigned long long number = 0;
    if (getrandom(&number, sizeof number, 0) < 0) return 1;
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, sizeof out->bytes, "fake-nccl-%llx", number);
    return FRI_NCCL_SUCCESS;
}

static int init(void **comm, int ranks, fri_nccl_id id, int own, fri_nccl_config *config) {
    static char one;
    if (config->size != sizeof *config || config->magic != FRI_NCCL_CONFIG_MAGIC || config->blocking != 0 ||
        config->max_ctas < 1 || config->min_ctas != FRI_NCCL_UNSET || ranks > RANKS)
        return 4;
    rank = own;
    size = ranks;
    error = FRI_NCCL_SUCCESS;
    snprintf(place, sizeof place, "%.60s", id.bytes);
    struct sockaddr_un a = address_of(rank);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, RANKS) < 0) return 2;
    for (int i = 0; i < RANKS; i++) peer[i] = -1;
    *comm = &one;
    return FRI_NCCL_IN_PROGRESS;
}

/* Each rank calls the earlier ranks and sends its number. */
static bool met(void) {
    bool all = true;
    for (int i = 0; i < rank; i++) {
        struct sockaddr_un a = address_of(i);
        if (peer[i] >= 0) continue;
        const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(s, (struct sockaddr *)&a, sizeof a) == 0 && write(s, &rank, sizeof rank) == sizeof rank)
            peer[i] = s;
        else
            close(s);
        all = all && peer[i] >= 0;
    }
    for (int s; (s = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        int who = -1;
        if (read(s, &who, sizeof who) == sizeof who) peer[who] = s;
    }
    for (int i = rank + 1; i < size; i++) all = all && peer[i] >= 0;
    return all;
}

static int async_error(void *comm, int *out) {
    (void)comm;
    *out = error != FRI_NCCL_SUCCESS ? error : met() ? FRI_NCCL_SUCCESS : FRI_NCCL_IN_PROGRESS;
    return FRI_NCCL_SUCCESS;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* False: it would wait. */
static bool advance(move *m) {
    while (m->done < m->bytes && error == FRI_NCCL_SUCCESS) {
        const size_t left = m->bytes - m->done;
        const ssize_t n = m->out ? send(peer[m->peer], m->data + m->done, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                 : recv(peer[m->peer], m->data + m->done, left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (n <= 0) error = FRI_NCCL_REMOTE_ERROR;
        if (n > 0) m->done += (size_t)n;
    }
    return true;
}

/* Pieces for a peer are delivered in order, in each direction. */
static bool try_group(void *ctx) {
    group *g = ctx;
    if (stalling && rank == 1 && g->number == 50 && error == FRI_NCCL_SUCCESS) return false;
    bool waits[2][RANKS] = {{false}}, all = true;
    for (int i = 0; i < g->n; i++) {
        move *m = &g->moves[i];
        if (!waits[m->out][m->peer]) waits[m->out][m->peer] = !advance(m);
        all = all && !waits[m->out][m->peer];
    }
    if (!all) return false;
    free(g->moves);
    free(g);
    return true;
}

static int group_start(void) {
    in_group++;
    return FRI_NCCL_SUCCESS;
}

static int group_end(void) {
    if (--in_group > 0 || now.n == 0) return FRI_NCCL_SUCCESS;
    group *g = malloc(sizeof *g);
    if (g == NULL) return 2;
    *g = now;
    g->number = ++groups;
    now = (group){0};
    const int entered = fake_enter();
    fake_queue_call(stream, try_group, g);
    for (int i = 0; i < g->n; i++) fake_order_access(g->moves[i].data, g->moves[i].bytes, !g->moves[i].out);
    fake_leave(&entered);
    return FRI_NCCL_IN_PROGRESS;
}

static int add(const void *data, size_t bytes, int type, int to, cudaStream_t in, bool out) {
    if (type != FRI_NCCL_UINT8 || to == rank || to >= size || in_group == 0 || now.n == MOST) return 4;
    if (now.moves == NULL && (now.moves = malloc(MOST * sizeof *now.moves)) == NULL) return 2;
    stream = in;
    now.moves[now.n++] = (move){(char *)(uintptr_t)data, bytes, 0, to, out};
    return FRI_NCCL_SUCCESS;
}

static int send_to(const void *data, size_t count, int type, int to, void *comm, cudaStream_t in) {
    (void)comm;
    return add(data, count, type, to, in, true);
}

static int recv_from(void *data, size_t count, int type, int from, void *comm, cudaStream_t in) {
    (void)comm;
    return add(data, count, type, from, in, false);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int finalize(void *comm) {
    (void)comm;
    return FRI_NCCL_SUCCESS;
}

/* Ends work that waits in the stream, too. */
static int leave(void *comm) {
    (void)comm;
    error = FRI_NCCL_REMOTE_ERROR;
    for (int i = 0; i < size; i++)
        if (peer[i] >= 0) close(peer[i]);
    close(listener);
    return FRI_NCCL_SUCCESS;
}

static const char *last_error(void *comm) {
    (void)comm;
    return error == FRI_NCCL_REMOTE_ERROR ? "a socket of the fake was closed" : "";
}

typedef void function(void);

static void *symbol_of(const char *name) {
    static const struct {
        const char *name;
        function *at;
    } symbols[] = {
        {"ncclGetVersion", (function *)get_version},
        {"ncclGetUniqueId", (function *)get_unique_id},
        {"ncclCommInitRankConfig", (function *)init},
        {"ncclCommFinalize", (function *)finalize},
        {"ncclCommDestroy", (function *)leave},
        {"ncclCommAbort", (function *)leave},
        {"ncclCommGetAsyncError", (function *)async_error},
        {"ncclGroupStart", (function *)group_start},
        {"ncclGroupEnd", (function *)group_end},
        {"ncclSend", (function *)send_to},
        {"ncclRecv", (function *)recv_from},
        {"ncclGetLastError", (function *)last_error},
    };
    void *at = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, name) == 0) memcpy(&at, &symbols[i].at, sizeof at);
    return at;
}

void fake_nccl_begin(bool stalls) {
    stalling = stalls;
    fake.symbol = symbol_of;
    fake_hide(NULL);
}
