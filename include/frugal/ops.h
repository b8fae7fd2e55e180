/* ops.h - differentiable operations.
 *
 * Every op reads its tensors and puts a new tensor into the slot *y (NULL or a tensor): on success the old *y is
 * released and replaced, on failure *y is untouched. So fr_relu(x, &x) is x = relu(x), and the old x dies at once
 * unless backward needs the old x; with the in-place switch on the op then writes over x's storage, if x has no further
 * reader.
 *
 * Shapes are in memory order: images [N, H, W, C], convolution weights [K, R, S, C/groups], linear weights [out, in].
 * Types: x, y and gradients are f32, f16, bf16 or (CPU) f64; arithmetic and sums are in f32 or wider.
 * Options come by macro, FR_CONV2D_OPTS(.stride = 2); NULL means all defaults (base.h). Sums over nothing are 0.
 * Errors of all ops: FR_EINVAL (a NULL tensor, an impossible option), FR_ESHAPE, FR_EDTYPE, FR_EDEVICE (mixed devices),
 * FR_EUNSUPPORTED (no kernel on this device), FR_ENOMEM. */
#ifndef FRUGAL_OPS_H
#define FRUGAL_OPS_H

#include <frugal/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolution and linear -------------------------------------------------------------------------------- */

/* Symmetric values stand for both directions; a _w field of -1 (the default) means "as the other". */
typedef struct fr_conv2d_opts {
    int64_t stride FR_DEFAULT(1), stride_w FR_DEFAULT(-1);
    int64_t padding FR_DEFAULT(0), padding_w FR_DEFAULT(-1);
    int64_t dilation FR_DEFAULT(1), dilation_w FR_DEFAULT(-1);
    int64_t groups FR_DEFAULT(1);
    int64_t kernel_w FR_DEFAULT(-1); /* of the layer; -1: as kernel. The op reads the weight's shape instead */
} fr_conv2d_opts;
#define FR_CONV2D_DEFAULTS \
    .stride = 1, .stride_w = -1, .padding_w = -1, .dilation = 1, .dilation_w = -1, .groups = 1, .kernel_w = -1
#define FR_CONV2D_OPTS(...) FR_OPTS(fr_conv2d_opts, FR_CONV2D_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_conv2d_opts, FR_CONV2D_OPTS())

/* y = conv(x, w) + b, zero padded (torch.nn.functional.conv2d).
 *   x [N, H, W, C]    w [K, R, S, C/groups]    b [K] or NULL    y [N, P, Q, K]
 *   P = (H + 2 * padding - dilation * (R - 1) - 1) / stride + 1, likewise Q (floor)
 * dtype:  x and w equal; b in x's type or f32. grad: x, w, b. Saves x and w (references, no copies). */
FR_API fr_status fr_conv2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv2d_opts *opts, fr_tensor **y);

/* y = x w^T + b.   x [..., in]    w [out, in]    b [out] or NULL    y [..., out]. Saves x and w. */
FR_API fr_status fr_linear(fr_tensor *x, fr_tensor *w, fr_tensor *b, fr_tensor **y);

typedef struct fr_conv_transpose2d_opts {
    int64_t stride FR_DEFAULT(1), stride_w FR_DEFAULT(-1);
    int64_t padding FR_DEFAULT(0), padding_w FR_DEFAULT(-1);
    int64_t output_padding FR_DEFAULT(0), output_padding_w FR_DEFAULT(-1); /* rows and columns more; below the stride */
    int64_t dilation FR_DEFAULT(1), dilation_w FR_DEFAULT(-1);
    int64_t groups FR_DEFAULT(1);
} fr_conv_transpose2d_opts;
#define FR_CONV_TRANSPOSE2D_DEFAULTS \
    .stride = 1, .stride_w = -1, .padding_w = -1, .output_padding_w = -1, .dilation = 1, .dilation_w = -1, .groups = 1
#define FR_CONV_TRANSPOSE2D_OPTS(...) FR_OPTS(fr_conv_transpose2d_opts, FR_CONV_TRANSPOSE2D_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_conv_transpose2d_opts, FR_CONV_TRANSPOSE2D_OPTS())

