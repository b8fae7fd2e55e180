/* tensor.c - constants of an ONNX file: TensorProto, with three ways to hold values. */
#include "addons/onnx/reader.h"

#include <frugal/weights.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef Onnx__TensorProto tensor;

int64_t fri_onnx_int(const fri_onnx_constant *c, int64_t i) {
    int64_t v = 0;
    if (c->dtype == FR_F32) {
        const double f = fri_onnx_float(c, i);
        return f >= -0x1p62 && f <= 0x1p62 ? (int64_t)f : 0;
    }
    memcpy(&v, (const char *)c->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

double fri_onnx_float(const fri_onnx_constant *c, int64_t i) {
    float v = 0;
    if (c->dtype == FR_I64) return (double)fri_onnx_int(c, i);
    memcpy(&v, (const char *)c->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

/* ---- making ---------------------------------------------------------------------------------------------- */

static fr_status add(fri_onnx_reader *r, fri_onnx_constant **out) {
    FRI_TRY(FRI_ROOM(r->constant, r->constants, "ONNX constants"));
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return fr_fail(FR_ENOMEM, "no host memory for a constant");
    r->constant[r->constants++] = *out;
    return FR_OK;
}

/* Memory for n elements of the constant, zeroed. */
static fr_status own(fri_onnx_constant *c, int64_t n) {
    c->data = c->own = calloc((size_t)n + 1, fr_dtype_size(c->dtype));
    return c->own != NULL ? FR_OK : fr_fail(FR_ENOMEM, "no host memory for %lld values", (long long)n);
}

fr_status fri_onnx_constant_new(fri_onnx_reader *r, fr_dtype dtype, int64_t n, fri_onnx_constant **out) {
    FRI_TRY(add(r, out));
    fri_onnx_constant *c = *out;
    *c = (fri_onnx_constant){.dtype = dtype, .rank = 1, .dim = {n}, .n = n};
    return own(c, n);
}

fr_status fri_onnx_constant_like(fri_onnx_reader *r, fr_dtype dtype, const fri_onnx_constant *c,
                                 fri_onnx_constant **out) {
    FRI_TRY(fri_onnx_constant_new(r, dtype, c->n, out));
    (*out)->rank = c->rank;
    memcpy((*out)->dim, c->dim, sizeof c->dim);
    return FR_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Types in files, the converted type, and bytes per element in raw_data. */
static const struct element {
    int type;
    fr_dtype file, becomes; /* file: type for fr_host_convert, or i64 for all integers */
    size_t bytes;
} elements[] = {
    {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, FR_F32, FR_F32, 4},
    {ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, FR_F64, FR_F32, 8},
    {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, FR_F16, FR_F32, 2},
    {ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, FR_BF16, FR_F32, 2},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT64, FR_I64, FR_I64, 8},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT32, FR_I64, FR_I64, 4},
    {ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, FR_I64, FR_I64, 1},
};

static const struct element *element_of(const tensor *t) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (t->has_data_type && elements[i].type == t->data_type) return &elements[i];
    return NULL;
}

/* The values of raw bytes, owned by the message (or *held, taken). */
static fr_status from_raw(fri_onnx_constant *c, const struct element *e, const void *raw, void **held) {
    if (e->file == e->becomes && e->bytes == fr_dtype_size(e->becomes)) {
        c->data = raw;
        c->own = *held;
        *held = NULL;
        return FR_OK;
    }
    FRI_TRY(own(c, c->n));
    if (e->becomes == FR_F32) {
        fr_host_convert(raw, e->file, c->own, FR_F32, c->n);
        return FR_OK;
    }
    for (int64_t i = 0; i < c->n; i++) {
        int32_t v = 0;
        memcpy(&v, (const char *)raw + (size_t)i * e->bytes, e->bytes);
        ((int64_t *)c->own)[i] = v;
    }
    return FR_OK;
}

/* The values of the typed fields; halves are the low bits of integers. */
static fr_status from_fields(fri_onnx_constant *c, const struct element *e, const tensor *t) {
    const bool half = e->bytes == 2, wide = e->file == FR_I64 && e->bytes == 8;
    const size_t n = e->file == FR_F32   ? t->n_float_data
                     : e->file == FR_F64 ? t->n_double_data
                     : wide              ? t->n_int64_data
                                         : t->n_int32_data;
    if (n != (size_t)c->n)
        return fr_fail(FR_EFORMAT, "constant '%.200s' holds %zu values; its shape has %lld", t->name ? t->name : "", n,
                       (long long)c->n);
    FRI_TRY(own(c, c->n));
    for (size_t i = 0; i < n; i++) {
        if (e->becomes == FR_I64) {
            ((int64_t *)c->own)[i] = wide ? t->int64_data[i] : t->int32_data[i];
        } else if (half) {
            const uint16_t bits = (uint16_t)t->int32_data[i];
            fr_host_convert(&bits, e->file, (float *)c->own + i, FR_F32, 1);
        } else {
            ((float *)c->own)[i] = e->file == FR_F32 ? t->float_data[i] : (float)t->double_data[i];
        }
    }
    return FR_OK;
}

/* ---- data beside the file -------------------------------------------------------------------------------- */

static const char *entry(const tensor *t, const char *key) {
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];
        if (e->key != NULL && e->value != NULL && strcmp(e->key, key) == 0) return e->value;
    }
    return "";
}

