/* arith.h - elementwise arithmetic, written once for the C compiler and nvcc.
 *
 * fri_real is float; a C file compiled with FRI_REAL_F64 gets double (gradient checks on the CPU). Nothing here loops:
 * a kernel loads, calls one of these, and stores. A pointer is taken where its value changes or may be absent.
 * Comparisons are written so that NaN takes the side that kernels.h promises; do not rearrange them. */
#ifndef FRI_BACKEND_ARITH_H
#define FRI_BACKEND_ARITH_H

#include "backend/elementary.h"
#include "backend/kernels.h"

#ifdef FRI_REAL_F64
#define FRI_SQRT sqrt
#define FRI_FMA  fma
#else
#define FRI_SQRT sqrtf
#define FRI_FMA  fmaf
#endif

/* ---- two operands ------------------------------------------------------------------------------------------ */

/* Every backend makes kernels of the functions. */
#define FRI_BINARIES(B) B(add, ADD, +) B(sub, SUB, -) B(mul, MUL, *) B(div, DIV, /)

static inline FRI_HOST_DEVICE fri_real fri_binary_of(fri_binary op, fri_real a, fri_real b) {
    return op == FRI_BINARY_ADD ? a + b : op == FRI_BINARY_SUB ? a - b : op == FRI_BINARY_MUL ? a * b : a / b;
}

/* ---- upsampling along one axis ---------------------------------------------------------------------------------- */

typedef struct fri_upsample_axis {
    int64_t in, out;
    bool bilinear, align_corners;
} fri_upsample_axis;

/* Output o is (1 - t) x[low] + t x[high]. Where t is 0 both are the only source, since 0 times inf or NaN is NaN. */
typedef struct fri_upsample_source {
    int64_t low, high;
    fri_real t;
} fri_upsample_source;

/* Positions are fractions of whole numbers, so all backends have equal sources and weights. */
static inline FRI_HOST_DEVICE fri_upsample_source fri_upsample_source_of(const fri_upsample_axis *a, int64_t o) {
    const int64_t last = a->in - 1, of = !a->bilinear        ? a->out
                                         : !a->align_corners ? 2 * a->out
                                         : a->out > 1        ? a->out - 1
                                                             : 1;
    int64_t at = !a->bilinear ? o * a->in : a->align_corners ? o * last : (2 * o + 1) * a->in - a->out;
    fri_upsample_source s;
    if (at < 0) at = 0;
    s.low = at <= (int64_t)UINT32_MAX ? (int64_t)((uint32_t)at / (uint32_t)of) : at / of;
    s.t = a->bilinear ? (fri_real)(at - s.low * of) / (fri_real)of : 0;
    if (s.t >= 1) s.low++, s.t = 0;
    if (s.low >= last) s.low = last, s.t = 0;
    s.high = s.t > 0 ? s.low + 1 : s.low;
    return s;
}

/* The weight of source i in output o. */
static inline FRI_HOST_DEVICE fri_real fri_upsample_share(fri_upsample_source s, int64_t i) {
    return (s.low == i ? 1 - s.t : 0) + (s.high == i ? s.t : 0);
}

/* ---- places ------------------------------------------------------------------------------------------------ */

/* Start of a line in the index tensor and in x. */
static inline FRI_HOST_DEVICE void fri_gather_line(const fri_gather_desc *d, int64_t line, int64_t *index, int64_t *x) {
    *index = *x = 0;
    for (int i = 0; i < d->rank; i++) {
        int64_t at = line % d->size[i];
        line /= d->size[i];
        *index += at * d->index_stride[i];
        *x += at * d->x_stride[i];
    }
}

/* Places of element i in the first `rank` dimensions. */
static inline FRI_HOST_DEVICE void fri_strided_place(const fri_strided_desc *d, int rank, int64_t i, int64_t *x,
                                                     int64_t *y) {
    *x = *y = 0;
    for (int k = rank - 1; k >= 0; k--) {
        const int64_t at = i % d->extent[k];
        i /= d->extent[k];
        *x += at * d->x_stride[k];
        *y += at * d->y_stride[k];
    }
}