/* The convolution from y to x run backwards: each x spreads its window over y (torch conv_transpose2d).
 *   x [N, P, Q, K]    w [K, R, S, C/groups] (torch's [in, out/groups, R, S])    b [C] or NULL    y [N, H, W, C]
 *   H = (P - 1) * stride - 2 * padding + dilation * (R - 1) + 1 + output_padding, likewise W
 * dtype: x, w and b equal. grad: x, w, b. Saves x and w (references). The scratch equals conv2d's. */
FR_API fr_status fr_conv_transpose2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv_transpose2d_opts *opts,
                                     fr_tensor **y);

/* y = a b.   a [..., K]    b [K, N]    y [..., N] (torch matmul). dtype: equal. grad: a, b. Saves both (references). */
FR_API fr_status fr_matmul(fr_tensor *a, fr_tensor *b, fr_tensor **y);

/* ---- normalization ------------------------------------------------------------------------------------------- */

typedef struct fr_batchnorm2d_opts {
    bool train FR_DEFAULT(true); /* use and update batch statistics; false: use running values */
    double eps FR_DEFAULT(1e-5), momentum FR_DEFAULT(0.1);
} fr_batchnorm2d_opts;
#define FR_BATCHNORM2D_DEFAULTS  .train = true, .eps = 1e-5, .momentum = 0.1
#define FR_BATCHNORM2D_OPTS(...) FR_OPTS(fr_batchnorm2d_opts, FR_BATCHNORM2D_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_batchnorm2d_opts, FR_BATCHNORM2D_OPTS())

/* y = (x - mean) / sqrt(var + eps) * gamma + beta over N, H, W (Ioffe and Szegedy 2015; torch batch_norm).
 *   x [N, H, W, C]    gamma, beta [C] or both NULL    running_mean, running_var [C] (may be NULL in training)
 * Normalizes with the biased variance; running = (1 - momentum) * running + momentum * batch, with the unbiased
 * variance. dtype: gamma, beta and statistics are f32 for f32/f16/bf16 x, f64 for f64. grad: x, gamma, beta. Saves x
 * and, in training, mean and inverse std [C]. A recomputation inside a checkpoint never touches the running values.
 * FR_EINVAL: training with one value per channel. */
FR_API fr_status fr_batchnorm2d(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *running_mean,
                                fr_tensor *running_var, const fr_batchnorm2d_opts *opts, fr_tensor **y);

/* y = (x - mean) / sqrt(var + eps) * gamma + beta, mean and biased variance over groups of C / groups channels of each
 * image (Wu and He 2018; torch group_norm), or over the last dimension (Ba et al. 2016; torch layer_norm).
 *   x [N, H, W, C], for layer norm [..., C]    gamma, beta [C]    y as x
 * Images are independent: the size of the batch does not matter. dtype: gamma and beta are f32 for f32/f16/bf16 x, f64
 * for f64. grad: x, gamma, beta. Saves x, and mean and inverse std of each group or row. FR_ESHAPE: groups does not
 * divide C. */
FR_API fr_status fr_group_norm(fr_tensor *x, int64_t groups, fr_tensor *gamma, fr_tensor *beta, double eps,
                               fr_tensor **y);
FR_API fr_status fr_layer_norm(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, double eps, fr_tensor **y);

/* y = leaky_relu(batch norm of x with weight |gamma| + eps, slope), written over x if x has no further reader; backward
 * rebuilds x from y (InPlace-ABN, Rota Bulo et al. 2018). Saves y only. Gradients equal those of the two separate ops
 * up to rounding (bound in docs/ops/inplace_abn.md). slope > 0; FR_ABN_IDENTITY: no activation; FR_ABN_ELU: elu, y = x
 * where x > 0, else exp(x) - 1, with y kept in evaluations too. Shapes, types and statistics as fr_batchnorm2d. */
#define FR_ABN_IDENTITY 1.0
#define FR_ABN_ELU      (-1.0)
FR_API fr_status fr_inplace_abn(fr_tensor *x, fr_tensor *gamma, fr_tensor *beta, fr_tensor *running_mean,
                                fr_tensor *running_var, const fr_batchnorm2d_opts *opts, double slope, fr_tensor **y);

