/* tensor.h - the tensor struct, for the floors above. */
#ifndef FRI_TENSOR_TENSOR_H
#define FRI_TENSOR_TENSOR_H

#include "tensor/storage.h"

#include <frugal/tensor.h>

_Static_assert((int)FR_MAX_RANK == (int)FR_MAX_RANK, "one maximum rank");

struct fr_tensor {
    int references;
    fri_storage *storage;
    size_t offset; /* bytes from the start of the storage */
    fr_shape shape;
    fr_dtype dtype;
    bool requires_grad; /* a leaf with .grad, or the result of a recorded op */
    void *grad_state;   /* autograd: the leaf's gradient and hook, or the tensor's node; see autograd/node.h */
};

/* Called when a tensor with grad_state dies. */
void fri_tensor_set_grad_state_free(void (*fn)(fr_tensor *t));

/* New storage of the given category. The tensor is not in any graph. */
fr_status fri_tensor_new(const fr_shape *shape, fr_dtype dtype, fr_device device, fr_category category,
                         fr_tensor **out);
/* A new handle on a storage (adds to the handle count), with the given shape and dtype. */
fr_status fri_tensor_on_storage(fri_storage *s, size_t offset, const fr_shape *shape, fr_dtype dtype, fr_tensor **out);
/* A view of t's bytes with a shape of equal numel, outside any graph. */
fr_status fri_tensor_view(fr_tensor *t, const fr_shape *shape, fr_tensor **out);

/* Moves *result to the slot *out and releases the old *out. *result becomes NULL. */
void fri_tensor_put(fr_tensor **result, fr_tensor **out);

/* Number of in-place writes to the storage. */
static inline uint64_t fri_tensor_version(const fr_tensor *t) {
    return t->storage->version;
}
static inline void *fri_data(const fr_tensor *t) {
    return t->storage->block->data == NULL ? NULL : (char *)t->storage->block->data + t->offset;
}
static inline void *fri_data_of(const fr_tensor *t) { /* t: may be NULL */
    return t != NULL ? fri_data(t) : NULL;
}
static inline const fri_backend *fri_backend_of(const fr_tensor *t) {
    return t->storage->backend;
}
static inline fr_device fri_device_of(const fr_tensor *t) {
    return t->storage->backend->device;
}
size_t fri_nbytes(const fr_tensor *t);
int64_t fri_numel(const fr_tensor *t);
static inline void fri_bump_version(fr_tensor *t) {
    t->storage->version++;
    t->storage->last_writer = fri_scope_op();
}

/* True if only the given handle can reach the bytes, so an in-place write is invisible. */
static inline bool fri_tensor_sole(const fr_tensor *t) {
    return t->references == 1 && t->storage->handles == 1 && t->storage->slots == 0 && t->storage->foreign_free == NULL;
}

/* Scratch for the duration of an op: a block of category workspace. bytes 0 gives NULL. */
typedef struct fri_workspace {
    fri_block *block;
    fri_exec exec;
} fri_workspace;
fr_status fri_workspace_begin(const fr_tensor *like, size_t bytes, fri_workspace *w);
void fri_workspace_end(fri_workspace *w);

/* ---- arithmetic on data, no graph (copy.c) ----------------------------------------------------------------- */

fr_status fri_tensor_fill(fr_tensor *t, double value);
/* Element i of host memory of the type. */
double fri_element(fr_dtype t, const void *data, int64_t i);
/* N(a, b) or U[a, b) from the thread's generator. */
fr_status fri_tensor_randomize(fr_tensor *t, bool normal, double a, double b);
fr_status fri_tensor_cast_into(const fr_tensor *src, fr_tensor *dst); /* equal shape and device */
/* *sum += b, of equal shape, device and dtype. A shared *sum becomes a new tensor of the category. */
fr_status fri_tensor_add_to(fr_tensor **sum, const fr_tensor *b, fr_category category);
fr_status fri_tensor_clone_as(const fr_tensor *t, fr_dtype dtype, fr_category category, fr_tensor **out);
/* Copies `part` into rows first .. of *whole, a tensor of n rows, which the call with *whole NULL allocates. */
fr_status fri_tensor_put_rows(fr_tensor *part, int64_t first, int64_t n, fr_category category, fr_tensor **whole);

#endif
