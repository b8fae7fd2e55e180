/* leaky_relu.cu - rectifier with a slope on the negative side.
 *   leaky_relu_forward    2 * n * size bytes     size = bytes of an element: x read, y written
 *   leaky_relu_backward   3 * n * size bytes     y and dy read, dx written */
#include "common.cuh"

struct leak {
    float slope;
    __device__ float operator()(float x) const {
        return fri_leaky_relu(x, slope);
    }
};

struct leak_gradient {
    float slope;
    __device__ float operator()(float y, float dy) const {
        return fri_leaky_relu_gradient(y, slope, dy);
    }
};

extern "C" fr_status fri_cuda_leaky_relu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope,
                                                 const void *x, void *y) {
    FRI_FLOAT_TYPES(dtype, "leaky_relu_forward",
                    return fri_launch_map1<T>(e, "leaky_relu_forward", n, x, y, leak{(float)slope});)
}

extern "C" fr_status fri_cuda_leaky_relu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope,
                                                  const void *y, const void *dy, void *dx) {
    FRI_FLOAT_TYPES(dtype, "leaky_relu_backward",
                    return fri_launch_map2<T>(e, "leaky_relu_backward", n, y, dy, dx, leak_gradient{(float)slope});)
}
