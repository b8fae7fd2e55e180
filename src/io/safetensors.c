/* safetensors.c - the reader: see safetensors.h. The writer is safetensors_write.c.
 *
 * The header is input from strangers. Three passes, each trusting only what the one before has checked:
 * check_text (bytes: UTF-8, no control characters, bounded nesting, one object), cJSON (syntax), parse_* (meaning). */
#include "io/safetensors.h"

#include "base/status.h"
#include "io/safetensors_format.h"

#include <cJSON.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    MAX_NESTING = 3, /* the file's object, a tensor's object, its shape */
    FOUND_TEXT = 64,
};
#define READ_AT_ONCE ((size_t)1 << 30)  /* Linux moves at most 2 GiB - 4 KiB in one call */
#define MAX_EXACT    9007199254740992.0 /* 2^53: cJSON keeps numbers as doubles, exact up to here */

struct fri_safetensors_private {
    fri_safetensors_entry *entries;
    const fri_safetensors_entry **by_name;
    fri_safetensors_text *metadata;
    cJSON *json; /* owns names, keys and values */
    void *map;
    size_t map_bytes;
    unsigned char *copy; /* the file's content, where it is not mapped */
};

const char *const fri_safetensors_dtype[FR_DTYPE_COUNT] = {
    [FR_F32] = "F32", [FR_F16] = "F16", [FR_BF16] = "BF16", [FR_F64] = "F64", [FR_I64] = "I64",
    [FR_I32] = "I32", [FR_I16] = "I16", [FR_I8] = "I8",     [FR_U8] = "U8",   [FR_BOOL] = "BOOL",
};

bool fri_safetensors_utf8(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t more = s[i] < 0x80 ? 0 : s[i] >= 0xc2 && s[i] < 0xe0 ? 1 : (s[i] & 0xf0) == 0xe0 ? 2 : 3;
        if (more == 3 && !(s[i] >= 0xf0 && s[i] < 0xf5)) return false;
        if (n - i <= more) return false;
        for (size_t j = 1; j <= more; j++)
            if ((s[i + j] & 0xc0) != 0x80) return false;
        /* Overlong forms, surrogates and values above U+10FFFF show in the second byte. */
        if ((s[i] == 0xe0 && s[i + 1] < 0xa0) || (s[i] == 0xed && s[i + 1] > 0x9f)) return false;
        if ((s[i] == 0xf0 && s[i + 1] < 0x90) || (s[i] == 0xf4 && s[i + 1] > 0x8f)) return false;
        i += more + 1;
    }
    return true;
}

/* What cJSON does not refuse by itself: bad UTF-8, control characters, an escaped NUL (it would cut a name short),
 * nesting that costs stack, and text after the object. */
static fr_status check_text(const char *text, size_t n) {
    if (!fri_safetensors_utf8(text, n)) return fri_fail(FR_EFORMAT, "the header is not valid UTF-8");
    if (n == 0 || text[0] != '{') return fri_fail(FR_EFORMAT, "the header does not begin with '{'");
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 && (in_string || (c != '\t' && c != '\n' && c != '\r')))
            return fri_fail(FR_EFORMAT, "byte %zu of the header is the control character 0x%02x", i, c);
        if (in_string) {
            if (c == '\\') {
                if (n - i > 5 && memcmp(text + i + 1, "u0000", 5) == 0)
                    return fri_fail(FR_EFORMAT, "byte %zu of the header begins an escaped NUL", i);
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (depth == 0 && i > 0 && c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return fri_fail(FR_EFORMAT, "the header goes on at byte %zu, after its object has ended", i);
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_NESTING)
                return fri_fail(FR_EFORMAT, "byte %zu of the header nests deeper than %d levels", i, MAX_NESTING);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return FR_OK;
}

/* A JSON value as an error sentence shows it. */
static const char *found(const cJSON *item, char buf[FOUND_TEXT]) {
    if (item == NULL) return "nothing";
    if (cJSON_IsObject(item)) return "an object";
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsNull(item)) return "null";
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsNumber(item))
        snprintf(buf, FOUND_TEXT, "%.17g", item->valuedouble);
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
        return fri_fail(FR_EFORMAT, "tensor '%s': \"dtype\" is %s, expected a string", name, found(item, text));
    for (int t = 0; t < FR_DTYPE_COUNT; t++) {
        if (strcmp(item->valuestring, fri_safetensors_dtype[t]) != 0) continue;
        *out = (fr_dtype)t;
        return FR_OK;
    }
    return fri_fail(FR_EDTYPE, "tensor '%s': \"dtype\" is %s, expected one of F32 F16 BF16 F64 I64 I32 I16 I8 U8 BOOL",
                    name, found(item, text));
}

