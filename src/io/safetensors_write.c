/* safetensors_write.c - the writer: see safetensors.h. base/atomic_file.h puts the file in place. */
#include "io/safetensors.h"

#include "base/atomic_file.h"
#include "base/status.h"
#include "io/safetensors_format.h"

#include <cJSON.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { HEADER_ALIGN = 8 }; /* data begin at a multiple of the largest element */

/* An entry and the place in the file. */
typedef struct placed {
    const fri_safetensors_entry *entry;
    size_t index, bytes;
} placed;

static int by_element_size(const void *a, const void *b) {
    const placed *x = a, *y = b;
    size_t p = fr_dtype_size(x->entry->dtype), q = fr_dtype_size(y->entry->dtype);
    if (p != q) return p > q ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* `failure` if a string appears twice in texts. Sorts texts. */
static fr_status check_unique(fr_status failure, const char *what, const char **texts, size_t n) {
    qsort(texts, n, sizeof *texts, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0) return fr_fail(failure, "%s '%s' appears twice", what, texts[i]);
    return FR_OK;
}

fr_status fri_safetensors_unique_keys(fr_status failure, const fri_safetensors_text *metadata, size_t n) {
    const char **keys = calloc(n + 1, sizeof *keys);
    if (keys == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu metadata keys", n);
    for (size_t i = 0; i < n; i++) keys[i] = metadata[i].key;
    fr_status s = check_unique(failure, "metadata", keys, n);
    free(keys);
    return s;
}

static fr_status check_name(const char *what, size_t i, const char *text) {
    if (text == NULL) return fr_fail(FR_EINVAL, "%s %zu is NULL, expected a string", what, i);
    if (!fri_safetensors_utf8(text, strlen(text))) return fr_fail(FR_EINVAL, "%s %zu is not valid UTF-8", what, i);
    return FR_OK;
}

/* Checks all entries and puts them in the order of the file. */
static fr_status place_entries(const fri_safetensors_entry *entries, size_t n, bool has_source, placed *order) {
    FRI_OWNED(fri_free) const char **names = calloc(n + 1, sizeof *names);
    if (names == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        const fri_safetensors_entry *e = &entries[i];
        FRI_TRY(check_name("the name of tensor", i, e->name));
        if (strcmp(e->name, FRI_SAFETENSORS_METADATA) == 0)
            return fr_fail(FR_EINVAL, "tensor %zu has the name '%s', which the format reserves", i, e->name);
        names[i] = e->name;
        order[i] = (placed){.entry = e, .index = i};
        FRI_TRY(fri_shape_bytes(e->name, &e->shape, e->dtype, &order[i].bytes));
        if (e->data == NULL && order[i].bytes > 0 && !has_source)
            return fr_fail(FR_EINVAL, "tensor '%s' has %zu bytes but neither data nor a source", e->name,
                           order[i].bytes);
    }
    FRI_TRY(check_unique(FR_EINVAL, "tensor", names, n));
    qsort(order, n, sizeof *order, by_element_size);
    return FR_OK;
}

static bool describe(cJSON *root, const placed *p, size_t begin) {
    char shape[FRI_SHAPE_TEXT], offsets[64];
    const fri_safetensors_entry *e = p->entry;
    snprintf(offsets, sizeof offsets, "[%zu,%zu]", begin, begin + p->bytes);
    cJSON *item = cJSON_AddObjectToObject(root, e->name);
    /* Raw text: cJSON would print large numbers in exponent form, refused by other readers. */
    return item != NULL && cJSON_AddStringToObject(item, "dtype", fri_safetensors_dtype[e->dtype]) != NULL &&
           cJSON_AddRawToObject(item, "shape", fri_shape_text(&e->shape, shape)) != NULL &&
           cJSON_AddRawToObject(item, "data_offsets", offsets) != NULL;
}

static fr_status make_header(const placed *order, size_t n, const fri_safetensors_text *metadata, size_t n_metadata,
                             char **out) {
    fr_status s = FR_OK;
    bool ok = true;
    size_t at = 0;
    cJSON *root = cJSON_CreateObject();
    cJSON *texts = root != NULL && n_metadata > 0 ? cJSON_AddObjectToObject(root, FRI_SAFETENSORS_METADATA) : NULL;
    ok = root != NULL && (n_metadata == 0 || texts != NULL);
    for (size_t i = 0; ok && i < n_metadata; i++) {
        FR_TRY(s, check_name("the key of metadata", i, metadata[i].key));
        FR_TRY(s, check_name("the value of metadata", i, metadata[i].value));
        ok = cJSON_AddStringToObject(texts, metadata[i].key, metadata[i].value) != NULL;
    }
    if (ok) FR_TRY(s, fri_safetensors_unique_keys(FR_EINVAL, metadata, n_metadata));
    for (size_t i = 0; ok && i < n; i++) {
        ok = describe(root, &order[i], at);
        if (__builtin_add_overflow(at, order[i].bytes, &at) || at > INT64_MAX) {
            s = fr_fail(FR_ESHAPE, "the data up to tensor '%s' do not fit into 63 bits", order[i].entry->name);
            goto done;
        }
    }
    *out = ok ? cJSON_PrintUnformatted(root) : NULL;
    if (*out == NULL) s = fr_fail(FR_ENOMEM, "no host memory for a header of %zu tensors", n);
done:
    cJSON_Delete(root);
    return s;
}

/* The output file, and the CRC-32 of the written bytes. */
typedef struct sink {
    fr_atomic_file file;
    char *json;
    uint32_t crc;
    unsigned char checksum[FRI_SAFETENSORS_CHECKSUM_BYTES];
} sink;

static fr_status put_bytes(sink *to, const void *data, size_t bytes) {
    to->crc = (uint32_t)crc32_z(to->crc, data, bytes);
    return fr_atomic_put(&to->file, data, bytes);
}

static fr_status put_header(sink *to, const char *json) {
    static const char spaces[HEADER_ALIGN] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    size_t n = strlen(json), pad = (HEADER_ALIGN - n % HEADER_ALIGN) % HEADER_ALIGN;
    unsigned char length[8];
    if (n + pad > FRI_SAFETENSORS_MAX_HEADER)
        return fr_fail(FR_EINVAL, "the header needs %zu bytes, expected at most %d", n + pad,
                       FRI_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(n + pad) >> 8 * i);
    FRI_TRY(put_bytes(to, length, sizeof length));
    FRI_TRY(put_bytes(to, json, n));
    return put_bytes(to, spaces, pad);
}

static fr_status put_data(sink *to, const placed *p, fri_safetensors_source_fn *source, void *context) {
    const void *data = p->entry->data;
    if (p->bytes == 0) return FR_OK;
    if (data == NULL) FRI_TRY(source(context, p->index, &data));
    if (data == NULL) return fr_fail(FR_EINVAL, "the source of tensor '%s' gave no data", p->entry->name);
    return put_bytes(to, data, p->bytes);
}

/* Writes all entries; if the last is the checksum, computes and writes the checksum. */
static fr_status put_all(sink *to, const char *json, const placed *order, size_t n, bool checked,
                         fri_safetensors_source_fn *source, void *context) {
    FRI_TRY(put_header(to, json));
    for (size_t i = 0; i < n; i++) {
        if (checked && i == n - 1)
            for (int k = 0; k < FRI_SAFETENSORS_CHECKSUM_BYTES; k++)
                to->checksum[k] = (unsigned char)(to->crc >> 8 * k);
        FRI_TRY(put_data(to, &order[i], source, context));
    }
    return FR_OK;
}

static fr_status check_arguments(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                 const fri_safetensors_text *metadata, size_t n_metadata) {
    const char *missing = path == NULL                         ? "path"
                          : entries == NULL && n_entries > 0   ? "entry list"
                          : metadata == NULL && n_metadata > 0 ? "metadata list"
                                                               : NULL;
    if (missing == NULL) return FR_OK;
    return fr_fail(FR_EINVAL, "safetensors: the %s is NULL, expected an address", missing);
}

static fr_status write_file(const char *path, const fri_safetensors_entry *entries, size_t n, bool checked, sink *to,
                            const fri_safetensors_text *metadata, size_t n_metadata, fri_safetensors_source_fn *source,
                            void *context) {
    FRI_OWNED(fri_free) placed *order = calloc(n + 1, sizeof *order);
    if (order == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", n);
    FRI_TRY(place_entries(entries, n, source != NULL, order));
    FRI_TRY(make_header(order, n, metadata, n_metadata, &to->json));
    FRI_TRY(fr_atomic_open(path, 0666, &to->file));
    FRI_TRY(put_all(to, to->json, order, n, checked, source, context));
    return fr_atomic_commit(&to->file);
}

/* The checksum is last in the file, with the smallest element size and the last index. */
static fr_status write_all(const char *path, const fri_safetensors_entry *entries, size_t n, bool checked,
                           const fri_safetensors_text *metadata, size_t n_metadata, fri_safetensors_source_fn *source,
                           void *context) {
    sink to = {.file = FR_ATOMIC_FILE_CLOSED};
    FRI_TRY(check_arguments(path, entries, n, metadata, n_metadata));
    FRI_OWNED(fri_free) fri_safetensors_entry *all = calloc(n + 1, sizeof *all);
    if (all == NULL) return fr_fail(FR_ENOMEM, "safetensors file '%.300s': no host memory for its entries", path);
    if (n > 0) memcpy(all, entries, n * sizeof *all);
    all[n] = (fri_safetensors_entry){.name = FRI_SAFETENSORS_CHECKSUM,
                                     .dtype = FR_U8,
                                     .shape = {.rank = 1, .dim = {FRI_SAFETENSORS_CHECKSUM_BYTES}},
                                     .data = to.checksum};
    const fr_status s = write_file(path, all, checked ? n + 1 : n, checked, &to, metadata, n_metadata, source, context);
    fr_atomic_abandon(&to.file);
    cJSON_free(to.json);
    return s < 0 ? fr_fail_prefix(s, "safetensors file '%.300s': ", path) : s;
}

fr_status fri_safetensors_write(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                const fri_safetensors_text *metadata, size_t n_metadata,
                                fri_safetensors_source_fn *source, void *context) {
    return write_all(path, entries, n_entries, false, metadata, n_metadata, source, context);
}

fr_status fri_safetensors_write_checked(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                        const fri_safetensors_text *metadata, size_t n_metadata,
                                        fri_safetensors_source_fn *source, void *context) {
    return write_all(path, entries, n_entries, true, metadata, n_metadata, source, context);
}
