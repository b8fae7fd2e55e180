/* test_tcp.c - the engine over TCP, without a launcher: threads are the ranks. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/tcp.h"

enum { RANKS = 4, LARGE = 3000001, PIECES = 200 };

typedef struct rank {
    fri_launcher l;
    double seconds;
    void (*work)(struct rank *r);
    fr_engine engine;
    fr_status opened;
    char reason[512];
    void *of_test;
} rank;

static void *run(void *ctx) {
    rank *r = ctx;
    r->opened = fri_tcp_open(&r->l, r->seconds, &r->engine, r->reason, sizeof r->reason);
    if (r->opened == FR_OK && r->work != NULL) r->work(r);
    return NULL;
}

/* A port such that the one where rank 0 listens is free, and after it too; the caller holds the launcher's own. */
static int launcher_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 1) == 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    char text[16];
    snprintf(text, sizeof text, "%d", ntohs(a.sin_port));
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    return ntohs(a.sin_port);
}

static void start(rank *r, int n, void (*work)(rank *), double seconds) {
    pthread_t thread[RANKS];
    for (int i = 0; i < n; i++) {
        r[i].l = (fri_launcher){.name = "test", .rank = i, .size = n};
        r[i].work = work;
        r[i].seconds = seconds;
        pthread_create(&thread[i], NULL, run, &r[i]);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

/* ---- bytes arrive ------------------------------------------------------------------------------------------------ */

static unsigned char byte_of(int from, int to, size_t at) {
    return (unsigned char)((size_t)(31 * from + 7 * to) + at * 13 + at / 251);
}

/* Sizes of all kinds, of which many are 0: the same on both sides. */
static size_t size_of(int from, int to, int piece) {
    return piece % 3 == 0 ? 0 : piece == 7 ? LARGE : (size_t)(from * 100 + to * 10 + piece);
}

static void exchange_all(rank *r, int turn) {
    const int n = r->l.size, me = r->l.rank;
    fr_piece *out = calloc((size_t)n * PIECES, sizeof *out), *in = calloc((size_t)n * PIECES, sizeof *in);
    int first[RANKS + 1];
    bool late[RANKS] = {false};
    for (int i = 0; i <= n; i++) first[i] = i * PIECES;
    for (int i = 0; i < n * PIECES; i++) {
        const int peer = i / PIECES;
        const size_t sent = size_of(me, peer, i % PIECES), read = size_of(peer, me, i % PIECES);
        out[i] = (fr_piece){malloc(sent + 1), sent};
        in[i] = (fr_piece){calloc(read + 1, 1), read};
        for (size_t k = 0; k < out[i].bytes; k++)
            ((unsigned char *)out[i].data)[k] = byte_of(me, peer, k + (size_t)(turn + i % PIECES));
    }
    cr_assert_eq(r->engine.exchange(r->engine.ctx, (fr_pieces){out, first}, (fr_pieces){in, first},
                                    &(fr_wait){.seconds = 60, .late = late}),
                 FR_OK, "%s", r->engine.error(r->engine.ctx));
    for (int i = 0; i < n * PIECES; i++) {
        for (size_t k = 0; i / PIECES != me && k < in[i].bytes; k++)
            cr_assert_eq(((unsigned char *)in[i].data)[k], byte_of(i / PIECES, me, k + (size_t)(turn + i % PIECES)),
                         "rank %d: piece %d, byte %zu", me, i, k);
        free(out[i].data);
        free(in[i].data);
    }
    free(out);
    free(in);
}

static void exchange_and_close(rank *r) {
    for (int turn = 0; turn < 3; turn++) exchange_all(r, turn);
    if (r->l.rank == 1) usleep(300000); /* who is done first waits */
    r->engine.close(r->engine.ctx, false);
}

Test(tcp, pieces_of_all_sizes_arrive) {
    rank r[RANKS] = {0};
    launcher_port();
    start(r, RANKS, exchange_and_close, 30);
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(r[i].opened, FR_OK, "%s", r[i].reason);
        cr_assert_eq(r[i].engine.rank, i);
        cr_assert_eq(r[i].engine.size, RANKS);
    }
}

/* ---- who does not answer ----------------------------------------------------------------------------------------- */

static fr_status one_byte(rank *r, double seconds, bool late[RANKS]) {
    char byte = 1;
    fr_piece piece[RANKS];
    int first[RANKS + 1];
    for (int i = 0; i <= RANKS; i++) first[i] = i;
    for (int i = 0; i < RANKS; i++) piece[i] = (fr_piece){&byte, 1};
    return r->engine.exchange(r->engine.ctx, (fr_pieces){piece, first}, (fr_pieces){piece, first},
                              &(fr_wait){.seconds = seconds, .late = late});
}

static void third_is_late(rank *r) {
    bool late[RANKS] = {false};
    if (r->l.rank == 2) {
        sleep(2);
    } else {
        cr_assert_eq(one_byte(r, 0.5, late), FR_EPEER);
        for (int i = 0; i < RANKS; i++) cr_assert_eq(late[i], i == 2, "rank %d says rank %d is late", r->l.rank, i);
        sleep(2);
    }
    r->engine.close(r->engine.ctx, true);
}

Test(tcp, who_is_late_is_named) {
    rank r[RANKS] = {0};
    launcher_port();
    start(r, RANKS, third_is_late, 30);
}

static void third_leaves(rank *r) {
    bool late[RANKS] = {false};
    if (r->l.rank != 2) {
        cr_assert_eq(one_byte(r, 30, late), FR_EPEER);
        for (int i = 0; i < RANKS; i++) cr_assert_not(late[i]);
        cr_assert_str_eq(r->engine.error(r->engine.ctx), "rank 2 ended without a word: its connection is closed");
        sleep(1);
    }
    r->engine.close(r->engine.ctx, true);
}

Test(tcp, who_is_gone_is_named_at_once) {
    rank r[RANKS] = {0};
    const time_t began = time(NULL);
    launcher_port();
    start(r, RANKS, third_leaves, 30);
    cr_assert_lt(time(NULL) - began, 15);
}

static void third_says_goodbye(rank *r) {
    bool late[RANKS] = {false};
    if (r->l.rank == 2) {
        cr_assert_str_eq(r->engine.goodbye(r->engine.ctx, "the disk is full"), "rank 2 said so");
    } else {
        cr_assert_eq(one_byte(r, 30, late), FR_EPEER);
        const char *error = r->engine.error(r->engine.ctx); /* or of one that has heard it before */
        cr_assert(strcmp(error, "the disk is full") == 0 || strcmp(error, "rank 2 said so") == 0, "%s", error);
        cr_assert(r->engine.heard(r->engine.ctx));
        const char *heard = r->engine.goodbye(r->engine.ctx, "rank 2 said so");
        if (r->l.rank != 0) cr_assert_str_eq(heard, "rank 2 said so");
        cr_assert_str_eq(heard + 2 * FR_ENGINE_TEXT, "the disk is full");
    }
    sleep(1);
    r->engine.close(r->engine.ctx, true);
}

Test(tcp, a_goodbye_is_heard_by_all) {
    rank r[RANKS] = {0};
    launcher_port();
    start(r, RANKS, third_says_goodbye, 30);
}

static bool asked_twice(void *ctx) {
    return ++*(int *)ctx > 2;
}

static void wait_and_cancel(rank *r) {
    bool late[RANKS] = {false};
    int asked = 0;
    char byte = 0;
    fr_piece piece[2] = {{&byte, 1}, {&byte, 1}};
    const int first[] = {0, 1, 2};
    const fr_wait wait = {.seconds = 30, .cancelled = asked_twice, .ctx = &asked, .late = late};
    if (r->l.rank == 0) {
        cr_assert_eq(r->engine.exchange(r->engine.ctx, (fr_pieces){piece, first}, (fr_pieces){piece, first}, &wait),
                     FR_EPEER);
        cr_assert_str_eq(r->engine.error(r->engine.ctx), "the wait was ended");
    }
    sleep(1);
    r->engine.close(r->engine.ctx, true);
}

Test(tcp, a_wait_can_be_ended) {
    rank r[2] = {0};
    launcher_port();
    start(r, 2, wait_and_cancel, 30);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

/* What a rank says first, but of another version. */
typedef struct stranger {
    uint32_t magic;
    int32_t rank, size, kind, port;
    char job[64];
} stranger;

/* Connects to rank 0's port as soon as it is there. */
static void *intrude(void *ctx) {
    const int port = *(int *)ctx + 1000;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 400; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
            const stranger text = {.magic = 1, .rank = 1, .size = 3};
            (void)!send(fd, &text, sizeof text, MSG_NOSIGNAL);
            (void)!send(fd, &text.magic, sizeof text.magic, MSG_NOSIGNAL);
            usleep(50000);
            close(fd);
            return ctx;
        }
        close(fd);
        usleep(2000);
    }
    return NULL;
}

