/* dnnl.c - the only file that uses oneDNN: two API generations, choice of implementation, execution.
 *
 * Activations are passed unchanged (NHWC), weights in the implementation's layout (`any`), with a reorder from or to
 * KRSC that the caller runs in its workspace. The caller provides the scratchpad. An operation is immutable except
 * for its machine code, which is generated in the first run, because plans create many operations that never run. */
#include "cpu/dnnl_module.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cpu/dnnl_cache.h"

enum { TENSORS = 4 }; /* a, b, bias, out */

/* ---- differences between oneDNN 2 and 3 ---------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t md_ref; /* borrowed */
typedef dnnl_memory_desc_t md_own;
typedef dnnl_primitive_desc_t walker; /* over the implementations of one operation */
#define MD(m) (m)

static void md_free(md_own *m) {
    if (*m != NULL) dnnl_memory_desc_destroy(*m);
    *m = NULL;
}

static dnnl_status_t md_tag(md_own *m, int rank, const dnnl_dims_t dim, dnnl_data_type_t t, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(m, rank, dim, t, tag);
}

static dnnl_status_t md_strided(md_own *m, int rank, const dnnl_dims_t dim, dnnl_data_type_t t,
                                const dnnl_dims_t stride) {
    return dnnl_memory_desc_create_with_strides(m, rank, dim, t, stride);
}

static dnnl_status_t walk_pd(walker w, dnnl_primitive_desc_t *pd) {
    return dnnl_primitive_desc_clone(pd, w);
}

static dnnl_status_t walk_next(walker w) {
    return dnnl_primitive_desc_next_impl(w);
}

static void walk_end(walker w) {
    if (w != NULL) dnnl_primitive_desc_destroy(w);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_rectifier(dnnl_post_ops_t ops, bool six) {
    return dnnl_post_ops_append_eltwise(ops, six ? dnnl_eltwise_clip : dnnl_eltwise_relu, 0, six ? 6 : 0);
}

#else

typedef const dnnl_memory_desc_t *md_ref;
typedef dnnl_memory_desc_t md_own;
typedef dnnl_primitive_desc_iterator_t walker;
#define MD(m) (&(m))

static void md_free(md_own *m) {
    (void)m;
}

static dnnl_status_t md_tag(md_own *m, int rank, const dnnl_dims_t dim, dnnl_data_type_t t, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(m, rank, dim, t, tag);
}

static dnnl_status_t md_strided(md_own *m, int rank, const dnnl_dims_t dim, dnnl_data_type_t t,
                                const dnnl_dims_t stride) {
    return dnnl_memory_desc_init_by_strides(m, rank, dim, t, stride);
}

static dnnl_status_t walk_pd(walker w, dnnl_primitive_desc_t *pd) {
    *pd = dnnl_primitive_desc_iterator_fetch(w);
    return *pd != NULL ? dnnl_success : dnnl_out_of_memory;
}

static dnnl_status_t walk_next(walker w) {
    return dnnl_primitive_desc_iterator_next(w);
}

static void walk_end(walker w) {
    if (w != NULL) dnnl_primitive_desc_iterator_destroy(w);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static dnnl_status_t append_rectifier(dnnl_post_ops_t ops, bool six) {
    return dnnl_post_ops_append_eltwise(ops, 1, six ? dnnl_eltwise_clip : dnnl_eltwise_relu, 0, six ? 6 : 0);
}

#endif

typedef struct conv_geometry {
    dnnl_dims_t stride, dilation, pad;
} conv_geometry;

/* md: x, w, bias, y in every pass. Backward passes need the forward operation as a hint. */
static dnnl_status_t walk_conv(walker *w, fri_pass pass, md_own md[TENSORS], const conv_geometry *g,
                               const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                               const_dnnl_primitive_desc_t hint) {
#if DNNL_VERSION_MAJOR >= 3
    switch (pass) {
    case FRI_PASS_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(w, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                              md[0], md[1], md[2], md[3], g->stride, g->dilation,
                                                              g->pad, g->pad, attr);
    case FRI_PASS_BACKWARD_INPUT:
        return dnnl_convolution_backward_data_primitive_desc_create(w, engine, dnnl_convolution_direct, md[0], md[1],
                                                                    md[3], g->stride, g->dilation, g->pad, g->pad, hint,
                                                                    attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(w, engine, dnnl_convolution_direct, md[0], md[1],
                                                                       NULL, md[3], g->stride, g->dilation, g->pad,
                                                                       g->pad, hint, attr);
    }
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t r;
    switch (pass) {
    case FRI_PASS_FORWARD:
        r = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, &md[0],
                                                       &md[1], &md[2], &md[3], g->stride, g->dilation, g->pad, g->pad);
        break;
    case FRI_PASS_BACKWARD_INPUT:
        r = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &md[0], &md[1], &md[3],
                                                             g->stride, g->dilation, g->pad, g->pad);
        break;
    default:
        r = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &md[0], &md[1], NULL,
                                                                &md[3], g->stride, g->dilation, g->pad, g->pad);
    }
    return r != dnnl_success ? r : dnnl_primitive_desc_iterator_create(w, &d, attr, engine, hint);
#endif
}

