/* add.cu - y = a + b: residual connections, sums of gradients.
 *   add   3 * n * size bytes     size = bytes of an element: a and b read, y written */
#include "common.cuh"

struct sum_of {
    __device__ float operator()(float a, float b) const {
        return a + b;
    }
};

struct rectified_sum_of {
    __device__ float operator()(float a, float b) const {
        return fri_relu(a + b);
    }
};

extern "C" fr_status fri_cuda_add(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    FRI_FLOAT_TYPES(dtype, "add", return fri_launch_map2<T>(e, "add", n, a, b, y, sum_of{});)
}

extern "C" fr_status fri_cuda_add_relu(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b,
                                       void *y) {
    FRI_FLOAT_TYPES(dtype, "add_relu", return fri_launch_map2<T>(e, "add_relu", n, a, b, y, rectified_sum_of{});)
}
