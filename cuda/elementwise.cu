/* elementwise.cu - kernels whose result's element i is a function of the operands' elements i.
 *   one operand    2 * n * size bytes     size = bytes of an element: x read, y written
 *   two operands   3 * n * size bytes     both read, the result written
 *
 * Each row is a name of kernel_map.h and its formula of arith.h. */
#include "common.cuh"

#define MAP1(kernel, ...)                                                                                          \
    struct kernel##_map {                                                                                          \
        __device__ float operator()(float x) const {                                                               \
            return __VA_ARGS__;                                                                                    \
        }                                                                                                          \
    };                                                                                                             \
    extern "C" fr_status fri_cuda_##kernel(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) { \
        FRI_FLOAT_TYPES(dtype, #kernel, return fri_launch_map1<T>(e, #kernel, n, x, y, kernel##_map{});)           \
    }
#define MAP2(kernel, ...)                                                                                              \
    struct kernel##_map {                                                                                              \
        __device__ float operator()(float a, float b) const {                                                          \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    };                                                                                                                 \
    extern "C" fr_status fri_cuda_##kernel(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, \
                                           void *y) {                                                                  \
        FRI_FLOAT_TYPES(dtype, #kernel, return fri_launch_map2<T>(e, #kernel, n, a, b, y, kernel##_map{});)            \
    }
/* Kernels with a number for all elements. */
#define SCALED1(kernel, ...)                                                                                          \
    struct kernel##_map {                                                                                             \
        float alpha;                                                                                                  \
        __device__ float operator()(float x) const {                                                                  \
            return __VA_ARGS__;                                                                                       \
        }                                                                                                             \
    };                                                                                                                \
    extern "C" fr_status fri_cuda_##kernel(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, \
                                           void *y) {                                                                 \
        FRI_FLOAT_TYPES(dtype, #kernel, return fri_launch_map1<T>(e, #kernel, n, x, y, kernel##_map{(float)alpha});)  \
    }

MAP1(relu_forward, fri_relu(x))
MAP1(relu6_forward, fri_relu6(x))
MAP1(elu_inverse, fri_elu_inverse(x))
MAP2(relu_backward, fri_relu_gradient(a, b))
MAP2(relu6_backward, fri_relu6_gradient(a, b))
SCALED1(scale, alpha *x)
SCALED1(add_scalar, x + alpha)
SCALED1(leaky_relu_forward, fri_leaky_relu(x, alpha))

#define BINARY(name, kind, sign) MAP2(name, a sign b)
FRI_BINARIES(BINARY)

#define ACTIVATION(name, saves, ...)    \
    MAP1(name##_forward, fri_##name(x)) \
    MAP2(name##_backward, fri_##name##_gradient(a, b))
FRI_ACTIVATIONS(ACTIVATION)

struct leaky_relu_backward_map {
    float slope;
    __device__ float operator()(float y, float dy) const {
        return fri_leaky_relu_gradient(y, slope, dy);
    }
};

struct clamp_forward_map {
    float low, high;
    __device__ float operator()(float x) const {
        return fri_clamp(x, low, high);
    }
};

struct clamp_backward_map {
    float low, high;
    __device__ float operator()(float x, float dy) const {
        return fri_clamp_gradient(x, dy, low, high);
    }
};

extern "C" fr_status fri_cuda_leaky_relu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope,
                                                  const void *y, const void *dy, void *dx) {
    const leaky_relu_backward_map f = {(float)slope};
    FRI_FLOAT_TYPES(dtype, "leaky_relu_backward", return fri_launch_map2<T>(e, "leaky_relu_backward", n, y, dy, dx, f);)
}

extern "C" fr_status fri_cuda_clamp_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high,
                                            const void *x, void *y) {
    const clamp_forward_map f = {(float)low, (float)high};
    FRI_FLOAT_TYPES(dtype, "clamp_forward", return fri_launch_map1<T>(e, "clamp_forward", n, x, y, f);)
}

extern "C" fr_status fri_cuda_clamp_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high,
                                             const void *x, const void *dy, void *dx) {
    const clamp_backward_map f = {(float)low, (float)high};
    FRI_FLOAT_TYPES(dtype, "clamp_backward", return fri_launch_map2<T>(e, "clamp_backward", n, x, dy, dx, f);)
}
