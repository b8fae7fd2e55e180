/* conv2d_engine.c - chooses the method of a convolution. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "base/status.h"

/* Own loops for the width of this processor's vectors. */
static const fri_conv2d_own *own_of(fri_conv2d_method method) {
    static const struct {
        const fri_conv2d_own *depthwise, *pointwise, *grouped;
    } own[] =
    { [FRI_LANES_BASELINE] = {&fri_conv2d_depthwise, &fri_conv2d_pointwise, &fri_conv2d_grouped},
#if defined(__x86_64__)
      [FRI_LANES_AVX2] = {&fri_conv2d_depthwise_v3, &fri_conv2d_pointwise_v3, &fri_conv2d_grouped_v3},
      [FRI_LANES_AVX512] = {&fri_conv2d_depthwise_v4, &fri_conv2d_pointwise_v4, &fri_conv2d_grouped_v4},
#endif
    };
    if (method == FRI_CONV2D_DEPTHWISE) return own[fri_cpu_lanes()].depthwise;
    if (method == FRI_CONV2D_GROUPED) return own[fri_cpu_lanes()].grouped;
    return method == FRI_CONV2D_POINTWISE ? own[fri_cpu_lanes()].pointwise : NULL;
}

void fri_conv2d_engine_plan(const fri_conv2d_desc *d, fri_pass pass, fri_conv2d_method method, fri_conv2d_engine *e) {
    memset(e, 0, sizeof *e);
    e->d = *d;
    e->pass = pass;
    if (method == FRI_CONV2D_WINOGRAD) {
        fri_conv2d_winograd_plan(e);
        return;
    }
    if (method == FRI_CONV2D_AUTO)
        method = own_of(FRI_CONV2D_DEPTHWISE)->pays(d, pass)   ? FRI_CONV2D_DEPTHWISE
                 : own_of(FRI_CONV2D_POINTWISE)->pays(d, pass) ? FRI_CONV2D_POINTWISE
                 : own_of(FRI_CONV2D_GROUPED)->pays(d, pass)   ? FRI_CONV2D_GROUPED
                                                               : method;
    e->own = own_of(method);
    if (e->own == NULL) {
        fri_conv2d_indirect_plan(e);
        return;
    }
    e->method = method;
    e->own->plan(e);
    if (d->norm != NULL) e->norm_at = fri_part(&e->bytes, (size_t)(2 * d->c) * sizeof(float));
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

void fri_conv2d_engine_prepare(const fri_conv2d_engine *e, const void *w, char *workspace) {
    if (e->own != NULL && e->pass != FRI_PASS_BACKWARD_WEIGHT) e->own->prepare(e, w, workspace);
}

void fri_conv2d_engine_run(const fri_conv2d_engine *e, const void *a, const void *b, const float *bias, void *out,
                           char *workspace) {
    if (e->method == FRI_CONV2D_WINOGRAD)
        fri_conv2d_winograd_run(e, a, b, bias, out, workspace);
    else if (e->own == NULL)
        fri_conv2d_indirect_run(e, a, b, bias, out, workspace);
    else if (e->pass == FRI_PASS_BACKWARD_WEIGHT)
        e->own->run_weight(e, a, b, out, workspace);
    else
        e->own->run(e, a, bias, out, workspace);
}
