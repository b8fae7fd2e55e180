/* torch_zip.c - see torch_zip.h. Numbers are input from strangers: each is compared with the bytes of the file. */
#include "io/torch_zip.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    MOST_BYTES = 1 << 26,
    END_BYTES = 22,
    COMMENT_BYTES = 65535,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    PIECE_BYTES = 1 << 14,
};

uint64_t fri_little_endian(const unsigned char *at, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | at[i];
    return v;
}

fr_status fri_crc_of(fri_torch_read_fn *read, void *ctx, size_t n, size_t at, uint32_t *crc) {
    unsigned char piece[PIECE_BYTES];
    for (size_t some; n > 0; n -= some, at += some) {
        some = n < sizeof piece ? n : sizeof piece;
        FRI_TRY(read(ctx, piece, some, at));
        *crc = (uint32_t)crc32_z(*crc, piece, some);
    }
    return FR_OK;
}

fr_status fri_zip_read(const fri_zip *z, size_t at, size_t n, unsigned char **out) {
    if (n > MOST_BYTES) return fr_fail(FR_EFORMAT, "a list of %zu bytes; at most %d are read", n, MOST_BYTES);
    *out = malloc(n + 1);
    if (*out == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu bytes", n);
    return z->read(z->ctx, *out, n, at);
}

static int by_record_name(const void *a, const void *b) {
    const fri_zip_record *x = a, *y = b;
    const int order = memcmp(x->name, y->name, x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes);
    return order != 0 ? order : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

const fri_zip_record *fri_zip_find(const fri_zip *z, const char *name, size_t bytes) {
    const fri_zip_record key = {.name = name, .name_bytes = bytes};
    return z->records > 0 ? bsearch(&key, z->record, z->records, sizeof key, by_record_name) : NULL;
}

/* Reads the entry of the directory at *at, and moves *at to the following entry. */
static fr_status read_record(fri_zip *z, size_t size, size_t *at) {
    const unsigned char *e = z->directory + *at;
    unsigned char local[LOCAL_BYTES];
    if (size - *at < CENTRAL_BYTES || memcmp(e, "PK\1\2", 4) != 0)
        return fr_fail(FR_EFORMAT, "entry %zu of the zip's directory is damaged", z->records);
    const size_t name = fri_little_endian(e + 28, 2),
                 more = name + fri_little_endian(e + 30, 2) + fri_little_endian(e + 32, 2);
    const uint64_t packed = fri_little_endian(e + 20, 4), bytes = fri_little_endian(e + 24, 4),
                   from = fri_little_endian(e + 42, 4);
    if (size - *at - CENTRAL_BYTES < more || z->bytes < LOCAL_BYTES || from > z->bytes - LOCAL_BYTES)
        return fr_fail(FR_EFORMAT, "entry %zu of the zip's directory reaches beyond the file", z->records);
    FRI_TRY(z->read(z->ctx, local, sizeof local, from));
    const uint64_t begin = from + LOCAL_BYTES + fri_little_endian(local + 26, 2) + fri_little_endian(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || begin > z->bytes || packed > z->bytes - begin)
        return fr_fail(FR_EFORMAT, "record %zu of the zip reaches beyond the file", z->records);
    const char *text = (const char *)e + CENTRAL_BYTES, *slash = memchr(text, '/', name);
    const size_t skipped = slash != NULL ? (size_t)(slash + 1 - text) : 0;
    z->record[z->records++] = (fri_zip_record){.name = text + skipped,
                                               .name_bytes = name - skipped,
                                               .at = (size_t)begin,
                                               .bytes = (size_t)packed,
                                               .crc = (uint32_t)fri_little_endian(e + 16, 4),
                                               .packed = fri_little_endian(e + 10, 2) != 0 || packed != bytes};
    *at += CENTRAL_BYTES + more;
    return FR_OK;
}

/* Finds the archive's last record, also before a comment or further bytes, like Python's zipfile does. */
static fr_status find_end(const fri_zip *z, unsigned char end[END_BYTES], size_t *at) {
    const size_t n = z->bytes < END_BYTES + COMMENT_BYTES ? z->bytes : END_BYTES + COMMENT_BYTES;
    FRI_OWNED(fri_free) unsigned char *tail = NULL;
    FRI_TRY(fri_zip_read(z, z->bytes - n, n, &tail));
    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; i-- > 0;)
        if (memcmp(tail + i, "PK\5\6", 4) == 0) {
            memcpy(end, tail + i, END_BYTES);
            *at = z->bytes - n + i;
            return FR_OK;
        }
    return fr_fail(FR_EFORMAT, "a zip archive without its end: the file is damaged or incomplete");
}

static fr_status check_crc(const fri_zip *z, const fri_zip_record *r) {
    uint32_t crc = 0;
    FRI_TRY(fri_crc_of(z->read, z->ctx, r->bytes, r->at, &crc));
    if (crc == r->crc) return FR_OK;
    return fr_fail(FR_EFORMAT, "its record %.*s has the checksum %08x but its bytes have %08x: the file is damaged",
                   (int)(r->name_bytes < 80 ? r->name_bytes : 80), r->name, r->crc, crc);
}

/* Compares the records with the checksums. All records together have at most the file's size. */
static fr_status check_records(const fri_zip *z) {
    size_t sum = 0;
    bool summed = false; /* torch.save has an option to write 0 for each checksum */
    if (fri_zip_find(z, "constants.pkl", 13) != NULL)
        return fr_fail(FR_EUNSUPPORTED, "it is a TorchScript archive, as torch.jit.save writes" FRI_CURE_OF(
                                            "torch.jit.load(FILE).state_dict()"));
    for (size_t i = 0; i < z->records; i++) {
        const fri_zip_record *r = &z->record[i];
        if (r->packed) return fr_fail(FR_EUNSUPPORTED, "its zip archive is compressed" FRI_CURE);
        if (r->bytes > z->bytes - sum || (i > 0 && by_record_name(r - 1, r) == 0))
            return fr_fail(FR_EFORMAT, "records of its zip archive overlap or have one name: the file is damaged");
        sum += r->bytes;
        summed |= r->crc != 0;
    }
    for (size_t i = 0; i < z->records && summed; i++) FRI_TRY(check_crc(z, &z->record[i]));
    return FR_OK;
}

fr_status fri_zip_open(fri_zip *z) {
    unsigned char end[END_BYTES];
    size_t last = 0, at = 0;
    FRI_TRY(find_end(z, end, &last));
    const size_t n = fri_little_endian(end + 10, 2), size = fri_little_endian(end + 12, 4),
                 from = fri_little_endian(end + 16, 4);
    if (n == 0xffff || from == 0xffffffff)
        return fr_fail(FR_EUNSUPPORTED, "a zip archive of 4 GiB or of 65535 records" FRI_CURE);
    if (from > last || size > last - from) return fr_fail(FR_EFORMAT, "its zip directory is outside the file");
    FRI_TRY(fri_zip_read(z, from, size, &z->directory));
    z->record = calloc(n + 1, sizeof *z->record);
    if (z->record == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu records", n);
    for (size_t i = 0; i < n; i++) FRI_TRY(read_record(z, size, &at));
    qsort(z->record, z->records, sizeof *z->record, by_record_name);
    return check_records(z);
}
