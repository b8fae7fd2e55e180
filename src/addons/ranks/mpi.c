/* mpi.c - the engine on MPI (fr_engine in frugal/ranks.h): point-to-point messages, waited for by asking.
 *
 * MPI's waits spin, and never end if a rank is gone. So every message is nonblocking; the wait polls with naps, and
 * checks the clock and farewell messages: a receive is posted for each peer's farewell. Built once per MPI, because
 * binary interfaces differ. */
#include <frugal/ranks.h>

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG = 1, SPINS = 200, NAP_LEAST = 20000, NAP_MOST = 200000, NAP_LAST = 100000000 }; /* nanoseconds */
/* Larger pieces are separate messages, because MPI copies large memory only once, from process to process. */
enum { LARGE = 65536 };
#define FAREWELL_SECONDS 2.0

typedef struct message {
    int peer;
    MPI_Datatype type; /* of many pieces; else MPI_DATATYPE_NULL */
} message;

typedef struct engine {
    MPI_Comm data, bye; /* messages of the two kinds never meet */
    int rank, size;
    message *message;     /* [room]: messages of a running exchange */
    MPI_Request *request; /* [room]: statuses */
    MPI_Status *status;   /* [room] */
    int n;
    size_t room;
    MPI_Request *receives; /* [size]: for farewells */
    char (*farewell)[FR_ENGINE_TEXT];
    char error[FR_ENGINE_TEXT];
} engine;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first polls are immediate, later polls leave the core to other work. */
static void poll_pause(int turn) {
    if (turn < SPINS) {
        sched_yield();
        return;
    }
    long ns = NAP_LEAST + (long)(turn - SPINS) * 1000;
    struct timespec t = {0, ns < NAP_MOST ? ns : NAP_MOST};
    nanosleep(&t, NULL);
}

static fr_status fail_call(engine *e, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    text[strcspn(text, "\n")] = '\0';
    snprintf(e->error, sizeof e->error, "%s failed: %s", call, text);
    return FR_ELIBRARY;
}

/* ---- farewells -------------------------------------------------------------------------------------------------- */

/* Completes arrived farewells. Returns a rank with a farewell, or -1. */
static int poll_farewells(engine *e) {
    int from = -1;
    for (int i = 0; i < e->size; i++) {
        int done = 0;
        if (e->receives[i] != MPI_REQUEST_NULL && MPI_Test(&e->receives[i], &done, &e->status[0]) == MPI_SUCCESS &&
            done)
            e->farewell[i][FR_ENGINE_TEXT - 1] = '\0';
        if (from < 0 && e->farewell[i][0] != '\0') from = i;
    }
    return from;
}