static void close_at_once(rank *r) {
    r->engine.close(r->engine.ctx, false);
}

Test(tcp, a_stranger_is_not_let_in) {
    rank r[3] = {0};
    int port = launcher_port();
    pthread_t thread, first;
    void *came = NULL;
    pthread_create(&thread, NULL, intrude, &port);
    for (int i = 0; i < 3; i++)
        r[i] = (rank){.l = {.name = "test", .rank = i, .size = 3}, .seconds = 30, .work = close_at_once};
    pthread_create(&first, NULL, run, &r[0]);
    pthread_join(thread, &came); /* the others come later */
    pthread_t other[2];
    for (int i = 0; i < 2; i++) pthread_create(&other[i], NULL, run, &r[i + 1]);
    for (int i = 0; i < 2; i++) pthread_join(other[i], NULL);
    pthread_join(first, NULL);
    cr_assert_not_null(came, "nobody listened");
    for (int i = 0; i < 3; i++) cr_assert_eq(r[i].opened, FR_OK, "rank %d: %s", i, r[i].reason);
}

static void *answer_anything(void *ctx) {
    const char text[] = "HTTP/1.1 400 Bad Request\r\n";
    int fd = accept(*(int *)ctx, NULL, NULL);
    (void)!send(fd, text, sizeof text, MSG_NOSIGNAL);
    usleep(500000);
    close(fd);
    return NULL;
}

