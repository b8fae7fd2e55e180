/* dlpack.c - export and import of CPU tensors by DLPack: see frugal/dlpack.h. */
#include "io/dlpack.h"

#include "base/status.h"
#include "tensor/tensor.h"

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || (sizeof(fri_dl_tensor) == 48 && sizeof(struct DLManagedTensorVersioned) == 80),
               "the published layout");

static const struct {
    uint8_t code, bits;
} types[FR_DTYPE_COUNT] = {
    [FR_F32] = {FRI_DL_FLOAT, 32}, [FR_F16] = {FRI_DL_FLOAT, 16}, [FR_BF16] = {FRI_DL_BFLOAT, 16},
    [FR_F64] = {FRI_DL_FLOAT, 64}, [FR_I64] = {FRI_DL_INT, 64},   [FR_I32] = {FRI_DL_INT, 32},
    [FR_I16] = {FRI_DL_INT, 16},   [FR_I8] = {FRI_DL_INT, 8},     [FR_U8] = {FRI_DL_UINT, 8},
    [FR_BOOL] = {FRI_DL_BOOL, 8},
};

/* ---- export ------------------------------------------------------------------------------------------------ */

/* Tensor for the foreign program, with the arrays of the description. */
typedef struct exported {
    struct DLManagedTensorVersioned managed;
    int64_t shape[FR_MAX_RANK], strides[FR_MAX_RANK];
    fr_tensor *tensor;
} exported;

static void delete_exported(exported *e) {
    fr_tensor_release(&e->tensor);
    free(e);
}

static void delete_versioned(struct DLManagedTensorVersioned *self) {
    if (self != NULL) delete_exported(self->manager_ctx);
}

static fr_status make_exported(fr_tensor *t, exported **out) {
    if (t->requires_grad)
        return fr_fail(FR_EUSAGE, "dlpack: the tensor requires grad; export the result of fr_tensor_detach");
    if (fri_device_of(t) != FR_CPU)
        return fr_fail(FR_EUNSUPPORTED, "dlpack: the tensor is on %s; tensors on cpu can be exported",
                       fr_device_name(fri_device_of(t)));
    FRI_OWNED(fri_free) exported *e = calloc(1, sizeof *e);
    if (e == NULL) return fr_fail(FR_ENOMEM, "dlpack: out of host memory");
    FRI_TRY(fr_tensor_detach(t, &e->tensor));
    int64_t stride = 1;
    for (int i = t->shape.rank - 1; i >= 0; i--) {
        e->shape[i] = t->shape.dim[i];
        e->strides[i] = stride;
        stride *= t->shape.dim[i];
    }
    FRI_MOVE(out, e);
    return FR_OK;
}

static fri_dl_tensor describe_memory(exported *e) {
    const fr_tensor *t = e->tensor;
    return (fri_dl_tensor){.data = fri_numel(t) > 0 ? fri_data(t) : NULL,
                           .device_type = FRI_DL_CPU,
                           .ndim = t->shape.rank,
                           .dtype = {types[t->dtype].code, types[t->dtype].bits, 1},
                           .shape = e->shape,
                           .strides = e->strides};
}

fr_status fr_tensor_to_dlpack(fr_tensor *t, struct DLManagedTensorVersioned **out) {
    FRI_NOT_NULL(t, out);
    exported *e = NULL;
    FRI_TRY(make_exported(t, &e));
    e->managed = (struct DLManagedTensorVersioned){.version = {FRI_DL_MAJOR, FRI_DL_MINOR},
                                                   .manager_ctx = e,
                                                   .deleter = delete_versioned,
                                                   .dl_tensor = describe_memory(e)};
    *out = &e->managed;
    return FR_OK;
}

/* ---- import ------------------------------------------------------------------------------------------------ */

static fr_status import_dtype(const fri_dl_tensor *d, fr_dtype *out) {
    for (int i = 0; i < FR_DTYPE_COUNT && d->dtype.lanes == 1; i++) {
        if (types[i].code != d->dtype.code || types[i].bits != d->dtype.bits) continue;
        *out = (fr_dtype)i;
        return FR_OK;
    }
    return fr_fail(FR_EDTYPE, "dlpack: the type of code %u, %u bits and %u lanes is not supported", d->dtype.code,
                   d->dtype.bits, d->dtype.lanes);
}

