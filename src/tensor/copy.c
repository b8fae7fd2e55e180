/* copy.c - moving, converting and adding data, outside graphs. */
#include "tensor/tensor.h"

#include "base/half.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

fr_status fri_tensor_fill(fr_tensor *t, double value) {
    fri_bump_version(t);
    return FRI_PASS(t, fill, value, fri_data(t));
}

fr_status fr_tensor_fill(fr_tensor *t, double value) {
    FRI_NOT_NULL(t);
    return fri_tensor_fill(t, value);
}

fr_status fri_tensor_cast_into(const fr_tensor *src, fr_tensor *dst) {
    fri_bump_version(dst);
    if (src->dtype == dst->dtype)
        return fri_backend_of(dst)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_DEVICE, fri_data(src), fri_data(dst),
                                         fri_nbytes(dst));
    return FRI_KERNEL(fri_backend_of(dst), FR_F32, cast,
                      (FRI_EXEC, src->dtype, dst->dtype, fri_numel(src), fri_data(src), fri_data(dst)));
}

fr_status fri_tensor_add_to(fr_tensor **sum, const fr_tensor *b, fr_category category) {
    FRI_OWNED(fr_tensor_release) fr_tensor *to = fri_tensor_sole(*sum) ? fr_tensor_retain(*sum) : NULL;
    if (to == NULL) FRI_TRY(fri_tensor_new(&b->shape, b->dtype, fri_device_of(b), category, &to));
    fri_bump_version(to);
    FRI_TRY(FRI_PASS(b, add, fri_data(*sum), fri_data(b), fri_data(to)));
    fri_tensor_put(&to, sum);
    return FR_OK;
}

fr_status fri_tensor_put_rows(fr_tensor *part, int64_t first, int64_t n, fr_category category, fr_tensor **whole) {
    FRI_OWNED(fr_tensor_release) fr_tensor *rows = NULL;
    if (*whole == NULL) {
        fr_shape shape = part->shape;
        shape.dim[0] = n;
        FRI_TRY(fri_tensor_new(&shape, part->dtype, fri_device_of(part), category, whole));
    }
    FRI_TRY(fr_tensor_narrow0(*whole, first, part->shape.dim[0], &rows));
    return fr_tensor_copy(rows, part);
}

fr_status fri_tensor_clone_as(const fr_tensor *t, fr_dtype dtype, fr_category category, fr_tensor **out) {
    FRI_OWNED(fr_tensor_release) fr_tensor *c = NULL;
    FRI_TRY(fri_tensor_new(&t->shape, dtype, fri_device_of(t), category, &c));
    FRI_TRY(fri_tensor_cast_into(t, c));
    fri_tensor_put(&c, out);
    return FR_OK;
}

fr_status fr_tensor_clone(const fr_tensor *t, fr_tensor **out) {
    FRI_NOT_NULL(t, out);
    return fri_tensor_clone_as(t, t->dtype, FR_MEM_TEMPORARY, out);
}

fr_status fr_tensor_to_host(const fr_tensor *t, void *data) {
    FRI_NOT_NULL(t);
    if (fri_nbytes(t) == 0) return FR_OK;
    FRI_NOT_NULL(data);
    return fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_HOST, fri_data(t), data, fri_nbytes(t));
}

fr_status fr_tensor_to_device(const fr_tensor *t, fr_device device, fr_tensor **out) {
    FRI_NOT_NULL(t, out);
    FRI_OWNED(fr_tensor_release) fr_tensor *moved = NULL;
    FRI_TRY(fri_tensor_new(&t->shape, t->dtype, device, FR_MEM_TEMPORARY, &moved));
    FRI_TRY(fr_tensor_copy(moved, t));
    fri_tensor_put(&moved, out);
    return FR_OK;
}

