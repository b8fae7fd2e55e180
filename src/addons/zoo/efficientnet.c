/* efficientnet.c - EfficientNet-B0 (torchvision.models.efficientnet_b0).
 *
 *   stem     features.0: 3x3/2 to 32, batch norm, silu
 *   blocks   features.1..7.<k>: block.0 1x1 to `expansion` times the channels, depthwise k x k, each with batch norm
 *            and silu; squeeze and excitation by a quarter of the block's channels; 1x1 back and batch norm; where the
 *            shape stays stochastic depth, whose p grows from 0 to 0.2 over the blocks, and + x
 *   head     features.8: 1x1 to four times the channels, batch norm, silu; global average pooling, dropout 0.2,
 *            classifier.1 */
#include "addons/zoo/layers.h"

#include <math.h>

static const struct {
    int expansion, kernel, stride, channels, blocks;
} mb_stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                 {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
enum { MB_STAGES = sizeof mb_stages / sizeof *mb_stages, MB_BLOCKS = 16 };

static fr_value mbconv(fr_net *n, fr_value x, int expansion, int64_t kernel, int64_t stride, int64_t out, double p) {
    static const char *const names[] = {"0", "1", "2", "3"};
    const int64_t in = fr_net_dim(n, x, -1), inner = in * expansion;
    fr_value y = x;
    int at = 0;
    fr_net_scope_begin(n, "block");
    if (expansion > 1) y = fri_zoo_conv_norm(n, names[at++], y, inner, 1, 1, 1, NULL, fr_net_silu);
    y = fri_zoo_conv_norm(n, names[at++], y, inner, kernel, stride, inner, NULL, fr_net_silu);
    y = fri_zoo_squeeze_excite(n, names[at++], y, in / 4, fr_net_silu, fr_net_sigmoid);
    y = fri_zoo_conv_norm(n, names[at], y, out, 1, 1, 1, NULL, NULL);
    fr_net_scope_end(n);
    if (stride != 1 || in != out) return y;
    return fr_net_add(n, "add", fr_net_stochastic_depth(n, "stochastic_depth", y, p), x);
}

/* torchvision's Linear: U(-1 / sqrt(classes), 1 / sqrt(classes)), bias 0. */
static fr_value uniform_head(fr_net *n, const char *name, fr_value x, int64_t classes) {
    x = fr_net_linear(n, name, x, classes, FR_BIAS);
    fr_module *m = fr_net_layer_of(n, x);
    if (m == NULL) return x;
    const double bound = 1 / sqrt((double)classes);
    fr_net_try(n, fr_init_uniform(fr_module_tensor(m, "weight"), -bound, bound));
    fr_net_try(n, fr_tensor_fill(fr_module_tensor(m, "bias"), 0));
    return x;
}

fr_status fr_efficientnet(int version, const fr_model_opts *opts, fr_module **m) {
    FRI_ZOO_SLOT(m);
    fr_model_opts o;
    fr_value x;
    int block = 0;
    if (version != 0) return fr_fail(FR_EINVAL, "EfficientNet: B%d; only B0 exists", version);
    fr_status s = fri_zoo_opts("EfficientNet", opts, 32, &o);
    if (s < 0) return s;
    fr_net *n = fri_zoo_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    fr_net_scope_begin(n, "features");
    x = fri_zoo_conv_norm(n, "0", x, fr_model_channels(&o, 32), 3, 2, 1, NULL, fr_net_silu);
    for (int i = 0; i < MB_STAGES; i++)
        for (int k = 0; k < mb_stages[i].blocks; k++, block++) {
            fr_net_scope_begin(n, "%d.%d", i + 1, k);
            x = mbconv(n, x, mb_stages[i].expansion, mb_stages[i].kernel, k > 0 ? 1 : mb_stages[i].stride,
                       fr_model_channels(&o, mb_stages[i].channels), 0.2 * block / MB_BLOCKS);
            fr_net_scope_end(n);
        }
    x = fri_zoo_conv_norm(n, "8", x, 4 * fr_net_dim(n, x, -1), 1, 1, 1, NULL, fr_net_silu);
    fr_net_scope_end(n);
    x = fr_net_dropout(n, "classifier.0", fri_zoo_pool(n, x), 0.2);
    x = uniform_head(n, "classifier.1", x, o.classes);
    return fr_net_end(&n, &x, 1, m);
}
