/* normalize.c - turns a batch of bytes into the network's input, on the device. */
#include "base/status.h"
#include "base/tag.h"
#include "tensor/tensor.h"

#include <frugal/data.h>
#include <string.h>

_Static_assert((int)FRI_NORMALIZE_CHANNELS == (int)FR_CHANNELS_MAX, "a kernel takes as many channels as a loader");

fr_status fr_images_normalize(const fr_tensor *images, const double *mean, const double *std, fr_dtype dtype,
                              fr_tensor **out) {
    FRI_NOT_NULL(images, mean, std, out);
    const fr_shape *shape = &images->shape;
    const int64_t channels = shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    fri_normalize_desc d = {.dtype = dtype, .n = fri_numel(images), .channels = channels};
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    if (images->dtype != FR_U8)
        return fr_fail(FR_EDTYPE, "images_normalize: the images are %s, u8 is needed", fr_dtype_name(images->dtype));
    if (channels < 1 || channels > FR_CHANNELS_MAX)
        return fr_fail(FR_ESHAPE, "images_normalize: the images have %lld channels, 1 to %d are possible",
                       (long long)channels, FR_CHANNELS_MAX);
    memcpy(d.mean, mean, (size_t)channels * sizeof *mean);
    memcpy(d.std, std, (size_t)channels * sizeof *std);
    const char *was = fri_scope_op_push("normalize");
    FR_TRY(s, fri_tensor_new(shape, dtype, fri_device_of(images), FR_MEM_INPUT, &y));
    FR_TRY(s, FRI_KERNEL(fri_backend_of(images), FR_F32, normalize, (FRI_EXEC, &d, fri_data(images), fri_data(y))));
    fri_bump_version(y);
    fri_tensor_put(&y, out);
done:
    fr_tensor_release(&y);
    fri_scope_op_pop(was);
    return s;
}
