/* source.c - see source.h. */
#include "data/source.h"

#include "base/atomic_file.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Deflate expands at most 1032 times: 258 bytes from two bits. */
#define INFLATE_MAX 1032u

/* Makes sure that avail_in > 0, unless at the end of the source. */
static fr_status refill_buffer(fri_source *s) {
    if (s->z.avail_in > 0 || s->fd < 0) return FR_OK;
    ssize_t n = 0;
    do n = read(s->fd, s->chunk, sizeof s->chunk);
    while (n < 0 && errno == EINTR);
    if (n < 0) return fr_fail(FR_EIO, "%s: cannot be read: %s", s->name, strerror(errno));
    s->z.next_in = s->chunk;
    s->z.avail_in = (uInt)n;
    return FR_OK;
}

static fr_status start_inflate(fri_source *s) {
    fr_status status = refill_buffer(s);
    if (status != FR_OK) return status;
    s->gzip = s->z.avail_in >= 2 && s->z.next_in[0] == 0x1f && s->z.next_in[1] == 0x8b;
    if (!s->gzip) return FR_OK;
    if (inflateInit2(&s->z, 15 + 16) != Z_OK) return fr_fail(FR_ENOMEM, "%s: no memory to inflate", s->name);
    s->inflating = true;
    return FR_OK;
}

fr_status fri_source_open_file(fri_source *s, const char *path) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->name = path;
    fr_status status = fr_file_open(path, &s->fd, &s->stored);
    if (status < 0) return fr_fail_prefix(status, "%s: ", path);
    status = start_inflate(s);
    if (status != FR_OK) fri_source_close(s);
    return status;
}

fr_status fri_source_open_memory(fri_source *s, const char *name, const void *bytes, size_t n) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->name = name;
    s->stored = n;
    if (n > UINT32_MAX) return fr_fail(FR_EINVAL, "%s: %zu bytes in memory, the limit is 4 GiB", name, n);
    s->z.next_in = (Bytef *)(uintptr_t)bytes; /* zlib only reads the input */
    s->z.avail_in = (uInt)n;
    fr_status status = start_inflate(s);
    if (status != FR_OK) fri_source_close(s);
    return status;
}

void fri_source_close(fri_source *s) {
    if (s->inflating) inflateEnd(&s->z);
    if (s->fd >= 0) close(s->fd);
    s->inflating = false;
    s->fd = -1;
}

fr_status fri_source_expect(const fri_source *s, uint64_t bytes, const char *what) {
    uint64_t most = s->stored;
    if (s->gzip && __builtin_mul_overflow(most, (uint64_t)INFLATE_MAX, &most)) most = UINT64_MAX;
    if (most >= s->delivered && bytes <= most - s->delivered) return FR_OK;
    return fr_fail(FR_EFORMAT, "%s: its header promises %s, %llu bytes, but a %s of %llu bytes cannot hold them",
                   s->name, what, (unsigned long long)bytes, s->gzip ? "gzip file" : "file",
                   (unsigned long long)s->stored);
}

/* Up to n bytes, fewer only at the end. */
static fr_status read_some(fri_source *s, void *to, size_t n, size_t *got) {
    uint8_t *at = to;
    size_t left = n;
    while (left > 0 && !s->at_end) {
        fr_status status = refill_buffer(s);
        if (status != FR_OK) return status;
        if (!s->gzip) {
            size_t k = left < s->z.avail_in ? left : s->z.avail_in;
            if (k == 0) break;
            memcpy(at, s->z.next_in, k);
            s->z.next_in += k;
            s->z.avail_in -= (uInt)k;
            at += k;
            left -= k;
            continue;
        }
        if (s->z.avail_in == 0)
            return fr_fail(FR_EFORMAT, "%s: the gzip stream breaks off after %llu bytes", s->name,
                           (unsigned long long)(s->delivered + (n - left)));
        uInt room = left < (1u << 30) ? (uInt)left : 1u << 30;
        s->z.next_out = at;
        s->z.avail_out = room;
        int z = inflate(&s->z, Z_NO_FLUSH);
        at += room - s->z.avail_out;
        left -= room - s->z.avail_out;
        if (z == Z_STREAM_END) {
            /* A gzip file may consist of several members. */
            status = refill_buffer(s);
            if (status != FR_OK) return status;
            if (s->z.avail_in == 0)
                s->at_end = true;
            else
                inflateReset(&s->z);
        } else if (z == Z_MEM_ERROR) {
            return fr_fail(FR_ENOMEM, "%s: no memory to inflate", s->name);
        } else if (z != Z_OK && z != Z_BUF_ERROR) {
            return fr_fail(FR_EFORMAT, "%s: broken gzip stream after %llu bytes: %s", s->name,
                           (unsigned long long)(s->delivered + (n - left)),
                           s->z.msg != NULL ? s->z.msg : "not a deflate stream");
        }
    }
    *got = n - left;
    s->delivered += *got;
    return FR_OK;
}

fr_status fri_source_read(fri_source *s, void *to, size_t n) {
    size_t got = 0;
    uint64_t before = s->delivered;
    fr_status status = read_some(s, to, n, &got);
    if (status == FR_OK && got != n)
        return fr_fail(FR_EFORMAT, "%s: is truncated: it ends after %llu bytes and should have at least %llu", s->name,
                       (unsigned long long)s->delivered, (unsigned long long)(before + n));
    return status;
}

fr_status fri_source_end(fri_source *s) {
    uint8_t extra;
    size_t got = 0;
    uint64_t before = s->delivered;
    fr_status status = read_some(s, &extra, 1, &got);
    if (status == FR_OK && got != 0)
        return fr_fail(FR_EFORMAT, "%s: is longer than the %llu bytes that its header promises", s->name,
                       (unsigned long long)before);
    return status;
}
