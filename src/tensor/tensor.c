/* tensor.c - handles: making, viewing, releasing, looking. */
#include "tensor/tensor.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static void (*grad_state_free)(fr_tensor *t);

void fri_tensor_set_grad_state_free(void (*fn)(fr_tensor *t)) {
    grad_state_free = fn;
}

fr_status fri_tensor_on_storage(fri_storage *s, size_t offset, const fr_shape *shape, fr_dtype dtype, fr_tensor **out) {
    fr_tensor *t = calloc(1, sizeof *t);
    if (t == NULL) return fr_fail(FR_ENOMEM, "tensor: out of host memory");
    t->references = 1;
    t->storage = s;
    t->offset = offset;
    t->shape = *shape;
    t->dtype = dtype;
    fri_storage_retain_handle(s);
    fri_tensor_put(&t, out);
    return FR_OK;
}

fr_status fri_tensor_new(const fr_shape *shape, fr_dtype dtype, fr_device device, fr_category category,
                         fr_tensor **out) {
    size_t bytes = 0;
    fri_storage *storage = NULL;
    FRI_TRY(fri_shape_bytes("tensor", shape, dtype, &bytes));
    fr_tag tag = fri_tag_make(category, dtype, shape);
    FRI_TRY(fri_storage_create(device, bytes, &tag, &storage));
    fr_status s = fri_tensor_on_storage(storage, 0, shape, dtype, out);
    fri_storage_release_handle(storage);
    return s;
}

fr_status fri_tensor_view(fr_tensor *t, const fr_shape *shape, fr_tensor **out) {
    return fri_tensor_on_storage(t->storage, t->offset, shape, t->dtype, out);
}

void fri_tensor_put(fr_tensor **result, fr_tensor **out) {
    fr_tensor *old = *out;
    *out = *result;
    *result = NULL;
    fr_tensor_release(&old);
}

fr_tensor *fr_tensor_retain(fr_tensor *t) {
    if (t != NULL) t->references++;
    return t;
}

void fr_tensor_release(fr_tensor **p) {
    fr_tensor *t = p != NULL ? *p : NULL;
    if (t == NULL) return;
    *p = NULL;
    if (--t->references > 0) return;
    if (t->grad_state != NULL && grad_state_free != NULL) grad_state_free(t);
    fri_storage_release_handle(t->storage);
    free(t);
}

/* ---- making ------------------------------------------------------------------------------------------------ */

static fr_status check_rank(int rank) {
    if (rank < 0 || rank > FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "tensor: rank %d is outside 0..%d", rank, FR_MAX_RANK);
    return FR_OK;
}

fr_status fr_tensor_empty(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    FRI_TRY(check_rank(rank));
    fr_shape dims = fri_shape_of(rank, shape);
    return fri_tensor_new(&dims, dtype, device, FR_MEM_TEMPORARY, out);
}

fr_status fr_tensor_full(int rank, const int64_t *shape, double value, fr_dtype dtype, fr_device device,
                         fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    FRI_TRY(fr_tensor_empty(rank, shape, dtype, device, &t));
    FRI_TRY(fri_tensor_fill(t, value));
    fri_tensor_put(&t, out);
    return FR_OK;
}

fr_status fr_tensor_zeros(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    return fr_tensor_full(rank, shape, 0, dtype, device, out);
}

fr_status fr_tensor_from_host(const void *data, int rank, const int64_t *shape, fr_dtype dtype, fr_device device,
                              fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    FRI_TRY(fr_tensor_empty(rank, shape, dtype, device, &t));
    if (fri_nbytes(t) > 0) FRI_TRY(FRI_CHECK_NULL(data));
    FRI_TRY(fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, data, fri_data(t), fri_nbytes(t)));
    fri_tensor_put(&t, out);
    return FR_OK;
}

fr_status fri_tensor_randomize(fr_tensor *t, bool normal, double a, double b) {
    fr_rng r = fri_rng_draw();
    fri_bump_version(t);
    if (normal) return FRI_PASS(t, normal, r.seed, r.next_stream, a, b, fri_data(t));
    return FRI_PASS(t, uniform, r.seed, r.next_stream, a, b, fri_data(t));
}

