/* tcp.c - see tcp.h.
 *
 * A pair of ranks has two connections: that of the data is a stream of bytes whose sizes both sides know, and that of
 * the goodbyes is heard in the middle of an exchange, too. A rank that is gone has closed both: its peers need not wait
 * for the limit. */
#include "backend/tcp.h"

#include "backend/meet.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PARTS = 64, ASK_MS = 20 };
#define GOODBYE_SECONDS 2.0
#define GONE_SECONDS    1.0 /* for the goodbye of a rank whose data have ended */

/* What is left of the pieces for or from a rank. */
typedef struct cursor {
    const fr_piece *piece;
    int left;
    size_t done; /* bytes of the first */
} cursor;

typedef struct peer {
    cursor out, in;
    size_t heard; /* bytes of its goodbye */
    bool silent;  /* its goodbyes have ended */
} peer;

typedef struct engine {
    fri_meeting m;
    peer *peer;          /* [size] */
    struct pollfd *wait; /* [2 size]: data, then goodbyes */
    char (*heard)[FR_ENGINE_TEXT];
    char error[FR_ENGINE_TEXT];
} engine;

/* ---- goodbyes -------------------------------------------------------------------------------------------------- */

static void listen_to(engine *e, int i) {
    peer *p = &e->peer[i];
    while (i != e->m.rank && !p->silent && p->heard < FR_ENGINE_TEXT) {
        ssize_t n = recv(e->m.fd[i][FRI_MEET_BYE], e->heard[i] + p->heard, FR_ENGINE_TEXT - p->heard, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) p->silent = true;
        if (n > 0) p->heard += (size_t)n;
    }
    if (p->heard == FR_ENGINE_TEXT) e->heard[i][FR_ENGINE_TEXT - 1] = '\0';
}

/* Returns a rank whose goodbye has come, complete, or -1. */
static int hear(engine *e) {
    int from = -1;
    for (int i = 0; i < e->m.size; i++) {
        listen_to(e, i);
        if (from < 0 && e->peer[i].heard == FR_ENGINE_TEXT) from = i;
    }
    return from;
}

static bool has_said(engine *e, int i) {
    return i == e->m.rank || e->peer[i].silent || e->peer[i].heard == FR_ENGINE_TEXT;
}

/* Until rank `of`, or with -1 all, have said goodbye or closed. */
static void wait_for_goodbyes(engine *e, int of, double seconds) {
    const double until = fri_now() + seconds;
    for (;;) {
        int waits = 0;
        hear(e);
        for (int i = 0; i < e->m.size; i++)
            if ((of < 0 || i == of) && !has_said(e, i))
                e->wait[waits++] = (struct pollfd){.fd = e->m.fd[i][FRI_MEET_BYE], .events = POLLIN};
        if (waits == 0 || fri_now() > until) break;
        poll(e->wait, (nfds_t)waits, ASK_MS);
    }
}

static const char *goodbye(void *ctx, const char *why) {
    engine *e = ctx;
    char text[FR_ENGINE_TEXT] = "";
    snprintf(text, sizeof text, "%s", why[0] != '\0' ? why : "it ended");
    for (int i = 0; i < e->m.size; i++) /* so few bytes always go into the system's buffer */
        if (i != e->m.rank) (void)send(e->m.fd[i][FRI_MEET_BYE], text, sizeof text, MSG_NOSIGNAL | MSG_DONTWAIT);
    wait_for_goodbyes(e, -1, GOODBYE_SECONDS);
    return e->heard[0];
}

/* ---- exchange -------------------------------------------------------------------------------------------------- */

static void advance(cursor *c, size_t bytes) {
    bytes += c->done;
    for (; c->left > 0 && c->piece->bytes <= bytes; c->piece++, c->left--) bytes -= c->piece->bytes;
    c->done = bytes;
}

static cursor begin(fr_pieces p, int rank) {
    cursor c = {&p.piece[p.first[rank]], p.first[rank + 1] - p.first[rank], 0};
    advance(&c, 0);
    return c;
}

