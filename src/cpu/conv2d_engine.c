/* conv2d_engine.c - chooses the method of a convolution, and calls the library's convolution. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "base/status.h"

/* Output pixels per image up to which a matrix product is faster than the convolution primitive, per pass. Measured
 * on one thread with 3x3 and 1x1 layers of VGG-16 and ResNet-50, oneDNN 2.6.3 with avx512_core_bf16 (AMD Zen 5):
 * primitives pack weights in every call and use tiles badly for few pixels. */
static const int64_t spatial_area[] = {16, 4, 9}, area_1x1[] = {49, 49, INT64_MAX};
/* The product loses again for the weight gradient of 1x1 layers with at most NARROW_CHANNELS channels on one side and
 * maps of NARROW_AREA pixels or more: the sum runs over all pixels, and the result has few rows. Applies to bf16, and
 * to f32 layers that conv2d_pointwise.c does not take. Measured on 1 and 2 threads with MobileNetV2's layers (AMD Zen
 * 4): 0.4 to 0.85 of the product's time. */
enum { NARROW_CHANNELS = 32, NARROW_AREA = 56 * 56 };

/* True if rows of x are the matrix of a product. */
static bool is_product(const fri_conv2d_desc *d) {
    return d->r * d->s * d->stride_h * d->stride_w * d->groups == 1 && d->pad_h == 0 && d->pad_w == 0;
}

/* Decides by properties of the layer only, never by d->n (conv2d_engine.h). */
static bool prefers_matrix(const fri_conv2d_desc *d, fri_pass pass) {
    const int64_t area = d->p * d->q;
    if (d->groups != 1 || (d->dtype != FR_F32 && !is_product(d))) return false;
    if (d->r != 1 || d->s != 1) return area <= spatial_area[pass];
    if (area >= NARROW_AREA && (d->c <= NARROW_CHANNELS || d->k <= NARROW_CHANNELS)) return false;
    return area <= area_1x1[pass];
}

static fr_status plan_direct(fri_conv2d_engine *e) {
    e->method = FRI_CONV2D_NONE;
    fr_status s = fri_dnnl()->conv2d(&e->d, e->pass, &e->direct);
    if (s < 0 || e->direct == NULL) return s;
    e->method = FRI_CONV2D_DIRECT;
    e->bytes = 0;
    if (e->pass == FRI_PASS_FORWARD) e->bias_at = fri_part(&e->bytes, (size_t)e->d.k * fr_dtype_size(e->d.bias_dtype));
    e->weight_at = fri_part(&e->bytes, e->direct->packed_bytes);
    e->scratch_at = fri_part(&e->bytes, e->direct->scratch_bytes);
    return FR_OK;
}

/* Plans the library's product on rows of x. */
static fr_status plan_product(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const fri_matmul_desc p = fri_product_of_layer(e->pass, d->dtype, d->bias_dtype, d->n * d->p * d->q, d->c, d->k);
    e->method = FRI_CONV2D_NONE;
    FRI_TRY(fri_product_plan(&p, &e->product[0]));
    if (e->product[0].op == NULL) return FR_OK;
    e->method = FRI_CONV2D_PRODUCT;
    if (p.bias) e->bias_at = fri_part(&e->bytes, (size_t)d->k * fr_dtype_size(d->bias_dtype));
    e->scratch_at = fri_part(&e->bytes, e->product[0].bytes);
    return FR_OK;
}

/* Plans a product: by the library on rows of x, or over pointers to pixels. */
static fr_status plan_matrix(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t terms = e->pass == FRI_PASS_FORWARD ? d->c : d->k;
    const bool f32 = d->dtype == FR_F32 && d->bias_dtype == FR_F32, one_row = d->p * d->q == 1;
    const bool by_library = fri_product_by_library(one_row ? terms : 0, e->pass == FRI_PASS_BACKWARD_WEIGHT);
    e->bytes = 0;
    return is_product(d) && (by_library || !f32) ? plan_product(e) : fri_conv2d_indirect_plan(e);
}

/* Own loops for the width of this processor's vectors. */
static const fri_conv2d_own *own_of(fri_conv2d_method method) {
    static const struct {
        const fri_conv2d_own *depthwise, *pointwise;
    } own[] =
    { [FRI_LANES_BASELINE] = {&fri_conv2d_depthwise, &fri_conv2d_pointwise},
#if defined(__x86_64__)
      [FRI_LANES_AVX2] = {&fri_conv2d_depthwise_v3, &fri_conv2d_pointwise_v3},
      [FRI_LANES_AVX512] = {&fri_conv2d_depthwise_v4, &fri_conv2d_pointwise_v4},
#endif
    };
    if (method == FRI_CONV2D_DEPTHWISE) return own[fri_cpu_lanes()].depthwise;
    return method == FRI_CONV2D_POINTWISE ? own[fri_cpu_lanes()].pointwise : NULL;
}

