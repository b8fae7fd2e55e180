/* scale.cu - y = alpha * x, y = x + alpha.
 *   scale, add_scalar   2 * n * size bytes     size = bytes of an element: x read, y written */
#include "common.cuh"

struct times {
    float alpha;
    __device__ float operator()(float x) const {
        return alpha * x;
    }
};

struct plus {
    float alpha;
    __device__ float operator()(float x) const {
        return x + alpha;
    }
};

extern "C" fr_status fri_cuda_scale(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x,
                                    void *y) {
    FRI_FLOAT_TYPES(dtype, "scale", return fri_launch_map1<T>(e, "scale", n, x, y, times{(float)alpha});)
}

extern "C" fr_status fri_cuda_add_scalar(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x,
                                         void *y) {
    FRI_FLOAT_TYPES(dtype, "add_scalar", return fri_launch_map1<T>(e, "add_scalar", n, x, y, plus{(float)alpha});)
}
