/* kernels.h - what a backend must compute: one function type per kernel, so that the CPU and the CUDA twin are declared
 * with the same type and a drifted signature does not compile.
 *
 * Rules for every kernel:
 *  - raw pointers, row-major, images NHWC, weights KRSC; the descriptor says shapes and element types;
 *  - it allocates nothing: scratch is e->workspace, of at least the bytes its *_workspace function answered;
 *  - a pointer documented "or NULL" may be NULL and means "not there" or "not wanted";
 *  - an output is overwritten, unless the kernel takes an fri_accum;
 *  - outputs may alias inputs only where the comment says so;
 *  - arithmetic is f32 for f32/f16/bf16 data and f64 for f64 data; sums are in f32 or wider, in an order that depends
 *    on the shapes only, never on the number of threads (library convolutions: fixed at fixed threads);
 *  - statistics, losses' row values and batch-norm parameters are f32 for f32/f16/bf16 data and f64 for f64 data
 *    ("real" below), whatever the storage type of x. */
#ifndef FRI_BACKEND_KERNELS_H
#define FRI_BACKEND_KERNELS_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Place of execution of a kernel: stream and workspace. */
typedef struct fri_exec {
    void *stream;    /* cudaStream_t on CUDA, NULL on the CPU */
    void *workspace; /* scratch, 64-byte aligned, or NULL */
    size_t workspace_bytes;
} fri_exec;
/* A device's stream (NULL: the backend's default), no workspace. */
#define FRI_EXEC (&(const fri_exec){0})

/* Function type fri_WORD_fn of a kernel: the arguments after the place of execution. */
#define FRI_KERNEL_TYPE(word, ...) typedef fr_status fri_##word##_fn(const fri_exec *e, __VA_ARGS__);

typedef enum fri_accum {
    FRI_SET, /* out = value */
    FRI_ADD, /* out += value */
} fri_accum;

/* ---- plain memory and pointwise --------------------------------------------------------------------------- */

/* y[i] = value, converted to `dtype` (integers: truncated). */
FRI_KERNEL_TYPE(fill, fr_dtype dtype, int64_t n, double value, void *y)

/* `rows` rows of row_bytes bytes from src (rows src_pitch bytes apart) to dst (dst_pitch apart). No overlap. */
FRI_KERNEL_TYPE(copy_rows, int64_t rows, size_t row_bytes, const void *src, size_t src_pitch, void *dst,
                size_t dst_pitch)

/* Element i of `extent`, the last dimension the fastest, at the place on either side: y[sum i * y_stride] = x[sum i *
 * x_stride]. Strides in elements of `size` bytes, 1, 2, 4 or 8; extents >= 1. No overlap, no place of y twice. */
typedef struct fri_strided_desc {
    size_t size;
    int rank;
    int64_t extent[FR_MAX_RANK], x_stride[FR_MAX_RANK], y_stride[FR_MAX_RANK];
} fri_strided_desc;
FRI_KERNEL_TYPE(copy_strided, const fri_strided_desc *d, const void *x, void *y)

/* y = x converted from `from` to `to`; floats round to nearest even. Integer and bool types convert as C does. */
FRI_KERNEL_TYPE(cast, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y)
/* Likewise each array of a list, in no order; n may be 0. */
typedef struct fri_cast_item {
    int64_t n;
    const void *x;
    void *y;
} fri_cast_item;
FRI_KERNEL_TYPE(cast_list, fr_dtype from, fr_dtype to, int count, const fri_cast_item *items)

/* n bytes, the channels of a pixel in sequence, become (x / 255 - mean) / std of the channel: rounded from f64 to f32
 * (fri_normalized), then to the type, f32 or a half. */
enum { FRI_NORMALIZE_CHANNELS = 16 };
typedef struct fri_normalize_desc {
    fr_dtype dtype; /* of y */
    int64_t n, channels;
    double mean[FRI_NORMALIZE_CHANNELS], std[FRI_NORMALIZE_CHANNELS];
} fri_normalize_desc;
FRI_KERNEL_TYPE(normalize, const fri_normalize_desc *d, const uint8_t *x, void *y)