static const char *mpi_shutdown(void *ctx, const char *why) {
    engine *e = ctx;
    char(*text)[FR_ENGINE_TEXT] = calloc(1, sizeof *text);
    double until = seconds_now() + FAREWELL_SECONDS;
    int left = 1;
    if (text == NULL) return e->farewell[0];
    snprintf(*text, sizeof *text, "%s", why[0] != '\0' ? why : "it ended");
    for (int i = 0; i < e->size; i++) /* the text stays, because no wait covers the sends */
        if (i != e->rank) {
            MPI_Request sent;
            if (MPI_Isend(*text, FR_ENGINE_TEXT, MPI_CHAR, i, TAG, e->bye, &sent) == MPI_SUCCESS)
                MPI_Request_free(&sent);
        }
    for (int turn = 0; left > 0 && seconds_now() < until; turn++) {
        poll_farewells(e);
        left = 0;
        for (int i = 0; i < e->size; i++) left += i != e->rank && e->farewell[i][0] == '\0';
        poll_pause(turn);
    }
    return e->farewell[0];
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static fr_status stop_waiting(engine *e, const fr_wait *w, const char *why) {
    for (int i = 0; i < e->n && why == NULL; i++) {
        int done = 1;
        if (e->request[i] != MPI_REQUEST_NULL) MPI_Request_get_status(e->request[i], &done, &e->status[0]);
        if (!done) w->late[e->message[i].peer] = true;
    }
    snprintf(e->error, sizeof e->error, "%s", why != NULL ? why : "");
    return FR_EPEER;
}

static fr_status wait_for_requests(engine *e, const fr_wait *w) {
    double began = seconds_now();
    for (int turn = 0;; turn++) {
        int done = 0;
        int code = MPI_Testall(e->n, e->request, &done, e->status);
        if (code != MPI_SUCCESS) return fail_call(e, "MPI_Testall", code);
        if (done) return FR_OK;
        int gone = poll_farewells(e);
        if (gone >= 0) return stop_waiting(e, w, e->farewell[gone]);
        if (w->cancelled != NULL && w->cancelled(w->ctx)) return stop_waiting(e, w, "the wait was ended");
        if (seconds_now() - began > w->seconds) return stop_waiting(e, w, NULL);
        poll_pause(turn);
    }
}

/* ---- exchange -------------------------------------------------------------------------------------------------- */

static bool is_large(const fr_piece *p) {
    return p->bytes >= LARGE;
}

/* The remaining pieces as a single MPI type, without a copy. None: MPI_DATATYPE_NULL. */
static int describe(const fr_piece *piece, int n, MPI_Datatype *type) {
    MPI_Aint *place = malloc((size_t)n * sizeof *place);
    int *length = malloc((size_t)n * sizeof *length), code = MPI_ERR_NO_MEM, small = 0;
    *type = MPI_DATATYPE_NULL;
    if (place != NULL && length != NULL) {
        for (int i = 0; i < n; i++) {
            if (piece[i].bytes == 0 || is_large(&piece[i])) continue;
            MPI_Get_address(piece[i].data, &place[small]);
            length[small++] = (int)piece[i].bytes;
        }
        code = small > 0 ? MPI_Type_create_hindexed(small, length, place, MPI_BYTE, type) : MPI_SUCCESS;
        if (code == MPI_SUCCESS && small > 0) code = MPI_Type_commit(type);
    }
    free(place);
    free(length);
    return code;
}

static int post_message(engine *e, void *data, int count, MPI_Datatype type, int peer, bool out) {
    MPI_Request *r = &e->request[e->n];
    int code =
        out ? MPI_Isend(data, count, type, peer, TAG, e->data, r) : MPI_Irecv(data, count, type, peer, TAG, e->data, r);
    e->message[e->n++] = (message){peer, type != MPI_BYTE ? type : MPI_DATATYPE_NULL};
    return code;
}

/* Both sides have pieces of equal sizes, and so equal messages. */
static int begin_pieces(engine *e, fr_pieces p, int peer, bool out) {
    const fr_piece *piece = &p.piece[p.first[peer]];
    const int n = p.first[peer + 1] - p.first[peer];
    MPI_Datatype small;
    int code = MPI_SUCCESS;
    if (peer == e->rank || n <= 0) return code;
    for (int i = 0; i < n && code == MPI_SUCCESS; i++)
        if (is_large(&piece[i])) code = post_message(e, piece[i].data, (int)piece[i].bytes, MPI_BYTE, peer, out);
    if (code == MPI_SUCCESS) code = describe(piece, n, &small);
    return code == MPI_SUCCESS && small != MPI_DATATYPE_NULL ? post_message(e, MPI_BOTTOM, 1, small, peer, out) : code;
}

static bool make_messages(engine *e, size_t n) {
    if (n <= e->room) return true;
    message *m = realloc(e->message, n * sizeof *m);
    if (m != NULL) e->message = m;
    MPI_Request *r = realloc(e->request, n * sizeof(MPI_Request));
    if (r != NULL) e->request = r;
    MPI_Status *s = realloc(e->status, n * sizeof *s);
    if (s != NULL) e->status = s;
    if (m != NULL && r != NULL && s != NULL) e->room = n;
    return n <= e->room;
}

static fr_status mpi_exchange(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *w) {
    engine *e = ctx;
    const int most = out.first[e->size] + in.first[e->size] + 2 * e->size;
    int code = make_messages(e, (size_t)most) ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    e->n = 0;
    for (int i = 1; i < e->size && code == MPI_SUCCESS; i++) /* from different ranks at a time */
        code = begin_pieces(e, in, (e->rank + e->size - i) % e->size, false);
    for (int i = 1; i < e->size && code == MPI_SUCCESS; i++) code = begin_pieces(e, out, (e->rank + i) % e->size, true);
    fr_status s = code == MPI_SUCCESS ? wait_for_requests(e, w) : fail_call(e, "sending", code);
    for (int i = 0; i < e->n; i++)
        if (e->message[i].type != MPI_DATATYPE_NULL) MPI_Type_free(&e->message[i].type);
    return s;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static const char *mpi_error(const void *ctx) {
    return ((const engine *)ctx)->error;
}

static bool peer_left(void *ctx) {
    engine *e = ctx;
    const int gone = poll_farewells(e);
    if (gone >= 0) snprintf(e->error, sizeof e->error, "%s", e->farewell[gone]);
    return gone >= 0;
}

/* No rank answers between the barrier and MPI_Finalize. In MPI_Finalize, MPICH 4.0 on TCP asks all peers, then waits
 * for the launcher without answering: a rank that asks later waits forever. The nap is longer than the ranks' way out
 * of the barrier. */
static void leave_together(engine *e) {
    MPI_Request all;
    int done = 0;
    if (MPI_Ibarrier(e->data, &all) != MPI_SUCCESS) return;
    for (int turn = 0; done == 0; turn++) {
        if (MPI_Test(&all, &done, &e->status[0]) != MPI_SUCCESS) return;
        if (done == 0) poll_pause(turn);
    }
    struct timespec t = {0, NAP_LAST};
    nanosleep(&t, NULL);
}

/* MPI_Finalize of a broken run would wait for missing ranks, so the process ends without the call. */
static void close_engine(void *ctx, bool broken) {
    engine *e = ctx;
    if (broken) return;
    for (int i = 0; i < e->size; i++)
        if (e->receives[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&e->receives[i]);
            MPI_Wait(&e->receives[i], &e->status[0]);
        }
    leave_together(e);
    MPI_Comm_free(&e->data);
    MPI_Comm_free(&e->bye);
    MPI_Finalize();
    free(e->message);
    free(e->request);
    free(e->status);
    free(e->receives);
    free(e->farewell);
    free(e);
}

static bool make_room(engine *e) {
    const size_t n = (size_t)e->size;
    e->receives = malloc(n * sizeof *e->receives);
    e->farewell = calloc(n, sizeof *e->farewell);
    return e->receives != NULL && e->farewell != NULL && make_messages(e, 1);
}

static int mpi_start(engine *e) {
    int provided = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS) return code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &e->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &e->size);
    if (!make_room(e)) return MPI_ERR_NO_MEM;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &e->data);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &e->bye);
    for (int i = 0; i < e->size && code == MPI_SUCCESS; i++) {
        e->receives[i] = MPI_REQUEST_NULL;
        if (i != e->rank) code = MPI_Irecv(e->farewell[i], FR_ENGINE_TEXT, MPI_CHAR, i, TAG, e->bye, &e->receives[i]);
    }
    return code == MPI_SUCCESS && provided < MPI_THREAD_SERIALIZED ? MPI_ERR_OTHER : code;
}

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2 ..." become a name and a number. */
static void name_library(char name[FR_ENGINE_NAME]) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "", number[16] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const char *digit = strpbrk(text, "0123456789");
    if (digit != NULL) sscanf(digit, "%15[0-9.]", number);
    snprintf(name, FR_ENGINE_NAME, "%s %s", strncmp(text, "Open MPI", 8) == 0 ? "Open MPI" : "MPICH", number);
}

FR_API fr_engine_open_fn fr_engine_open;
fr_status fr_engine_open(int version, fr_engine *out, char *reason, size_t bytes) {
    engine *e = NULL;
    int code = MPI_SUCCESS;
    if (version != FR_ENGINE_VERSION) {
        snprintf(reason, bytes, "it is of version %d of the interface, the program asks for %d", FR_ENGINE_VERSION,
                 version);
        return FR_EUNSUPPORTED;
    }
    e = calloc(1, sizeof *e);
    code = e != NULL ? mpi_start(e) : MPI_ERR_NO_MEM;
    if (code != MPI_SUCCESS) {
        snprintf(reason, bytes, "MPI cannot be initialized (error %d)", code);
        return FR_ELIBRARY;
    }
    *out = (fr_engine){.rank = e->rank,
                       .size = e->size,
                       .exchange = mpi_exchange,
                       .shutdown = mpi_shutdown,
                       .error = mpi_error,
                       .peer_left = peer_left,
                       .close = close_engine,
                       .ctx = e};
    name_library(out->name);
    return FR_OK;
}
