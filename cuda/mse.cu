/* mse.cu - mean squared error, mean absolute error, smooth L1; size = bytes of an element.
 *   mse_forward    2 * n * size + 16 * blocks bytes     x, t; an f64 per block, written and read (reduce.cuh)
 *   mse_backward   3 * n * size bytes                   x, t, dx */
#include "reduce.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

struct distance {
    double beta;
    __device__ double operator()(double x, double t) const {
        return fri_distance(x - t, beta);
    }
};

template <typename T> struct put_mean {
    double n;
    T *y;
    __device__ void operator()(double sum) const {
        fri_store(y, (float)(sum / n));
    }
};

template <typename T> struct slope_times {
    double factor; /* 2 * sign / n */
    float beta;
    const T *dloss;
    __device__ float operator()(float x, float t) const {
        return fri_distance_half_slope(x - t, beta) * (float)(factor * (double)fri_load(*dloss));
    }
};

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_mse_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double beta, const void *x,
                                          const void *t, void *loss) {
    FRI_FLOAT_TYPES(dtype, "mse_forward",
                    return fri_launch_reduce<T>(e, "mse_forward", n, x, t, distance{beta},
                                                put_mean<T>{(double)n, (T *)loss});)
}

extern "C" fr_status fri_cuda_mse_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double beta, double sign,
                                           const void *x, const void *t, const void *dloss, void *dx) {
    FRI_FLOAT_TYPES(dtype, "mse_backward",
                    return fri_launch_map2<T>(e, "mse_backward", n, x, t, dx,
                                              slope_times<T>{2 * sign / (double)n, (float)beta, (const T *)dloss});)
}