static fr_status parse_shape(const char *name, const cJSON *item, fri_shape *out) {
    char text[FOUND_TEXT];
    if (!cJSON_IsArray(item))
        return fri_fail(FR_EFORMAT, "tensor '%s': \"shape\" is %s, expected an array", name, found(item, text));
    for (const cJSON *d = item->child; d != NULL; d = d->next) {
        if (out->rank == FRI_MAX_RANK)
            return fri_fail(FR_ESHAPE, "tensor '%s': \"shape\" has %d dimensions, expected at most %d", name,
                            cJSON_GetArraySize(item), FRI_MAX_RANK);
        if (!whole_number(d, &out->dim[out->rank]))
            return fri_fail(FR_EFORMAT, "tensor '%s': dimension %d is %s, expected a whole number in [0, 2^53)", name,
                            out->rank, found(d, text));
        out->rank++;
    }
    return FR_OK;
}

static fr_status parse_offsets(const char *name, const cJSON *item, size_t data_bytes, size_t offset[2]) {
    char text[FOUND_TEXT];
    if (!cJSON_IsArray(item))
        return fri_fail(FR_EFORMAT, "tensor '%s': \"data_offsets\" is %s, expected an array", name, found(item, text));
    if (cJSON_GetArraySize(item) != 2)
        return fri_fail(FR_EFORMAT, "tensor '%s': \"data_offsets\" has %d numbers, expected 2", name,
                        cJSON_GetArraySize(item));
    const cJSON *end = item->child;
    for (int i = 0; i < 2; i++, end = end->next) {
        int64_t at = 0;
        if (!whole_number(end, &at))
            return fri_fail(FR_EFORMAT, "tensor '%s': data offset %s is no whole number in [0, 2^53)", name,
                            found(end, text));
        offset[i] = (size_t)at;
    }
    if (offset[0] > offset[1])
        return fri_fail(FR_EFORMAT, "tensor '%s': data offsets [%zu, %zu] run backwards", name, offset[0], offset[1]);
    if (offset[1] > data_bytes)
        return fri_fail(FR_EFORMAT, "tensor '%s': data offsets [%zu, %zu] reach beyond the %zu bytes of data", name,
                        offset[0], offset[1], data_bytes);
    return FR_OK;
}

