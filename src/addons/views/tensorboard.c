/* tensorboard.c - TensorBoard's event files.
 *
 *   record   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data     (TFRecord)
 *   data     an Event (tensorflow/core/util/event.proto): wall_time = 1, step = 2, file_version = 3, summary = 5,
 *            session_log = 7; a Summary's value = 1 with tag = 1, simple_value = 2
 *
 * A record is written by a single call; a failed record is cut off. */
#include "addons/views/files.h"

#include <frugal/files.h>
#include <frugal/views.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_NAMES = 100, /* tried before giving up */
    EVENT_BYTES = 4096,
    TAG_BYTES_MAX = 512,
    PURGE_START = 1, /* SessionLog.START */
};

/* ---- CRC-32C ----------------------------------------------------------------------------------------------- */

#define POLYNOMIAL 0x82f63b78u /* Castagnoli's, bits reversed */

static uint32_t crc32c(const void *data, size_t n) {
    const unsigned char *bytes = data;
    uint32_t crc = 0xffffffffu;
    /* Bit by bit: a record has some hundred bytes, once a step. */
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    }
    return ~crc;
}

/* TFRecord rotates and adds, so the CRC of data with a CRC is no special value. */
static uint32_t mask_crc(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers -------------------------------------------------------------------------------------- */

typedef struct scalar {
    const char *tag;
    double value; /* kept as f32 */
} scalar;

typedef struct message {
    unsigned char bytes[EVENT_BYTES];
    size_t n;
} message;

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) m->bytes[m->n++] = (unsigned char)(value | 0x80);
    m->bytes[m->n++] = (unsigned char)value;
}

static void put_key(message *m, unsigned field, unsigned kind) {
    put_varint(m, field << 3 | kind);
}

static void put_fixed(message *m, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) m->bytes[m->n++] = (unsigned char)(value >> 8 * i);
}

static void put_bytes(message *m, unsigned field, const void *data, size_t n) {
    put_key(m, field, LENGTH);
    put_varint(m, n);
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

static void begin_event(message *m, int64_t step) {
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    m->n = 0;
    put_key(m, 1, FIXED64);
    put_fixed(m, bits, 8);
    put_key(m, 2, VARINT);
    put_varint(m, (uint64_t)step);
}

static void put_scalar(message *summary, const scalar *s) {
    message value = {.n = 0};
    float f = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    put_bytes(&value, 1, s->tag, strlen(s->tag));
    put_key(&value, 2, FIXED32);
    put_fixed(&value, bits, 4);
    put_bytes(summary, 1, value.bytes, value.n);
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static fr_status put_record(fr_tensorboard *t, const message *event) {
    message r = {.n = 0};
    put_fixed(&r, event->n, 8);
    put_fixed(&r, mask_crc(crc32c(r.bytes, 8)), 4);
    memcpy(r.bytes + r.n, event->bytes, event->n);
    r.n += event->n;
    put_fixed(&r, mask_crc(crc32c(event->bytes, event->n)), 4);
    return fr_append(t->fd, t->path, &t->bytes, r.bytes, r.n);
}

static fr_status put_first_records(fr_tensorboard *t, int64_t purge_from) {
    static const char version[] = "brain.Event:2";
    message event;
    begin_event(&event, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    fr_status s = put_record(t, &event);
    if (s < 0 || purge_from < 0) return s;
    const unsigned char start[2] = {1 << 3 | VARINT, PURGE_START};
    begin_event(&event, purge_from);
    put_bytes(&event, 7, start, sizeof start);
    return put_record(t, &event);
}

/* TensorBoard reads a folder's files in the order of names, so names begin with the time. */
static fr_status create_file(const char *folder, fr_tensorboard *t) {
    char host[64] = "localhost";
    size_t room = strlen(folder) + 256;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fr_fail(FR_EIO, "the folder '%.300s' cannot be made: %s", folder, strerror(errno));
    if (gethostname(host, sizeof host) != 0 || strchr(host, '/') != NULL) snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = '\0';
    t->path = malloc(room);
    if (t->path == NULL) return fr_fail(FR_ENOMEM, "no host memory for a file name");
    for (int i = 0; i < FILE_NAMES; i++) {
        snprintf(t->path, room, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)time(NULL), host,
                 (long)getpid(), i);
        t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (t->fd >= 0) return FR_OK;
        if (errno != EEXIST) break;
    }
    return fr_fail(FR_EIO, "the event file '%.400s' cannot be created: %s", t->path, strerror(errno));
}

fr_status fr_tensorboard_open(const char *folder, int64_t resume, fr_tensorboard *out) {
    FRI_NOT_NULL(folder, out);
    fr_tensorboard t = {.fd = -1};
    fr_status s = create_file(folder, &t);
    if (s == FR_OK) s = put_first_records(&t, resume >= 0 ? resume + 1 : -1);
    if (s < 0)
        fr_tensorboard_close(&t);
    else
        *out = t;
    return s;
}

void fr_tensorboard_close(fr_tensorboard *t) {
    if (t == NULL) return;
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    *t = (fr_tensorboard){.fd = -1};
}

static fr_status put_scalars(fr_tensorboard *t, int64_t step, const scalar *scalars, size_t n) {
    enum { FRAME = 64 }; /* keys, lengths and CRCs of a value, generously */
    message event, summary = {.n = 0};
    size_t bytes = FRAME;
    if (step < 0) return fr_fail(FR_EINVAL, "TensorBoard: step %lld must not be negative", (long long)step);
    for (size_t i = 0; i < n; i++) {
        size_t tag = strlen(scalars[i].tag);
        bytes += tag + FRAME;
        if (tag > TAG_BYTES_MAX || bytes > EVENT_BYTES)
            return fr_fail(FR_EINVAL, "the tag '%.60s' of %zu bytes is too long: at most %d, and %d for all of a step",
                           scalars[i].tag, tag, TAG_BYTES_MAX, EVENT_BYTES);
        put_scalar(&summary, &scalars[i]);
    }
    begin_event(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    return put_record(t, &event);
}

fr_status fr_tensorboard_step(fr_tensorboard *t, const fr_log_step *step) {
    FRI_NOT_NULL(t, step);
    const scalar scalars[] = {
        {"train/loss", step->loss},
        {"train/lr", step->lr},
        {"train/loss_scale", step->scale},
        {"train/skipped", step->skipped},
        {"train/images_per_second", step->images_per_second},
        {"memory/allocated", (double)step->allocated},
        {"memory/peak", (double)step->peak},
    };
    return put_scalars(t, step->step, scalars, sizeof scalars / sizeof *scalars);
}

fr_status fr_tensorboard_scalar(fr_tensorboard *t, const char *tag, int64_t step, double value) {
    FRI_NOT_NULL(t, tag);
    return put_scalars(t, step, &(scalar){tag, value}, 1);
}
