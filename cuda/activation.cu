/* activation.cu - smooth activations and their hard forms.
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
