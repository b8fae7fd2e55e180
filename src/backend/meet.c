/* meet.c - see meet.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include "backend/meet.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Rank 0 takes the first free one of PORTS ports, BEHIND MASTER_PORT: that is the launcher's store's, and the next ones
 * are those of other jobs. */
enum { MAGIC = 0x66725431, PORTS = 16, BEHIND = 1000, LAST_PORT = 65535, HOST_BYTES = 256, JOB_BYTES = 64 };
#define ANSWER_SECONDS 2.0 /* who does not answer within them is another program */
#define NAP_SECONDS    0.05

/* What a connection begins with. Ranks of one run are machines of one kind: numbers travel as they lie. */
typedef struct hello {
    uint32_t magic;
    int32_t rank, size, kind;
    int32_t port; /* where this rank listens */
    char job[JOB_BYTES];
} hello;

typedef struct place {
    char host[HOST_BYTES];
    int32_t port;
} place;

typedef struct hall {
    fri_meeting *m;
    place *place; /* [size] */
    int listens, port;
    double until;
    char *reason;
    size_t bytes;
} hall;

static double earlier(double a, double b) {
    return a < b ? a : b;
}

/* ---- bytes with a limit ---------------------------------------------------------------------------------------- */

static bool ready(int fd, short events, double until) {
    for (;;) {
        double left = until - fri_now();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > 0 ? (int)(1000 * left) + 1 : 0);
        if (n > 0) return true;
        if (n == 0 || errno != EINTR) return false;
    }
}

static bool move_all(int fd, void *data, size_t bytes, bool out, double until) {
    for (char *at = data; bytes > 0;) {
        if (!ready(fd, out ? POLLOUT : POLLIN, until)) return false;
        ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * NAP_SECONDS)}, NULL);
}

/* ---- connections ----------------------------------------------------------------------------------------------- */

static hello hello_of(const hall *h, int kind) {
    const char *job = getenv("TORCHELASTIC_RUN_ID");
    hello mine = {.magic = MAGIC, .rank = h->m->rank, .size = h->m->size, .kind = kind, .port = h->port};
    snprintf(mine.job, sizeof mine.job, "%s", job != NULL ? job : "");
    return mine;
}

/* At `port`, or at any that is free if it is 0; of both families where the system has both. -1: it is taken. */
static int listen_at(int port, int most) {
    const int on = 1, off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool has_six = fd >= 0;
    if (!has_six) fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (has_six) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const struct sockaddr *at = has_six ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
    if (bind(fd, at, has_six ? sizeof six : sizeof four) == 0 && listen(fd, most) == 0) return fd;
    close(fd);
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_in6 a; /* the port lies where IPv4's does */
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 ? ntohs(a.sin6_port) : 0;
}

static int connect_to(const struct addrinfo *a, double until) {
    int error = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof error;
    if (fd < 0) return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    if (errno == EINPROGRESS && ready(fd, POLLOUT, until) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 &&
        error == 0)
        return fd;
    close(fd);
    return -1;
}

/* Connected, and the other side is a rank of this run, and has answered until then; else -1. */
static int dial(const hall *h, const place *to, int kind, double until) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    hello mine = hello_of(h, kind);
    uint32_t answer = 0;
    char port[16];
    int fd = -1;
    snprintf(port, sizeof port, "%d", (int)to->port);
    if (getaddrinfo(to->host, port, &hints, &all) != 0) return -1;
    for (struct addrinfo *a = all; a != NULL && fd < 0; a = a->ai_next) fd = connect_to(a, until);
    freeaddrinfo(all);
    if (fd < 0) return -1;
    if (move_all(fd, &mine, sizeof mine, true, until) && move_all(fd, &answer, sizeof answer, false, until) &&
        answer == MAGIC && move_all(fd, &answer, sizeof answer, true, until))
        return fd;
    close(fd);
    return -1;
}

static void keep(const hall *h, int rank, int kind, int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    h->m->fd[rank][kind] = fd;
}

static bool lacks(const hall *h, int kind, int *who) {
    for (*who = h->m->rank + 1; *who < h->m->size; ++*who)
        if (h->m->fd[*who][kind] < 0) return true;
    return false;
}

/* One of the later ranks, or a stranger, who is not answered. A rank that has given up this connection, and made
 * another, does not confirm the answer. */
