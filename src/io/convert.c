/* convert.c - element types and layouts on the host (frugal/weights.h). */

#include "base/half.h"

#include <frugal/weights.h>

static double load_value(const char *at, fr_dtype t) {
    float f;
    double d;
    uint16_t h;
    switch (t) {
    case FR_F64: memcpy(&d, at, sizeof d); return d;
    case FR_F16: memcpy(&h, at, sizeof h); return fri_f32_from_f16(h);
    case FR_BF16: memcpy(&h, at, sizeof h); return fri_f32_from_bf16(h);
    default: memcpy(&f, at, sizeof f); return f;
    }
}

static void store_value(double value, char *at, fr_dtype t) {
    float f = (float)value;
    uint16_t h;
    switch (t) {
    case FR_F64: memcpy(at, &value, sizeof value); return;
    case FR_F16: h = fri_f16_from_f32(f); break;
    case FR_BF16: h = fri_bf16_from_f32(f); break;
    default: memcpy(at, &f, sizeof f); return;
    }
    memcpy(at, &h, sizeof h);
}

void fr_host_convert(const void *from, fr_dtype from_type, void *to, fr_dtype to_type, int64_t n) {
    size_t p = fr_dtype_size(from_type), q = fr_dtype_size(to_type);
    if (n == 0) return;
    if (from_type == to_type) {
        memcpy(to, from, (size_t)n * p);
        return;
    }
    for (size_t i = 0; i < (size_t)n; i++)
        store_value(load_value((const char *)from + i * p, from_type), (char *)to + i * q, to_type);
}

void fr_host_transpose(const void *from, void *to, size_t size, int64_t outer, int64_t a, int64_t b) {
    const char *source = from;
    char *target = to;
    size_t rows = (size_t)a, columns = (size_t)b;
    for (size_t o = 0; o < (size_t)outer; o++, source += rows * columns * size, target += rows * columns * size)
        for (size_t j = 0; j < columns; j++)
            for (size_t i = 0; i < rows; i++)
                memcpy(target + (j * rows + i) * size, source + (i * columns + j) * size, size);
}
