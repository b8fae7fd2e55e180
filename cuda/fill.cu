/* fill.cu - fill and copy_rows, for bytes of any type.
 *   fill        n * size bytes               size = bytes of an element: written
 *   copy_rows   2 * rows * row_bytes bytes   read and written */
#include "convert.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename E> struct equal {
    E value, *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<E, M> p;
#pragma unroll
        for (int k = 0; k < M; k++) p.v[k] = value;
        fri_store_pack<E, M>(y + i, p);
    }
};

/* A block is `across` threads wide and copies FRI_THREADS / across rows; U is the widest unit of all rows' starts and
 * sizes. */
template <typename U>
__global__ void __launch_bounds__(FRI_THREADS) copy_units(int64_t rows, int64_t units, int across, const char *src,
                                                          size_t src_pitch, char *dst, size_t dst_pitch) {
    int64_t row = (int64_t)blockIdx.x * (FRI_THREADS / across) + threadIdx.x / across;
    if (row >= rows) return;
    const U *from = (const U *)(src + (size_t)row * src_pitch);
    U *to = (U *)(dst + (size_t)row * dst_pitch);
    for (int64_t i = (int64_t)blockIdx.y * across + threadIdx.x % across; i < units; i += (int64_t)gridDim.y * across)
        to[i] = from[i];
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

template <typename E> static fr_status launch_fill(const fri_exec *e, int64_t n, const void *element, void *y) {
    return fri_launch_each<E>(e, "fill", n, fri_aligned(y, 16), equal<E>{*(const E *)element, (E *)y});
}

extern "C" fr_status fri_cuda_fill(const fri_exec *e, fr_dtype dtype, int64_t n, double value, void *y) {
    uint64_t element = 0; /* the first bytes */
    if (n == 0) return FR_OK;
    fri_put_real(dtype, &element, 0, value);
    switch (fr_dtype_size(dtype)) {
    case 1: return launch_fill<uint8_t>(e, n, &element, y);
    case 2: return launch_fill<uint16_t>(e, n, &element, y);
    case 4: return launch_fill<uint32_t>(e, n, &element, y);
    case 8: return launch_fill<uint64_t>(e, n, &element, y);
    default: return fri_cuda_no_type("fill", dtype);
    }
}

template <typename U>
static fr_status launch_copy(const fri_exec *e, int64_t rows, size_t row_bytes, const void *src, size_t src_pitch,
                             void *dst, size_t dst_pitch) {
    const int64_t units = (int64_t)(row_bytes / sizeof(U));
    int across = 1;
    while (across < units && across < FRI_THREADS) across *= 2;
    int64_t pieces = fri_ceil_div(units, (int64_t)across * 4); /* a few units per thread */
    dim3 grid((unsigned)fri_ceil_div(rows, FRI_THREADS / across),
              (unsigned)(pieces < FRI_GRID_Y ? pieces : (int64_t)FRI_GRID_Y));
    copy_units<U><<<grid, FRI_THREADS, 0, fri_stream(e)>>>(rows, units, across, (const char *)src, src_pitch,
                                                           (char *)dst, dst_pitch);
    return fri_cuda_launched("copy_rows");
}

extern "C" fr_status fri_cuda_copy_rows(const fri_exec *e, int64_t rows, size_t row_bytes, const void *src,
                                        size_t src_pitch, void *dst, size_t dst_pitch) {
    if (rows <= 0 || row_bytes == 0) return FR_OK;
    if (src_pitch == row_bytes && dst_pitch == row_bytes) { /* one long row */
        row_bytes *= (size_t)rows;
        src_pitch = dst_pitch = row_bytes;
        rows = 1;
    }
    size_t common = (uintptr_t)src | (uintptr_t)dst | row_bytes | (rows > 1 ? src_pitch | dst_pitch : 0);
    if (common % 16 == 0) return launch_copy<uint4>(e, rows, row_bytes, src, src_pitch, dst, dst_pitch);
    if (common % 8 == 0) return launch_copy<uint2>(e, rows, row_bytes, src, src_pitch, dst, dst_pitch);
    if (common % 4 == 0) return launch_copy<uint32_t>(e, rows, row_bytes, src, src_pitch, dst, dst_pitch);
    if (common % 2 == 0) return launch_copy<uint16_t>(e, rows, row_bytes, src, src_pitch, dst, dst_pitch);
    return launch_copy<uint8_t>(e, rows, row_bytes, src, src_pitch, dst, dst_pitch);
}

/* A kernel of the build, to ask whether the device has code. */
extern "C" const void *fri_cuda_fill_kernel(void) {
    return (const void *)fri_each<uint8_t, 1, equal<uint8_t>>;
}