/* ---- activations ----------------------------------------------------------------------------------------------- */

/* y = max(x, 0). dx = dy where y > 0. Saves y's sign: shared with y while y lives, later 1 bit or nothing. */
FR_API fr_status fr_relu(fr_tensor *x, fr_tensor **y);
/* y = x > 0 ? x : slope * x, slope >= 0. Saves y's sign, for slope 0 < slope. */
FR_API fr_status fr_leaky_relu(fr_tensor *x, double slope, fr_tensor **y);
/* y = min(max(x, 0), 6). dx = dy where 0 < y < 6. Saves which elements pass: shared with y while y lives, later 1
 * bit. */
FR_API fr_status fr_relu6(fr_tensor *x, fr_tensor **y);
/* Smooth activations and their hard forms (names as in torch.nn.functional; gelu_tanh: gelu with approximate="tanh");
 * any shape, float types, y has type and shape of x. sigmoid and tanh save y, the rest x, and so write over x only
 * without a graph. Gradients are PyTorch's, also at the hard forms' kinks -3 and 3. */
FR_API fr_status fr_sigmoid(fr_tensor *x, fr_tensor **y);     /* y = 1 / (1 + exp(-x)) */
FR_API fr_status fr_tanh(fr_tensor *x, fr_tensor **y);        /* y = tanh x */
FR_API fr_status fr_silu(fr_tensor *x, fr_tensor **y);        /* y = x sigmoid(x); swish */
FR_API fr_status fr_hardsigmoid(fr_tensor *x, fr_tensor **y); /* y = min(max(x + 3, 0), 6) / 6 */
FR_API fr_status fr_hardswish(fr_tensor *x, fr_tensor **y);   /* y = x hardsigmoid(x) */
FR_API fr_status fr_gelu(fr_tensor *x, fr_tensor **y);        /* y = x (1 + erf(x / sqrt 2)) / 2 */
/* y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
FR_API fr_status fr_gelu_tanh(fr_tensor *x, fr_tensor **y);
/* y = min(max(x, low), high); an infinite bound is none; NaN passes. dx = dy where low < x < high (torch clamp).
 * Saves x. */
FR_API fr_status fr_clamp(fr_tensor *x, double low, double high, fr_tensor **y);
/* Softmax over the last dimension: y = exp(x) / sum(exp(x)), and its logarithm x - log(sum(exp(x))) (torch softmax,
 * log_softmax with dim=-1); rank >= 1, float types, f32 under autocast. Save y. */
FR_API fr_status fr_softmax(fr_tensor *x, fr_tensor **y);
FR_API fr_status fr_log_softmax(fr_tensor *x, fr_tensor **y);
/* Rectifiers, demanded in place, with PyTorch's rules: FR_EUSAGE on a leaf that requires grad; backward of a node with
 * the old content saved fails. */
FR_API fr_status fr_relu_inplace(fr_tensor *x);
FR_API fr_status fr_leaky_relu_inplace(fr_tensor *x, double slope);
FR_API fr_status fr_relu6_inplace(fr_tensor *x);

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

typedef struct fr_pool2d_opts {
    int64_t stride FR_DEFAULT(-1), stride_w FR_DEFAULT(-1);    /* -1: the kernel size */
    int64_t padding FR_DEFAULT(0), padding_w FR_DEFAULT(-1);   /* at most half the kernel */
    int64_t dilation FR_DEFAULT(1), dilation_w FR_DEFAULT(-1); /* max pool only */
    int64_t kernel_w FR_DEFAULT(-1);                           /* -1: as kernel */
    bool ceil_mode FR_DEFAULT(false), count_include_pad FR_DEFAULT(true);
} fr_pool2d_opts;
#define FR_POOL2D_DEFAULTS                                                                          \
    .stride = -1, .stride_w = -1, .padding_w = -1, .dilation = 1, .dilation_w = -1, .kernel_w = -1, \
    .count_include_pad = true
#define FR_POOL2D_OPTS(...) FR_OPTS(fr_pool2d_opts, FR_POOL2D_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_pool2d_opts, FR_POOL2D_OPTS())

/* Maximum over windows; the first maximum gets the gradient, NaN wins. Saves one byte per output (i64 with encode
 * off). */
