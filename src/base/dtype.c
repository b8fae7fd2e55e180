/* dtype.c - names and sizes of the element types. */
#include <frugal/base.h>

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} dtypes[FR_DTYPE_COUNT] = {
    [FR_F32] = {"f32", 4, true},    [FR_F16] = {"f16", 2, true},  [FR_BF16] = {"bf16", 2, true},
    [FR_F64] = {"f64", 8, true},    [FR_I64] = {"i64", 8, false}, [FR_I32] = {"i32", 4, false},
    [FR_I16] = {"i16", 2, false},   [FR_I8] = {"i8", 1, false},   [FR_U8] = {"u8", 1, false},
    [FR_BOOL] = {"bool", 1, false},
};

static bool dtype_known(fr_dtype t) {
    return (int)t >= 0 && (int)t < FR_DTYPE_COUNT;
}

size_t fr_dtype_size(fr_dtype t) {
    return dtype_known(t) ? dtypes[t].size : 0;
}

const char *fr_dtype_name(fr_dtype t) {
    return dtype_known(t) ? dtypes[t].name : "?";
}

bool fr_dtype_is_float(fr_dtype t) {
    return dtype_known(t) && dtypes[t].is_float;
}
