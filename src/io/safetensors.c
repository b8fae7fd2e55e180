/* safetensors.c - the reader: see safetensors.h. The writer is safetensors_write.c.
 *
 * The header is input from strangers. Three passes, each trusting only the checks of earlier passes: check_text (bytes:
 * UTF-8, no control characters, bounded nesting, one object), cJSON (syntax), parse_* (meaning). */
#include "io/safetensors.h"

#include "base/atomic_file.h"
#include "base/number.h"
#include "base/status.h"
#include "base/text.h"
#include "io/safetensors_format.h"
#include "io/torch_zip.h"

#include <cJSON.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

enum {
    MAX_NESTING = 3, /* the file's object, a tensor's object, its shape */
    FOUND_TEXT = 64,
};
#define MAX_EXACT 9007199254740992.0 /* 2^53: numbers of cJSON are doubles, exact up to 2^53 */

struct fri_safetensors_private {
    fri_safetensors file;
    fri_safetensors_entry *entries;
    const fri_safetensors_entry **by_name;
    fri_safetensors_text *metadata;
    cJSON *json;           /* owns names, keys and values */
    unsigned char *pickle; /* of a file of torch.save, with the names */
    void *map;
    size_t map_bytes;
    unsigned char *copy; /* copy of the data, or NULL */
    int fd;              /* -1: the data are available */
    size_t data_at, data_bytes;
    bool checked;
    uint32_t header_crc; /* of the bytes before the data */
};

const char *const fri_safetensors_dtype[FR_DTYPE_COUNT] = {
    [FR_F32] = "F32", [FR_F16] = "F16", [FR_BF16] = "BF16", [FR_F64] = "F64", [FR_I64] = "I64",
    [FR_I32] = "I32", [FR_I16] = "I16", [FR_I8] = "I8",     [FR_U8] = "U8",   [FR_BOOL] = "BOOL",
};

bool fri_safetensors_utf8(const char *text, size_t n) {
    for (size_t i = 0, k; i < n; i += k)
        if ((k = fri_utf8_length(text + i, n - i)) == 0) return false;
    return true;
}

/* Refuses text accepted by cJSON: bad UTF-8, control characters, an escaped NUL (would cut a name short), deep nesting,
 * and text after the object. */
static fr_status check_text(const char *text, size_t n) {
    if (!fri_safetensors_utf8(text, n)) return fr_fail(FR_EFORMAT, "the header is not valid UTF-8");
    if (n == 0 || text[0] != '{') return fr_fail(FR_EFORMAT, "the header does not begin with '{'");
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 && (in_string || (c != '\t' && c != '\n' && c != '\r')))
            return fr_fail(FR_EFORMAT, "byte %zu of the header is the control character 0x%02x", i, c);
        if (in_string) {
            if (c == '\\') {
                if (n - i > 5 && memcmp(text + i + 1, "u0000", 5) == 0)
                    return fr_fail(FR_EFORMAT, "byte %zu of the header begins an escaped NUL", i);
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (depth == 0 && i > 0 && c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return fr_fail(FR_EFORMAT, "the header has text at byte %zu, after the end of its object", i);
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_NESTING)
                return fr_fail(FR_EFORMAT, "byte %zu of the header nests deeper than %d levels", i, MAX_NESTING);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return FR_OK;
}

/* Text of a JSON value for an error sentence. */
static const char *found(const cJSON *item, char buf[FOUND_TEXT]) {
    if (item == NULL) return "nothing";
    if (cJSON_IsObject(item)) return "an object";
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsNull(item)) return "null";
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsNumber(item))
        fr_snprintf(buf, FOUND_TEXT, "%.17g", item->valuedouble);
    else
        snprintf(buf, FOUND_TEXT, "'%.40s'", item->valuestring);
    return buf;
}