FR_API fr_status fr_maxpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y);
FR_API fr_status fr_avgpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y);
/* Average over windows floor(i H / P) .. ceil((i + 1) H / P). p = q = 1 is global average pooling. Saves nothing. */
FR_API fr_status fr_adaptive_avgpool2d(fr_tensor *x, int64_t p, int64_t q, fr_tensor **y);

/* ---- pointwise --------------------------------------------------------------------------------------------------- */

/* y = a + b, a - b, a * b, a / b (torch add, sub, mul, div), types promoted to the wider. b has a's shape or, with 1s
 * put before it, 1 for one run of a's dimensions: a scalar, [C], [N, 1, 1, C] (squeeze and excitation), [N, H, W, 1] to
 * a [N, H, W, C]; y has a's. grad: a, b, summed over that run. add and sub save nothing, mul both, div b, and a if b
 * wants a gradient. */
FR_API fr_status fr_add(fr_tensor *a, fr_tensor *b, fr_tensor **y);
FR_API fr_status fr_sub(fr_tensor *a, fr_tensor *b, fr_tensor **y);
FR_API fr_status fr_mul(fr_tensor *a, fr_tensor *b, fr_tensor **y);
FR_API fr_status fr_div(fr_tensor *a, fr_tensor *b, fr_tensor **y);
FR_API fr_status fr_add_inplace(fr_tensor *a, fr_tensor *b); /* a += b */
FR_API fr_status fr_sub_inplace(fr_tensor *a, fr_tensor *b);
FR_API fr_status fr_mul_inplace(fr_tensor *a, fr_tensor *b); /* a *= b: saves the overwritten a, so backward fails */
FR_API fr_status fr_div_inplace(fr_tensor *a, fr_tensor *b); /* if b requires grad, as in PyTorch; likewise div */
/* y = alpha * x, y = x + alpha; save nothing. */
FR_API fr_status fr_scale(fr_tensor *x, double alpha, fr_tensor **y);
FR_API fr_status fr_scale_inplace(fr_tensor *x, double alpha);
FR_API fr_status fr_add_scalar(fr_tensor *x, double alpha, fr_tensor **y);
FR_API fr_status fr_add_scalar_inplace(fr_tensor *x, double alpha);
FR_API fr_status fr_cast(fr_tensor *x, fr_dtype dtype, fr_tensor **y); /* dx is cast back; saves nothing */

/* ---- reductions and shape ---------------------------------------------------------------------------------------- */

FR_API fr_status fr_sum(fr_tensor *x, fr_tensor **y);  /* scalar, in x's type, summed in f32 or wider */
FR_API fr_status fr_mean(fr_tensor *x, fr_tensor **y); /* sum / numel */
/* View of x with another shape; one dimension may be -1. Shares storage. */
FR_API fr_status fr_reshape(fr_tensor *x, int rank, const int64_t *shape, fr_tensor **y);
FR_API fr_status fr_flatten(fr_tensor *x, int start_dim, fr_tensor **y); /* dims start_dim .. last become one */
/* Copies with gradients, of any type; dimensions count as the shape does, from the end if negative. Save nothing.
 *   fr_pad               before[i] and after[i] more of dimension i, holding value (torch pad, mode constant)
 *   fr_narrow            length elements of a dimension, from start on (torch narrow)
 *   fr_slice             x[start:end:step] of a dimension, as Python counts and cuts off (INT64_MAX: to the end)
 *   fr_permute           dimension i of y is dims[i] of x (torch permute)
 *   fr_pixel_shuffle     [N, H, W, C r r] to [N, H r, W r, C]; channel (c r + i) r + j becomes pixel i, j (torch
 *                        pixel_shuffle; ONNX DepthToSpace, CRD); fr_pixel_unshuffle: back */
