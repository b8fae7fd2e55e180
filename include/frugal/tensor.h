/* tensor.h - dense tensors.
 *
 * Row-major, contiguous; shape order is memory order, so images are [N, H, W, C] and convolution weights [K, R, S, C].
 * A tensor is a reference-counted handle on reference-counted storage; views share storage. Handles belong to the
 * training thread, without locks.
 *
 * Ownership, here and in all of frugal: a function with `fr_tensor **out` puts a new reference into *out. *out must be
 * NULL or a tensor; on success the old tensor is released and replaced, on failure *out is untouched. fr_x_get_...
 * borrows. */
#ifndef FRUGAL_TENSOR_H
#define FRUGAL_TENSOR_H

#include <frugal/base.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_tensor fr_tensor;

/* ---- making ------------------------------------------------------------------------------------------------ */

/* Uninitialized memory. rank 0 is a scalar. FR_ESHAPE, FR_EDTYPE, FR_EDEVICE, FR_ENOMEM. */
FR_API fr_status fr_tensor_empty(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out);
FR_API fr_status fr_tensor_zeros(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out);
FR_API fr_status fr_tensor_full(int rank, const int64_t *shape, double value, fr_dtype dtype, fr_device device,
                                fr_tensor **out);
/* A copy of host memory: numel elements of `dtype`, row-major. */
FR_API fr_status fr_tensor_from_host(const void *data, int rank, const int64_t *shape, fr_dtype dtype, fr_device device,
                                     fr_tensor **out);
/* U[low, high) and N(mean, std) from the thread's generator (fr_seed). Float types. */
FR_API fr_status fr_tensor_uniform(int rank, const int64_t *shape, double low, double high, fr_dtype dtype,
                                   fr_device device, fr_tensor **out);
FR_API fr_status fr_tensor_normal(int rank, const int64_t *shape, double mean, double std, fr_dtype dtype,
                                  fr_device device, fr_tensor **out);
/* Copies the content into new storage, outside any graph. */
FR_API fr_status fr_tensor_clone(const fr_tensor *t, fr_tensor **out);
/* View of t's storage outside any graph (torch.Tensor.detach). */
FR_API fr_status fr_tensor_detach(fr_tensor *t, fr_tensor **out);
/* Rows start .. start + length - 1 of dimension 0, sharing storage, outside any graph. */
FR_API fr_status fr_tensor_narrow0(fr_tensor *t, int64_t start, int64_t length, fr_tensor **out);
/* Copy of t on the given device. */
FR_API fr_status fr_tensor_to_device(const fr_tensor *t, fr_device device, fr_tensor **out);

/* ---- lifetime ---------------------------------------------------------------------------------------------- */

FR_API fr_tensor *fr_tensor_retain(fr_tensor *t); /* another reference; returns t. NULL stays NULL */
FR_API void fr_tensor_release(fr_tensor **t);     /* drops one reference and sets *t to NULL; NULL is fine */

/* ---- looking ----------------------------------------------------------------------------------------------- */

FR_API int fr_tensor_rank(const fr_tensor *t);
FR_API int64_t fr_tensor_dim(const fr_tensor *t, int i);   /* negative i counts from the end; 0 if out of range */
FR_API const int64_t *fr_tensor_shape(const fr_tensor *t); /* rank values, borrowed */
FR_API int64_t fr_tensor_numel(const fr_tensor *t);
FR_API size_t fr_tensor_nbytes(const fr_tensor *t);
FR_API fr_dtype fr_tensor_dtype(const fr_tensor *t);
FR_API fr_device fr_tensor_device(const fr_tensor *t);
/* Device address of element 0: host memory on the CPU, NULL on meta and for empty tensors. Borrowed. The version
 * counter misses writes through the pointer. */
FR_API void *fr_tensor_data(fr_tensor *t);
/* Reports count the storage under c from now on: a batch made by the program is FR_MEM_INPUT. */
FR_API void fr_tensor_category_set(fr_tensor *t, fr_category c);

/* The value of a tensor with 1 element. FR_EUNSUPPORTED on meta; FR_ESHAPE if numel != 1. Waits for the device. */
FR_API fr_status fr_tensor_item(const fr_tensor *t, double *out);
/* Copies all elements, in the tensor's dtype, to host memory of fr_tensor_nbytes bytes. */
FR_API fr_status fr_tensor_to_host(const fr_tensor *t, void *data);
/* "f32 [2, 3] on cpu" and, for small tensors on a device with data, the values. */
FR_API fr_status fr_tensor_print(const fr_tensor *t, FILE *out);

/* ---- writing in place, outside any graph ------------------------------------------------------------------- */

FR_API fr_status fr_tensor_fill(fr_tensor *t, double value);
/* dst = src: same shape; dtypes and devices may differ. */
FR_API fr_status fr_tensor_copy(fr_tensor *dst, const fr_tensor *src);

#ifdef __cplusplus
}
#endif
#endif