/* Elementwise kernels share three types; the map (kernel_map.h) says what y is in each. y may be an input. */
FRI_KERNEL_TYPE(unary, fr_dtype dtype, int64_t n, const void *x, void *y)
FRI_KERNEL_TYPE(binary, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y)
FRI_KERNEL_TYPE(scaled, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y)
/* y[i] = alpha * s[0] for all i: the backward of sum and mean. */
FRI_KERNEL_TYPE(broadcast, fr_dtype dtype, int64_t n, double alpha, const void *s, void *y)
/* y[0] = alpha * sum(x); workspace: fri_sum_workspace_fn(n) bytes. */
FRI_KERNEL_TYPE(sum, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y)
typedef size_t fri_sum_workspace_fn(fr_dtype dtype, int64_t n);

/* y = min(max(x, low), high), NaN passes; y may be x. dx = dy where low < x < high, else 0; dx may be dy. */
FRI_KERNEL_TYPE(clamp_forward, fr_dtype dtype, int64_t n, double low, double high, const void *x, void *y)
FRI_KERNEL_TYPE(clamp_backward, fr_dtype dtype, int64_t n, double low, double high, const void *x, const void *dy,
                void *dx)

/* Rule of an activation for passing the gradient, from the output. NaN passes through relu only. */
typedef enum fri_mask_rule {
    FRI_MASK_RELU,     /* !(y <= 0) */
    FRI_MASK_POSITIVE, /* y > 0: leaky relu */
    FRI_MASK_RELU6,    /* y > 0 and y < 6 */
    FRI_MASK_RULES
} fri_mask_rule;
/* bits: bit i%8 of byte i/8 is the rule's answer for y[i]; (n + 7) / 8 bytes, unused bits 0. */
FRI_KERNEL_TYPE(relu_encode, fr_dtype dtype, int64_t n, fri_mask_rule rule, const void *y, uint8_t *bits)
/* dx = dy where the bit is 1, else dy * slope (relu: slope 0 gives exactly 0); dx may be dy. */
FRI_KERNEL_TYPE(relu_backward_bits, fr_dtype dtype, int64_t n, double slope, const uint8_t *bits, const void *dy,
                void *dx)
/* y = a + b where the bit is 1, else 0: the bits of add, then relu_backward_bits of slope 0; y may be a or b. */
FRI_KERNEL_TYPE(add_mask, fr_dtype dtype, int64_t n, const uint8_t *bits, const void *a, const void *b, void *y)
/* dx = dy where y > 0, else slope * dy. y may be the input or, for slope >= 0, the output; dx may be dy. */
FRI_KERNEL_TYPE(leaky_relu_backward, fr_dtype dtype, int64_t n, double slope, const void *y, const void *dy, void *dx)

/* a, y and dy [n, hw, c], b and db [n, c]: a value of b for hw of a, for example of each image and channel. y = a op b;
 * y may be a. The sum: db = sum of a * dy over hw; a NULL: of dy. */
typedef enum fri_binary { FRI_BINARY_ADD, FRI_BINARY_SUB, FRI_BINARY_MUL, FRI_BINARY_DIV } fri_binary;
typedef struct fri_binary_desc {
    fr_dtype dtype;
    fri_binary op; /* not of the sum */
    int64_t n, hw, c;
} fri_binary_desc;
FRI_KERNEL_TYPE(binary_image, const fri_binary_desc *d, const void *a, const void *b, void *y)
FRI_KERNEL_TYPE(binary_image_sum, const fri_binary_desc *d, const void *a, const void *dy, void *db)

/* ---- random numbers (Philox, base/philox.h) ---------------------------------------------------------------- */

/* y[i] uniform in [a, b) / normal with mean a and standard deviation b. Element i uses counter i/4, lane i%4 (normal:
 * Box-Muller on lane pairs (0,1) and (2,3)). Computed in f32 for every dtype but f64. */
