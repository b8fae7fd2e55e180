/* capture.c - see capture.h. */
#include "tensor/capture.h"

#include "base/env.h"
#include "base/rng.h"
#include "base/status.h"
#include "memory/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 0, FIRST = 1, TURNS = 2, WHY = 1024 }; /* places; copies of them in page-locked memory, used in turn */

typedef struct number {
    const double *host;
    int64_t place;
} number;

typedef struct around {
    fri_capture_before *before;
    fri_capture_after *after;
    void *ctx;
} around;

typedef struct check {
    fr_readback bad;
    const char *op, *what;
    int64_t limit;
} check;

struct fr_capture {
    const fri_backend *backend;
    fr_tensor *memory; /* places of FR_READBACK_BYTES */
    int64_t places, used;
    char *pinned; /* the same, TURNS times */
    int turn;
    fri_fence copied; /* of the last replay's values */

    void **pieces;
    int n_pieces;
    fr_rng rng;     /* when the step began */
    uint64_t drawn; /* streams, by the step */
    number *numbers;
    around *arounds;
    check *checks;
    int n_numbers, n_arounds, n_checks;
    bool open; /* between begin and end */
};

bool fri_capturing(void) {
    return fri_here.capture != NULL;
}

/* ---- making -------------------------------------------------------------------------------------------------- */

static size_t bytes_of(int64_t places) {
    return (size_t)places * FR_READBACK_BYTES;
}

fr_status fr_capture_create(fr_device device, int64_t places, fr_capture **out) {
    void *pinned = NULL;
    FRI_OWNED(fr_capture_release) fr_capture *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "capture: out of host memory");
    c->backend = fri_backend_get(device);
    c->places = places + FIRST;
    fr_shape shape = FRI_SHAPE((int64_t)bytes_of(c->places));
    FRI_TRY(fri_tensor_new(&shape, FR_U8, device, FR_MEM_OTHER, &c->memory));
    if (c->backend->streams != NULL && c->backend->streams->host_alloc(TURNS * bytes_of(c->places), &pinned) < 0)
        return fr_fail(FR_ENOMEM, "capture: no page-locked host memory for the values of a recorded step");
    c->pinned = pinned;
    fr_capture_release(out);
    FRI_MOVE(out, c);
    return FR_OK;
}

void fr_capture_forget(fr_capture *c) {
    for (int i = 0; i < c->n_pieces; i++) c->backend->graphs->free(c->pieces[i]);
    free(c->pieces);
    free(c->numbers);
    free(c->arounds);
    free(c->checks);
    c->pieces = NULL;
    c->numbers = NULL;
    c->arounds = NULL;
    c->checks = NULL;
    c->n_pieces = c->n_numbers = c->n_arounds = c->n_checks = 0;
    c->used = FIRST;
}

void fr_capture_release(fr_capture **p) {
    fr_capture *c = *p;
    *p = NULL;
    if (c == NULL) return;
    fr_capture_forget(c);
    if (c->pinned != NULL) {
        fri_readback_check_drop(c->pinned, TURNS * bytes_of(c->places));
        c->backend->streams->host_free(c->pinned, TURNS * bytes_of(c->places));
    }
    fr_tensor_release(&c->memory);
    free(c);
}

/* ---- recording ----------------------------------------------------------------------------------------------- */

static fr_status record(fr_capture *c) {
    fr_status s = c->backend->graphs->begin();
    if (s == FR_OK) fri_here.capture = c;
    return s;
}

/* What was recorded since becomes a piece; without `keep` it goes. */
static fr_status stop(fr_capture *c, bool keep) {
    void *graph = NULL;
    fr_status s = c->backend->graphs->end(&graph);
    fri_here.capture = NULL;
    if (s < 0) return s;
    if (keep) s = FRI_ROOM(c->pieces, c->n_pieces, "capture");
    if (keep && s == FR_OK) {
        c->pieces[c->n_pieces++] = graph;
        return FR_OK;
    }
    c->backend->graphs->free(graph);
    return s;
}

const char *fr_capture_refused(void) {
    const fri_env *env = fri_env_get();
    return env->sync        ? "FRUGAL_SYNC waits after each launch"
           : env->check_nan ? "FRUGAL_CHECK_NAN looks at each result"
                            : "";
}

fr_status fr_capture_begin(fr_capture *c) {
    if (c->backend->graphs == NULL)
        return fr_fail(FR_EUNSUPPORTED, "capture: %s records nothing", fr_device_name(c->backend->device));
    fr_capture_forget(c);
    c->rng = fr_rng_get();
    FRI_TRY(record(c));
    c->open = true;
    fri_event_mute(true); /* what the step allocates now it allocates for good */
    return FR_OK;
}

fr_status fr_capture_pause(fr_capture *c) {
    return stop(c, true);
}

fr_status fr_capture_resume(fr_capture *c) {
    return record(c);
}

fr_status fr_capture_end(fr_capture *c, fr_status s) {
    if (!c->open) return s;
    if (fri_here.capture == c && s == FR_OK) {
        s = stop(c, true);
    } else if (fri_here.capture == c) {
        char why[WHY];
        snprintf(why, sizeof why, "%s", fr_last_error());
        (void)stop(c, false); /* fails, too, and knows less */
        s = fr_fail(s, "%s", why);
    }
    c->open = false;
    fri_event_mute(false);
    c->drawn = fr_rng_get().next_stream - c->rng.next_stream;
    fr_rng_set(c->rng);
    if (s < 0) fr_capture_forget(c);
    return s;
}

