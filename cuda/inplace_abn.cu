/* inplace_abn.cu - ELU, its gradient and its inverse, both from its result.
 *   elu_forward, elu_inverse   2 * n * size bytes     size = bytes of an element: one tensor read, one written
 *   elu_backward               3 * n * size bytes     y and dy read, dx written */
#include "common.cuh"

struct elu {
    __device__ float operator()(float x) const {
        return fri_elu(x);
    }
};

struct elu_gradient {
    __device__ float operator()(float y, float dy) const {
        return fri_elu_gradient(y, dy);
    }
};

struct elu_inverted {
    __device__ float operator()(float y) const {
        return fri_elu_inverse(y);
    }
};

extern "C" fr_status fri_cuda_elu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    FRI_FLOAT_TYPES(dtype, "elu_forward", return fri_launch_map1<T>(e, "elu_forward", n, x, y, elu{});)
}

extern "C" fr_status fri_cuda_elu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, const void *dy,
                                           void *dx) {
    FRI_FLOAT_TYPES(dtype, "elu_backward", return fri_launch_map2<T>(e, "elu_backward", n, y, dy, dx, elu_gradient{});)
}

extern "C" fr_status fri_cuda_elu_inverse(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, void *x) {
    FRI_FLOAT_TYPES(dtype, "elu_inverse", return fri_launch_map1<T>(e, "elu_inverse", n, y, x, elu_inverted{});)
}
