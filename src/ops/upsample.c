/* upsample - resizing an image, nearest or bilinear (torch.nn.functional.interpolate with size).
 *   forward    nearest: y[p, q] = x[floor(p H / P), floor(q W / Q)];
 *              bilinear: the four neighbours of the source position, align_corners as PyTorch
 *   backward   the transposed map: each dy goes to the pixels it was made from, with the same weights
 *   rebuild    from x: a concatenation with an upsampled map is then read again from the maps that are kept anyway
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(upsample_forward, fri_upsample_desc, (e, d, T(0), T(1)), .flops = 4, .unit = 1)
FRI_OP_KERNEL(upsample_backward, fri_upsample_desc, (e, d, T(0), T(1)), .flops = 4)

fr_described fri_op_upsample = {.op = {.name = "upsample"},
                                .operands = "x[n,h,w,c] > y[n,p,q,c]",
                                .forward = {{"x > y", &upsample_forward_kernel}},
                                .backward = {{"dy > dx", &upsample_backward_kernel}},
                                .rebuilds = true};

fr_status fr_upsample(fr_tensor *x, int64_t p, int64_t q, fr_upsample_mode mode, bool align_corners, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_upsample, &x, y));
    const int64_t h = FRI_SIZE(f, 'h'), w = FRI_SIZE(f, 'w');
    FRI_TRY(fri_expect_bounded("upsample", "x's height and width", h, w));
    FRI_TRY(fri_expect_bounded("upsample", "size", p, q));
    if (p < 1 || q < 1 || h < 1 || w < 1)
        return fr_fail(FR_EINVAL, "upsample: from %lld x %lld to %lld x %lld pixels; all must be >= 1", (long long)h,
                       (long long)w, (long long)p, (long long)q);
    const fri_upsample_desc d = {.dtype = f.dtype,
                                 .n = FRI_SIZE(f, 'n'),
                                 .h = h,
                                 .w = w,
                                 .c = FRI_SIZE(f, 'c'),
                                 .p = FRI_SIZE(f, 'p') = p,
                                 .q = FRI_SIZE(f, 'q') = q,
                                 .bilinear = mode == FR_UPSAMPLE_BILINEAR,
                                 .align_corners = align_corners};
    return fri_frame_run(&f, &d, sizeof d, y);
}