/* ---- images ------------------------------------------------------------------------------------------------ */

/* Normalized value of byte v of a channel. The product has no addend, so no compiler contracts it. */
static inline FRI_HOST_DEVICE float fri_normalized(int v, double mean, double std) {
    return (float)(((double)v / 255.0 - mean) / std);
}

/* ---- rectifiers ------------------------------------------------------------------------------------------ */

static inline FRI_HOST_DEVICE fri_real fri_relu(fri_real x) {
    return x <= 0 ? 0 : x; /* NaN passes */
}

/* The mask rule: does the gradient pass where relu gave y? */
static inline FRI_HOST_DEVICE bool fri_relu_passes(fri_real y) {
    return !(y <= 0);
}

static inline FRI_HOST_DEVICE fri_real fri_relu_gradient(fri_real y, fri_real dy) {
    return y <= 0 ? 0 : dy;
}

/* relu with a ceiling; NaN passes. INFINITY: relu's bits. */
static inline FRI_HOST_DEVICE fri_real fri_relu_below(fri_real x, fri_real ceiling) {
    return x <= 0 ? 0 : x >= ceiling ? ceiling : x;
}

static inline FRI_HOST_DEVICE fri_real fri_relu6(fri_real x) {
    return fri_relu_below(x, 6);
}

static inline FRI_HOST_DEVICE fri_real fri_ceiling(fri_activation r) {
    return r == FRI_ACTIVATION_RELU6 ? 6 : (fri_real)INFINITY;
}

static inline FRI_HOST_DEVICE bool fri_relu6_passes(fri_real y) {
    return y > 0 && y < 6; /* NaN does not, as PyTorch */
}

static inline FRI_HOST_DEVICE fri_real fri_relu6_gradient(fri_real y, fri_real dy) {
    return fri_relu6_passes(y) ? dy : 0;
}

/* A bit of a mask. */
static inline FRI_HOST_DEVICE bool fri_mask_bit(fri_mask_rule rule, fri_real y) {
    return rule == FRI_MASK_RELU ? fri_relu_passes(y) : rule == FRI_MASK_POSITIVE ? y > 0 : fri_relu6_passes(y);
}

/* Gradient of relu from a bit of the mask. slope 0 gives exactly 0, also for an infinite dy. */
static inline FRI_HOST_DEVICE fri_real fri_relu_gradient_bit(bool bit, fri_real slope, fri_real dy) {
    return bit ? dy : slope == 0 ? 0 : slope * dy;
}

static inline FRI_HOST_DEVICE fri_real fri_leaky_relu(fri_real x, fri_real slope) {
    return x > 0 ? x : slope * x;
}

static inline FRI_HOST_DEVICE fri_real fri_leaky_relu_gradient(fri_real y, fri_real slope, fri_real dy) {
    return fri_relu_gradient_bit(y > 0, slope, dy); /* NaN takes the slope, as PyTorch */
}

static inline FRI_HOST_DEVICE fri_real fri_elu(fri_real x) {
    return x > 0 ? x : fri_expm1(x);
}

static inline FRI_HOST_DEVICE fri_real fri_elu_gradient(fri_real y, fri_real dy) {
    return y <= 0 ? dy * (y + 1) : dy; /* NaN takes dy, as PyTorch */
}

/* Far on the negative side y rounds to -1: y + 1 then counts as half of the gap between numbers below 1. NaN passes. */
static inline FRI_HOST_DEVICE fri_real fri_elu_inverse(fri_real y) {
    const fri_real least = sizeof(fri_real) == 8 ? (fri_real)0x1p-54 : (fri_real)0x1p-25;
    return y > 0 ? y : y + 1 < least ? fri_ln(least) : fri_log1p(y);
}

static inline FRI_HOST_DEVICE fri_real fri_clamp(fri_real x, fri_real low, fri_real high) {
    return x < low ? low : x > high ? high : x;
}

