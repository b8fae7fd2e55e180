/* relu6.cu - rectifier with a ceiling of 6; its bits are relu.cu's.
 *   relu6_forward    2 * n * size bytes     size = bytes of an element: x read, y written
 *   relu6_backward   3 * n * size bytes     y and dy read, dx written */
#include "common.cuh"

struct rectify6 {
    __device__ float operator()(float x) const {
        return fri_relu6(x);
    }
};

struct masked_by_value6 {
    __device__ float operator()(float y, float dy) const {
        return fri_relu6_gradient(y, dy);
    }
};

extern "C" fr_status fri_cuda_relu6_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    FRI_FLOAT_TYPES(dtype, "relu6_forward", return fri_launch_map1<T>(e, "relu6_forward", n, x, y, rectify6{});)
}

extern "C" fr_status fri_cuda_relu6_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y,
                                             const void *dy, void *dx) {
    FRI_FLOAT_TYPES(dtype, "relu6_backward",
                    return fri_launch_map2<T>(e, "relu6_backward", n, y, dy, dx, masked_by_value6{});)
}
