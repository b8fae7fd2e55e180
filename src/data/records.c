/* records.c - see unstable/records.h. */
#include <frugal/unstable/records.h>

#include "base/atomic_file.h"
#include "base/cache.h"
#include "base/status.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char magic[16] = "frugal records 1";

typedef struct header {
    char magic[16];
    uint64_t made_by, count, bytes;
    uint32_t crc, header_crc; /* of the records; of what stands before it */
    uint8_t zero[16];
} header;
_Static_assert(sizeof(header) == 64, "the file's layout");

struct fr_records {
    fr_records_opts opts;
    char *path;
    int64_t held; /* so many were appended */
    bool complete;
    fr_tensor *memory;
    uint8_t *data; /* of the tensor, or of the mapping */
    void *mapped;
    fr_atomic_file file;
    uint32_t crc;
};

uint64_t fr_records_hash(uint64_t from, const void *bytes, size_t n) {
    return fri_hash(from, bytes, n);
}

static size_t all_bytes(const fr_records *r) {
    return (size_t)r->opts.count * r->opts.bytes;
}

static uint32_t crc_of(uint32_t from, const void *data, size_t bytes) {
    return (uint32_t)crc32_z(from, data, bytes);
}

static header header_of(const fr_records *r) {
    header h = {.made_by = r->opts.made_by, .count = (uint64_t)r->opts.count, .bytes = r->opts.bytes, .crc = r->crc};
    memcpy(h.magic, magic, sizeof magic);
    h.header_crc = crc_of(0, &h, offsetof(header, header_crc));
    return h;
}

/* ---- a file that is there ------------------------------------------------------------------------------------ */

static fr_status check(const fr_records *r, const header *h, uint64_t bytes) {
    static const uint8_t zero[sizeof h->zero] = {0};
    if (memcmp(h->magic, magic, sizeof magic) != 0) return fr_fail(FR_EFORMAT, "is no file of records");
    if (h->header_crc != crc_of(0, h, offsetof(header, header_crc)) || memcmp(h->zero, zero, sizeof zero) != 0)
        return fr_fail(FR_EFORMAT, "is damaged: its header does not have its checksum");
    if (h->made_by != r->opts.made_by || h->count != (uint64_t)r->opts.count || h->bytes != r->opts.bytes)
        return fr_fail(FR_EINVAL,
                       "holds %" PRIu64 " records of %" PRIu64 " bytes that another network, other weights, data or "
                       "flags made, and %" PRId64 " of %zu are wanted",
                       h->count, h->bytes, r->opts.count, r->opts.bytes);
    if (bytes != sizeof *h + all_bytes(r))
        return fr_fail(FR_EFORMAT, "is damaged: it has %" PRIu64 " bytes, and its records take %zu", bytes,
                       sizeof *h + all_bytes(r));
    return FR_OK;
}

