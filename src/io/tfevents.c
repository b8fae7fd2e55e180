/* tfevents.c - see tfevents.h. */
#include "io/tfevents.h"

#include "base/status.h"
#include "io/append.h"

#include <errno.h>
#include <fcntl.h>
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

uint32_t fri_crc32c(const void *data, size_t n) {
    const unsigned char *bytes = data;
    uint32_t crc = 0xffffffffu;
    /* Bit by bit: a record has some hundred bytes, once a step. */
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    }
    return ~crc;
}

/* TFRecord rotates and adds, so that the CRC of data with a CRC in them is not a special value. */
static uint32_t masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers -------------------------------------------------------------------------------------- */

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

static void put_scalar(message *summary, const fri_scalar *s) {
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

static fr_status put_record(fri_tfevents *t, const message *event) {
    message r = {.n = 0};
    put_fixed(&r, event->n, 8);
    put_fixed(&r, masked(fri_crc32c(r.bytes, 8)), 4);
    memcpy(r.bytes + r.n, event->bytes, event->n);
    r.n += event->n;
    put_fixed(&r, masked(fri_crc32c(event->bytes, event->n)), 4);
    return fri_append(t->fd, t->path, &t->bytes, r.bytes, r.n);
}

static fr_status put_first_records(fri_tfevents *t, int64_t purge_from) {
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

/* TensorBoard reads a folder's files in the order of their names, which begin with the time. */
static fr_status create(const char *folder, fri_tfevents *t) {
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

fr_status fri_tfevents_open(const char *folder, int64_t purge_from, fri_tfevents *out) {
    fri_tfevents t = {.fd = -1};
    fr_status s = create(folder, &t);
    if (s == FR_OK) s = put_first_records(&t, purge_from);
    if (s < 0)
        fri_tfevents_close(&t);
    else
        *out = t;
    return s;
}

void fri_tfevents_close(fri_tfevents *t) {
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    *t = (fri_tfevents){.fd = -1};
}

fr_status fri_tfevents_write(fri_tfevents *t, int64_t step, const fri_scalar *scalars, size_t n) {
    enum { FRAME = 64 }; /* keys, lengths and CRCs of one value, generously */
    message event, summary = {.n = 0};
    size_t bytes = FRAME;
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