FRI_KERNEL_TYPE(random, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream, double a, double b, void *y)

typedef struct fri_dropout_desc {
    fr_dtype dtype;
    int64_t n, hw, c;      /* x [n, hw, c]; plain dropout uses n * hw * c elements */
    bool per_channel;      /* dropout2d: a number per (n, c) */
    double p;              /* probability of zeroing, 0 <= p <= 1 */
    uint64_t seed, stream; /* element i (or n*C+c) is kept iff uniform(i) >= p */
} fri_dropout_desc;

/* y = kept ? x / (1 - p) : 0; y may be x. Backward is the kernel on dy. */
FRI_KERNEL_TYPE(dropout, const fri_dropout_desc *d, const void *x, void *y)
/* PyTorch's byte mask: mask[i] = kept. Has x's number of elements. */
FRI_KERNEL_TYPE(dropout_mask, const fri_dropout_desc *d, uint8_t *mask)
/* y = mask ? x / (1 - p) : 0; y may be x. */
FRI_KERNEL_TYPE(dropout_apply_mask, const fri_dropout_desc *d, const uint8_t *mask, const void *x, void *y)

/* ---- convolution and linear -------------------------------------------------------------------------------- */

/* Activations at the end of fused kernels; a convolution knows the first three. */
#define FRI_FUSED_ACTIVATIONS(A)  A(NONE) A(RELU) A(RELU6) A(HARDSWISH) A(SILU)
#define FRI_ACTIVATION_WORD(word) FRI_ACTIVATION_##word,
typedef enum fri_activation { FRI_FUSED_ACTIVATIONS(FRI_ACTIVATION_WORD) } fri_activation;

/* Vectors of a batch norm over x's channels, in the type of its statistics, gamma and beta or NULL: a weight gradient
 * reads act(norm(x)) instead of x. */
typedef struct fri_conv2d_norm {
    const void *mean, *invstd, *gamma, *beta;
    fri_activation act;
} fri_conv2d_norm;

typedef struct fri_conv2d_desc {
    fr_dtype dtype;      /* of x, w, y and gradients */
    fr_dtype bias_dtype; /* of b and db: dtype or f32 */
    int64_t n, h, w, c;  /* x [n, h, w, c] */
    int64_t k, r, s;     /* w [k, r, s, c / groups] */
    int64_t p, q;        /* y [n, p, q, k] */
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
    size_t workspace_limit; /* bytes; a hint: prefer implementations below, if equal */
    bool bias;              /* the forward pass is given b */
    uint8_t unaligned;      /* FRI_UNALIGNED_*: operands with a start at no multiple of 16 bytes */
    bool accumulate;        /* conv2d_constant only: y = relu(y + conv(x, w) + b) */
    fri_activation relu;    /* conv2d_constant only */
    const fri_conv2d_norm
        *norm; /* conv2d_backward_weight only, where conv2d_reads_norm permits it; NULL: x unchanged */
} fri_conv2d_desc;

/* The words that identify a convolution, beside the types: for caches of plans, and for the kernel-time
 * file. p and q follow from the words. */
#define FRI_CONV2D_KEY(d)                                                                                         \
    (d)->n, (d)->h, (d)->w, (d)->c, (d)->k, (d)->r, (d)->s, (d)->stride_h, (d)->stride_w, (d)->pad_h, (d)->pad_w, \
        (d)->dilation_h, (d)->dilation_w, (d)->groups,                                                            \
        (int64_t)((d)->workspace_limit < INT64_MAX ? (d)->workspace_limit : INT64_MAX)

/* y: also y's gradient, if read. Written operands are always aligned. */
enum { FRI_UNALIGNED_X = 1, FRI_UNALIGNED_W = 2, FRI_UNALIGNED_Y = 4, FRI_UNALIGNED_B = 8 };

typedef fr_status fri_conv2d_workspace_fn(const fri_conv2d_desc *d, size_t *bytes);
/* y = conv(x, w) + b; b or NULL. */
FRI_KERNEL_TYPE(conv2d_forward, const fri_conv2d_desc *d, const void *x, const void *w, const void *b, void *y)
/* Inference: tells if the backend has conv2d_constant_forward for the convolution (a fri_conv2d_forward_fn with b
 * given), and the size of the workspace. */