/* Names that lead out of the folder are refused. */
static fr_status beside(const char *path, const char *location, char out[4096]) {
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    bool out_of = location[0] == '\0' || location[0] == '/';
    for (const char *part = location; part != NULL && !out_of; part = strchr(part, '/')) {
        part += *part == '/';
        out_of = strcmp(part, "..") == 0 || strncmp(part, "../", 3) == 0;
    }
    if (out_of) return fr_fail(FR_EFORMAT, "its data are said to lie in '%.200s', outside of its folder", location);
    if (snprintf(out, 4096, "%.*s%s", folder, path, location) >= 4096)
        return fr_fail(FR_EFORMAT, "the path of its data '%.200s' is too long", location);
    char parent[4096];
    snprintf(parent, sizeof parent, "%.*s", folder > 0 ? folder : 1, folder > 0 ? path : ".");
    FRI_OWNED(fri_free) char *top = realpath(parent, NULL);
    FRI_OWNED(fri_free) char *file = realpath(out, NULL);
    const size_t n = top != NULL ? strlen(top) : 0;
    if (n > 1 && file != NULL && (strncmp(file, top, n) != 0 || file[n] != '/'))
        return fr_fail(FR_EFORMAT, "its data '%.200s' are a link that leads out of its folder", location);
    return FR_OK;
}

static fr_status read_beside(const fri_onnx_reader *r, const tensor *t, size_t bytes, void **out) {
    char path[4096], *end = NULL;
    const char *offset = entry(t, "offset"), *length = entry(t, "length");
    fr_status s = beside(r->path, entry(t, "location"), path);
    if (s < 0) return s;
    const unsigned long long at = strtoull(offset, &end, 10),
                             has = length[0] != '\0' ? strtoull(length, NULL, 10) : bytes;
    if (*end != '\0' || at > INT64_MAX || has != bytes)
        return fr_fail(FR_EFORMAT, "constant '%.200s' has %s bytes at '%.30s' of its data; its shape has %zu",
                       t->name ? t->name : "", length, offset, bytes);
    uint64_t size = 0;
    int fd = -1;
    s = fr_file_open(path, &fd, &size);
    if (s == FR_OK && (at > size || bytes > size - at))
        s = fr_fail(FR_EFORMAT, "end at %llu; constant '%.200s' needs %zu at %llu", (unsigned long long)size,
                    t->name ? t->name : "", bytes, at);
    if (s == FR_OK && (*out = malloc(bytes + 1)) == NULL)
        s = fr_fail(FR_ENOMEM, "no host memory for a constant of %zu bytes", bytes);
    if (s == FR_OK) s = fr_file_read(fd, *out, bytes, at);
    if (fd >= 0) (void)close(fd);
    return s < 0 ? fr_fail_prefix(s, "its data '%.300s': ", path) : FR_OK;
}

/* ---- the whole file ------------------------------------------------------------------------------------------- */

static fr_status set_shape(fri_onnx_constant *c, const tensor *t) {
    const char *name = t->name != NULL ? t->name : "";
    if (t->n_dims > FRI_ONNX_RANK)
        return fr_fail(FR_EUNSUPPORTED, "constant '%.200s' has rank %zu; %d at most", name, t->n_dims, FRI_ONNX_RANK);
    c->rank = (int)t->n_dims;
    c->n = 1;
    for (int i = 0; i < c->rank; i++) {
        c->dim[i] = t->dims[i];
        if (t->dims[i] < 0 || __builtin_mul_overflow(c->n, t->dims[i], &c->n) || c->n > INT64_MAX / 16)
            return fr_fail(FR_EFORMAT, "constant '%.200s' has an impossible shape", name);
    }
    return FR_OK;
}

fr_status fri_onnx_tensor_read(fri_onnx_reader *r, const tensor *t, fri_onnx_constant **out) {
    const char *name = t->name != NULL ? t->name : "";
    const struct element *e = element_of(t);
    FRI_OWNED(fri_free) void *held = NULL;
    FRI_TRY(add(r, out));
    if (e == NULL || t->segment != NULL)
        return fr_fail(FR_EUNSUPPORTED,
                       "constant '%.200s' has elements of type %d; float, double, half, bfloat16, int64, "
                       "int32 and bool are read",
                       name, t->has_data_type ? t->data_type : 0);
    (*out)->dtype = e->becomes;
    (*out)->name = name[0] != '\0' ? name : NULL;
    FRI_TRY(set_shape(*out, t));
    const size_t bytes = (size_t)(*out)->n * e->bytes;
    if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        FRI_TRY(read_beside(r, t, bytes, &held));
        return from_raw(*out, e, held, &held);
    }
    if (t->has_raw_data) {
        if (t->raw_data.len != bytes)
            return fr_fail(FR_EFORMAT, "constant '%.200s' holds %zu bytes; its shape has %zu", name, t->raw_data.len,
                           bytes);
        return from_raw(*out, e, t->raw_data.data, &held);
    }
    return from_fields(*out, e, t);
}