fr_status fri_conv2d_engine_plan(const fri_conv2d_desc *d, fri_pass pass, fri_conv2d_method method,
                                 fri_conv2d_engine *e) {
    memset(e, 0, sizeof *e);
    e->d = *d;
    e->pass = pass;
    if (method == FRI_CONV2D_DIRECT) return plan_direct(e);
    if (method == FRI_CONV2D_PRODUCT) return plan_product(e);
    if (method == FRI_CONV2D_INDIRECT) return fri_conv2d_indirect_plan(e);
    if (method == FRI_CONV2D_WINOGRAD) return fri_conv2d_winograd_plan(e);
    if (method == FRI_CONV2D_AUTO)
        method = own_of(FRI_CONV2D_DEPTHWISE)->pays(d, pass)   ? FRI_CONV2D_DEPTHWISE
                 : own_of(FRI_CONV2D_POINTWISE)->pays(d, pass) ? FRI_CONV2D_POINTWISE
                                                               : method;
    e->own = own_of(method);
    if (e->own != NULL) {
        e->method = method;
        e->own->plan(e);
        if (d->norm != NULL) e->norm_at = fri_part(&e->bytes, (size_t)(2 * d->c) * sizeof(float));
        return FR_OK;
    }

    const bool matrix = prefers_matrix(d, pass);
    FRI_TRY(matrix ? plan_matrix(e) : plan_direct(e));
    /* Tries the other method if this one does not exist or exceeds the caller's limit. */
    bool over = d->workspace_limit > 0 && e->bytes > d->workspace_limit;
    if (e->method != FRI_CONV2D_NONE && !over) return FR_OK;
    fri_conv2d_engine other = {.d = *d, .pass = pass};
    FRI_TRY(matrix ? plan_direct(&other) : plan_matrix(&other));
    if (other.method == FRI_CONV2D_NONE && e->method != FRI_CONV2D_NONE) return FR_OK;
    if (other.method == FRI_CONV2D_NONE) FRI_TRY(fri_conv2d_indirect_plan(&other));
    if (e->method == FRI_CONV2D_NONE || other.bytes <= d->workspace_limit) *e = other;
    return FR_OK;
}

fri_conv2d_reader fri_conv2d_reader_of(const fri_conv2d_engine *e, char *workspace) {
    const fri_conv2d_norm *n = e->d.norm;
    if (n == NULL) return (fri_conv2d_reader){0};
    float *scale = (float *)(void *)(workspace + e->norm_at), *shift = scale + e->d.c;
    for (int64_t c = 0; c < e->d.c; c++) {
        scale[c] = fri_norm_scale(n->invstd, n->gamma, c);
        shift[c] = n->beta != NULL ? ((const float *)n->beta)[c] : 0;
    }
    return (fri_conv2d_reader){n->mean, scale, shift, n->act};
}

fr_status fri_conv2d_engine_prepare(const fri_conv2d_engine *e, const void *w, char *workspace) {
    if (e->method == FRI_CONV2D_WINOGRAD || e->method == FRI_CONV2D_INDIRECT) return FR_OK;
    if (e->own != NULL) {
        if (e->pass != FRI_PASS_BACKWARD_WEIGHT) e->own->prepare(e, w, workspace);
        return FR_OK;
    }
    if (e->pass == FRI_PASS_FORWARD) memset(workspace + e->bias_at, 0, (size_t)e->d.k * fr_dtype_size(e->d.bias_dtype));
    if (e->method != FRI_CONV2D_DIRECT || e->pass == FRI_PASS_BACKWARD_WEIGHT || e->direct->packed_bytes == 0)
        return FR_OK;
    return fri_dnnl()->pack(e->direct, w, workspace + e->weight_at, workspace + e->scratch_at);
}

fr_status fri_conv2d_engine_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                char *workspace) {
    if (e->method == FRI_CONV2D_WINOGRAD) return fri_conv2d_winograd_run(e, a, b, bias, out, workspace);
    if (e->own != NULL) {
        if (e->pass == FRI_PASS_BACKWARD_WEIGHT)
            e->own->run_weight(e, a, b, out, workspace);
        else
            e->own->run(e, a, bias, out, workspace);
        return FR_OK;
    }
    if (e->method == FRI_CONV2D_INDIRECT) {
        fri_conv2d_indirect_run(e, a, b, bias, out, workspace);
        return FR_OK;
    }
    if (e->pass == FRI_PASS_FORWARD && bias == NULL) bias = workspace + e->bias_at;
    if (e->method == FRI_CONV2D_PRODUCT) {
        const bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
        return fri_product_run(&e->product[0], dw ? b : a, dw ? a : b, bias, out, workspace + e->scratch_at);
    }
    bool packed = e->direct->packed_bytes > 0;
    void *weight = workspace + e->weight_at, *scratch = workspace + e->scratch_at;
    if (e->pass != FRI_PASS_BACKWARD_WEIGHT)
        return fri_dnnl()->run(e->direct, a, packed ? weight : b, bias, out, scratch);
    fr_status s = fri_dnnl()->run(e->direct, a, b, NULL, packed ? weight : out, scratch);
    if (s >= 0 && packed) s = fri_dnnl()->unpack(e->direct, weight, out, scratch);
    return s;
}
