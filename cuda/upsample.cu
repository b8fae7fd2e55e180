/* upsample.cu - nearest and bilinear interpolation to a given size.
 *   forward    (n * h * w * c + n * p * q * c) * size bytes     size = bytes of an element; x read, y written
 *   backward   the same: dy read, dx written. Sources are read again from the cache.
 *
 * Along one axis, output o reads sources low and high with weights 1 - t and t (nearest: low alone; arith.h). Backward
 * gathers, in order of (p, q): the inverse map brackets the outputs that may read a source, each is then asked. */
#include "pixels.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_upsample_axis axis;
typedef fri_upsample_source source;

/* Outputs first .. last: no other one reads source i. */
static __device__ __forceinline__ void outputs_reading(const axis &a, int64_t i, int64_t *first, int64_t *last) {
    if (!a.bilinear) {
        *first = (i * a.out + a.in - 1) / a.in;
        *last = ((i + 1) * a.out + a.in - 1) / a.in;
        return;
    }
    *first = 0;
    *last = a.out;
    if (a.in == 1 || a.out == 1) return;
    if (a.align_corners) {
        if (i > 0) *first = (i - 1) * (a.out - 1) / (a.in - 1);
        if (i < a.in - 1) *last = (i + 1) * (a.out - 1) / (a.in - 1) + 1;
    } else {
        if (i > 0 && (2 * i - 1) * a.out > a.in) *first = ((2 * i - 1) * a.out - a.in) / (2 * a.in);
        if (i < a.in - 1) *last = ((2 * i + 3) * a.out - a.in) / (2 * a.in) + 1;
    }
    if (*last > a.out) *last = a.out;
}

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    forward(axis ah, axis aw, fri_pixel_grid out, const T *x, T *y) {
    const fri_pixel o = fri_pixel_of(out, N);
    if (!o.inside) return;
    const source sh = fri_upsample_source_of(&ah, o.h), sw = fri_upsample_source_of(&aw, o.w);
    fri_pack<T, N> a = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, sh.low, sw.low));
    if (ah.bilinear) {
        const float th = sh.t, tw = sw.t, h0 = 1 - th, w0 = 1 - tw;
        const bool right = tw > 0, below = th > 0;
        fri_pack<T, N> b = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, sh.low, sw.high));
        fri_pack<T, N> c = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, sh.high, sw.low));
        fri_pack<T, N> d = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, sh.high, sw.high));
#pragma unroll
        for (int k = 0; k < N; k++)
            fri_store(&a.v[k],
                      h0 * (w0 * fri_load(a.v[k]) + tw * (right ? fri_load(b.v[k]) : 0)) +
                          th * (w0 * (below ? fri_load(c.v[k]) : 0) + tw * (right && below ? fri_load(d.v[k]) : 0)));
    }
    fri_store_pack<T, N>(y + o.at, a);
}

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(FRI_RESIDENT(FRI_PIXEL_BLOCKS)))
    backward(axis ah, axis aw, fri_pixel_grid in, const T *dy, T *dx) {
    const fri_pixel i = fri_pixel_of(in, N);
    int64_t p0, p1, q0, q1;
    float sum[N] = {0};
    if (!i.inside) return;
    outputs_reading(ah, i.h, &p0, &p1);
    outputs_reading(aw, i.w, &q0, &q1);
    for (int64_t p = p0; p < p1; p++) {
        const source sh = fri_upsample_source_of(&ah, p);
        if (sh.low != i.h && sh.high != i.h) continue;
        for (int64_t q = q0; q < q1; q++) {
            const source sw = fri_upsample_source_of(&aw, q);
            if (sw.low != i.w && sw.high != i.w) continue;
            const float share = fri_upsample_share(sh, i.h) * fri_upsample_share(sw, i.w);
            fri_pack<T, N> g = fri_load_pack<T, N>(dy + fri_pixel_at(i, in.c, ah.out, aw.out, p, q));
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += share * fri_load(g.v[k]);
        }
    }
    fri_pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[k]);
    fri_store_pack<T, N>(dx + i.at, out);
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

static axis axis_of(const fri_upsample_desc *d, int64_t in, int64_t out) {
    return {in, out, d->bilinear, d->align_corners};
}

extern "C" fr_status fri_cuda_upsample_forward(const fri_exec *e, const fri_upsample_desc *d, const void *x, void *y) {
    const fri_pixel_grid out = {d->n * d->p * d->q, d->p, d->q, d->c};
    if (out.count * out.c == 0) return FR_OK;
    const axis ah = axis_of(d, d->h, d->p), aw = axis_of(d, d->w, d->q);
    FRI_FLOAT_TYPES(d->dtype, "upsample_forward", FRI_PACKS_OF(T, d->c, fri_aligned(x, 16) && fri_aligned(y, 16), {
                        const fri_pixel_launch l = fri_pixel_launch_of(out, N);
                        forward<T, N><<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, out, (const T *)x, (T *)y);
                    }))
    return fri_cuda_launched("upsample_forward");
}

extern "C" fr_status fri_cuda_upsample_backward(const fri_exec *e, const fri_upsample_desc *d, const void *dy,
                                                void *dx) {
    const fri_pixel_grid in = {d->n * d->h * d->w, d->h, d->w, d->c};
    if (in.count * in.c == 0) return FR_OK;
    const axis ah = axis_of(d, d->h, d->p), aw = axis_of(d, d->w, d->q);
    FRI_FLOAT_TYPES(d->dtype, "upsample_backward", FRI_PACKS_OF(T, d->c, fri_aligned(dy, 16) && fri_aligned(dx, 16), {
                        const fri_pixel_launch l = fri_pixel_launch_of(in, N);
                        backward<T, N><<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, in, (const T *)dy, (T *)dx);
                    }))
    return fri_cuda_launched("upsample_backward");
}