static fr_status random_tensor(bool normal, int rank, const int64_t *shape, double a, double b, fr_dtype dtype,
                               fr_device device, fr_tensor **out) {
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    if (!fr_dtype_is_float(dtype))
        return fr_fail(FR_EDTYPE, "random tensor: %s is not a float type", fr_dtype_name(dtype));
    FRI_TRY(fr_tensor_empty(rank, shape, dtype, device, &t));
    FRI_TRY(fri_tensor_randomize(t, normal, a, b));
    fri_tensor_put(&t, out);
    return FR_OK;
}

fr_status fr_tensor_uniform(int rank, const int64_t *shape, double low, double high, fr_dtype dtype, fr_device device,
                            fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    return random_tensor(false, rank, shape, low, high, dtype, device, out);
}

fr_status fr_tensor_normal(int rank, const int64_t *shape, double mean, double std, fr_dtype dtype, fr_device device,
                           fr_tensor **out) {
    FRI_NOT_NULL(out);
    if (rank > 0) FRI_NOT_NULL(shape);
    return random_tensor(true, rank, shape, mean, std, dtype, device, out);
}

fr_status fr_tensor_detach(fr_tensor *t, fr_tensor **out) {
    FRI_NOT_NULL(t, out);
    return fri_tensor_view(t, &t->shape, out);
}

fr_status fr_tensor_narrow0(fr_tensor *t, int64_t start, int64_t length, fr_tensor **out) {
    FRI_NOT_NULL(t, out);
    if (t->shape.rank == 0) return fr_fail(FR_ESHAPE, "narrow0: a scalar has no dimension 0");
    int64_t rows = t->shape.dim[0];
    if (start < 0 || length < 0 || start > rows - length)
        return fr_fail(FR_ESHAPE, "narrow0: %lld rows from row %lld on exceed the %lld rows of the tensor",
                       (long long)length, (long long)start, (long long)rows);
    fr_shape shape = t->shape;
    shape.dim[0] = length;
    size_t row_bytes = rows > 0 ? fri_nbytes(t) / (size_t)rows : 0;
    return fri_tensor_on_storage(t->storage, t->offset + (size_t)start * row_bytes, &shape, t->dtype, out);
}

/* ---- looking ----------------------------------------------------------------------------------------------- */

int fr_tensor_rank(const fr_tensor *t) {
    return t != NULL ? t->shape.rank : 0;
}

int64_t fr_tensor_dim(const fr_tensor *t, int i) {
    if (t == NULL) return 0;
    if (i < 0) i += t->shape.rank;
    return i >= 0 && i < t->shape.rank ? t->shape.dim[i] : 0;
}

const int64_t *fr_tensor_shape(const fr_tensor *t) {
    return t != NULL ? t->shape.dim : NULL;
}

int64_t fri_numel(const fr_tensor *t) {
    return fri_shape_numel(&t->shape);
}

int64_t fr_tensor_numel(const fr_tensor *t) {
    return t != NULL ? fri_numel(t) : 0;
}

size_t fri_nbytes(const fr_tensor *t) {
    return (size_t)fri_numel(t) * fr_dtype_size(t->dtype);
}

size_t fr_tensor_nbytes(const fr_tensor *t) {
    return t != NULL ? fri_nbytes(t) : 0;
}

fr_dtype fr_tensor_dtype(const fr_tensor *t) {
    return t != NULL ? t->dtype : FR_F32;
}

fr_device fr_tensor_device(const fr_tensor *t) {
    return t != NULL ? fri_device_of(t) : FR_CPU;
}

void *fr_tensor_data(fr_tensor *t) {
    if (t == NULL) return NULL;
    return fri_device_of(t) == FR_META ? NULL : fri_data(t);
}

void fr_tensor_category_set(fr_tensor *t, fr_category c) {
    if (t == NULL) return;
    fri_block_relabel(t->storage->block, c);
}

fr_status fri_workspace_begin(const fr_tensor *like, size_t bytes, fri_workspace *w) {
    *w = (fri_workspace){.exec = *FRI_EXEC};
    if (bytes == 0) return FR_OK;
    fri_allocator *a = NULL;
    fr_shape shape = FRI_SHAPE((int64_t)bytes);
    fr_tag tag = fri_tag_make(FR_MEM_WORKSPACE, FR_U8, &shape);
    FRI_TRY(fri_allocator_get(fri_device_of(like), &a));
    FRI_TRY(fri_block_alloc(a, bytes, &tag, &w->block));
    w->exec.workspace = w->block->data;
    w->exec.workspace_bytes = bytes;
    return FR_OK;
}

void fri_workspace_end(fri_workspace *w) {
    fri_block_free(&w->block);
}