static void answer_one(hall *h) {
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    uint32_t answer = MAGIC;
    hello theirs = {0}, mine = hello_of(h, 0);
    int fd = accept4(h->listens, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const double until = earlier(h->until, fri_now() + ANSWER_SECONDS / 2);
    bool ours = move_all(fd, &theirs, sizeof theirs, false, until) && theirs.magic == MAGIC &&
                theirs.size == mine.size && theirs.rank > mine.rank && theirs.rank < mine.size && theirs.kind >= 0 &&
                theirs.kind < FRI_MEET_KINDS && memcmp(theirs.job, mine.job, sizeof mine.job) == 0 &&
                h->m->fd[theirs.rank][theirs.kind] < 0;
    if (ours && theirs.kind == FRI_MEET_DATA) {
        place *p = &h->place[theirs.rank];
        p->port = theirs.port;
        ours = getnameinfo((struct sockaddr *)&from, n, p->host, sizeof p->host, NULL, 0, NI_NUMERICHOST) == 0;
    }
    if (ours && move_all(fd, &answer, sizeof answer, true, until) &&
        move_all(fd, &answer, sizeof answer, false, h->until))
        keep(h, theirs.rank, theirs.kind, fd);
    else
        close(fd);
}

/* ---- the meeting ----------------------------------------------------------------------------------------------- */

static fr_status not_met(const hall *h, const char *what, int rank) {
    snprintf(h->reason, h->bytes, what, rank);
    return FR_EPEER;
}

static fr_status wait_for_later(hall *h, int kind) {
    int who = 0;
    while (lacks(h, kind, &who)) {
        if (!ready(h->listens, POLLIN, h->until)) return not_met(h, "rank %d has not come", who);
        answer_one(h);
    }
    return FR_OK;
}

static bool is_here(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strncmp(host, "::ffff:127.", 11) == 0;
}

/* Rank 0's ports are tried in turn: it may not be there yet. */
static fr_status come_to_first(hall *h, const char *host, int port) {
    place there;
    int fd = -1;
    for (int i = 0; fd < 0; i = (i + 1) % PORTS) {
        if (fri_now() > h->until) {
            snprintf(h->reason, h->bytes, "rank 0 does not answer at %s, ports %d to %d", host, port, port + PORTS - 1);
            return FR_EPEER;
        }
        snprintf(there.host, sizeof there.host, "%s", host);
        there.port = port + i;
        fd = dial(h, &there, FRI_MEET_DATA, earlier(h->until, fri_now() + ANSWER_SECONDS));
        if (fd < 0 && i == PORTS - 1) nap();
    }
    keep(h, 0, FRI_MEET_DATA, fd);
    if (!move_all(fd, h->place, (size_t)h->m->size * sizeof *h->place, false, h->until))
        return not_met(h, "rank %d has not told where the others are: not all have come", 0);
    h->place[0] = there;
    for (int i = 1; i < h->m->size; i++) /* they came to rank 0 from its own machine */
        if (is_here(h->place[i].host)) snprintf(h->place[i].host, sizeof h->place[i].host, "%s", host);
    return FR_OK;
}

static fr_status come_to_earlier(hall *h) {
    for (int i = 0; i < h->m->rank; i++)
        for (int kind = 0; kind < FRI_MEET_KINDS; kind++)
            while (h->m->fd[i][kind] < 0) {
                int fd = dial(h, &h->place[i], kind, h->until);
                if (fd >= 0)
                    keep(h, i, kind, fd);
                else if (fri_now() > h->until)
                    return not_met(h, "rank %d does not answer", i);
                else
                    nap();
            }
    return FR_OK;
}

static fr_status tell_places(hall *h) {
    for (int i = 1; i < h->m->size; i++)
        if (!move_all(h->m->fd[i][FRI_MEET_DATA], h->place, (size_t)h->m->size * sizeof *h->place, true, h->until))
            return not_met(h, "rank %d came and went", i);
    return FR_OK;
}

static fr_status meet_all(hall *h, const char *host, int port) {
    fr_status s = FR_OK;
    for (int i = 0; i < (h->m->rank == 0 ? PORTS : 1) && h->listens < 0; i++)
        h->listens = listen_at(h->m->rank == 0 ? port + i : 0, 2 * h->m->size);
    if (h->listens < 0) {
        snprintf(h->reason, h->bytes, "no port from %d to %d is free", port, port + PORTS - 1);
        return FR_EPEER;
    }
    h->port = port_of(h->listens);
    if (h->m->rank > 0) s = come_to_first(h, host, port);
    if (s == FR_OK && h->m->rank > 0) s = come_to_earlier(h);
    if (s == FR_OK) s = wait_for_later(h, FRI_MEET_DATA);
    if (s == FR_OK && h->m->rank == 0) s = tell_places(h);
    return s == FR_OK ? wait_for_later(h, FRI_MEET_BYE) : s;
}

fr_status fri_meet(const fri_launcher *l, double seconds, fri_meeting *m, char *reason, size_t bytes) {
    const char *host = getenv("MASTER_ADDR"), *text = getenv("MASTER_PORT");
    const size_t n = (size_t)l->size;
    char *end = NULL;
    const long port = text != NULL ? strtol(text, &end, 10) : 0;
    if (host == NULL || host[0] == '\0' || port < 1 || port > LAST_PORT || *end != '\0') {
        snprintf(reason, bytes, "MASTER_ADDR and MASTER_PORT are '%s' and '%s': a host and a port are expected",
                 host != NULL ? host : "", text != NULL ? text : "");
        return FR_EUSAGE;
    }
    *m = (fri_meeting){l->rank, l->size, malloc(n * sizeof *m->fd)};
    hall h = {.m = m,
              .place = calloc(n, sizeof *h.place),
              .listens = -1,
              .until = fri_now() + seconds,
              .reason = reason,
              .bytes = bytes};
    for (size_t i = 0; m->fd != NULL && i < n; i++) m->fd[i][FRI_MEET_DATA] = m->fd[i][FRI_MEET_BYE] = -1;
    fr_status s = m->fd != NULL && h.place != NULL ? FR_OK : FR_ENOMEM;
    if (s < 0)
        snprintf(reason, bytes, "out of host memory");
    else
        s = meet_all(&h, host, (int)port + (port + BEHIND + PORTS <= LAST_PORT ? BEHIND : -BEHIND));
    if (h.listens >= 0) close(h.listens);
    free(h.place);
    if (s < 0) fri_meet_close(m);
    return s;
}

void fri_meet_close(fri_meeting *m) {
    for (int i = 0; m->fd != NULL && i < m->size; i++)
        for (int kind = 0; kind < FRI_MEET_KINDS; kind++)
            if (m->fd[i][kind] >= 0) close(m->fd[i][kind]);
    free(m->fd);
    m->fd = NULL;
}