static inline FRI_HOST_DEVICE fri_real fri_clamp_gradient(fri_real x, fri_real dy, fri_real low, fri_real high) {
    const bool above = x > low || low == -(fri_real)INFINITY, below = x < high || high == (fri_real)INFINITY;
    return above && below && x == x ? dy : 0; /* nor at a finite bound, nor at NaN, as PyTorch 2.15 */
}

/* ---- activations: y of x, and the gradient from y or from x ------------------------------------------------- */

/* A word of FRI_ACTIVATIONS (kernel_map.h) has the functions fri_<word>(x) and fri_<word>_gradient(saved, dy). */

static inline FRI_HOST_DEVICE fri_real fri_sigmoid(fri_real x) {
    return 1 / (1 + fri_exp(-x));
}

static inline FRI_HOST_DEVICE fri_real fri_sigmoid_gradient(fri_real y, fri_real dy) {
    return dy * y * (1 - y);
}

static inline FRI_HOST_DEVICE fri_real fri_tanh_gradient(fri_real y, fri_real dy) {
    return dy * (1 - y * y);
}

static inline FRI_HOST_DEVICE fri_real fri_silu(fri_real x) {
    return x * fri_silu_sigmoid(x);
}

static inline FRI_HOST_DEVICE fri_real fri_silu_gradient(fri_real x, fri_real dy) {
    const fri_real s = fri_silu_sigmoid(x), t = dy * s;
    return FRI_FMA(t, FRI_FMA(-x, s, x), t); /* dy s (1 + x (1 - s)) */
}

static inline FRI_HOST_DEVICE fri_real fri_hardsigmoid(fri_real x) {
    return fri_relu6(x + 3) / 6;
}

static inline FRI_HOST_DEVICE fri_real fri_hardsigmoid_gradient(fri_real x, fri_real dy) {
    return x > -3 && x < 3 ? dy / 6 : 0;
}

static inline FRI_HOST_DEVICE fri_real fri_hardswish(fri_real x) {
    return x * fri_relu6(x + 3) / 6;
}

static inline FRI_HOST_DEVICE fri_real fri_hardswish_gradient(fri_real x, fri_real dy) {
    return x <= -3 ? 0 : x < 3 ? dy * (x / 3 + (fri_real)0.5) : dy;
}

static inline FRI_HOST_DEVICE fri_real fri_gelu(fri_real x) {
    return x * fri_normal_below(x);
}

static inline FRI_HOST_DEVICE fri_real fri_gelu_gradient(fri_real x, fri_real dy) {
    const fri_real density = (fri_real)0.39894228040143267794 * fri_exp(x * x * (fri_real)-0.5);
    return dy * (fri_normal_below(x) + x * density);
}

/* tanh of sqrt(2 / pi) (x + 0.044715 x^3) */
static inline FRI_HOST_DEVICE fri_real fri_gelu_bend(fri_real x) {
    return fri_tanh((fri_real)0.79788456080286535588 * (x + (fri_real)0.044715 * x * x * x));
}

static inline FRI_HOST_DEVICE fri_real fri_gelu_tanh(fri_real x) {
    return (fri_real)0.5 * x * (1 + fri_gelu_bend(x));
}

static inline FRI_HOST_DEVICE fri_real fri_gelu_tanh_gradient(fri_real x, fri_real dy) {
    const fri_real t = fri_gelu_bend(x);
    const fri_real slope = (fri_real)0.79788456080286535588 * (1 + (fri_real)0.134145 * x * x);
    return dy * (fri_real)0.5 * (1 + t + x * (1 - t * t) * slope);
}

/* softplus, log(1 + exp(x)), without overflow for large x */
static inline FRI_HOST_DEVICE fri_real fri_softplus(fri_real x) {
    return (x > 0 ? x : 0) + fri_log1p(fri_exp(x > 0 ? -x : x));
}

static inline FRI_HOST_DEVICE fri_real fri_softplus_gradient(fri_real x, fri_real dy) {
    return dy * fri_sigmoid(x);
}