/* Another program has the port: rank 0 takes the next, and nobody takes that program for rank 0. */
Test(tcp, a_port_that_is_taken_is_passed_over) {
    rank r[2] = {0};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(launcher_port() + 1000))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0);
    pthread_t thread;
    pthread_create(&thread, NULL, answer_anything, &fd);
    start(r, 2, close_at_once, 30);
    for (int i = 0; i < 2; i++) cr_assert_eq(r[i].opened, FR_OK, "rank %d: %s", i, r[i].reason);
    pthread_join(thread, NULL);
    close(fd);
}

Test(tcp, who_does_not_come_is_named) {
    rank r[1] = {{.l = {.name = "test", .rank = 0, .size = 3}, .seconds = 0.5}};
    launcher_port();
    run(&r[0]);
    cr_assert_eq(r[0].opened, FR_EPEER);
    cr_assert_str_eq(r[0].reason, "rank 1 has not come");
    r[0].l.rank = 2;
    run(&r[0]);
    cr_assert_eq(r[0].opened, FR_EPEER);
    cr_assert_not_null(strstr(r[0].reason, "rank 0 does not answer at 127.0.0.1, ports "), "%s", r[0].reason);
    setenv("MASTER_PORT", "many", 1);
    run(&r[0]);
    cr_assert_eq(r[0].opened, FR_EUSAGE);
    cr_assert_str_eq(r[0].reason, "MASTER_ADDR and MASTER_PORT are '127.0.0.1' and 'many': a host and a port are "
                                  "expected");
}

Test(tcp, a_rank_of_another_run_is_not_let_in) {
    rank r[2] = {{.l = {.name = "test", .rank = 0, .size = 2}, .seconds = 2},
                 {.l = {.name = "test", .rank = 1, .size = 2}, .seconds = 1}};
    int status = 0;
    launcher_port();
    pid_t child = fork();
    if (child == 0) {
        setenv("TORCHELASTIC_RUN_ID", "another", 1);
        run(&r[1]);
        _exit(r[1].opened == FR_EPEER ? 0 : 1);
    }
    run(&r[0]);
    cr_assert_eq(r[0].opened, FR_EPEER);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}