/* Copies between two devices through the host, at the source's dtype, then converted on the destination. */
static fr_status copy_across(fr_tensor *dst, const fr_tensor *src) {
    FRI_OWNED(fr_tensor_release) fr_tensor *same_dtype = NULL;
    FRI_OWNED(fri_free) void *host = NULL;
    if (fri_device_of(dst) == FR_META) return FR_OK;
    if (fri_device_of(src) == FR_META)
        return fr_fail(FR_EUNSUPPORTED, "copy: a meta tensor holds no data to copy to %s",
                       fr_device_name(fri_device_of(dst)));
    const void *from = fri_data(src);
    if (fri_device_of(src) != FR_CPU) {
        if ((host = malloc(fri_nbytes(src))) == NULL) return fr_fail(FR_ENOMEM, "copy: out of host memory");
        FRI_TRY(fr_tensor_to_host(src, host));
        from = host;
    }
    if (dst->dtype == src->dtype) {
        FRI_TRY(fri_backend_of(dst)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, from, fri_data(dst), fri_nbytes(dst)));
    } else {
        FRI_TRY(
            fr_tensor_from_host(from, src->shape.rank, src->shape.dim, src->dtype, fri_device_of(dst), &same_dtype));
        FRI_TRY(fri_tensor_cast_into(same_dtype, dst));
    }
    fri_bump_version(dst);
    return FR_OK;
}

fr_status fr_tensor_copy(fr_tensor *dst, const fr_tensor *src) {
    FRI_NOT_NULL(dst, src);
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    if (!fri_shape_equal(&dst->shape, &src->shape))
        return fr_fail(FR_ESHAPE, "copy: the destination is %s but the source is %s", fri_shape_text(&dst->shape, a),
                       fri_shape_text(&src->shape, b));
    if (fri_numel(src) == 0) return FR_OK;
    if (fri_device_of(dst) != fri_device_of(src)) return copy_across(dst, src);
    return fri_tensor_cast_into(src, dst);
}

/* ---- reading values ---------------------------------------------------------------------------------------- */

double fri_element(fr_dtype t, const void *data, int64_t i) {
    switch (t) {
    case FR_F32: return ((const float *)data)[i];
    case FR_F16: return fri_f32_from_f16(((const fri_f16 *)data)[i]);
    case FR_BF16: return fri_f32_from_bf16(((const fri_bf16 *)data)[i]);
    case FR_F64: return ((const double *)data)[i];
    case FR_I64: return (double)((const int64_t *)data)[i];
    case FR_I32: return ((const int32_t *)data)[i];
    case FR_I16: return ((const int16_t *)data)[i];
    case FR_I8: return ((const int8_t *)data)[i];
    case FR_U8: return ((const uint8_t *)data)[i];
    case FR_BOOL: return ((const uint8_t *)data)[i] != 0;
    }
    return 0;
}

fr_status fr_tensor_item(const fr_tensor *t, double *out) {
    FRI_NOT_NULL(t, out);
    uint64_t raw = 0; /* the widest element */
    char text[FRI_SHAPE_TEXT];
    if (fri_numel(t) != 1)
        return fr_fail(FR_ESHAPE, "item: the tensor has shape %s, one element is needed",
                       fri_shape_text(&t->shape, text));
    FRI_TRY(fr_tensor_to_host(t, &raw));
    *out = fri_element(t->dtype, &raw, 0);
    return FR_OK;
}

fr_status fr_tensor_print(const fr_tensor *t, FILE *out) {
    FRI_NOT_NULL(t, out);
    enum { VALUES = 64 };
    char text[FRI_SHAPE_TEXT];
    int64_t n = fri_numel(t);
    fprintf(out, "%s %s on %s", fr_dtype_name(t->dtype), fri_shape_text(&t->shape, text),
            fr_device_name(fri_device_of(t)));
    if (n > 0 && n <= VALUES && fri_device_of(t) != FR_META) {
        uint64_t values[VALUES];
        FRI_TRY(fr_tensor_to_host(t, values));
        fprintf(out, ":");
        for (int64_t i = 0; i < n; i++) fr_fprintf(out, " %.6g", fri_element(t->dtype, values, i));
    }
    fprintf(out, "\n");
    return ferror(out) ? fr_fail(FR_EIO, "tensor print: the stream reports a write error") : FR_OK;
}