/* Activations of fused kernels; the gradient is computed from x. */
static inline FRI_HOST_DEVICE fri_real fri_activate(fri_activation a, fri_real x) {
    switch (a) {
    case FRI_ACTIVATION_RELU: return fri_relu(x);
    case FRI_ACTIVATION_RELU6: return fri_relu6(x);
    case FRI_ACTIVATION_HARDSWISH: return fri_hardswish(x);
    case FRI_ACTIVATION_SILU: return fri_silu(x);
    default: return x;
    }
}

static inline FRI_HOST_DEVICE fri_real fri_activate_gradient(fri_activation a, fri_real x, fri_real dy) {
    switch (a) {
    case FRI_ACTIVATION_RELU: return fri_relu_gradient(x, dy);
    case FRI_ACTIVATION_RELU6: return fri_relu6_gradient(x, dy);
    case FRI_ACTIVATION_HARDSWISH: return fri_hardswish_gradient(x, dy);
    case FRI_ACTIVATION_SILU: return fri_silu_gradient(x, dy);
    default: return dy;
    }
}

/* True if act(x) reads the rounded x. Rectifiers may round afterwards. */
static inline FRI_HOST_DEVICE bool fri_reads_x(fri_activation a) {
    return a > FRI_ACTIVATION_RELU6;
}

/* ---- random numbers -------------------------------------------------------------------------------------- */

/* Uniform in [low, high); low if rounding would reach high, as PyTorch on CUDA. */
static inline FRI_HOST_DEVICE fri_real fri_uniform_between(uint32_t u, fri_real low, fri_real high) {
    fri_real v = (fri_real)fri_uniform_f32(u) * (high - low) + low;
    return v < high ? v : low;
}

/* Box-Muller: turns two uniform numbers into two independent standard normal numbers. */
static inline FRI_HOST_DEVICE void fri_normal_pair(uint32_t a, uint32_t b, fri_real *even, fri_real *odd) {
    fri_real radius = FRI_SQRT((fri_real)-2 * fri_ln((fri_real)1 - (fri_real)fri_uniform_f32(a)));
    fri_real angle = (fri_real)6.283185307179586476925 * (fri_real)fri_uniform_f32(b);
    fri_sin_cos(angle, odd, even);
    *even *= radius;
    *odd *= radius;
}

/* kept iff uniform >= p, decided on the 24 integer bits of the uniform number, equal on every backend. */
static inline uint32_t fri_dropout_threshold(double p) {
    return (uint32_t)ceil(p * 16777216.0);
}

static inline FRI_HOST_DEVICE bool fri_dropout_keeps(uint32_t u, uint32_t threshold) {
    return (u >> 8) >= threshold;
}

/* ---- batch norm ------------------------------------------------------------------------------------------ */

/* scale = invstd * gamma. The mean is taken off first: x * scale + (beta - mean * scale) cancels where |mean| >>
 * std. */
static inline FRI_HOST_DEVICE fri_real fri_batchnorm_apply(fri_real x, fri_real mean, fri_real scale, fri_real beta) {
    return (x - mean) * scale + beta;
}

/* invstd * gamma of channel c; gamma or NULL (1). */
static inline FRI_HOST_DEVICE fri_real fri_norm_scale(const fri_real *invstd, const fri_real *gamma, int64_t c) {
    return gamma != NULL ? invstd[c] * gamma[c] : invstd[c];
}

/* A running statistic (or NULL) moves towards sum / count by the fraction momentum: a rounded product plus a rounded
 * step. So the step from a running value of -0 can be added later, with equal bits (the add-on ranks). */
static inline FRI_HOST_DEVICE void fri_running_update(fri_real *running, int64_t c, double momentum, double sum,
                                                      double count) {
    if (running == NULL) return;
    const fri_real kept = (fri_real)(1 - momentum) * running[c];
    running[c] = kept + (fri_real)(momentum * sum / count);
}

/* The largest number that a type rounds to 0: half of the type's smallest. */
static inline FRI_HOST_DEVICE fri_real fri_largest_zero(fr_dtype t) {
    return t == FR_F16 ? (fri_real)0x1p-25f : t == FR_BF16 ? (fri_real)0x1p-134f : 0;
}

