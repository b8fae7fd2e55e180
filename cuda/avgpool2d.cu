/* avgpool2d.cu - means over windows of one size.
 *   forward    (n * h * w * c + n * p * q * c) * size bytes     size = bytes of an element; x read, y written
 *   backward   the same: dy read, dx written. Windows that overlap read the same elements from the cache. */
#include "window.cuh"

extern "C" fr_status fri_cuda_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) {
    return fri_launch_mean<false>(e, "avgpool2d_forward", *d, false, x, y);
}

extern "C" fr_status fri_cuda_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy,
                                                 void *dx) {
    return fri_launch_mean<false>(e, "avgpool2d_backward", *d, true, dy, dx);
}