static fr_status parse_entry(const cJSON *item, const char *data, size_t data_bytes, fri_safetensors_entry *e) {
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    const cJSON *value[3] = {NULL, NULL, NULL};
    char text[FOUND_TEXT], shape[FRI_SHAPE_TEXT];
    size_t offset[2] = {0, 0}, expected = 0;
    if (!cJSON_IsObject(item))
        return fri_fail(FR_EFORMAT, "tensor '%s' is described by %s, expected an object", e->name, found(item, text));
    for (const cJSON *member = item->child; member != NULL; member = member->next)
        for (int i = 0; i < 3; i++) {
            if (strcmp(member->string, keys[i]) != 0) continue;
            if (value[i] != NULL) return fri_fail(FR_EFORMAT, "tensor '%s' has \"%s\" twice", e->name, keys[i]);
            value[i] = member;
        }
    for (int i = 0; i < 3; i++)
        if (value[i] == NULL) return fri_fail(FR_EFORMAT, "tensor '%s' has no \"%s\"", e->name, keys[i]);
    fr_status s = FR_OK;
    FRI_TRY(s, parse_dtype(e->name, value[0], &e->dtype));
    FRI_TRY(s, parse_shape(e->name, value[1], &e->shape));
    FRI_TRY(s, parse_offsets(e->name, value[2], data_bytes, offset));
    if (fri_shape_bytes(e->name, &e->shape, e->dtype, &expected) != FR_OK)
        return fri_fail(FR_EFORMAT, "tensor %s", fr_last_error());
    e->data = data + offset[0];
    e->bytes = offset[1] - offset[0];
    if (e->bytes != expected)
        return fri_fail(FR_EFORMAT, "tensor '%s': %s %s needs %zu bytes but its data offsets [%zu, %zu] hold %zu",
                        e->name, fri_safetensors_dtype[e->dtype], fri_shape_text(&e->shape, shape), expected, offset[0],
                        offset[1], e->bytes);
done:
    return s;
}

static fr_status parse_metadata(const cJSON *item, fri_safetensors *f) {
    char text[FOUND_TEXT];
    struct fri_safetensors_private *p = f->private;
    if (p->metadata != NULL) return fri_fail(FR_EFORMAT, "\"__metadata__\" appears twice");
    if (!cJSON_IsObject(item))
        return fri_fail(FR_EFORMAT, "\"__metadata__\" is %s, expected an object", found(item, text));
    size_t n = 0;
    for (const cJSON *m = item->child; m != NULL; m = m->next) n++;
    p->metadata = calloc(n + 1, sizeof *p->metadata);
    if (p->metadata == NULL) return fri_fail(FR_ENOMEM, "no host memory for %zu metadata keys", n);
    f->metadata = p->metadata;
    for (const cJSON *m = item->child; m != NULL; m = m->next) {
        if (!cJSON_IsString(m))
            return fri_fail(FR_EFORMAT, "metadata '%s' is %s, expected a string", m->string, found(m, text));
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
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors first: they share an offset */
    return strcmp(x->name, y->name);
}

static fr_status check_places(const fri_safetensors *f, const char *data, size_t data_bytes) {
    size_t at = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        size_t begin = (size_t)((const char *)e->data - data);
        if (begin != at)
            return fri_fail(FR_EFORMAT, "tensor '%s' begins at data offset %zu, expected %zu (%s)", e->name, begin, at,
                            begin < at ? "it overlaps the tensor before it" : "there is a hole before it");
        at += e->bytes;
    }
    if (at != data_bytes)
        return fri_fail(FR_EFORMAT, "the tensors hold %zu bytes but the file has %zu bytes of data", at, data_bytes);
    return FR_OK;
}

/* `text` is a copy of the header, ended by a NUL: the file may change between two looks at it, and releases of cJSON
 * before 1.7.18 read one byte too far. `data` follows the header in the file. */