/* Gradient of a relu after the normalization, from dy. The sign is the stored value's, rounded by the forward pass:
 * zero = fri_largest_zero of the type. NaN passes. */
static inline FRI_HOST_DEVICE fri_real fri_batchnorm_relu_gradient(fri_real x, fri_real dy, fri_real mean,
                                                                   fri_real scale, fri_real beta, fri_real zero) {
    return fri_batchnorm_apply(x, mean, scale, beta) <= zero ? 0 : dy;
}

/* mean_dy = mean(dy); slope = invstd^2 * mean(dy * (x - mean)). */
static inline FRI_HOST_DEVICE fri_real fri_batchnorm_gradient(fri_real x, fri_real dy, fri_real mean, fri_real scale,
                                                              fri_real mean_dy, fri_real slope) {
    return scale * (dy - mean_dy - (x - mean) * slope);
}

/* Group norm and layer norm: over a group, plain = mean(gamma * dy) and normalized = mean(gamma * dy * xhat). */
static inline FRI_HOST_DEVICE fri_real fri_group_norm_gradient(fri_real x, fri_real dy, fri_real mean, fri_real invstd,
                                                               fri_real gamma, fri_real plain, fri_real normalized) {
    return invstd * (gamma * dy - plain - (x - mean) * invstd * normalized);
}

/* ---- losses ---------------------------------------------------------------------------------------------- */

/* Weight of a class in a row's cross entropy: t of the target, smoothed to kept * t + even, times the class's weight.
 * kept = 1 - label smoothing, even = label smoothing / classes. */
static inline FRI_HOST_DEVICE fri_real fri_class_share(fri_real t, fri_real weight, fri_real kept, fri_real even) {
    return weight * (kept * t + even);
}

/* Gradient for shares q, with sum `all`; g = dloss / count. */
static inline FRI_HOST_DEVICE fri_real fri_share_gradient(fri_real x, fri_real lse, fri_real all, fri_real q,
                                                          fri_real g) {
    return (all * fri_exp(x - lse) - q) * g;
}

/* Binary cross entropy of sigmoid(x) and t, positive targets times w, and with the focal factor
 * a (1 - p_t)^gamma, p_t = t p + (1 - t) (1 - p); a = t alpha + (1 - t) (1 - alpha), or 1 where alpha < 0. */
static inline FRI_HOST_DEVICE fri_real fri_bce(fri_real x, fri_real t, fri_real w) {
    return (1 - t) * x + (1 + (w - 1) * t) * fri_softplus(-x);
}
static inline FRI_HOST_DEVICE fri_real fri_focal_alpha(fri_real t, const fri_loss_desc *d) {
    const fri_real alpha = (fri_real)d->alpha;
    return d->alpha < 0 ? 1 : t * alpha + (1 - t) * (1 - alpha);
}
/* 1 - p_t */
static inline FRI_HOST_DEVICE fri_real fri_focal_miss(fri_real x, fri_real t) {
    return t * fri_sigmoid(-x) + (1 - t) * fri_sigmoid(x);
}
static inline FRI_HOST_DEVICE fri_real fri_focal(fri_real x, fri_real t, fri_real w, const fri_loss_desc *d) {
    const fri_real factor = d->gamma > 0 ? fri_power(fri_focal_miss(x, t), (fri_real)d->gamma) : 1;
    return fri_focal_alpha(t, d) * factor * fri_bce(x, t, w);
}
static inline FRI_HOST_DEVICE fri_real fri_focal_gradient(fri_real x, fri_real t, fri_real w, const fri_loss_desc *d) {
    const fri_real slope = (1 - t) - (1 + (w - 1) * t) * fri_sigmoid(-x), gamma = (fri_real)d->gamma;
    const fri_real a = fri_focal_alpha(t, d), miss = fri_focal_miss(x, t);
    if (!(d->gamma > 0)) return a * slope;
    const fri_real dmiss = fri_sigmoid(x) * fri_sigmoid(-x) * (1 - 2 * t);
    const fri_real bend = miss > 0 ? gamma * fri_power(miss, gamma - 1) * dmiss : 0;
    return a * (fri_power(miss, gamma) * slope + bend * fri_bce(x, t, w));
}

