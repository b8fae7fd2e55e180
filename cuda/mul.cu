/* mul.cu - y = a * b.
 *   mul   3 * n * size bytes     size = bytes of an element: a and b read, y written */
#include "common.cuh"

struct product_of {
    __device__ float operator()(float a, float b) const {
        return a * b;
    }
};

extern "C" fr_status fri_cuda_mul(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    FRI_FLOAT_TYPES(dtype, "mul", return fri_launch_map2<T>(e, "mul", n, a, b, y, product_of{});)
}