static dnnl_status_t walk_matmul(walker *w, md_own md[TENSORS], bool bias, const_dnnl_primitive_attr_t attr,
                                 dnnl_engine_t engine) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(w, engine, md[0], md[1], bias ? md[2] : NULL, md[3], attr);
#else
    dnnl_matmul_desc_t d;
    dnnl_status_t r = dnnl_matmul_desc_init(&d, &md[0], &md[1], bias ? &md[2] : NULL, &md[3]);
    return r != dnnl_success ? r : dnnl_primitive_desc_iterator_create(w, &d, attr, engine, NULL);
#endif
}

/* ---- creation -------------------------------------------------------------------------------------------- */

typedef struct operation {
    fri_dnnl_op shown;
    dnnl_primitive_desc_t pd, reorder_pd;   /* reorder_pd: NULL if the weights stay KRSC */
    _Atomic(dnnl_primitive_t) run, reorder; /* NULL until first used */
    int arg[TENSORS];                       /* DNNL_ARG_* of a, b, bias, out; 0: unused */
    md_ref md[TENSORS], scratch_md, reorder_scratch_md;
    md_ref packed_md;
    md_own krsc_md;
    int threads; /* of the plan, and of each run */
} operation;

static operation *operation_of(const fri_dnnl_op *op) {
    return (operation *)(uintptr_t)op;
}

static dnnl_engine_t engine;
static dnnl_status_t engine_status;

static void engine_make(void) {
    engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
}

static fr_status failed(const char *call, dnnl_status_t r) {
    return fri_dnnl_here.fail(r == dnnl_out_of_memory ? FR_ENOMEM : FR_ELIBRARY, "oneDNN: %s answered %s", call,
                              dnnl_status2str(r));
}

#define DNNL_TRY(s, what, expression)         \
    do {                                      \
        dnnl_status_t result_ = (expression); \
        if (result_ != dnnl_success) {        \
            (s) = failed(what, result_);      \
            goto done;                        \
        }                                     \
    } while (0)

static dnnl_data_type_t type_of(fr_dtype t) {
    return t == FR_F32 ? dnnl_f32 : t == FR_BF16 ? dnnl_bf16 : dnnl_data_type_undef;
}

static const char *impl_name(const_dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name != NULL ? name
                                                                                                             : "";
}

static size_t md_bytes(md_ref md) {
    return md != NULL ? dnnl_memory_desc_get_size(md) : 0;
}