int fr_capture_pieces(const fr_capture *c) {
    return c->n_pieces;
}

/* ---- what a captured step is made of -------------------------------------------------------------------------- */

static void *place_of(const fr_capture *c, int64_t place) {
    return (char *)fri_data(c->memory) + bytes_of(place);
}

static fr_status take(fr_capture *c, int64_t *place) {
    if (c->used == c->places)
        return fr_fail(FR_EUNSUPPORTED, "capture: the step has more than %lld numbers of its own",
                       (long long)(c->places - FIRST));
    *place = c->used++;
    return FR_OK;
}

fr_status fri_capture_number(const double *host, const double **device) {
    fr_capture *c = fri_here.capture;
    *device = NULL;
    if (c == NULL) return FR_OK;
    for (int i = 0; i < c->n_numbers && *device == NULL; i++)
        if (c->numbers[i].host == host) *device = place_of(c, c->numbers[i].place);
    if (*device != NULL) return FR_OK;
    FRI_TRY(FRI_ROOM(c->numbers, c->n_numbers, "capture"));
    number *n = &c->numbers[c->n_numbers];
    *n = (number){.host = host};
    FRI_TRY(take(c, &n->place));
    c->n_numbers++;
    *device = place_of(c, n->place);
    return FR_OK;
}

const int64_t *fri_capture_draws(void) {
    return fri_here.capture != NULL ? place_of(fri_here.capture, DRAWS) : NULL;
}

fr_status fri_capture_around(fri_capture_before *before, fri_capture_after *after, void *ctx) {
    fr_capture *c = fri_here.capture;
    if (c == NULL) return FR_OK;
    for (int i = 0; i < c->n_arounds; i++)
        if (c->arounds[i].before == before && c->arounds[i].after == after && c->arounds[i].ctx == ctx) return FR_OK;
    fr_status s = FRI_ROOM(c->arounds, c->n_arounds, "capture");
    if (s == FR_OK) c->arounds[c->n_arounds++] = (around){before, after, ctx};
    return s;
}

fr_status fri_capture_value(const fr_tensor *t, fr_readback *r) {
    fr_capture *c = fri_here.capture;
    int64_t place = 0;
    FRI_TRY(take(c, &place));
    FRI_TRY(c->backend->streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_DEVICE, fri_data(t), place_of(c, place),
                                      fri_nbytes(t)));
    *r = (fr_readback){.dtype = t->dtype, .place = place};
    return FR_OK;
}

fr_status fri_capture_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit) {
    fr_capture *c = fri_here.capture;
    FRI_TRY(FRI_ROOM(c->checks, c->n_checks, "capture"));
    check *k = &c->checks[c->n_checks];
    *k = (check){.op = op, .what = what, .limit = limit};
    fr_status s = fri_capture_value(bad, &k->bad);
    if (s == FR_OK) c->n_checks++;
    return s;
}

/* ---- running again -------------------------------------------------------------------------------------------- */

fr_status fr_capture_replay_begin(fr_capture *c) {
    const fri_backend *b = c->backend;
    fr_rng now = fr_rng_get();
    if (now.seed != c->rng.seed)
        return fr_fail(FR_EUSAGE, "capture: the generator was seeded anew since the step was captured");
    double drawn = (double)(int64_t)(now.next_stream - c->rng.next_stream);
    if (c->drawn > 0) FRI_TRY(FRI_KERNEL(b, FR_I64, fill, (FRI_EXEC, FR_I64, 1, drawn, place_of(c, DRAWS))));
    for (int i = 0; i < c->n_numbers; i++)
        FRI_TRY(
            FRI_KERNEL(b, FR_F64, fill, (FRI_EXEC, FR_F64, 1, *c->numbers[i].host, place_of(c, c->numbers[i].place))));
    for (int i = 0; i < c->n_arounds; i++)
        if (c->arounds[i].before != NULL) FRI_TRY(c->arounds[i].before(c->arounds[i].ctx));
    return FR_OK;
}

fr_status fr_capture_replay_piece(fr_capture *c, int piece) {
    return c->backend->graphs->launch(c->pieces[piece]);
}

void fr_capture_readback(const fr_capture *c, const fr_readback *recorded, fr_readback *out) {
    fr_readback_drop(out);
    if (recorded->place == 0) return;
    *out = (fr_readback){.streams = c->backend->streams,
                         .fence = {(int)c->copied.stream, c->copied.number},
                         .pinned = c->pinned + bytes_of(c->turn * c->places + recorded->place),
                         .dtype = recorded->dtype,
                         .place = recorded->place};
}

fr_status fr_capture_replay_end(fr_capture *c) {
    const fri_streams *streams = c->backend->streams;
    fr_rng now = fr_rng_get();
    c->turn = (c->turn + 1) % TURNS;
    FRI_TRY(streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_HOST, place_of(c, 0),
                          c->pinned + bytes_of(c->turn * c->places), bytes_of(c->used)));
    FRI_TRY(streams->mark(FRI_STREAM_COMPUTE, &c->copied));
    now.next_stream += c->drawn;
    fr_rng_set(now);
    for (int i = 0; i < c->n_arounds; i++) c->arounds[i].after(c->arounds[i].ctx);
    for (int i = 0; i < c->n_checks; i++) {
        fr_readback bad = {0};
        fr_capture_readback(c, &c->checks[i].bad, &bad);
        FRI_TRY(fri_readback_check_begun(&bad, c->checks[i].op, c->checks[i].what, c->checks[i].limit));
    }
    return FR_OK;
}