typedef fr_status fri_conv2d_constant_plan_fn(const fri_conv2d_desc *d, bool *there, size_t *workspace);
FRI_KERNEL_TYPE(conv2d_backward_input, const fri_conv2d_desc *d, const void *w, const void *dy, void *dx)
/* Can the weight gradient normalize x while it reads it? The bits are those of a normalized copy. */
typedef bool fri_conv2d_reads_norm_fn(const fri_conv2d_desc *d);
FRI_KERNEL_TYPE(conv2d_backward_weight, const fri_conv2d_desc *d, const void *x, const void *dy, void *dw)
/* Scratch of the two bias gradients, sums over the rows of dy [rows, k]. */
typedef size_t fri_bias_workspace_fn(fr_dtype dtype, int64_t rows, int64_t k);
/* db[k] = sum of dy over n, p, q; workspace: fri_bias_workspace_fn(n * p * q, k) bytes. */
FRI_KERNEL_TYPE(conv2d_backward_bias, const fri_conv2d_desc *d, const void *dy, void *db)

typedef struct fri_linear_desc {
    fr_dtype dtype;      /* of x, w, y and gradients */
    fr_dtype bias_dtype; /* of b and db: dtype or f32 */
    int64_t n, in, out;  /* x [n, in], w [out, in], b [out], y [n, out] */
    bool bias_gradient;  /* backward weight makes db too */
} fri_linear_desc;

typedef fr_status fri_linear_workspace_fn(const fri_linear_desc *d, size_t *bytes);
/* y = x w^T + b; b or NULL. */
FRI_KERNEL_TYPE(linear_forward, const fri_linear_desc *d, const void *x, const void *w, const void *b, void *y)
FRI_KERNEL_TYPE(linear_backward_input, const fri_linear_desc *d, const void *w, const void *dy, void *dx)
/* db, a sum over the rows of dy, is computed in the call if d->bias_gradient is set, else NULL. */
FRI_KERNEL_TYPE(linear_backward_weight, const fri_linear_desc *d, const void *x, const void *dy, void *dw, void *db)
/* db[out] = sum of dy over n; workspace: fri_bias_workspace_fn(n, out) bytes. */
FRI_KERNEL_TYPE(linear_backward_bias, const fri_linear_desc *d, const void *dy, void *db)

/* ---- batch norm -------------------------------------------------------------------------------------------- */

/* Exchange of a norm's sums between processes with different rows of the batch. */
typedef struct fri_statistics_sync {
    int ranks;
    double *(*room)(void *ctx, int64_t n); /* for the process's n numbers; NULL, with the sentence set: no memory */
    /* Gathers the numbers of all processes, in the order of ranks. Borrowed until the next call. */
    fr_status (*gather)(void *ctx, int64_t n, const double **all);
    void *ctx;
} fri_statistics_sync;

enum { FRI_BATCHNORM2D_PARTS = 64 }; /* most parts of x */

/* A tensor [rows, c] with some channels of x, in the order of channels. */
typedef struct fri_batchnorm2d_part {
    int64_t c;
    const void *x;
    void *dx;  /* NULL: no gradient */
    bool adds; /* dx += the gradient, which is rounded before */
} fri_batchnorm2d_part;

typedef struct fri_batchnorm2d_desc {
    fr_dtype dtype;  /* of x, y, dy, dx */
    int64_t rows, c; /* x [rows, c], rows = n * h * w */
    double eps;
    double momentum;  /* r = (1 - momentum) * r + momentum * s, variance unbiased (rows / (rows - 1)) */
    int64_t *batches; /* on the device: incremented by stats; or NULL */
    const fri_statistics_sync
        *sync; /* of stats and backward in train mode, on the CPU; NULL: the rows are the whole batch */
    const fri_batchnorm2d_part *part; /* parts of x and dx; NULL: x and dx are whole */
} fri_batchnorm2d_desc;

