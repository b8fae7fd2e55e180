/* readback.c - small values copied from the device to the host; see readback.h. */
#include "tensor/readback.h"

#include "base/status.h"
#include "meta/meta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- places in page-locked memory --------------------------------------------------------------------------- */

enum { CHUNK_PLACES = 128 };

typedef struct place {
    struct place *next; /* list of free places */
    void *pinned;
} place;

/* Places are kept until the process ends, because page-locking is slow. */
static _Thread_local place *free_places, *spent; /* spent: without memory, to be used again */
static _Thread_local const fri_streams *owner;

static fr_status more_places(const fri_streams *streams) {
    void *memory = NULL;
    place *p = calloc(CHUNK_PLACES, sizeof *p);
    if (p == NULL || streams->host_alloc((size_t)CHUNK_PLACES * FR_READBACK_BYTES, &memory) < 0) {
        free(p);
        return fr_fail(FR_ENOMEM, "no page-locked host memory for values that come back from the device");
    }
    for (int i = 0; i < CHUNK_PLACES; i++) {
        p[i] = (place){free_places, (char *)memory + (size_t)i * FR_READBACK_BYTES};
        free_places = &p[i];
    }
    return FR_OK;
}

static fr_status take_buffer(const fri_streams *streams, void **out) {
    fr_status s = FR_OK;
    if (owner != streams) free_places = NULL;
    owner = streams;
    if (free_places == NULL && (s = more_places(streams)) < 0) return s;
    place *p = free_places;
    free_places = p->next;
    *out = p->pinned;
    p->next = spent;
    spent = p;
    return FR_OK;
}

/* Frees a place. A pending copy into the place runs before the next copy in the queue. */
static void free_place(void *pinned) {
    place *p = spent;
    spent = p->next;
    *p = (place){free_places, pinned};
    free_places = p;
}

/* ---- values ------------------------------------------------------------------------------------------------- */

static fri_fence fence_of(const fri_readback *r) {
    return (fri_fence){(fri_stream_id)r->fence.stream, r->fence.number};
}

fr_status fri_readback_begin(const fr_tensor *t, fri_readback *r) {
    FRI_NOT_NULL(t, r);
    const fri_backend *b = fri_backend_of(t);
    fri_fence fence;
    size_t bytes = fri_nbytes(t);
    fr_status s = FR_OK;
    if (bytes > FR_READBACK_BYTES)
        return fr_fail(FR_EINTERNAL, "readback: a value of %zu bytes, more than %d", bytes, FR_READBACK_BYTES);
    fri_readback_drop(r);
    r->dtype = t->dtype;
    if (b->device == FR_META) {
        double none = NAN;
        r->dtype = FR_F64;
        memcpy(r->bytes, &none, sizeof none);
        return FR_OK;
    }
    if (b->streams == NULL) return fr_tensor_to_host(t, r->bytes);
    FR_TRY(s, take_buffer(b->streams, &r->pinned));
    r->streams = b->streams;
    FR_TRY(s, b->streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_HOST, fri_data(t), r->pinned, bytes));
    FR_TRY(s, b->streams->mark(FRI_STREAM_COMPUTE, &fence));
    r->fence.stream = (int)fence.stream;
    r->fence.number = fence.number;
done:
    if (s < 0) fri_readback_drop(r);
    return s;
}

bool fri_readback_arrived(const fri_readback *r) {
    return r->streams == NULL || r->streams->passed(fence_of(r));
}

fr_status fri_readback_wait(fri_readback *r) {
    if (r->streams == NULL) return FR_OK;
    fr_status s = r->streams->wait(fence_of(r));
    if (s == FR_OK) memcpy(r->bytes, r->pinned, FR_READBACK_BYTES);
    fri_readback_drop(r);
    return s;
}

fr_status fri_readback_value(fri_readback *r, double *value) {
    FRI_NOT_NULL(r, value);
    fr_status s = fri_readback_wait(r);
    if (s == FR_OK) *value = fri_element(r->dtype, r->bytes, 0);
    return s;
}

void fri_readback_drop(fri_readback *r) {
    if (r == NULL) return;
    if (r->streams != NULL) free_place(r->pinned);
    r->streams = NULL;
    r->pinned = NULL;
}

/* ---- positions; -1 is right ---------------------------------------------------------------------------- */

enum { CHECKS = 64 };

typedef struct late_check {
    fri_readback position;
    const char *op, *what;
    int64_t limit;
} late_check;

static _Thread_local late_check checks[CHECKS];
static _Thread_local size_t first_check, n_checks;

/* Waits for the oldest check and removes the check from the list. */
static fr_status finish_oldest(void) {
    late_check *c = &checks[first_check];
    double at = -1;
    first_check = (first_check + 1) % CHECKS;
    n_checks--;
    fr_status s = fri_readback_value(&c->position, &at);
    if (s < 0 || !(at >= 0)) return s;
    return fr_fail(FR_EINVAL, "%s: %s %lld is outside 0..%lld (some steps ago: the device was still at work)", c->op,
                   c->what, (long long)at, (long long)c->limit);
}

fr_status fri_readback_check(const fr_tensor *bad, const char *op, const char *what, int64_t limit) {
    fri_readback begun = {0};
    fr_status s = fri_readback_begin(bad, &begun);
    if (s == FR_OK && n_checks == CHECKS) s = finish_oldest();
    if (s < 0) {
        fri_readback_drop(&begun);
        return s;
    }
    checks[(first_check + n_checks++) % CHECKS] =
        (late_check){.position = begun, .op = op, .what = what, .limit = limit};
    return FR_OK;
}

fr_status fri_readback_check_all(void) {
    fr_status s = FR_OK;
    while (s == FR_OK && n_checks > 0 && fri_readback_arrived(&checks[first_check].position)) s = finish_oldest();
    return s;
}