static size_t pd_scratch(const_dnnl_primitive_desc_t pd) {
    return md_bytes(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

typedef struct conv_args {
    const fri_conv2d_desc *d;
    fri_pass pass;
} conv_args;

/* True if a tap of the kernel, along one axis, meets only padding at every window position. */
static bool tap_in_padding(int64_t in, int64_t out, int64_t taps, int64_t stride, int64_t pad, int64_t dilation) {
    for (int64_t s = 0; s < taps; s++) {
        const int64_t first = s * dilation - pad; /* of the places first, first + stride, ... */
        const int64_t inside = first >= 0 ? 0 : (-first + stride - 1) / stride;
        if (inside >= out || first + inside * stride >= in) return true;
    }
    return false;
}

/* True if a row or a column of the kernel meets only padding, or the whole kernel does at a window position. */
static bool kernel_in_padding(const fri_conv2d_desc *d) {
    return d->pad_h > (d->r - 1) * d->dilation_h || d->pad_w > (d->s - 1) * d->dilation_w ||
           tap_in_padding(d->h, d->p, d->r, d->stride_h, d->pad_h, d->dilation_h) ||
           tap_in_padding(d->w, d->q, d->s, d->stride_w, d->pad_w, d->dilation_w);
}

/* True for a convolution as most networks have them: square, not dilated, padded by half a kernel or less. */
static bool plain(const fri_conv2d_desc *d) {
    return d->r == d->s && d->stride_h == d->stride_w && d->stride_h <= 2 && d->dilation_h == 1 && d->dilation_w == 1 &&
           d->pad_h == d->pad_w && 2 * d->pad_h < d->r && d->p > 1 && d->q > 1 && !kernel_in_padding(d);
}

/* "ref" anything is the library's reference code. Convolutions (c not NULL) have more exceptions:
 *  - "gemm" unrolls whole images per thread, and is taken for grouped convolutions only: our products over pointers to
 *    pixels need no such buffer;
 *  - jit_bf16_1x1 computes wrong sums over an odd number of NHWC channels (seen in 2.6.3 and 3.7.2): it reads channels
 *    in pairs, and the last pair runs into the next pixel;
 *  - bf16 kernels leave columns of dw that meet padding only as they were in memory (2.6.3: jit_bf16, AMX), and read
 *    unwritten memory where the whole kernel stands in padding (2.6.3: AMX);
 *  - jit_bf16 makes dw of unwritten memory where the dilation in height is above 1 (2.6.3: channels of a group no
 *    multiple of 16);
 *  - jit_1x1 and jit_bf16_1x1 make wrong sums of dw, and write outside, at a stride above 1 (2.6.3: few channels);
 *  - "jit:" kernels of f32 add dw of at most 8 channels over all pixels of all images in one (2.6.3: AVX2, AVX-512):
 *    the error of a constant image is 1e-5 at 2,048 pixels, 3e-5 soon above, 4e-3 at 1024 x 1024;
 *  - AMX kernels of bf16 data write outside or read unwritten memory for many shapes (2.6.3: 1 x 2 kernels with a
 *    dilation; 3.7.2: y of one column, dw of 61 columns), and were right for all plain ones that were tried.
 * tests/ops/test_conv2d_library.c tries what is left. */
static bool acceptable(const char *name, const conv_args *c) {
    if (name[0] == '\0' || strstr(name, "ref") != NULL) return false;
    if (c == NULL) return true;
    if (c->d->groups == 1 && strstr(name, "gemm") != NULL) return false;
    if (c->d->dtype == FR_BF16 && (kernel_in_padding(c->d) || (strstr(name, "amx") != NULL && !plain(c->d))))
        return false;
    const bool few = c->d->dtype == FR_F32 && c->d->c <= 8, many = c->d->n * c->d->p * c->d->q > 2048;
    const bool strided = c->d->stride_h > 1 || c->d->stride_w > 1, dilated = c->d->r > 1 && c->d->dilation_h > 1;
    if (c->pass == FRI_PASS_BACKWARD_WEIGHT)
        return !(dilated && strncmp(name, "jit_bf16", 8) == 0) && !(strided && strstr(name, "_1x1") != NULL) &&
               !(few && many && strncmp(name, "jit:", 4) == 0);
    int64_t summed = (c->pass == FRI_PASS_FORWARD ? c->d->c : c->d->k) / c->d->groups;
    return summed % 2 == 0 || strncmp(name, "jit_bf16_1x1", 12) != 0;
}

/* True if both names end in the same instruction set, as in "brgconv:avx512_core" and "jit:avx512_core". */
static bool equal_isa(const char *a, const char *b) {
    const char *x = strrchr(a, ':'), *y = strrchr(b, ':');
    return x != NULL && y != NULL && strcmp(x, y) == 0;
}

/* Picks the first acceptable implementation, or a later one for an equal instruction set if only the later one's
 * scratch is within the limit. *pd stays NULL if there is none. */
static fr_status pick(walker w, const conv_args *c, dnnl_primitive_desc_t *pd) {
    fr_status s = FR_OK;
    size_t limit = c != NULL ? c->d->workspace_limit : 0;
    dnnl_primitive_desc_t candidate = NULL;
    do {
        DNNL_TRY(s, "primitive_desc", walk_pd(w, &candidate));
        const char *name = impl_name(candidate);
        bool take = acceptable(name, c);
        if (take && *pd != NULL) {
            bool less = pd_scratch(candidate) <= limit && equal_isa(name, impl_name(*pd));
            take = less && strstr(name, "gemm") == NULL;
            if (take) dnnl_primitive_desc_destroy(*pd);
        }
        if (take) {
            FRI_MOVE(pd, candidate);
            if (limit == 0 || pd_scratch(*pd) <= limit) goto done;
        }
        if (candidate != NULL) dnnl_primitive_desc_destroy(candidate);
        candidate = NULL;
    } while (walk_next(w) == dnnl_success);
done:
    if (candidate != NULL) dnnl_primitive_desc_destroy(candidate);
    return s;
}

/* Operations on a result before writing: adds the old value, then applies relu. */
static fr_status make_attr(bool sum, fri_activation relu, dnnl_primitive_attr_t *attr) {
    fr_status s = FR_OK;
    dnnl_post_ops_t ops = NULL;
    DNNL_TRY(s, "primitive_attr_create", dnnl_primitive_attr_create(attr));
    DNNL_TRY(s, "set_scratchpad_mode", dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
#if DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 4)
    DNNL_TRY(s, "set_deterministic", dnnl_primitive_attr_set_deterministic(*attr, 1));
#endif
    if (!sum && relu == FRI_ACTIVATION_NONE) goto done;
    DNNL_TRY(s, "post_ops_create", dnnl_post_ops_create(&ops));
    if (sum) DNNL_TRY(s, "append_sum", append_sum(ops));
    if (relu != FRI_ACTIVATION_NONE) DNNL_TRY(s, "append_eltwise", append_rectifier(ops, relu == FRI_ACTIVATION_RELU6));
    DNNL_TRY(s, "set_post_ops", dnnl_primitive_attr_set_post_ops(*attr, ops));
done:
    if (ops != NULL) dnnl_post_ops_destroy(ops);
    return s;
}

static void op_free(operation *op) {
    if (op == NULL) return;
    if (op->pd != NULL) dnnl_primitive_desc_destroy(op->pd);
    if (op->reorder_pd != NULL) dnnl_primitive_desc_destroy(op->reorder_pd);
    md_free(&op->krsc_md);
    free(op);
}

static void op_finish(operation *op) {
    op->scratch_md = dnnl_primitive_desc_query_md(op->pd, dnnl_query_scratchpad_md, 0);
    op->shown.scratch_bytes = md_bytes(op->scratch_md);
    if (op->reorder_pd != NULL) {
        op->shown.packed_bytes = md_bytes(op->packed_md);
        op->reorder_scratch_md = dnnl_primitive_desc_query_md(op->reorder_pd, dnnl_query_scratchpad_md, 0);
        size_t more = md_bytes(op->reorder_scratch_md);
        if (more > op->shown.scratch_bytes) op->shown.scratch_bytes = more;
    }
    static const char *const use[FRI_DNNL_USES] =
        {"", "product+", "widened:", "widened:product+", "winograd:f4x3+", "widened:winograd:f4x3+"};
    for (int i = 0; i < FRI_DNNL_USES; i++)
        snprintf(op->shown.name[i], sizeof op->shown.name[i], "%s%s", use[i], impl_name(op->pd));
}

/* Tensors of a convolution in oneDNN's logical order (N C H W, [G] O I H W). */
static fr_status conv_tensors(const fri_conv2d_desc *d, md_own md[TENSORS], md_own *krsc) {
    fr_status s = FR_OK;
    bool grouped = d->groups > 1;
    dnnl_data_type_t t = type_of(d->dtype);
    dnnl_dims_t x = {d->n, d->c, d->h, d->w}, y = {d->n, d->k, d->p, d->q}, b = {d->k};
    dnnl_dims_t w = {d->k, d->c, d->r, d->s};
    dnnl_dims_t wg = {d->groups, d->k / d->groups, d->c / d->groups, d->r, d->s};
    int rank = grouped ? 5 : 4;
    DNNL_TRY(s, "memory_desc", md_tag(&md[0], 4, x, t, dnnl_nhwc));
    DNNL_TRY(s, "memory_desc", md_tag(&md[1], rank, grouped ? wg : w, t, dnnl_format_tag_any));
    DNNL_TRY(s, "memory_desc", md_tag(&md[2], 1, b, type_of(d->bias_dtype), dnnl_x));
    DNNL_TRY(s, "memory_desc", md_tag(&md[3], 4, y, t, dnnl_nhwc));
    DNNL_TRY(s, "memory_desc", md_tag(krsc, rank, grouped ? wg : w, t, grouped ? dnnl_gohwi : dnnl_ohwi));
done:
    return s;
}

static fr_status make_reorder(md_ref from, md_ref to, dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, make_attr(false, FRI_ACTIVATION_NONE, &attr));
    DNNL_TRY(s, "reorder primitive_desc", dnnl_reorder_primitive_desc_create(pd, from, engine, to, engine, attr));
done:
    if (attr != NULL) dnnl_primitive_attr_destroy(attr);
    return s;
}

static fr_status conv_finish(operation *op, fri_pass pass) {
    static const int arg[][TENSORS] = {
        [FRI_PASS_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
        [FRI_PASS_BACKWARD_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_SRC},
        [FRI_PASS_BACKWARD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, 0, DNNL_ARG_DIFF_WEIGHTS},
    };
    fr_status s = FR_OK;
    bool dw = pass == FRI_PASS_BACKWARD_WEIGHT;
    for (int i = 0; i < TENSORS; i++) {
        op->arg[i] = arg[pass][i];
        if (op->arg[i] != 0) op->md[i] = dnnl_primitive_desc_query_md(op->pd, dnnl_query_exec_arg_md, op->arg[i]);
    }
    op->packed_md = op->md[dw ? 3 : 1];
    md_ref krsc = MD(op->krsc_md);
    if (!dnnl_memory_desc_equal(krsc, op->packed_md))
        s = dw ? make_reorder(op->packed_md, krsc, &op->reorder_pd)
               : make_reorder(krsc, op->packed_md, &op->reorder_pd);
    if (s >= 0) op_finish(op);
    return s;
}

static fr_status make_conv(const fri_dnnl_key *key, const void *args, void **value) {
    const conv_args *c = args;
    const fri_conv2d_desc *d = c->d;
    fr_status s = FR_OK;
    md_own md[TENSORS];
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    walker w = NULL, forward = NULL;
    memset(md, 0, sizeof md);
    /* A dilation along one row or column has no effect, but the AMX kernel of 2.6.3 computes a wrong dw with it. */
    conv_geometry g = {{d->stride_h, d->stride_w},
                       {d->r > 1 ? d->dilation_h - 1 : 0, d->s > 1 ? d->dilation_w - 1 : 0},
                       {d->pad_h, d->pad_w}};
    operation *op = calloc(1, sizeof *op);
    if (op == NULL) return fri_dnnl_here.fail(FR_ENOMEM, "oneDNN: no memory for an operation");
    op->threads = (int)key->word[1];
    FR_TRY(s, conv_tensors(d, md, &op->krsc_md));
    FR_TRY(s, make_attr(d->accumulate, d->relu, &attr));
    if (c->pass != FRI_PASS_FORWARD) {
        dnnl_status_t r = walk_conv(&forward, FRI_PASS_FORWARD, md, &g, attr, engine, NULL);
        if (r == dnnl_success) DNNL_TRY(s, "primitive_desc", walk_pd(forward, &hint));
    }
    dnnl_status_t r = walk_conv(&w, c->pass, md, &g, attr, engine, hint);
    if (r == dnnl_success)
        FR_TRY(s, pick(w, c, &op->pd));
    else if (r != dnnl_unimplemented)
        DNNL_TRY(s, "convolution primitive_desc", r);
    if (op->pd == NULL) goto done; /* *value stays NULL: not available */

    FR_TRY(s, conv_finish(op, c->pass));
    *value = op;
done:
    if (s < 0 || op->pd == NULL) op_free(op);
    for (int i = 0; i < TENSORS; i++) md_free(&md[i]);
    walk_end(w);
    walk_end(forward);
    if (hint != NULL) dnnl_primitive_desc_destroy(hint);
    if (attr != NULL) dnnl_primitive_attr_destroy(attr);
    return s;
}

static fr_status make_matmul(const fri_dnnl_key *key, const void *args, void **value) {
    const fri_matmul_desc *d = args;
    fr_status s = FR_OK;
    md_own md[TENSORS];
    dnnl_primitive_attr_t attr = NULL;
    walker w = NULL;
    memset(md, 0, sizeof md);
    int rank = d->batch > 0 ? 3 : 2, at = 3 - rank; /* of the dimensions below, the batch's is the first */
    dnnl_dims_t a = {d->batch, d->m, d->k}, b = {d->batch, d->k, d->n}, c = {d->batch, d->m, d->n};
    dnnl_dims_t as = {d->a_batch, d->a_row, d->a_col}, bs = {d->b_batch, d->b_row, d->b_col};
    dnnl_dims_t cs = {d->c_batch, d->c_row, 1}, bias = {1, d->n}, ones = {d->n, 1};
    operation *op = calloc(1, sizeof *op);
    if (op == NULL) return fri_dnnl_here.fail(FR_ENOMEM, "oneDNN: no memory for an operation");
    op->threads = (int)key->word[1];
    DNNL_TRY(s, "memory_desc", md_strided(&md[0], rank, a + at, type_of(d->a_dtype), as + at));
    DNNL_TRY(s, "memory_desc", md_strided(&md[1], rank, b + at, type_of(d->b_dtype), bs + at));
    if (d->bias) DNNL_TRY(s, "memory_desc", md_strided(&md[2], 2, bias, type_of(d->bias_dtype), ones));
    DNNL_TRY(s, "memory_desc", md_strided(&md[3], rank, c + at, type_of(d->c_dtype), cs + at));
    FR_TRY(s, make_attr(d->accum == FRI_ADD, FRI_ACTIVATION_NONE, &attr));
    dnnl_status_t r = walk_matmul(&w, md, d->bias, attr, engine);
    if (r == dnnl_success)
        FR_TRY(s, pick(w, NULL, &op->pd));
    else if (r != dnnl_unimplemented)
        DNNL_TRY(s, "matmul primitive_desc", r);
    if (op->pd == NULL) goto done;
    static const int arg[TENSORS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    for (int i = 0; i < TENSORS; i++) {
        if (arg[i] == DNNL_ARG_BIAS && !d->bias) continue;
        op->arg[i] = arg[i];
        op->md[i] = dnnl_primitive_desc_query_md(op->pd, dnnl_query_exec_arg_md, arg[i]);
    }
    op_finish(op);
    *value = op;
done:
    if (s < 0 || op->pd == NULL) op_free(op);
    for (int i = 0; i < TENSORS; i++) md_free(&md[i]);
    walk_end(w);
    if (attr != NULL) dnnl_primitive_attr_destroy(attr);
    return s;
}

/* ---- the interface --------------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static fr_status get(const fri_dnnl_key *key, fri_dnnl_make_fn *make, const void *args, const fri_dnnl_op **op) {
    pthread_once(&once, engine_make);
    if (engine_status != dnnl_success) return failed("engine_create", engine_status);
    void *value = NULL;
    const int before = omp_get_max_threads();
    omp_set_num_threads((int)key->word[1]); /* number of threads for which the library divides the work */
    fr_status s = fri_dnnl_cache_get(key, make, args, &value);
    omp_set_num_threads(before);
    if (s >= 0) *op = value;
    return s;
}

static fr_status op_conv2d(const fri_conv2d_desc *d, fri_pass pass, const fri_dnnl_op **op) {
    fri_dnnl_key key = {{1 + (int64_t)pass, fri_dnnl_threads(), d->dtype, d->bias_dtype, FRI_CONV2D_KEY(d),
                         2 * (int64_t)d->relu + d->accumulate}};
    return get(&key, make_conv, &(conv_args){d, pass}, op);
}

/* Gives matrices with one row or column a unique stride. The library ignores strides of dimensions of 1 when it looks
 * up a primitive, but not when it lays out the scratchpad: given two spellings of a matrix, it runs one primitive in
 * the scratchpad of the other and writes past the end (seen in 2.6.3). */
static void canonical_strides(int64_t rows, int64_t columns, int64_t *row, int64_t *column) {
    if (columns == 1 && *row != 1) *column = 1;
    if (rows == 1 && *column == 1) *row = columns;
    if (rows == 1 && columns == 1) *row = *column = 1;
}

static fr_status op_matmul(const fri_matmul_desc *desc, const fri_dnnl_op **op) {
    fri_matmul_desc d = *desc;
    int64_t c_column = 1;
    canonical_strides(d.m, d.k, &d.a_row, &d.a_col);
    canonical_strides(d.k, d.n, &d.b_row, &d.b_col);
    canonical_strides(d.m, d.n, &d.c_row, &c_column);
    /* A single row or column of non-adjacent elements: 3.7.2 treats it as dense. */
    *op = NULL;
    if ((d.m == 1 && d.a_col != 1) || (d.n == 1 && (d.c_row != 1 || (d.b_col == 1 && d.b_row != 1)))) return FR_OK;
    fri_dnnl_key key = {{8,         d.alone ? 1 : fri_dnnl_threads(),
                         d.a_dtype, d.b_dtype,
                         d.c_dtype, d.bias_dtype,
                         d.m,       d.n,
                         d.k,       d.a_row,
                         d.a_col,   d.b_row,
                         d.b_col,   d.c_row,
                         d.batch,   d.a_batch,
                         d.b_batch, d.c_batch,
                         d.bias,    d.accum}};
    return get(&key, make_matmul, &d, op);
}

/* Machine code of a primitive, generated at most once. */
static dnnl_status_t compiled(_Atomic(dnnl_primitive_t) *slot, const_dnnl_primitive_desc_t pd, dnnl_primitive_t *out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    dnnl_status_t r = dnnl_success;
    *out = atomic_load_explicit(slot, memory_order_acquire);
    if (*out != NULL) return r;
    pthread_mutex_lock(&lock);
    *out = atomic_load_explicit(slot, memory_order_relaxed);
    if (*out == NULL) {
        r = dnnl_primitive_create(out, pd);
        if (r == dnnl_success) atomic_store_explicit(slot, *out, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

typedef struct tensor_arg {
    int arg;
    md_ref md;
    void *data;
} tensor_arg;

/* Runs with the planned number of threads: the library looks up primitives by number of threads, and a primitive for
 * more threads would write past the end of the scratchpad. Memory objects and the stream are handles of some hundred
 * bytes; being private to the call, they need no lock. */
static fr_status execute(_Atomic(dnnl_primitive_t) *slot, const_dnnl_primitive_desc_t pd, int threads, int n,
                         const tensor_arg *t) {
    fr_status s = FR_OK;
    const int before = omp_get_max_threads();
    dnnl_exec_arg_t args[TENSORS + 1];
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    int count = 0;
    omp_set_num_threads(threads);
    DNNL_TRY(s, "primitive_create", compiled(slot, pd, &primitive));
    for (int i = 0; i < n; i++) {
        if (t[i].arg == 0 || md_bytes(t[i].md) == 0) continue;
        args[count].arg = t[i].arg;
        DNNL_TRY(s, "memory_create", dnnl_memory_create(&args[count].memory, t[i].md, engine, t[i].data));
        count++;
    }
    DNNL_TRY(s, "stream_create", dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    DNNL_TRY(s, "primitive_execute", dnnl_primitive_execute(primitive, stream, count, args));
    DNNL_TRY(s, "stream_wait", dnnl_stream_wait(stream));
done:
    omp_set_num_threads(before);
    for (int i = 0; i < count; i++) dnnl_memory_destroy(args[i].memory);
    if (stream != NULL) dnnl_stream_destroy(stream);
    return s;
}

static fr_status reorder(operation *op, md_ref from_md, const void *from, md_ref to_md, void *to, void *scratch) {
    const tensor_arg t[] = {{DNNL_ARG_FROM, from_md, (void *)(uintptr_t)from},
                            {DNNL_ARG_TO, to_md, to},
                            {DNNL_ARG_SCRATCHPAD, op->reorder_scratch_md, scratch}};
    return execute(&op->reorder, op->reorder_pd, op->threads, 3, t);
}

static fr_status op_pack(const fri_dnnl_op *shown, const void *krsc, void *packed, void *scratch) {
    operation *op = operation_of(shown);
    return reorder(op, MD(op->krsc_md), krsc, op->packed_md, packed, scratch);
}

static fr_status op_unpack(const fri_dnnl_op *shown, const void *packed, void *krsc, void *scratch) {
    operation *op = operation_of(shown);
    return reorder(op, op->packed_md, packed, MD(op->krsc_md), krsc, scratch);
}

static fr_status op_repack(const fri_dnnl_op *from_op, const void *from, const fri_dnnl_op *to_op, void *to) {
    const operation *from_of = operation_of(from_op), *to_of = operation_of(to_op),
                    *one = from_op != NULL ? from_of : to_of;
    md_ref from_md = from_op != NULL ? from_of->packed_md : MD(one->krsc_md);
    md_ref to_md = to_op != NULL ? to_of->packed_md : MD(one->krsc_md);
    const tensor_arg t[] = {{DNNL_ARG_FROM, from_md, (void *)(uintptr_t)from}, {DNNL_ARG_TO, to_md, to}};
    _Atomic(dnnl_primitive_t) run = NULL;
    dnnl_primitive_desc_t pd = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, make_reorder(from_md, to_md, &pd));
    FR_TRY(s, execute(&run, pd, fri_dnnl_threads(), 2, t));
done:
    if (run != NULL) dnnl_primitive_destroy(run);
    if (pd != NULL) dnnl_primitive_desc_destroy(pd);
    return s;
}

static fr_status op_run(const fri_dnnl_op *shown, const void *a, const void *b, const void *bias, void *out,
                        void *scratch) {
    operation *op = operation_of(shown);
    const tensor_arg t[] = {{op->arg[0], op->md[0], (void *)(uintptr_t)a},
                            {op->arg[1], op->md[1], (void *)(uintptr_t)b},
                            {op->arg[2], op->md[2], (void *)(uintptr_t)bias},
                            {op->arg[3], op->md[3], out},
                            {DNNL_ARG_SCRATCHPAD, op->scratch_md, scratch}};
    return execute(&op->run, op->pd, op->threads, TENSORS + 1, t);
}

/* ---- the module ------------------------------------------------------------------------------------------- */

fri_dnnl_host fri_dnnl_here;

const fri_dnnl_calls *fri_dnnl_open(int abi, const fri_dnnl_host *host) {
    static const fri_dnnl_calls calls = {
        .conv2d = op_conv2d,
        .matmul = op_matmul,
        .pack = op_pack,
        .repack = op_repack,
        .unpack = op_unpack,
        .run = op_run,
        .has_tiles = fri_dnnl_isa_has_tiles,
        .version = fri_dnnl_isa_version,
        .major = DNNL_VERSION_MAJOR,
    };
    if (abi != FRI_DNNL_ABI) return NULL;
    fri_dnnl_here = *host;
    return &calls;
}