static fr_status import_shape(const fri_dl_tensor *d, fr_shape *out) {
    if (d->ndim < 0 || d->ndim > FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "dlpack: rank %d is outside 0..%d", d->ndim, FR_MAX_RANK);
    if (d->ndim > 0 && d->shape == NULL) return fr_fail(FR_EINVAL, "dlpack: shape is NULL but rank is %d", d->ndim);
    *out = fri_shape_of(d->ndim, d->shape);
    return FR_OK;
}

static fr_status check_compact(const fri_dl_tensor *d, const fr_shape *shape) {
    int64_t expected = 1;
    if (d->strides == NULL || fri_shape_numel(shape) == 0) return FR_OK;
    for (int i = shape->rank - 1; i >= 0; i--) {
        if (shape->dim[i] != 1 && d->strides[i] != expected)
            return fr_fail(FR_EUNSUPPORTED,
                           "dlpack: dimension %d has stride %lld, a compact row-major tensor has %lld: copy it first",
                           i, (long long)d->strides[i], (long long)expected);
        expected *= shape->dim[i];
    }
    return FR_OK;
}

static fr_status import_tensor(const fri_dl_tensor *d, void (*fn)(void *owner), void *owner, fr_tensor **out) {
    fr_shape shape;
    fr_dtype dtype = FR_F32;
    size_t bytes = 0;
    fri_storage *storage = NULL;
    if (d->device_type != FRI_DL_CPU)
        return fr_fail(FR_EUNSUPPORTED, "dlpack: the memory is on a device of type %d; type %d (cpu) can be imported",
                       d->device_type, FRI_DL_CPU);
    FRI_TRY(import_dtype(d, &dtype));
    FRI_TRY(import_shape(d, &shape));
    FRI_TRY(fri_shape_bytes("dlpack: the tensor", &shape, dtype, &bytes));
    FRI_TRY(check_compact(d, &shape));
    if (bytes > 0 && d->data == NULL) return fr_fail(FR_EINVAL, "dlpack: data is NULL for %zu bytes", bytes);
    if (d->data != NULL &&
        (bytes > UINTPTR_MAX - (uintptr_t)d->data || d->byte_offset > UINTPTR_MAX - (uintptr_t)d->data - bytes))
        return fr_fail(FR_EINVAL, "dlpack: byte offset %llu exceeds the address space",
                       (unsigned long long)d->byte_offset);
    char *data = d->data == NULL ? NULL : (char *)d->data + d->byte_offset;
    if ((uintptr_t)data % fr_dtype_size(dtype) != 0)
        return fr_fail(FR_EUNSUPPORTED, "dlpack: the data are not aligned to their elements of %zu bytes",
                       fr_dtype_size(dtype));
    fr_tag tag = fri_tag_make(FR_MEM_INPUT, dtype, &shape);
    FRI_TRY(fri_storage_foreign(data, bytes, &tag, fn, owner, &storage));
    const fr_status s = fri_tensor_on_storage(storage, 0, &shape, dtype, out);
    if (s < 0) storage->foreign_owner = NULL; /* stays the caller's */
    fri_storage_release_handle(storage);
    return s;
}

static void release_versioned(void *owner) {
    struct DLManagedTensorVersioned *m = owner;
    if (m != NULL && m->deleter != NULL) m->deleter(m);
}

fr_status fr_tensor_from_dlpack(struct DLManagedTensorVersioned **managed, fr_tensor **out) {
    FRI_NOT_NULL(managed, out);
    if (*managed == NULL) return fr_fail(FR_EINVAL, "dlpack: the tensor to import is NULL");
    if ((*managed)->version.major != FRI_DL_MAJOR)
        return fr_fail(FR_EFORMAT, "dlpack: the tensor is of major version %u, this library reads version %d",
                       (*managed)->version.major, FRI_DL_MAJOR);
    if ((*managed)->flags & FRI_DL_READ_ONLY)
        return fr_fail(FR_EUNSUPPORTED, "dlpack: the memory is read-only, but tensors are writable; export a copy");
    fr_status s = import_tensor(&(*managed)->dl_tensor, release_versioned, *managed, out);
    if (s == FR_OK) *managed = NULL;
    return s;
}