/* A class's term of the Dice loss from the sums over rows of p t, p and t: 1 - score, 0 without rows of the class.
 * *other, *own: as the kernel's factors. */
static inline FRI_HOST_DEVICE double fri_dice(double both, double p, double t, const fri_loss_desc *d, fri_real *other,
                                              fri_real *own) {
    const double above = both + d->smooth, all = (p + t) / 2 + d->smooth, below = all > 1e-7 ? all : 1e-7;
    const double n = t > 0 ? (double)d->classes : INFINITY;
    *other = (fri_real)(all > 1e-7 ? above / (2 * below * below) / n : 0);
    *own = (fri_real)(-1 / below / n);
    return (1 - above / below) / n;
}

/* dloss/dp of class c in a row. */
static inline FRI_HOST_DEVICE fri_real fri_dice_slope(const fri_real *factors, int64_t classes, int64_t c,
                                                      int64_t target) {
    return factors[c] + (c == target ? factors[classes + c] : 0);
}

/* Softmax from log(sum(exp(x))) of the row, in f64: no cancellation for distant classes. */
static inline FRI_HOST_DEVICE fri_real fri_softmax(fri_real x, double lse, bool logarithm) {
    const fri_real y = (fri_real)((double)x - lse);
    return logarithm ? y : fri_exp(y);
}
/* Term of softmax's backward, summed over the row, and the gradient from the sum. */
static inline FRI_HOST_DEVICE double fri_softmax_term(fri_real y, fri_real dy, bool logarithm) {
    return logarithm ? (double)dy : (double)y * (double)dy;
}
static inline FRI_HOST_DEVICE fri_real fri_softmax_gradient(fri_real y, fri_real dy, double sum, bool logarithm) {
    return logarithm ? dy - fri_exp(y) * (fri_real)sum : y * (dy - (fri_real)sum);
}

/* Distance of a difference d: d * d where beta < 0, else smooth L1, with beta 0 the magnitude; and half of the
 * slope. */
static inline FRI_HOST_DEVICE double fri_distance(double d, double beta) {
    const double size = d < 0 ? -d : d;
    return beta < 0 ? d * d : size < beta ? d * d / (2 * beta) : size - beta / 2;
}
static inline FRI_HOST_DEVICE fri_real fri_distance_half_slope(fri_real d, fri_real beta) {
    const fri_real sign = (fri_real)((d > 0) - (d < 0));
    return beta < 0 ? d : (d < 0 ? -d : d) < beta ? d / (2 * beta) : sign / 2;
}

/* ---- single numbers ----------------------------------------------------------------------------------------- */

/* torch.nn.utils.clip_grad_norm_ from the sum of squares. A NaN stays NaN and reaches all gradients. */
static inline FRI_HOST_DEVICE double fri_clip_factor(double max_norm, double square) {
    double factor = max_norm / (sqrt(square) + 1e-6);
    return factor >= 1 ? 1 : factor;
}

static inline FRI_HOST_DEVICE float fri_loss_scale_inverse(float scale) {
    return (float)(1.0 / (double)scale); /* PyTorch: the reciprocal in double, then rounded */
}

/* GradScaler.update after a step: overflow shrinks the scale, growth_interval steps without overflow grow the scale, if
 * still finite. */
static inline FRI_HOST_DEVICE fri_loss_scale fri_loss_scale_next(const fri_loss_scale_desc *d, fri_loss_scale s,
                                                                 bool found) {
    if (found) s.skipped++;
    if (d->dynamic && found) {
        s.scale = (float)(s.scale * d->backoff_factor);
        if (s.scale < (float)d->min_scale) s.scale = (float)d->min_scale;
        s.tracker = 0;
    } else if (d->dynamic && ++s.tracker == d->growth_interval) {
        float larger = (float)(s.scale * d->growth_factor);
        if (larger - larger == 0) s.scale = larger;
        s.tracker = 0;
    }
    s.inverse = fri_loss_scale_inverse(s.scale);
    return s;
}

#endif