typedef size_t fri_batchnorm2d_workspace_fn(const fri_batchnorm2d_desc *d);
/* True if stats, apply (without an addend) and backward read x in parts, with the bits of the joined tensor. Each part
 * begins and ends at a multiple of `granule` elements, a power of 2; 0: a tensor is two parts. */
typedef bool fri_batchnorm2d_reads_parts_fn(fr_dtype dtype, int64_t granule);
/* mean [c], invstd [c] (real) of the batch: mean first, then squared distances, biased, invstd = 1/sqrt(var + eps).
 * running_mean, running_var [c] (real) or both NULL are updated. */
FRI_KERNEL_TYPE(batchnorm2d_stats, const fri_batchnorm2d_desc *d, const void *x, void *mean, void *invstd,
                void *running_mean, void *running_var)
/* invstd [c] = 1 / sqrt(var + eps): for apply in eval mode. */
FRI_KERNEL_TYPE(batchnorm2d_invstd, const fri_batchnorm2d_desc *d, const void *var, void *invstd)
/* y = (x - mean) * invstd * gamma + beta, rounded to y's type, then + addend (of dtype, or NULL), then the activation;
 * gamma, beta (real) or both NULL. y may be x or the addend. */
FRI_KERNEL_TYPE(batchnorm2d_apply, const fri_batchnorm2d_desc *d, const void *x, const void *mean, const void *invstd,
                const void *gamma, const void *beta, const void *addend, fri_activation act, void *y)
/* dgamma, dbeta [c] (real) or NULL; dx or NULL. Train: dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat));
 * eval (train false): dx = gamma * invstd * dy. dx may be dy, and x unless act is smooth. act: dy is the gradient of
 * act(y), with y rounded as stored by apply; only then beta is read. */
FRI_KERNEL_TYPE(batchnorm2d_backward, const fri_batchnorm2d_desc *d, bool train, const void *x, const void *mean,
                const void *invstd, const void *gamma, const void *beta, fri_activation act, const void *dy, void *dx,
                void *dgamma, void *dbeta)

/* ---- pooling and resampling -------------------------------------------------------------------------------- */

typedef struct fri_pool2d_desc {
    fr_dtype dtype;
    int64_t n, h, w, c;         /* x */
    int64_t p, q;               /* y [n, p, q, c] */
    int64_t kernel_h, kernel_w; /* max and average pool; adaptive pooling derives windows from h, w, p, q */
    int64_t stride_h, stride_w, pad_h, pad_w;
    int64_t dilation_h, dilation_w; /* max pool only */
    bool count_include_pad;         /* average pool: divide by kernel_h * kernel_w also at the border */
} fri_pool2d_desc;

/* y = max over the window, first maximum wins, NaN wins over everything. index [n, p, q, c] or NULL is of index_dtype:
 * u8 = position in the window (r * kernel_w + s), i32 and i64 = h * W + w in the image, as PyTorch. */
FRI_KERNEL_TYPE(maxpool2d_forward, const fri_pool2d_desc *d, const void *x, void *y, fr_dtype index_dtype, void *index)
/* dx is zeroed and summed into, in order of (p, q); u8 code 255 and i32/i64 -1 pass nothing. */
FRI_KERNEL_TYPE(maxpool2d_backward, const fri_pool2d_desc *d, fr_dtype index_dtype, const void *index, const void *dy,
                void *dx)
/* index[i] = 255 (u8) or -1 (i32, i64) where y[i] <= 0: the pool takes over the mask of the relu before. */
FRI_KERNEL_TYPE(maxpool2d_mask, const fri_pool2d_desc *d, const void *y, fr_dtype index_dtype, void *index)
/* y = means over the windows of x, or (backward) x is the gradient of the output and y the input's. Adaptive: the
 * window of output i is floor(i * in / out) .. ceil((i + 1) * in / out), as PyTorch's. */
