/* activation.cu - smooth activations, their hard forms, and clamp.
 *   <name>_forward    2 * n * size bytes     size = bytes of an element: x read, y written
 *   <name>_backward   3 * n * size bytes     what is saved and dy read, dx written */
#include "common.cuh"

#define ACTIVATION(name, saves)                                                                                      \
    struct name##_of {                                                                                               \
        __device__ float operator()(float x) const {                                                                 \
            return fri_##name(x);                                                                                    \
        }                                                                                                            \
    };                                                                                                               \
    struct name##_gradient_of {                                                                                      \
        __device__ float operator()(float saved, float dy) const {                                                   \
            return fri_##name##_gradient(saved, dy);                                                                 \
        }                                                                                                            \
    };                                                                                                               \
    extern "C" fr_status fri_cuda_##name##_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x,      \
                                                   void *y) {                                                        \
        FRI_FLOAT_TYPES(dtype, #name "_forward",                                                                     \
                        return fri_launch_map1<T>(e, #name "_forward", n, x, y, name##_of{});)                       \
    }                                                                                                                \
    extern "C" fr_status fri_cuda_##name##_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *saved, \
                                                    const void *dy, void *dx) {                                      \
        FRI_FLOAT_TYPES(dtype, #name "_backward",                                                                    \
                        return fri_launch_map2<T>(e, #name "_backward", n, saved, dy, dx, name##_gradient_of{});)    \
    }
FRI_ACTIVATIONS(ACTIVATION)

struct clamp_of {
    float low, high;
    __device__ float operator()(float x) const {
        return fri_clamp(x, low, high);
    }
};

struct clamp_gradient_of {
    float low, high;
    __device__ float operator()(float x, float dy) const {
        return fri_clamp_gradient(x, dy, low, high);
    }
};

extern "C" fr_status fri_cuda_clamp_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high,
                                            const void *x, void *y) {
    FRI_FLOAT_TYPES(dtype, "clamp_forward",
                    return fri_launch_map1<T>(e, "clamp_forward", n, x, y, clamp_of{(float)low, (float)high});)
}

extern "C" fr_status fri_cuda_clamp_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high,
                                             const void *x, const void *dy, void *dx) {
    FRI_FLOAT_TYPES(dtype, "clamp_backward",
                    return fri_launch_map2<T>(e, "clamp_backward", n, x, dy, dx,
                                              clamp_gradient_of{(float)low, (float)high});)
}