static fr_status map(fr_records *r, int fd) {
    void *at = mmap(NULL, sizeof(header) + all_bytes(r), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return fr_fail(FR_EIO, "cannot be mapped: %s", strerror(errno));
    r->mapped = at;
    r->data = (uint8_t *)at + sizeof(header);
    return FR_OK;
}

static void unmap(fr_records *r) {
    if (r->mapped != NULL) (void)munmap(r->mapped, sizeof(header) + all_bytes(r));
    r->mapped = NULL;
}

static fr_status open_file(fr_records *r) {
    header h;
    uint64_t bytes = 0;
    int fd = -1;
    fr_status s = FR_OK;
    FR_TRY(s, fri_input_open(r->path, &fd, &bytes));
    if (bytes < sizeof h) {
        s = fr_fail(FR_EFORMAT, "is no file of records: it has %" PRIu64 " bytes", bytes);
        goto done;
    }
    FR_TRY(s, fri_input_read(fd, &h, sizeof h, 0));
    FR_TRY(s, check(r, &h, bytes));
    FR_TRY(s, map(r, fd));
    if (crc_of(0, r->data, all_bytes(r)) != h.crc)
        FR_TRY(s, fr_fail(FR_EFORMAT, "is damaged: its records do not have their checksum"));
    r->held = r->opts.count;
    r->complete = true;
done:
    if (fd >= 0) close(fd);
    return s;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

fr_status fr_records_restart(fr_records *r) {
    fr_status s = FR_OK;
    r->held = 0;
    r->crc = 0;
    r->complete = false;
    if (r->path == NULL || r->opts.device == FR_META) return FR_OK;
    const header none = {0};
    fr_atomic_abandon(&r->file);
    FR_TRY(s, fr_atomic_open(r->path, 0666, &r->file));
    s = fr_atomic_put(&r->file, &none, sizeof none);
done:
    return s < 0 ? fr_fail_prefix(s, "%s: ", r->path) : FR_OK;
}

static fr_status begin(fr_records *r) {
    struct stat st;
    if (r->path == NULL)
        return fr_tensor_empty(2, (int64_t[]){r->opts.count, (int64_t)r->opts.bytes}, FR_U8, r->opts.device,
                               &r->memory);
    if (r->opts.device == FR_META) return FR_OK;
    if (stat(r->path, &st) != 0 && errno == ENOENT) return fr_records_restart(r);
    fr_status s = open_file(r);
    return s < 0 ? fr_fail_prefix(s, "%s: ", r->path) : FR_OK;
}

fr_status fr_records_create(const fr_records_opts *opts, fr_records **out) {
    FRI_OWNED(fr_records_release) fr_records *r = calloc(1, sizeof *r);
    if (r == NULL) return fr_fail(FR_ENOMEM, "records: no host memory");
    r->opts = *opts;
    r->file = (fr_atomic_file)FR_ATOMIC_FILE_CLOSED;
    r->path = opts->path != NULL ? strdup(opts->path) : NULL;
    if (opts->path != NULL && r->path == NULL) FRI_TRY(fr_fail(FR_ENOMEM, "records: no host memory"));
    if (opts->count < 1 || opts->bytes < 1 || opts->bytes > (size_t)(INT64_MAX / 2 / opts->count))
        FRI_TRY(fr_fail(FR_EINVAL, "records: %" PRId64 " of %zu bytes", opts->count, opts->bytes));
    FRI_TRY(begin(r));
    if (r->memory != NULL) fr_tensor_category_set(r->memory, FR_MEM_INPUT);
    if (r->memory != NULL && opts->device != FR_META) r->data = fr_tensor_data(r->memory);
    fr_records_release(out);
    FRI_MOVE(out, r);
    return FR_OK;
}

void fr_records_release(fr_records **records) {
    fr_records *r = *records;
    *records = NULL;
    if (r == NULL) return;
    fr_tensor_release(&r->memory);
    unmap(r);
    fr_atomic_abandon(&r->file);
    free(r->path);
    free(r);
}

/* ---- writing, reading ---------------------------------------------------------------------------------------- */

fr_status fr_records_append(fr_records *r, const void *data, int64_t n) {
    const size_t bytes = (size_t)n * r->opts.bytes;
    fr_status s = FR_OK;
    if (n < 0 || n > r->opts.count - r->held)
        return fr_fail(FR_EUSAGE, "records: %" PRId64 " more than the %" PRId64 " there are, and %" PRId64 " is all", n,
                       r->held, r->opts.count);
    if (r->opts.device != FR_META && r->path == NULL) memcpy(r->data + (size_t)r->held * r->opts.bytes, data, bytes);
    if (r->opts.device != FR_META && r->path != NULL) {
        r->crc = crc_of(r->crc, data, bytes);
        s = fr_atomic_put(&r->file, data, bytes);
    }
    if (s < 0) return fr_fail_prefix(s, "%s: ", r->path);
    r->held += n;
    return FR_OK;
}

/* The header last: it has the checksum. */
static fr_status commit(fr_records *r) {
    const header h = header_of(r);
    if (pwrite(r->file.fd, &h, sizeof h, 0) != (ssize_t)sizeof h)
        return fr_fail(FR_EIO, "cannot be written: %s", strerror(errno));
    FRI_TRY(fr_atomic_commit(&r->file));
    return open_file(r);
}

fr_status fr_records_finish(fr_records *r) {
    if (r->held != r->opts.count)
        return fr_fail(FR_EUSAGE, "records: %" PRId64 " of %" PRId64 " are there", r->held, r->opts.count);
    fr_status s = r->path != NULL && r->opts.device != FR_META && !r->complete ? commit(r) : FR_OK;
    if (s < 0) return fr_fail_prefix(s, "%s: ", r->path);
    r->complete = true;
    return FR_OK;
}

bool fr_records_complete(const fr_records *r) {
    return r->complete;
}

const void *fr_records_at(const fr_records *r, int64_t i) {
    return r->data + (size_t)i * r->opts.bytes;
}