static fr_status parse_header(fri_safetensors *f, const char *text, size_t n, const char *data, size_t data_bytes) {
    struct fri_safetensors_private *p = f->private;
    const char *stopped = text;
    size_t count = 0;
    fr_status s = FR_OK;
    FRI_TRY(s, check_text(text, n));
    p->json = cJSON_ParseWithLengthOpts(text, n + 1, &stopped, true);
    if (p->json == NULL)
        return fri_fail(FR_EFORMAT, "the header is not valid JSON near its byte %zu", (size_t)(stopped - text));
    for (const cJSON *item = p->json->child; item != NULL; item = item->next) count++;
    p->entries = calloc(count + 1, sizeof *p->entries);
    p->by_name = calloc(count + 1, sizeof *p->by_name);
    if (p->entries == NULL || p->by_name == NULL) return fri_fail(FR_ENOMEM, "no host memory for %zu tensors", count);
    f->entries = p->entries;
    for (const cJSON *item = p->json->child; item != NULL; item = item->next) {
        if (strcmp(item->string, FRI_SAFETENSORS_METADATA) == 0) {
            FRI_TRY(s, parse_metadata(item, f));
            continue;
        }
        fri_safetensors_entry *e = &p->entries[f->n_entries];
        e->name = item->string;
        FRI_TRY(s, parse_entry(item, data, data_bytes, e));
        f->n_entries++;
    }
    qsort(p->entries, f->n_entries, sizeof *p->entries, by_place);
    for (size_t i = 0; i < f->n_entries; i++) p->by_name[i] = &p->entries[i];
    qsort(p->by_name, f->n_entries, sizeof *p->by_name, by_name);
    for (size_t i = 1; i < f->n_entries; i++)
        if (strcmp(p->by_name[i - 1]->name, p->by_name[i]->name) == 0)
            return fri_fail(FR_EFORMAT, "tensor '%s' appears twice", p->by_name[i]->name);
    FRI_TRY(s, check_places(f, data, data_bytes));
done:
    return s;
}