/* As much as goes without waiting. False: the other side is gone. */
static bool move(int fd, cursor *c, bool out) {
    while (c->left > 0) {
        struct iovec part[PARTS];
        struct msghdr all = {.msg_iov = part};
        for (int i = 0; i < PARTS && i < c->left; i++, all.msg_iovlen++) {
            const size_t done = i == 0 ? c->done : 0;
            part[i] = (struct iovec){(char *)c->piece[i].data + done, c->piece[i].bytes - done};
        }
        ssize_t n = out ? sendmsg(fd, &all, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(fd, &all, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n <= 0) return false;
        advance(c, (size_t)n);
    }
    return true;
}

static fr_status end_with(engine *e, const char *why) {
    snprintf(e->error, sizeof e->error, "%s", why);
    return FR_EPEER;
}

static fr_status is_gone(engine *e, int i) {
    wait_for_goodbyes(e, i, GONE_SECONDS);
    int from = hear(e);
    char text[64];
    snprintf(text, sizeof text, "rank %d ended without a word: its connection is closed", i);
    return end_with(e, from >= 0 ? e->heard[from] : text);
}

/* What is ready, of all ranks. *waits: how many places of e->wait have been filled with what is not. */
static fr_status move_ready(engine *e, int *waits) {
    *waits = 0;
    for (int i = 0; i < e->m.size; i++) {
        peer *p = &e->peer[i];
        const int fd = e->m.fd[i][FRI_MEET_DATA];
        if (!move(fd, &p->in, false) || !move(fd, &p->out, true)) return is_gone(e, i);
        const int events = (p->in.left > 0 ? POLLIN : 0) | (p->out.left > 0 ? POLLOUT : 0);
        if (events != 0) e->wait[(*waits)++] = (struct pollfd){.fd = fd, .events = (short)events};
    }
    return FR_OK;
}

static fr_status wait_or_stop(engine *e, int waits, double until, const fr_wait *w) {
    for (int i = 0; i < e->m.size; i++)
        if (!has_said(e, i)) e->wait[waits++] = (struct pollfd){.fd = e->m.fd[i][FRI_MEET_BYE], .events = POLLIN};
    poll(e->wait, (nfds_t)waits, ASK_MS);
    int from = hear(e);
    if (from >= 0) return end_with(e, e->heard[from]);
    if (w->cancelled != NULL && w->cancelled(w->ctx)) return end_with(e, "the wait was ended");
    if (fri_now() < until) return FR_OK;
    for (int i = 0; i < e->m.size; i++) w->late[i] = e->peer[i].in.left > 0 || e->peer[i].out.left > 0;
    return end_with(e, "");
}

static fr_status exchange(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *w) {
    engine *e = ctx;
    const double until = fri_now() + w->seconds;
    fr_status s = FR_OK;
    for (int i = 0; i < e->m.size; i++) {
        e->peer[i].out = i != e->m.rank ? begin(out, i) : (cursor){0};
        e->peer[i].in = i != e->m.rank ? begin(in, i) : (cursor){0};
    }
    for (;;) {
        int waits = 0;
        s = move_ready(e, &waits);
        if (s < 0 || waits == 0) return s;
        s = wait_or_stop(e, waits, until, w);
        if (s < 0) return s;
    }
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static const char *error(const void *ctx) {
    return ((const engine *)ctx)->error;
}

static bool heard(void *ctx) {
    engine *e = ctx;
    const int from = hear(e);
    if (from >= 0) (void)end_with(e, e->heard[from]);
    return from >= 0;
}

/* Nobody needs be waited for: what a rank has sent, the system delivers, and who is done closes no stream that another
 * one still reads. */
static void close_engine(void *ctx, bool broken) {
    engine *e = ctx;
    (void)broken;
    fri_meet_close(&e->m);
    free(e->peer);
    free(e->wait);
    free(e->heard);
    free(e);
}

static bool make_room(engine *e, size_t n) {
    e->peer = calloc(n, sizeof *e->peer);
    e->wait = calloc(2 * n, sizeof *e->wait);
    e->heard = calloc(n, sizeof *e->heard);
    return e->peer != NULL && e->wait != NULL && e->heard != NULL;
}

fr_status fri_tcp_open(const fri_launcher *l, double seconds, fr_engine *out, char *reason, size_t bytes) {
    engine *e = calloc(1, sizeof *e);
    fr_status s = e != NULL && make_room(e, (size_t)l->size) ? FR_OK : FR_ENOMEM;
    if (s < 0) snprintf(reason, bytes, "out of host memory");
    if (s == FR_OK) s = fri_meet(l, seconds, &e->m, reason, bytes);
    if (s < 0) {
        if (e != NULL) close_engine(e, true);
        return s;
    }
    *out = (fr_engine){.name = "TCP",
                       .rank = l->rank,
                       .size = l->size,
                       .exchange = exchange,
                       .goodbye = goodbye,
                       .error = error,
                       .heard = heard,
                       .close = close_engine,
                       .ctx = e};
    return FR_OK;
}