FRI_KERNEL_TYPE(avgpool2d, const fri_pool2d_desc *d, const void *x, void *y)

typedef struct fri_upsample_desc {
    fr_dtype dtype;
    int64_t n, h, w, c, p, q; /* x [n, h, w, c], y [n, p, q, c] */
    bool bilinear;            /* else nearest: source row floor(p * h / P) */
    bool align_corners;       /* bilinear only */
} fri_upsample_desc;

/* y = x resampled, or (backward) x is the gradient of the output and y the input's. */
FRI_KERNEL_TYPE(upsample, const fri_upsample_desc *d, const void *x, void *y)

/* ---- group norm and layer norm ------------------------------------------------------------------------------ */

/* x [n, hw, c]; a group is c / groups channels of all hw rows. Layer norm: hw and groups are 1. gamma, beta [c], mean
 * and invstd [n, groups] are real. */
typedef struct fri_group_norm_desc {
    fr_dtype dtype;
    int64_t n, hw, c, groups;
    double eps;
} fri_group_norm_desc;

/* Workspace of backward; forward needs none. */
typedef size_t fri_group_norm_workspace_fn(const fri_group_norm_desc *d);
/* y = (x - mean) * invstd * gamma + beta, mean and invstd = 1 / sqrt(variance + eps) of each group of each n. */
FRI_KERNEL_TYPE(group_norm_forward, const fri_group_norm_desc *d, const void *x, const void *gamma, const void *beta,
                void *y, void *mean, void *invstd)
/* Backward of group norm. With xhat = (x - mean) * invstd and g = gamma * dy: dx = invstd * (g - mean(g) - xhat *
 * mean(g * xhat)), means over the group; dgamma = sum dy * xhat, dbeta = sum dy over n and hw. NULL results are not
 * computed; dgamma and dbeta are both NULL or neither. dx may be dy or x. */
FRI_KERNEL_TYPE(group_norm_backward, const fri_group_norm_desc *d, const void *x, const void *gamma, const void *mean,
                const void *invstd, const void *dy, void *dx, void *dgamma, void *dbeta)

/* ---- embedding and losses ---------------------------------------------------------------------------------- */

typedef struct fri_embedding_desc {
    fr_dtype dtype;
    int64_t n, vocabulary, dim; /* index [n] i64, w [vocabulary, dim], y [n, dim] */
} fri_embedding_desc;

/* bad [1] i64: -1, or the first position with an index out of range (with a zero row of y). */
FRI_KERNEL_TYPE(embedding_forward, const fri_embedding_desc *d, const int64_t *index, const void *w, void *y,
                int64_t *bad)
/* dw is zeroed and summed into in order of position. */
FRI_KERNEL_TYPE(embedding_backward, const fri_embedding_desc *d, const int64_t *index, const void *dy, void *dw)

/* Positions of an index tensor in lines along one dimension. Lines differ in all further dimensions, so no two lines
 * write an element of x twice. Sizes and strides of the further dimensions, the last first. */
typedef struct fri_gather_desc {
    fr_dtype dtype;
    int64_t lines, n;           /* n positions in each line */
    int64_t extent;             /* of x along the dimension: an index is in 0 .. extent - 1 */
    int64_t index_step, x_step; /* stride along the dimension */
    int rank;
    int64_t size[FR_MAX_RANK], index_stride[FR_MAX_RANK], x_stride[FR_MAX_RANK];
} fri_gather_desc;

/* y, as index, = the elements of x that index names along the dimension. bad [1] i64: -1, or the first position with an
 * index out of range (with y 0). */
FRI_KERNEL_TYPE(gather, const fri_gather_desc *d, const int64_t *index, const void *x, void *y, int64_t *bad)
/* The elements of x that index names = src's, or += them (add); src NULL: 0. In order along a line: the last wins. An
 * index out of range writes nothing; on the CPU the whole call then writes nothing. */
FRI_KERNEL_TYPE(scatter, const fri_gather_desc *d, const int64_t *index, const void *src, bool add, void *x,
                int64_t *bad)