FR_API fr_status fr_pad(fr_tensor *x, const int64_t *before, const int64_t *after, double value, fr_tensor **y);
FR_API fr_status fr_narrow(fr_tensor *x, int dim, int64_t start, int64_t length, fr_tensor **y);
FR_API fr_status fr_slice(fr_tensor *x, int dim, int64_t start, int64_t end, int64_t step, fr_tensor **y);
FR_API fr_status fr_permute(fr_tensor *x, const int *dims, fr_tensor **y);
FR_API fr_status fr_pixel_shuffle(fr_tensor *x, int64_t r, fr_tensor **y);
FR_API fr_status fr_pixel_unshuffle(fr_tensor *x, int64_t r, fr_tensor **y);
/* Concatenation over the last dimension (channels), in the widest type. y [..., sum of C_i]. */
FR_API fr_status fr_concat(fr_tensor *const *x, int n, fr_tensor **y);

/* ---- randomness -------------------------------------------------------------------------------------------------- */

/* y = kept ? x / (1 - p) : 0 in training, x otherwise. The thread's generator state decides the kept elements; backward
 * computes the mask again, so no mask is saved (1 byte per element with encode off, as PyTorch). */
FR_API fr_status fr_dropout(fr_tensor *x, double p, bool train, fr_tensor **y);
FR_API fr_status fr_dropout2d(fr_tensor *x, double p, bool train, fr_tensor **y); /* whole channels */
/* Whole images: torchvision.ops.stochastic_depth(mode="row"), for the branch of a residual block. */
FR_API fr_status fr_stochastic_depth(fr_tensor *x, double p, bool train, fr_tensor **y);

/* ---- lookup and resampling --------------------------------------------------------------------------------------- */

/* y[i] = w[index[i]].   index i64, any shape; w [V, D]; y [index shape..., D]. FR_EINVAL names the first index out of
 * range; on CUDA a later fr_step_begin reports the index, so the host does not wait. */
FR_API fr_status fr_embedding(fr_tensor *index, fr_tensor *w, fr_tensor **y);

/* Elements along one dimension, as torch.gather, torch.scatter and torch.scatter_add; dim counts as the tensor's shape
 * does (images are [N, H, W, C]), from the end if it is negative. With i a position of `index` (i64, the rank of x):
 *   fr_gather        y[i] = x[i with index[i] along dim];   y has index's shape
 *   fr_scatter       y = x, but y[i with index[i] along dim] = src[i]; of equal places the last along dim
 *   fr_scatter_add   y = x, and y[i with index[i] along dim] += src[i], in order along dim
 * index is at most as large as x in the other dimensions; src has its shape and x's type (autocast takes the wider). x
 * = fr_scatter(x, ...) writes over x if x has no further reader; the _inplace forms always. Gradients: of x, dy (0
 * where scatter wrote over it; for gather dy added up where it came from); of src, dy gathered, as PyTorch: also for
 * overwritten elements of equal places. Errors as fr_embedding's, FR_ESHAPE, FR_EDTYPE; FR_EINVAL for a dimension out
 * of range. */
FR_API fr_status fr_gather(fr_tensor *x, int dim, fr_tensor *index, fr_tensor **y);
FR_API fr_status fr_scatter(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y);
FR_API fr_status fr_scatter_inplace(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src);
FR_API fr_status fr_scatter_add(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y);
FR_API fr_status fr_scatter_add_inplace(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src);

typedef enum fr_upsample_mode { FR_UPSAMPLE_NEAREST, FR_UPSAMPLE_BILINEAR } fr_upsample_mode;
/* Resizes [N, H, W, C] to [N, p, q, C] (torch.nn.functional.interpolate with size). Saves nothing. */
FR_API fr_status fr_upsample(fr_tensor *x, int64_t p, int64_t q, fr_upsample_mode mode, bool align_corners,
                             fr_tensor **y);

/* ---- losses ------------------------------------------------------------------------------------------------------ */

typedef struct fr_cross_entropy_opts {
    double label_smoothing FR_DEFAULT(0);
    int64_t ignore_index FR_DEFAULT(-100);
    fr_tensor *weight FR_DEFAULT(NULL); /* of each class, [classes], in the loss's type; NULL: all 1. Borrowed */
} fr_cross_entropy_opts;
#define FR_CROSS_ENTROPY_DEFAULTS  .ignore_index = -100
#define FR_CROSS_ENTROPY_OPTS(...) FR_OPTS(fr_cross_entropy_opts, FR_CROSS_ENTROPY_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_cross_entropy_opts, FR_CROSS_ENTROPY_OPTS())

