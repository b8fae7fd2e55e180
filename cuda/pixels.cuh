/* pixels.cuh - threads of an image [n, h, w, c]: a thread per pixel and pack of channels.
 *
 *     a block is tx packs wide and FRI_THREADS / tx pixels high; the grid is (pixel blocks, channel blocks) */
#ifndef FRI_CUDA_PIXELS_CUH
#define FRI_CUDA_PIXELS_CUH

#include "common.cuh"

enum {
    FRI_PIXEL_PACKS = 32,
    FRI_PIXEL_BLOCKS = 4 /* per processor, so 64 registers a thread: left alone, the compiler spills for more blocks */
};

typedef struct fri_pixel_grid {
    int64_t count, h, w, c; /* count = n * h * w */
} fri_pixel_grid;

typedef struct fri_pixel {
    int64_t n;
    int32_t h, w;
    int64_t c;  /* first channel of the pack */
    int64_t at; /* element of the pack */
    bool inside;
} fri_pixel;

/* Division by 32-bit numbers where sufficient, for a quarter of the cost. */
static __device__ __forceinline__ fri_pixel fri_pixel_of(const fri_pixel_grid &s, int pack) {
    fri_pixel p;
    int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    p.c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * pack;
    p.inside = i < s.count && p.c < s.c;
    p.at = i * s.c + p.c;
    if (s.count <= UINT32_MAX) {
        uint32_t row = (uint32_t)i / (uint32_t)s.w, image = row / (uint32_t)s.h;
        p.w = (int32_t)((uint32_t)i - row * (uint32_t)s.w);
        p.h = (int32_t)(row - image * (uint32_t)s.h);
        p.n = image;
    } else {
        int64_t row = i / s.w;
        p.w = (int32_t)(i - row * s.w);
        p.n = row / s.h;
        p.h = (int32_t)(row - p.n * s.h);
    }
    return p;
}

/* The element of channel p.c at (h, w) of p's image in a second tensor [n, h, w, c]. */
static __device__ __forceinline__ int64_t fri_pixel_at(const fri_pixel &p, int64_t c, int64_t height, int64_t width,
                                                       int64_t h, int64_t w) {
    return ((p.n * height + h) * width + w) * c + p.c;
}

/* One image axis under windows: window o begins at o * stride - pad and has kernel positions, dilation apart. 32 bits,
 * since windows in 64 bits do not fit the registers; the limit keeps every sum of three of these numbers in range. */
typedef struct fri_axis {
    int32_t in, out, kernel, stride, pad, dilation;
    int32_t reach; /* from the first position of a window to its last */
} fri_axis;

enum { FRI_AXIS_MOST = 1 << 28 };

static inline bool fri_axis_of(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                               fri_axis *a) {
    const int64_t all[] = {in, out, kernel, stride, pad, dilation};
    for (int64_t v : all)
        if (v > FRI_AXIS_MOST) return false;
    const int64_t reach = (kernel - 1) * dilation;
    *a = {(int32_t)in, (int32_t)out, (int32_t)kernel, (int32_t)stride, (int32_t)pad, (int32_t)dilation, (int32_t)reach};
    return reach <= FRI_AXIS_MOST;
}

static inline fr_status fri_axes_of(const char *kernel, const fri_pool2d_desc *d, fri_axis *h, fri_axis *w) {
    if (fri_axis_of(d->h, d->p, d->kernel_h, d->stride_h, d->pad_h, d->dilation_h, h) &&
        fri_axis_of(d->w, d->q, d->kernel_w, d->stride_w, d->pad_w, d->dilation_w, w))
        return FR_OK;
    return fr_fail(FR_EUNSUPPORTED, "%s: an image of %lld x %lld or a window over it has a side beyond 2^28", kernel,
                   (long long)d->h, (long long)d->w);
}

typedef struct fri_pixel_launch {
    dim3 grid, block;
} fri_pixel_launch;

static inline fri_pixel_launch fri_pixel_launch_of(const fri_pixel_grid &s, int pack) {
    fri_pixel_launch l;
    int64_t packs = s.c / pack;
    const unsigned tx = (unsigned)fri_block_width(packs, FRI_PIXEL_PACKS), ty = FRI_THREADS / tx;
    l.block = dim3(tx, ty);
    l.grid = dim3((unsigned)fri_ceil_div(s.count, ty), (unsigned)fri_ceil_div(packs, tx));
    return l;
}

#endif