/* Losses of classes: x [rows, classes]. Rows with target ignore_index are ignored. */
typedef struct fri_loss_desc {
    fr_dtype dtype; /* of x and dx; loss, shares, weights and statistics are real */
    int64_t rows, classes;
    int64_t ignore_index;
    bool shares;            /* target is real [rows, classes], else i64 [rows] */
    double label_smoothing; /* of cross_entropy */
    double alpha, gamma;    /* of bce; alpha < 0: none */
    double smooth;          /* of dice */
} fri_loss_desc;

/* Operands by loss: weight [classes] (real) or NULL; lse [rows] = log(sum(exp(x))); factors (real).
 *   cross_entropy   weight of each class; lse; factors [1] = divisor of the sum
 *   bce             weight of positive targets; no lse; factors [1] = number of counted elements
 *   dice            no weight; lse; factors [2 classes] = dloss/dp of a class's probability: outside the target, and
 *                   the addend at the target */
typedef size_t fri_loss_workspace_fn(const fri_loss_desc *d);
/* loss [1]; bad [1] i64 = -1, or the first row with a target that is neither a class nor ignore_index. */
FRI_KERNEL_TYPE(loss_forward, const fri_loss_desc *d, const void *x, const void *target, const void *weight, void *loss,
                void *lse, void *factors, int64_t *bad)
/* dloss [1] real; dx may be x. */
FRI_KERNEL_TYPE(loss_backward, const fri_loss_desc *d, const void *x, const void *target, const void *weight,
                const void *lse, const void *factors, const void *dloss, void *dx)
/* y = exp(x) / sum(exp(x)) of each row [classes], or its logarithm; y may be x. Of d only dtype, rows and classes. */
FRI_KERNEL_TYPE(softmax_forward, const fri_loss_desc *d, bool logarithm, const void *x, void *y)
/* dx = y * (dy - sum(y * dy)), of the logarithm dy - exp(y) * sum(dy); dx may be dy. */
FRI_KERNEL_TYPE(softmax_backward, const fri_loss_desc *d, bool logarithm, const void *y, const void *dy, void *dx)
/* correct [1] i64 = rows with the target as first largest element. */
FRI_KERNEL_TYPE(count_correct, const fri_loss_desc *d, const void *x, const int64_t *target, int64_t *correct)

/* loss [1] (dtype) = mean(f(x - t)), f(d) = d^2 where beta < 0, else |d| - beta / 2, d^2 / (2 beta) where |d| < beta;
 * workspace as sum. */
FRI_KERNEL_TYPE(mse_forward, fr_dtype dtype, int64_t n, double beta, const void *x, const void *t, void *loss)
/* dx = f'(x - t) / n * dloss[0] * sign; sign -1 gives the gradient of t. dx may be x. */
FRI_KERNEL_TYPE(mse_backward, fr_dtype dtype, int64_t n, double beta, double sign, const void *x, const void *t,
                const void *dloss, void *dx)

/* ---- gradients and optimizers ------------------------------------------------------------------------------ */

/* An array of a list: a call works on all arrays, in no order; n may be 0. */
typedef struct fri_array {
    int64_t n;
    void *data;
} fri_array;

/* found [1] f32 = 1 if any element is inf or NaN, else untouched; x = x * inv_scale[0] unless 1. inv_scale [1] f32 or
 * NULL (check only). */
FRI_KERNEL_TYPE(unscale, fr_dtype dtype, int count, const fri_array *arrays, const float *inv_scale, float *found)
/* out [1] f64 += sums of squares, array by array; an array's sum adds units in order, so ranks with parts of the units
 * compute equal sums (src/addons/ranks/clip.c). */
enum { FRI_NORM_UNIT = 16384 };
FRI_KERNEL_TYPE(norm_squared, fr_dtype dtype, int count, const fri_array *arrays, double *out)
/* Workspace of norm_squared; depends on the lengths only. */
typedef size_t fri_norm_squared_workspace_fn(fr_dtype dtype, int count, const fri_array *arrays);