/* loss = sum over rows and classes of -q * log softmax(x), divided by D (torch cross_entropy), where
 * q = weight * ((1 - label_smoothing) * t + label_smoothing / classes).
 *   x [N, classes] or [N, H, W, classes]    loss: scalar, f32 (f64 for f64)
 *   target: i64 of x's shape without the last dimension, t its one-hot and D the sum of the targets' weights; or
 *   shares of the classes, in the loss's type and x's shape, t themselves and D the number of rows.
 * Rows with target == ignore_index are ignored. A single fused pass in each direction. Saves x and one value per row.
 * FR_EINVAL names the first row with an invalid class; on CUDA a later fr_step_begin reports the row. grad: x. */
FR_API fr_status fr_cross_entropy(fr_tensor *x, fr_tensor *target, const fr_cross_entropy_opts *opts, fr_tensor **loss);

typedef struct fr_bce_opts {
    fr_tensor *pos_weight FR_DEFAULT(NULL); /* of each class, as fr_cross_entropy_opts.weight. Borrowed */
    int64_t ignore_index FR_DEFAULT(-100);
    double gamma FR_DEFAULT(0), alpha FR_DEFAULT(-1); /* of the focal loss; alpha < 0: none */
} fr_bce_opts;
#define FR_BCE_DEFAULTS  .ignore_index = -100, .alpha = -1
#define FR_BCE_OPTS(...) FR_OPTS(fr_bce_opts, FR_BCE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_bce_opts, FR_BCE_OPTS())

/* loss = mean of a (1 - p_t)^gamma b, a sigmoid for each class: with p = sigmoid(x) and w = pos_weight
 *   b = -(w t log p + (1 - t) log(1 - p)),   p_t = t p + (1 - t) (1 - p),   a = t alpha + (1 - t) (1 - alpha) or 1
 * torch binary_cross_entropy_with_logits; gamma > 0: torchvision.ops.sigmoid_focal_loss (Lin et al. 2017; there alpha
 * 0.25, gamma 2). x and target as in fr_cross_entropy, t likewise; rows with ignore_index are left out of the mean.
 * Saves x. grad: x. */
FR_API fr_status fr_bce(fr_tensor *x, fr_tensor *target, const fr_bce_opts *opts, fr_tensor **loss);

typedef struct fr_dice_opts {
    double smooth FR_DEFAULT(0);
    int64_t ignore_index FR_DEFAULT(-100);
} fr_dice_opts;
#define FR_DICE_DEFAULTS  .ignore_index = -100
#define FR_DICE_OPTS(...) FR_OPTS(fr_dice_opts, FR_DICE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_dice_opts, FR_DICE_OPTS())

/* loss = mean over classes of 1 - (sum(p t) + smooth) / ((sum p + sum t) / 2 + smooth), p = softmax(x), sums over all
 * rows not ignored; 0 for classes without rows (segmentation_models.pytorch's DiceLoss, "multiclass"; Milletari et al.
 * 2016). x and i64 target as in fr_cross_entropy. Saves x and one value per row. grad: x. */
FR_API fr_status fr_dice(fr_tensor *x, fr_tensor *target, const fr_dice_opts *opts, fr_tensor **loss);
/* loss = mean(f(x - t)), scalar in x's type: f(d) = d^2; |d|; d^2 / (2 beta) where |d| < beta, else |d| - beta / 2
 * (torch mse_loss, l1_loss, smooth_l1_loss). Equal shapes; f32 under autocast. grad: x, t. Save both. */
FR_API fr_status fr_mse(fr_tensor *x, fr_tensor *t, fr_tensor **loss);
FR_API fr_status fr_l1(fr_tensor *x, fr_tensor *t, fr_tensor **loss);
FR_API fr_status fr_smooth_l1(fr_tensor *x, fr_tensor *t, double beta, fr_tensor **loss);

/* Number of rows whose first largest element is the target, i64 scalar. Not differentiable. */
FR_API fr_status fr_count_correct(fr_tensor *x, fr_tensor *target, fr_tensor **correct);

#ifdef __cplusplus
}
#endif
#endif
