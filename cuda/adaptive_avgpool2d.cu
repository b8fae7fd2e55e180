/* adaptive_avgpool2d.cu - means over windows that divide the image evenly. Forward and backward move x once and y once.
 */
#include "window.cuh"

extern "C" fr_status fri_cuda_adaptive_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x,
                                                         void *y) {
    return fri_launch_window<true>(e, "adaptive_avgpool2d_forward", d, false, x, y);
}

extern "C" fr_status fri_cuda_adaptive_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy,
                                                          void *dx) {
    return fri_launch_window<true>(e, "adaptive_avgpool2d_backward", d, true, dy, dx);
}