/* What a whole file must look like; `content` stays where it is until close. */
static fr_status parse_content(fri_safetensors *f, const unsigned char *content, size_t bytes) {
    if (bytes < 8)
        return fri_fail(FR_EFORMAT, "has %zu bytes, expected at least the 8 bytes of the header's length", bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | content[i];
    if (length > FRI_SAFETENSORS_MAX_HEADER)
        return fri_fail(FR_EFORMAT, "the header claims %llu bytes, expected at most %d", (unsigned long long)length,
                        FRI_SAFETENSORS_MAX_HEADER);
    if (length > bytes - 8)
        return fri_fail(FR_EFORMAT, "the header claims %llu bytes but only %zu follow", (unsigned long long)length,
                        bytes - 8);
    size_t n = (size_t)length;
    char *text = malloc(n + 1);
    if (text == NULL) return fri_fail(FR_ENOMEM, "no host memory for a header of %zu bytes", n);
    memcpy(text, content + 8, n);
    text[n] = '\0';
    fr_status s = parse_header(f, text, n, (const char *)content + 8 + n, bytes - 8 - n);
    free(text);
    return s;
}

/* The bytes of a regular file. */
static fr_status examine(int fd, size_t *bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fri_fail(FR_EIO, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(st.st_mode)) return fri_fail(FR_EIO, "is not a regular file");
    *bytes = (size_t)st.st_size;
    return FR_OK;
}

static fr_status map_file(int fd, fri_safetensors *f) {
    size_t bytes = 0;
    fr_status s = examine(fd, &bytes);
    if (s < 0 || bytes == 0) return s < 0 ? s : parse_content(f, NULL, 0);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return fri_fail(FR_EIO, "%zu bytes cannot be mapped: %s", bytes, strerror(errno));
    f->private->map = map;
    f->private->map_bytes = bytes;
    return parse_content(f, map, bytes);
}

/* The last FRI_SAFETENSORS_CHECKSUM_BYTES are the CRC-32 of everything before them. */
static fr_status check_sum(const unsigned char *content, size_t bytes) {
    uint32_t stored = 0;
    if (bytes < 8 + FRI_SAFETENSORS_CHECKSUM_BYTES)
        return fri_fail(FR_EFORMAT, "has %zu bytes, too few for a header and a checksum", bytes);
    size_t n = bytes - FRI_SAFETENSORS_CHECKSUM_BYTES;
    for (int i = FRI_SAFETENSORS_CHECKSUM_BYTES - 1; i >= 0; i--) stored = stored << 8 | content[n + (size_t)i];
    uint32_t computed = (uint32_t)crc32_z(0, content, n);
    if (stored != computed)
        return fri_fail(FR_EFORMAT,
                        "its checksum is %08x but its content has %08x: the file is damaged or incomplete, or it was "
                        "written without a checksum",
                        stored, computed);
    return FR_OK;
}

static fr_status copy_file(int fd, fri_safetensors *f, bool checked) {
    size_t bytes = 0, at = 0;
    fr_status s = examine(fd, &bytes);
    if (s < 0) return s;
    unsigned char *copy = malloc(bytes + 1);
    if (copy == NULL) return fri_fail(FR_ENOMEM, "no host memory for its %zu bytes", bytes);
    f->private->copy = copy;
    while (at < bytes) {
        ssize_t n = read(fd, copy + at, bytes - at < READ_AT_ONCE ? bytes - at : READ_AT_ONCE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fri_fail(FR_EIO, "cannot be read after %zu bytes: %s", at, strerror(errno));
        if (n == 0) return fri_fail(FR_EIO, "shrank from %zu to %zu bytes while it was read", bytes, at);
        at += (size_t)n;
    }
    if (checked) s = check_sum(copy, bytes);
    return s < 0 ? s : parse_content(f, copy, bytes);
}

static fri_safetensors *new_file(void) {
    fri_safetensors *f = calloc(1, sizeof *f);
    if (f != NULL) f->private = calloc(1, sizeof *f->private);
    if (f != NULL && f->private != NULL) return f;
    free(f);
    return NULL;
}

fr_status fri_safetensors_open_as(const char *path, fri_safetensors_how how, fri_safetensors **out) {
    fri_safetensors *f = NULL;
    fr_status s = FR_OK;
    int fd = -1;
    if (path == NULL || out == NULL)
        return fri_fail(FR_EINVAL, "safetensors: the %s is NULL, expected an address", path == NULL ? "path" : "slot");
    f = new_file();
    if (f == NULL) return fri_fail(FR_ENOMEM, "safetensors file '%s': no host memory to open it", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO is refused, not waited for */
    if (fd < 0) {
        s = fri_fail(FR_EIO, "cannot be opened: %s", strerror(errno));
        goto done;
    }
    FRI_TRY(s, how == FRI_SAFETENSORS_MAPPED ? map_file(fd, f) : copy_file(fd, f, how == FRI_SAFETENSORS_CHECKED));
    fri_safetensors_close(out);
    *out = f;
    f = NULL;
done:
    if (fd >= 0) close(fd);
    if (s < 0) fri_fail_prefix(s, "safetensors file '%.300s': ", path);
    fri_safetensors_close(&f);
    return s;
}

fr_status fri_safetensors_open(const char *path, fri_safetensors **out) {
    return fri_safetensors_open_as(path, FRI_SAFETENSORS_MAPPED, out);
}

fr_status fri_safetensors_open_memory(const char *name, const void *content, size_t bytes, bool checked,
                                      fri_safetensors **out) {
    fr_status s = FR_OK;
    fri_safetensors *f = new_file();
    if (f == NULL) return fri_fail(FR_ENOMEM, "safetensors '%s': no host memory to open it", name);
    if (checked) FRI_TRY(s, check_sum(content, bytes));
    FRI_TRY(s, parse_content(f, content, bytes));
    fri_safetensors_close(out);
    *out = f;
    f = NULL;
done:
    if (s < 0) fri_fail_prefix(s, "safetensors '%.300s': ", name);
    fri_safetensors_close(&f);
    return s;
}

void fri_safetensors_close(fri_safetensors **file) {
    if (file == NULL || *file == NULL) return;
    struct fri_safetensors_private *p = (*file)->private;
    if (p->map != NULL) munmap(p->map, p->map_bytes);
    free(p->copy);
    cJSON_Delete(p->json);
    free(p->entries);
    free(p->by_name);
    free(p->metadata);
    free(p);
    free(*file);
    *file = NULL;
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