static bool whole_number(const cJSON *item, int64_t *out) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < MAX_EXACT)) return false;
    *out = (int64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

static fr_status parse_dtype(const char *name, const cJSON *item, fr_dtype *out) {
    char text[FOUND_TEXT];
    if (!cJSON_IsString(item))
        return fr_fail(FR_EFORMAT, "tensor '%s': \"dtype\" is %s, expected a string", name, found(item, text));
    for (int t = 0; t < FR_DTYPE_COUNT; t++) {
        if (strcmp(item->valuestring, fri_safetensors_dtype[t]) != 0) continue;
        *out = (fr_dtype)t;
        return FR_OK;
    }
    return fr_fail(FR_EDTYPE, "tensor '%s': \"dtype\" is %s, expected one of F32 F16 BF16 F64 I64 I32 I16 I8 U8 BOOL",
                   name, found(item, text));
}

static fr_status parse_shape(const char *name, const cJSON *item, fr_shape *out) {
    char text[FOUND_TEXT];
    if (!cJSON_IsArray(item))
        return fr_fail(FR_EFORMAT, "tensor '%s': \"shape\" is %s, expected an array", name, found(item, text));
    for (const cJSON *d = item->child; d != NULL; d = d->next) {
        if (out->rank == FR_MAX_RANK)
            return fr_fail(FR_ESHAPE, "tensor '%s': \"shape\" has %d dimensions, expected at most %d", name,
                           cJSON_GetArraySize(item), FR_MAX_RANK);
        if (!whole_number(d, &out->dim[out->rank]))
            return fr_fail(FR_EFORMAT, "tensor '%s': dimension %d is %s, expected a whole number in [0, 2^53)", name,
                           out->rank, found(d, text));
        out->rank++;
    }
    return FR_OK;
}

static fr_status parse_offsets(const char *name, const cJSON *item, size_t data_bytes, size_t offset[2]) {
    char text[FOUND_TEXT];
    if (!cJSON_IsArray(item))
        return fr_fail(FR_EFORMAT, "tensor '%s': \"data_offsets\" is %s, expected an array", name, found(item, text));
    if (cJSON_GetArraySize(item) != 2)
        return fr_fail(FR_EFORMAT, "tensor '%s': \"data_offsets\" has %d numbers, expected 2", name,
                       cJSON_GetArraySize(item));
    const cJSON *end = item->child;
    for (int i = 0; i < 2; i++, end = end->next) {
        int64_t at = 0;
        if (!whole_number(end, &at))
            return fr_fail(FR_EFORMAT, "tensor '%s': data offset %s is not a whole number in [0, 2^53)", name,
                           found(end, text));
        offset[i] = (size_t)at;
    }
    if (offset[0] > offset[1])
        return fr_fail(FR_EFORMAT, "tensor '%s': data offsets [%zu, %zu] run backwards", name, offset[0], offset[1]);
    if (offset[1] > data_bytes)
        return fr_fail(FR_EFORMAT, "tensor '%s': data offsets [%zu, %zu] reach beyond the %zu bytes of data", name,
                       offset[0], offset[1], data_bytes);
    return FR_OK;
}

static fr_status parse_entry(const cJSON *item, size_t data_bytes, fri_safetensors_entry *e) {
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    const cJSON *value[3] = {NULL, NULL, NULL};
    char text[FOUND_TEXT], shape[FRI_SHAPE_TEXT];
    size_t offset[2] = {0, 0}, expected = 0;
    if (!cJSON_IsObject(item))
        return fr_fail(FR_EFORMAT, "tensor '%s' is described by %s, expected an object", e->name, found(item, text));
    for (const cJSON *member = item->child; member != NULL; member = member->next)
        for (int i = 0; i < 3; i++) {
            if (strcmp(member->string, keys[i]) != 0) continue;
            if (value[i] != NULL) return fr_fail(FR_EFORMAT, "tensor '%s' has \"%s\" twice", e->name, keys[i]);
            value[i] = member;
        }
    for (int i = 0; i < 3; i++)
        if (value[i] == NULL) return fr_fail(FR_EFORMAT, "tensor '%s' has no \"%s\"", e->name, keys[i]);
    FRI_TRY(parse_dtype(e->name, value[0], &e->dtype));
    FRI_TRY(parse_shape(e->name, value[1], &e->shape));
    FRI_TRY(parse_offsets(e->name, value[2], data_bytes, offset));
    if (fri_shape_bytes(e->name, &e->shape, e->dtype, &expected) != FR_OK)
        return fr_fail(FR_EFORMAT, "tensor %s", fr_last_error());
    e->at = offset[0];
    e->bytes = offset[1] - offset[0];
    if (e->bytes != expected)
        return fr_fail(FR_EFORMAT, "tensor '%s': %s %s needs %zu bytes but its data offsets [%zu, %zu] hold %zu",
                       e->name, fri_safetensors_dtype[e->dtype], fri_shape_text(&e->shape, shape), expected, offset[0],
                       offset[1], e->bytes);
    return FR_OK;
}

static fr_status parse_metadata(const cJSON *item, fri_safetensors *f) {
    char text[FOUND_TEXT];
    struct fri_safetensors_private *p = f->private;
    if (p->metadata != NULL) return fr_fail(FR_EFORMAT, "\"__metadata__\" appears twice");
    if (!cJSON_IsObject(item))
        return fr_fail(FR_EFORMAT, "\"__metadata__\" is %s, expected an object", found(item, text));
    size_t n = 0;
    for (const cJSON *m = item->child; m != NULL; m = m->next) n++;
    p->metadata = calloc(n + 1, sizeof *p->metadata);
    if (p->metadata == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu metadata keys", n);
    f->metadata = p->metadata;
    for (const cJSON *m = item->child; m != NULL; m = m->next) {
        if (!cJSON_IsString(m))
            return fr_fail(FR_EFORMAT, "metadata '%s' is %s, expected a string", m->string, found(m, text));
        p->metadata[f->n_metadata++] = (fri_safetensors_text){m->string, m->valuestring};
    }
    return fri_safetensors_unique_keys(FR_EFORMAT, p->metadata, n);
}

static int by_name(const void *a, const void *b) {
    const fri_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_place(const void *a, const void *b) {
    const fri_safetensors_entry *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors first: all share an offset */
    return strcmp(x->name, y->name);
}

static fr_status sort_entries(fri_safetensors *f) {
    struct fri_safetensors_private *p = f->private;
    p->by_name = calloc(f->n_entries + 1, sizeof *p->by_name);
    if (p->by_name == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", f->n_entries);
    qsort(p->entries, f->n_entries, sizeof *p->entries, by_place);
    for (size_t i = 0; i < f->n_entries; i++) p->by_name[i] = &p->entries[i];
    qsort(p->by_name, f->n_entries, sizeof *p->by_name, by_name);
    for (size_t i = 1; i < f->n_entries; i++)
        if (strcmp(p->by_name[i - 1]->name, p->by_name[i]->name) == 0)
            return fr_fail(FR_EFORMAT, "tensor '%s' appears twice", p->by_name[i]->name);
    return FR_OK;
}

static fr_status check_places(const fri_safetensors *f, size_t data_bytes) {
    size_t at = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        if (e->at != at)
            return fr_fail(FR_EFORMAT, "tensor '%s' begins at data offset %zu, expected %zu (%s)", e->name, e->at, at,
                           e->at < at ? "it overlaps the tensor before it" : "there is a hole before it");
        at += e->bytes;
    }
    if (at != data_bytes)
        return fr_fail(FR_EFORMAT, "the tensors hold %zu bytes but the file has %zu bytes of data", at, data_bytes);
    return FR_OK;
}

/* `text` is a copy of the header, ended by a NUL: the file may change between two reads, and releases of cJSON
 * before 1.7.18 read a byte too far. */
static fr_status parse_header(fri_safetensors *f, const char *text, size_t n, size_t data_bytes) {
    struct fri_safetensors_private *p = f->private;
    const char *stopped = text;
    size_t count = 0;
    FRI_TRY(check_text(text, n));
    p->json = cJSON_ParseWithLengthOpts(text, n + 1, &stopped, true);
    if (p->json == NULL)
        return fr_fail(FR_EFORMAT, "the header is not valid JSON near its byte %zu", (size_t)(stopped - text));
    for (const cJSON *item = p->json->child; item != NULL; item = item->next) count++;
    p->entries = calloc(count + 1, sizeof *p->entries);
    if (p->entries == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", count);
    f->entries = p->entries;
    for (const cJSON *item = p->json->child; item != NULL; item = item->next) {
        if (strcmp(item->string, FRI_SAFETENSORS_METADATA) == 0) {
            FRI_TRY(parse_metadata(item, f));
            continue;
        }
        fri_safetensors_entry *e = &p->entries[f->n_entries];
        e->name = item->string;
        FRI_TRY(parse_entry(item, data_bytes, e));
        f->n_entries++;
    }
    FRI_TRY(sort_entries(f));
    return check_places(f, data_bytes);
}

/* Sets the entries' data, in place from `data` until close. */
static void attach_data(fri_safetensors *f, const void *data) {
    for (size_t i = 0; i < f->n_entries; i++) f->private->entries[i].data = (const char *)data + f->entries[i].at;
}

/* FR_EFORMAT: the first bytes belong to a known kind of file. */
static fr_status check_kind(const unsigned char first[8]) {
    static const struct {
        const char *begin, *is;
    } kinds[] = {
        {"PK\3\4", "a zip archive, as torch.save writes (.pth, .pt), where a file with a checksum is needed"},
        {"\x80", "a Python pickle, as old versions of torch.save write; in Python, "
                 "safetensors.torch.save_file(torch.load(FILE), NEW) makes safetensors of it"},
        {"version ", "a git-lfs pointer, not the file itself; `git lfs pull` fetches that"},
        {"\xff\xd8\xff", "a JPEG image"},
        {"\x89PNG", "a PNG image"},
        {"\x89HDF", "an HDF5 file, as Keras writes"},
        {"\x93NUMPY", "a NumPy array (.npy)"},
        {"GGUF", "a GGUF file"},
        {"\x1f\x8b", "compressed by gzip; unpack it first"},
        {"<", "a page of HTML or XML, as servers send in place of a file; download it again"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(first, kinds[i].begin, strlen(kinds[i].begin)) == 0)
            return fr_fail(FR_EFORMAT, "is no safetensors file but %s", kinds[i].is);
    return FR_OK;
}

/* The header's length, from the first 8 of all bytes. */
static fr_status header_bytes(const unsigned char first[8], uint64_t bytes, size_t *n) {
    const uint64_t length = fri_little_endian(first, 8);
    if (length > FRI_SAFETENSORS_MAX_HEADER || length > bytes - 8) FRI_TRY(check_kind(first));
    if (length > FRI_SAFETENSORS_MAX_HEADER)
        return fr_fail(FR_EFORMAT,
                       "is no safetensors file: its first 8 bytes claim a header of %llu bytes; at most %d are allowed",
                       (unsigned long long)length, FRI_SAFETENSORS_MAX_HEADER);
    if (length > bytes - 8)
        return fr_fail(FR_EFORMAT, "the header claims %llu bytes but only %llu follow", (unsigned long long)length,
                       (unsigned long long)(bytes - 8));
    *n = (size_t)length;
    return FR_OK;
}

/* Bytes in memory, or an open file if content is NULL. */
typedef struct source {
    const unsigned char *content;
    int fd;
} source;

static fr_status read_source(void *ctx, void *to, size_t n, size_t at) {
    const source *s = ctx;
    if (s->content == NULL) return fr_file_read(s->fd, to, n, at);
    memcpy(to, s->content + at, n);
    return FR_OK;
}

/* The tensors of a file of torch.save; all of the file counts as data. */
static fr_status read_torch(fri_safetensors *f, source from, uint64_t bytes) {
    struct fri_safetensors_private *p = f->private;
    fri_torch_tensors t;
    FRI_TRY(fri_torch_parse(read_source, &from, (size_t)bytes, &t));
    f->entries = p->entries = t.entry;
    f->n_entries = t.n;
    p->pickle = t.pickle;
    p->data_bytes = (size_t)bytes;
    return sort_entries(f);
}

/* Reads and checks the header; `bytes` is the size of the file. */
static fr_status read_header(fri_safetensors *f, source from, uint64_t bytes) {
    struct fri_safetensors_private *p = f->private;
    unsigned char first[8];
    size_t n = 0;
    if (bytes < sizeof first)
        return fr_fail(FR_EFORMAT, "has %llu bytes, expected at least the 8 bytes of the header's length",
                       (unsigned long long)bytes);
    FRI_TRY(read_source(&from, first, sizeof first, 0));
    if (memcmp(first, "PK\3\4", 4) == 0 && !p->checked) return read_torch(f, from, bytes);
    FRI_TRY(header_bytes(first, bytes, &n));
    FRI_OWNED(fri_free) char *text = malloc(n + 1);
    if (text == NULL) return fr_fail(FR_ENOMEM, "no host memory for a header of %zu bytes", n);
    FRI_TRY(read_source(&from, text, n, sizeof first));
    text[n] = '\0';
    if (text[0] != '{') FRI_TRY(check_kind(first));
    p->header_crc = (uint32_t)crc32_z(crc32_z(0, first, sizeof first), (const unsigned char *)text, n);
    p->data_at = sizeof first + n;
    p->data_bytes = (size_t)(bytes - p->data_at);
    return parse_header(f, text, n, p->data_bytes);
}

static fr_status map_file(fri_safetensors *f, uint64_t bytes) {
    struct fri_safetensors_private *p = f->private;
    if (bytes > 0) {
        void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, p->fd, 0);
        if (map == MAP_FAILED)
            return fr_fail(FR_EIO, "%llu bytes cannot be mapped: %s", (unsigned long long)bytes, strerror(errno));
        p->map = map;
        p->map_bytes = (size_t)bytes;
    }
    FRI_TRY(read_header(f, (source){p->map, p->fd}, bytes));
    attach_data(f, (const char *)p->map + p->data_at);
    close(p->fd);
    p->fd = -1;
    return FR_OK;
}

/* The last FRI_SAFETENSORS_CHECKSUM_BYTES of the file are the CRC-32 of all bytes before. */
static fr_status compare_sum(uint32_t computed, const unsigned char last[FRI_SAFETENSORS_CHECKSUM_BYTES]) {
    const uint32_t stored = (uint32_t)fri_little_endian(last, FRI_SAFETENSORS_CHECKSUM_BYTES);
    if (stored == computed) return FR_OK;
    return fr_fail(FR_EFORMAT,
                   "its checksum is %08x but its content has %08x: the file is damaged or incomplete, or it was "
                   "written without a checksum",
                   stored, computed);
}

static fr_status check_sum(source from, uint64_t bytes) {
    unsigned char last[FRI_SAFETENSORS_CHECKSUM_BYTES];
    uint32_t crc = 0;
    if (bytes < 8 + sizeof last)
        return fr_fail(FR_EFORMAT, "has %llu bytes, too few for a header and a checksum", (unsigned long long)bytes);
    FRI_TRY(fri_crc_of(read_source, &from, (size_t)bytes - sizeof last, 0, &crc));
    FRI_TRY(read_source(&from, last, sizeof last, (size_t)bytes - sizeof last));
    return compare_sum(crc, last);
}

fr_status fri_safetensors_read(fri_safetensors *f) {
    struct fri_safetensors_private *p = f->private;
    if (p->fd < 0) return FR_OK;
    FRI_OWNED(fri_free) unsigned char *copy = malloc(p->data_bytes + 1);
    if (copy == NULL) return fr_fail(FR_ENOMEM, "no host memory for its %zu bytes", p->data_bytes);
    FRI_TRY(fr_file_read(p->fd, copy, p->data_bytes, p->data_at));
    if (p->checked) { /* checks the bytes of this read; open has checked the size */
        size_t n = p->data_bytes - FRI_SAFETENSORS_CHECKSUM_BYTES;
        FRI_TRY(compare_sum((uint32_t)crc32_z(p->header_crc, copy, n), copy + n));
    }
    attach_data(f, copy);
    FRI_MOVE(&p->copy, copy);
    close(p->fd);
    p->fd = -1;
    return FR_OK;
}

/* Checks the header against the file's size before reading a possibly large file for the checksum. In a file with
 * checksum, a wrong header is damage. */
static fr_status open_copied(fri_safetensors *f, uint64_t bytes) {
    const source from = {NULL, f->private->fd};
    fr_status s = read_header(f, from, bytes);
    if (!f->private->checked) return s;
    if (s == FR_OK) return check_sum(from, bytes);
    if (s == FR_ENOMEM || s == FR_EIO) return s;
    return fr_fail(FR_EFORMAT, "%s: the file is damaged or incomplete; its checksum was not checked", fr_last_error());
}

static fr_status open_path(const char *path, fri_safetensors_how how, fri_safetensors *f) {
    uint64_t bytes = 0;
    FRI_TRY(fr_file_open(path, &f->private->fd, &bytes));
    f->private->checked = how == FRI_SAFETENSORS_CHECKED;
    return how == FRI_SAFETENSORS_MAPPED ? map_file(f, bytes) : open_copied(f, bytes);
}

static fri_safetensors *new_file(void) {
    struct fri_safetensors_private *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->fd = -1;
    p->file.private = p;
    return &p->file;
}

fr_status fri_safetensors_open_as(const char *path, fri_safetensors_how how, fri_safetensors **out) {
    if (path == NULL || out == NULL)
        return fr_fail(FR_EINVAL, "safetensors: the %s is NULL, expected an address", path == NULL ? "path" : "slot");
    FRI_OWNED(fri_safetensors_close) fri_safetensors *f = new_file();
    if (f == NULL) return fr_fail(FR_ENOMEM, "file '%s': no host memory to open it", path);
    const fr_status s = open_path(path, how, f);
    if (s < 0) return fr_fail_prefix(s, "file '%.300s': ", path);
    fri_safetensors_close(out);
    FRI_MOVE(out, f);
    return FR_OK;
}

fr_status fri_safetensors_open(const char *path, fri_safetensors **out) {
    return fri_safetensors_open_as(path, FRI_SAFETENSORS_MAPPED, out);
}

fr_status fri_safetensors_open_memory(const char *name, const void *content, size_t bytes, bool checked,
                                      fri_safetensors **out) {
    const source from = {content, -1};
    FRI_OWNED(fri_safetensors_close) fri_safetensors *f = new_file();
    if (f == NULL) return fr_fail(FR_ENOMEM, "safetensors '%s': no host memory to open it", name);
    fr_status s = checked ? check_sum(from, bytes) : FR_OK;
    if (s == FR_OK) s = read_header(f, from, bytes);
    if (s < 0) return fr_fail_prefix(s, "safetensors '%.300s': ", name);
    attach_data(f, (const char *)content + f->private->data_at);
    fri_safetensors_close(out);
    FRI_MOVE(out, f);
    return FR_OK;
}

void fri_safetensors_close(fri_safetensors **file) {
    if (file == NULL || *file == NULL) return;
    struct fri_safetensors_private *p = (*file)->private;
    if (p->map != NULL) munmap(p->map, p->map_bytes);
    if (p->fd >= 0) close(p->fd);
    free(p->copy);
    cJSON_Delete(p->json);
    free(p->pickle);
    free(p->entries);
    free(p->by_name);
    free(p->metadata);
    *file = NULL;
    free(p);
}

const fri_safetensors_entry *fri_safetensors_find(const fri_safetensors *file, const char *name) {
    const fri_safetensors_entry key = {.name = name}, *pkey = &key;
    const fri_safetensors_entry **hit =
        bsearch(&pkey, file->private->by_name, file->n_entries, sizeof *file->private->by_name, by_name);
    return hit != NULL ? *hit : NULL;
}

const char *fri_safetensors_metadata(const fri_safetensors *file, const char *key) {
    for (size_t i = 0; i < file->n_metadata; i++)
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    return NULL;
}