/* ---- single numbers that steer a training, changed on the device without a wait ---------------- */

/* Every element of the arrays (f32) += 1, unless found [1] f32 is given and is not 0. */
FRI_KERNEL_TYPE(count_up, const float *found, int count, const fri_array *arrays)

/* factor [1] f32 = max_norm / (sqrt(square[0]) + 1e-6) if below 1 or NaN, else 1. */
FRI_KERNEL_TYPE(clip_factor, double max_norm, const double *square, float *factor)

/* State of torch.amp.GradScaler. inverse is the first member: an inv_scale [1]. */
typedef struct fri_loss_scale {
    float inverse, scale;     /* inverse = (float)(1 / (double)scale) */
    int64_t tracker, skipped; /* steps since the scale changed; steps skipped since the start */
} fri_loss_scale;

typedef struct fri_loss_scale_desc {
    double growth_factor, backoff_factor, min_scale;
    int64_t growth_interval;
    bool dynamic; /* else the scale stays */
} fri_loss_scale_desc;

/* GradScaler.update: state moves on by one step, skipped where found [1] is not 0; found becomes 0. */
FRI_KERNEL_TYPE(loss_scale_update, const fri_loss_scale_desc *d, fri_loss_scale *state, float *found)

/* A parameter of a step; all parameters of a call have equal types and options. */
typedef struct fri_step_item {
    int64_t n;
    void *param;
    const void *grad;
    void *state[4];    /* sgd: momentum or NULL; adam: m, v; adam8: m's codes and scales, v's; rmsprop: the average
                        * of squares, then momentum and average, or NULL */
    const float *step; /* adam, adam8: [1], the parameter's step count after the step (1 at the first) */
} fri_step_item;

typedef struct fri_sgd_desc {
    fr_dtype dtype;      /* of the parameter and the momentum */
    fr_dtype grad_dtype; /* of the gradient */
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    bool first; /* momentum buffer is written, not read: buf = g */
} fri_sgd_desc;

/* torch.optim.SGD in a single pass; the momentum may be NULL. found [1] f32 or NULL: no update if not 0. inv_scale [1]
 * f32 or NULL multiplies the gradient on the way in. */
FRI_KERNEL_TYPE(sgd, const fri_sgd_desc *d, int count, const fri_step_item *items, const float *inv_scale,
                const float *found)

typedef struct fri_rmsprop_desc {
    fr_dtype dtype, grad_dtype;
    double lr, alpha, eps, momentum, weight_decay;
    bool centered, maximize;
} fri_rmsprop_desc;

/* torch.optim.RMSprop in a single pass; all states in the parameter's dtype (f32 for half). */
FRI_KERNEL_TYPE(rmsprop, const fri_rmsprop_desc *d, int count, const fri_step_item *items, const float *inv_scale,
                const float *found)

typedef struct fri_adam_desc {
    fr_dtype dtype, grad_dtype;
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW: p -= lr * weight_decay * p, else the decay joins the gradient */
    bool maximize;
} fri_adam_desc;

/* torch.optim.Adam / AdamW in a single pass; m, v in the parameter's dtype (f32 for half). */
FRI_KERNEL_TYPE(adam, const fri_adam_desc *d, int count, const fri_step_item *items, const float *inv_scale,
                const float *found)

enum { FRI_SCALE_BLOCK = 256 }; /* elements with a common scale */

/* Step of Adam on 8-bit moments. Elements in the order of memory form blocks of FRI_SCALE_BLOCK, the last one shorter.
 * m = maps[0][m_code] * m_absmax[block], v = maps[1][v_code] * v_absmax[block]; after the step absmax is the block's
 * largest magnitude and a code the nearest of the map to value / absmax (the lower of two equally near). maps [2, 256]
 * f32, each ascending; codes [n] u8; absmax [blocks] f32. */
FRI_KERNEL_TYPE(adam8, const fri_adam_desc *d, const float *maps, int count, const fri_step_item *items,
                const float *inv_scale, const float *found)

#ifdef __cplusplus
}
#endif
#endif
