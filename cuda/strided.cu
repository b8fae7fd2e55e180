/* strided.cu - elements copied from and to regular places: bytes, whatever they mean.
 *   2 * n * size bytes     size = bytes of an element: read and written */
#include "common.cuh"

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS) copy_strided(fri_strided_desc d, int64_t n, const T *x, T *y) {
    const int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    int64_t from, to;
    if (i >= n) return;
    fri_strided_place(&d, d.rank, i, &from, &to);
    y[to] = x[from];
}

/* Pairs of elements that lie side by side, everywhere, as elements of twice the size. */
static bool pair_up(fri_strided_desc *d, const void *x, const void *y) {
    const int last = d->rank - 1;
    if (d->size == 16 || last < 0 || d->x_stride[last] != 1 || d->y_stride[last] != 1 || d->extent[last] % 2 != 0 ||
        !fri_aligned(x, 2 * d->size) || !fri_aligned(y, 2 * d->size))
        return false;
    for (int i = 0; i < last; i++)
        if (d->x_stride[i] % 2 != 0 || d->y_stride[i] % 2 != 0) return false;
    for (int i = 0; i < last; i++) {
        d->x_stride[i] /= 2;
        d->y_stride[i] /= 2;
    }
    d->extent[last] /= 2;
    d->size *= 2;
    return true;
}

template <typename T> static void launch(const fri_exec *e, const fri_strided_desc &d, const void *x, void *y) {
    int64_t n = 1;
    for (int i = 0; i < d.rank; i++) n *= d.extent[i];
    copy_strided<T><<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(d, n, (const T *)x, (T *)y);
}

extern "C" fr_status fri_cuda_copy_strided(const fri_exec *e, const fri_strided_desc *given, const void *x, void *y) {
    fri_strided_desc d = *given;
    while (pair_up(&d, x, y)) continue;
    switch (d.size) {
    case 1: launch<uint8_t>(e, d, x, y); break;
    case 2: launch<uint16_t>(e, d, x, y); break;
    case 4: launch<uint32_t>(e, d, x, y); break;
    case 8: launch<uint2>(e, d, x, y); break;
    default: launch<uint4>(e, d, x, y); break;
    }
    return fri_cuda_launched("copy_strided");
}
