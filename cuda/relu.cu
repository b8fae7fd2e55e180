/* relu.cu - the rectifier's gradient from 1 bit per element.
 *   relu_encode          n * size + n / 8 bytes       size = bytes of an element: y read, bits written
 *   relu_backward_bits   2 * n * size + n / 8 bytes   dy and bits read, dx written
 *   add_mask             3 * n * size + n / 8 bytes   two gradients and bits read, their masked sum written */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* A thread makes a byte: bit i % 8 of byte i / 8. */
template <typename T, bool PACKED>
__global__ void __launch_bounds__(FRI_THREADS) encode(int64_t n, fri_mask_rule rule, const T *y, uint8_t *bits) {
    constexpr int N = PACKED ? 16 / sizeof(T) : 1;
    int64_t byte = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x, first = byte * 8;
    if (first >= n) return;
    unsigned code = 0;
    if (first + 8 <= n) {
#pragma unroll
        for (int k = 0; k < 8; k += N) {
            fri_pack<T, N> p = fri_load_pack<T, N>(y + first + k);
#pragma unroll
            for (int j = 0; j < N; j++) {
                float v = fri_load(p.v[j]);
                code |= (unsigned)fri_mask_bit(rule, v) << (k + j);
            }
        }
    } else {
        for (int k = 0; first + k < n; k++) {
            float v = fri_load(y[first + k]);
            code |= (unsigned)fri_mask_bit(rule, v) << k;
        }
    }
    bits[byte] = (uint8_t)code;
}

/* y = the rectifier's gradient of a + b, or of a where b is NULL. The bits of a pack, of 4 or 8, lie in a byte. */
template <typename T> struct masked {
    float slope;
    const uint8_t *bits;
    const T *a, *b;
    T *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        const unsigned code = (unsigned)bits[i >> 3] >> (i & 7);
        fri_pack<T, M> p = fri_load_pack<T, M>(a + i), q = p;
        if (b != NULL) q = fri_load_pack<T, M>(b + i);
#pragma unroll
        for (int k = 0; k < M; k++) {
            const float v = b != NULL ? fri_load(p.v[k]) + fri_load(q.v[k]) : fri_load(p.v[k]);
            fri_store(&p.v[k], fri_relu_gradient_bit(code >> k & 1, slope, v));
        }
        fri_store_pack<T, M>(y + i, p);
    }
};

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_relu_encode(const fri_exec *e, fr_dtype dtype, int64_t n, fri_mask_rule rule,
                                          const void *y, uint8_t *bits) {
    unsigned blocks = fri_blocks(fri_ceil_div(n, 8));
    if (n == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, "relu_encode",
                    if (fri_aligned(y, 16))
                        encode<T, true><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, rule, (const T *)y, bits);
                    else encode<T, false><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, rule, (const T *)y, bits);)
    return fri_cuda_launched("relu_encode");
}

static fr_status launch_mask(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t n, double slope,
                             const uint8_t *bits, const void *a, const void *b, void *y) {
    const bool aligned = fri_aligned(a, 16) && fri_aligned(b, 16) && fri_aligned(y, 16);
    FRI_FLOAT_TYPES(dtype, kernel,
                    return fri_launch_each<T>(e, kernel, n, aligned,
                                              masked<T>{(float)slope, bits, (const T *)a, (const T *)b, (T *)y});)
}

extern "C" fr_status fri_cuda_relu_backward_bits(const fri_exec *e, fr_dtype dtype, int64_t n, double slope,
                                                 const uint8_t *bits, const void *dy, void *dx) {
    return launch_mask(e, "relu_backward_bits", dtype, n, slope, bits, dy, NULL, dx);
}

extern "C" fr_status fri_cuda_add_mask(const fri_exec *e, fr_dtype dtype, int64_t n, const uint8_t *bits, const void *a,
                                       const void *b, void *y) {
    return launch_mask(e, "add_mask", dtype, n, 0, bits, a, b, y);
}
