/* scale.cu - y = alpha * x.
 *   scale   2 * n * size bytes     size = bytes of an element: x read, y written */
#include "common.cuh"

struct times {
    float alpha;
    __device__ float operator()(float x) const {
        return alpha * x;
    }
};

extern "C" fr_status fri_cuda_scale(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x,
                                    void *y) {
    FRI_FLOAT_TYPES(dtype, "scale", return fri_launch_map1<T>(e, "scale", n, x, y, times{(float)alpha});)
}
