/* test_refusals.c - refusals of described ops: for every operand of every description a missing tensor, a tensor on
 * another device, of another type, rank or size; then options. */
#include <criterion/criterion.h>
#include <string.h>

#include "backend/arith.h"
#include "ops/frame.h"
#include "support/golden.h"

#define NEAREST FR_UPSAMPLE_NEAREST
/* Each op on inputs of the description. */
/* clang-format off */
#define OPS(O)                                                                                                         \
    O(relu, fr_relu(in[0], y))                                                                                         \
    O(relu6, fr_relu6(in[0], y))                                                                                       \
    O(leaky_relu, fr_leaky_relu(in[0], 0.1, y))                                                                        \
    O(clamp, fr_clamp(in[0], 0, 1, y))                                                                                 \
    O(scale, fr_scale(in[0], 2, y))                                                                                    \
    O(add_scalar, fr_add_scalar(in[0], 2, y))                                                                          \
    O(cast, fr_cast(in[0], FR_F16, y)) O(sum, fr_sum(in[0], y)) O(mean, fr_mean(in[0], y))                             \
        O(softmax, fr_softmax(in[0], y)) O(log_softmax, fr_log_softmax(in[0], y))                                      \
            O(dropout, fr_dropout(in[0], 0.5, true, y)) O(dropout2d, fr_dropout2d(in[0], 0.5, true, y))                \
                O(stochastic_depth,                                                                                    \
                  fr_stochastic_depth(in[0], 0.5, true, y)) O(conv2d, fr_conv2d(in[0], in[1], in[2], NULL, y))         \
                    O(conv_transpose2d,                                                                                \
                      fr_conv_transpose2d(in[0], in[1], in[2], NULL, y)) O(linear, fr_linear(in[0], in[1], in[2], y))  \
                        O(matmul, fr_matmul(in[0], in[1], y)) O(maxpool2d, fr_maxpool2d(in[0], 2, NULL, y))            \
                            O(avgpool2d, fr_avgpool2d(in[0], 2, NULL, y)) O(adaptive_avgpool2d,                        \
                                                                            fr_adaptive_avgpool2d(in[0], 2, 2, y))     \
                                O(upsample, fr_upsample(in[0], 7, 7, NEAREST, false, y))                               \
                                    O(group_norm, fr_group_norm(in[0], 3, in[1], in[2], 1e-5, y))                      \
                                        O(layer_norm, fr_layer_norm(in[0], in[1], in[2], 1e-5, y))                     \
                                            O(embedding,                                                               \
                                              fr_embedding(in[1], in[0], y)) O(gather, fr_gather(in[0], 0, in[1], y))  \
                                                O(scatter, fr_scatter(in[0], 0, in[1], in[2], y))                      \
                                                    O(scatter_add, fr_scatter_add(in[0], 0, in[1], in[2], y))          \
                                                        O(cross_entropy,                                               \
                                                          fr_cross_entropy(in[0], in[1],                               \
                                                                           FR_CROSS_ENTROPY_OPTS(.weight = in[2]), y)) \
                                                            O(count_correct, fr_count_correct(in[0], in[1], y))        \
                                                                O(bce, fr_bce(in[0], in[1],                            \
                                                                              FR_BCE_OPTS(.pos_weight = in[2]), y))    \
                                                                    O(dice, fr_dice(in[0], in[1], NULL, y))            \
                                                                        O(mse, fr_mse(in[0], in[1], y))                \
                                                                            O(l1, fr_l1(in[0], in[1], y))              \
                                                                                O(smooth_l1,                           \
                                                                                  fr_smooth_l1(in[0], in[1], 1, y))
/* clang-format on */
#define ACTIVATION(word, ...) CALL(word, fr_##word(in[0], y))
#define CALL(word, call)                                                \
    static fr_status call_##word(fr_tensor *const *in, fr_tensor **y) { \
        return call;                                                    \
    }
OPS(CALL)
FRI_ACTIVATIONS(ACTIVATION)

static const struct {
    fr_described *op;
    fr_status (*call)(fr_tensor *const *in, fr_tensor **y);
} cases[] = {
#define ROW(word, ...) {&fri_op_##word, call_##word},
    OPS(ROW) FRI_ACTIVATIONS(ROW)};
#define COUNT(word, ...) +1
_Static_assert(sizeof cases / sizeof *cases == 0 FRI_DESCRIBED(COUNT) FRI_ACTIVATIONS(COUNT), "an op has no case");

/* Sizes by letter; * is [2, 3]. */
static int64_t size_of(int letter) {
    static const int64_t size[26] = {['b' - 'a'] = 3, ['c' - 'a'] = 3, ['d' - 'a'] = 6, ['g' - 'a'] = 3,
                                     ['h' - 'a'] = 5, ['i' - 'a'] = 5, ['k' - 'a'] = 4, ['l' - 'a'] = 4,
                                     ['n' - 'a'] = 2, ['o' - 'a'] = 4, ['r' - 'a'] = 3, ['s' - 'a'] = 2,
                                     ['v' - 'a'] = 7, ['w' - 'a'] = 6};
    return size[letter];
}

static fr_shape shape_of(const fri_operand *o) {
    fr_shape s = {0};
    if (o->leading || !o->shaped) s = FRI_SHAPE(2, 3);
    for (int i = 0; i < o->rank; i++) s.dim[s.rank++] = size_of(o->letter[i]);
    return s;
}

static fr_dtype type_of(const fri_operand *o) {
    return o->type == FRI_TYPE_I64 || (o->type == FRI_TYPE_ANY && !o->shaped) ? FR_I64 : FR_F32;
}

static fr_tensor *tensor_of(fr_shape s, fr_dtype t, fr_device device) {
    fr_tensor *x = NULL;
    must(device == FR_META ? fr_tensor_empty(s.rank, s.dim, t, device, &x)
                           : fr_tensor_zeros(s.rank, s.dim, t, device, &x));
    return x;
}

static const char other_size[] = "is needed"; /* the sentence may name an operand with an equal size */

/* Calls case k with `bad` (released) as operand i: the sentence begins with the op and has both words. */
static void refuses(size_t k, const fri_reading *r, fr_tensor *const *good, int i, fr_tensor *bad, fr_status status,
                    const char *word) {
    fr_tensor *in[FRI_OP_INPUTS], *y = NULL;
    const char *op = r->op.name, *operand = status == FR_EDEVICE || word == other_size ? "" : r->operand[i].name;
    memcpy(in, good, sizeof in);
    in[i] = bad;
    const fr_status got = cases[k].call(in, &y);
    cr_expect(got == status && strncmp(fr_last_error(), op, strlen(op)) == 0 && strstr(fr_last_error(), operand) &&
                  strstr(fr_last_error(), word) && y == NULL,
              "%s, %s: status %d, not %d, '%s' (%s)", op, r->operand[i].name, got, status, fr_last_error(), word);
    RELEASE_ALL(&bad, &y);
}

static bool shared_size(const fri_reading *r, int i, int letter) {
    for (int j = 0; j < r->inputs; j++)
        for (int k = 0; j != i && k < r->operand[j].rank; k++)
            if (r->operand[j].letter[k] == letter) return true;
    return false;
}

static void refuses_shapes(size_t k, const fri_reading *r, fr_tensor *const *good, int i) {
    const fri_operand *o = &r->operand[i];
    fr_shape s = shape_of(o), more = s;
    if (!o->shaped) return;
    more.dim[more.rank++] = 1;
    if (!o->leading) refuses(k, r, good, i, tensor_of(more, type_of(o), test_device()), FR_ESHAPE, "rank");
    if (o->leading && o->rank > 0)
        refuses(k, r, good, i, tensor_of((fr_shape){0}, type_of(o), test_device()), FR_ESHAPE, "[]");
    more = s;
    if (i > 0 && o->leading && r->operand[0].leading) {
        more.dim[0] += 2;
        refuses(k, r, good, i, tensor_of(more, type_of(o), test_device()), FR_ESHAPE, other_size);
    }
    for (int d = 0; d < o->rank; d++) {
        more = s;
        more.dim[s.rank - o->rank + d] += 2;
        if (i > 0 && shared_size(r, i, o->letter[d]))
            refuses(k, r, good, i, tensor_of(more, type_of(o), test_device()), FR_ESHAPE, other_size);
    }
}

Test(refusals, every_operand_of_every_description) {
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const fri_reading *r = NULL;
        fr_tensor *good[FRI_OP_INPUTS] = {NULL}, *y = NULL;
        must(fri_read_description(cases[k].op, &r));
        for (int i = 0; i < r->inputs; i++)
            good[i] = tensor_of(shape_of(&r->operand[i]), type_of(&r->operand[i]), test_device());
        must(cases[k].call(good, &y));
        fr_tensor_release(&y);
        for (int i = 0; i < r->inputs; i++) {
            const fri_operand *o = &r->operand[i];
            const fr_dtype other = type_of(o) == FR_I64 ? FR_F32 : FR_I32;
            if (!o->optional) refuses(k, r, good, i, NULL, FR_EINVAL, "NULL");
            if (r->inputs > 1) refuses(k, r, good, i, tensor_of(shape_of(o), type_of(o), FR_META), FR_EDEVICE, "meta");
            if (!(o->type == FRI_TYPE_ANY && o->shaped))
                refuses(k, r, good, i, tensor_of(shape_of(o), other, test_device()), FR_EDTYPE, fr_dtype_name(other));
            if (i > 0 && type_of(o) == FR_F32 && r->op.autocast != FR_AUTOCAST_PROMOTE)
                refuses(k, r, good, i, tensor_of(shape_of(o), FR_F16, test_device()), FR_EDTYPE, "f16");
            refuses_shapes(k, r, good, i);
        }
        RELEASE_ALL(&good[0], &good[1], &good[2], &good[3]);
    }
    expect_nothing_left();
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

Test(refusals, options) {
    fr_tensor *x = tensor_of(FRI_SHAPE(2, 5, 6, 4), FR_F32, test_device()), *y = NULL;
    fr_tensor *w = tensor_of(FRI_SHAPE(4, 3, 2, 4), FR_F32, test_device()),
              *c = tensor_of(FRI_SHAPE(4), FR_F32, test_device());
    fr_tensor *narrow = tensor_of(FRI_SHAPE(4, 3, 2, 2), FR_F32, test_device()),
              *six = tensor_of(FRI_SHAPE(6), FR_F32, test_device());
    fr_tensor *planes = tensor_of(FRI_SHAPE(2, 4, 5, 6), FR_F32, test_device()); /* as PyTorch has them */
    fr_tensor *m = tensor_of(FRI_SHAPE(3, 4), FR_F32, test_device()),
              *flat = tensor_of(FRI_SHAPE(3), FR_I64, test_device());
    fr_tensor *wide = tensor_of(FRI_SHAPE(3, 5), FR_I64, test_device()), *index = NULL, *nine = NULL, *leaf = NULL;
    fr_tensor *half = tensor_of(FRI_SHAPE(4), FR_F16, test_device());
    must(fr_tensor_full(2, (int64_t[]){3, 4}, 9, FR_I64, test_device(), &index));
    must(fr_tensor_full(1, (int64_t[]){3}, 9, FR_I64, test_device(), &nine));
    must(fr_tensor_zeros(1, (int64_t[]){3}, FR_F32, test_device(), &leaf));
    must(fr_tensor_set_requires_grad(leaf, true));
#define POOL(...)                    FR_POOL2D_OPTS(__VA_ARGS__), &y
#define CONV(...)                    fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(__VA_ARGS__), &y)
#define TRANSPOSE(...)               fr_conv_transpose2d(x, w, NULL, FR_CONV_TRANSPOSE2D_OPTS(__VA_ARGS__), &y)
#define R(status, word1, word2, ...) expect_refused(__VA_ARGS__, status, word1, word2, y);
    R(FR_EINVAL, "kernel 0", ">= 1", fr_avgpool2d(x, 0, POOL()))
    R(FR_ESHAPE, "[2, 5, 6, 4]", "7 x 7", fr_avgpool2d(x, 7, POOL()))
    R(FR_EINVAL, "padding 2", "half", fr_avgpool2d(x, 2, POOL(.padding = 2)))
    R(FR_EINVAL, "kernel 0", ">= 1", fr_maxpool2d(x, 0, POOL()))
    R(FR_ESHAPE, "[2, 5, 6, 4]", "7 x 7", fr_maxpool2d(x, 7, POOL()))
    R(FR_EINVAL, "padding 2", "half", fr_maxpool2d(x, 2, POOL(.padding = 2)))
    R(FR_EINVAL, "0 x 1", ">= 1", fr_adaptive_avgpool2d(x, 0, 1, &y))
    R(FR_EINVAL, "0 x 2", ">= 1", fr_upsample(x, 0, 2, NEAREST, false, &y))
    R(FR_EINVAL, "low is 2 and high is 1", "<=", fr_clamp(x, 2, 1, &y))
    R(FR_EINVAL, "-0.1", ">= 0", fr_leaky_relu(x, -0.1, &y))
    R(FR_EINVAL, "beta is -0.5", ">= 0", fr_smooth_l1(x, x, -0.5, &y))
    R(FR_EDTYPE, "42", "element type", fr_cast(x, (fr_dtype)42, &y))
    R(FR_EDTYPE, "requires grad", "i64", fr_cast(leaf, FR_I64, &y))
    R(FR_EINVAL, "1.5", "0..1", fr_dropout(x, 1.5, true, &y))
    R(FR_ESHAPE, "4 channels", "expects 2", fr_conv2d(x, narrow, NULL, NULL, &y))
    cr_expect_null(strstr(fr_last_error(), "[N, H, W, C]"), "%s", fr_last_error());
    R(FR_ESHAPE, "[N, H, W, C]", "look like [N, C, H, W]", fr_conv2d(planes, w, NULL, NULL, &y))
    R(FR_EINVAL, "stride 0", ">= 1", CONV(.stride = 0))
    R(FR_ESHAPE, "smaller", "dilation 9", CONV(.dilation = 9))
    R(FR_ESHAPE, "4 channels", "groups 3", CONV(.groups = 3))
    R(FR_EDTYPE, "b is f16", "f32", fr_conv_transpose2d(x, w, half, NULL, &y))
    R(FR_ESHAPE, "[6]", "[4]", fr_conv_transpose2d(x, w, six, NULL, &y))
    R(FR_ESHAPE, "6 channels", "expects 4", fr_conv_transpose2d(planes, w, NULL, NULL, &y))
    R(FR_ESHAPE, "[N, H, W, C]", "look like [N, C,", fr_conv_transpose2d(planes, w, NULL, NULL, &y))
    R(FR_ESHAPE, "4 channels", "groups 3", TRANSPOSE(.groups = 3))
    R(FR_EINVAL, "groups 0", ">= 1", TRANSPOSE(.groups = 0))
    R(FR_EINVAL, "stride 0", ">= 1", TRANSPOSE(.stride = 0))
    R(FR_EINVAL, "dilation 0", ">= 1", TRANSPOSE(.dilation = 0))
    R(FR_EINVAL, "output_padding 2", "below the stride", TRANSPOSE(.stride = 2, .output_padding = 2))
    R(FR_EINVAL, "output_padding 2", "below the stride", TRANSPOSE(.stride = 3, .stride_w = 1, .output_padding = 2))
    R(FR_ESHAPE, "[2, 5, 6, 4]", "-1 x -1", TRANSPOSE(.padding = 4))
    R(FR_ESHAPE, "[2, 5, 6, 4]", "image", TRANSPOSE(.stride = INT32_MAX))
    R(FR_ESHAPE, "3 groups", "4 channels", fr_group_norm(x, 3, c, c, 1e-5, &y))
    R(FR_ESHAPE, "0 groups", "4 channels", fr_group_norm(x, 0, c, c, 1e-5, &y))
    R(FR_EINVAL, "eps is -1", ">= 0", fr_group_norm(x, 2, c, c, -1, &y))
    R(FR_EINVAL, "dimension 2", "rank 2", fr_gather(m, 2, index, &y))
    R(FR_EINVAL, "dimension -3", "rank 2", fr_gather(m, -3, index, &y))
    R(FR_ESHAPE, "5 in dimension 1", "x has 4", fr_gather(m, 0, wide, &y))
    R(FR_ESHAPE, "rank 1", "rank 2", fr_gather(m, 0, flat, &y))
    R(FR_EINVAL, "dimension 2", "rank 2", fr_scatter(m, 2, index, m, &y))
    R(FR_ESHAPE, "[3, 4]", "[3, 5]", fr_scatter(m, 1, wide, m, &y))
    R(FR_EINVAL, "src is x itself", "scatter", fr_scatter_inplace(m, 0, index, m))
    R(FR_EUSAGE, "leaf", "scatter", fr_scatter_inplace(leaf, 0, flat, six))
    R(FR_EINVAL, "relu", "NULL", fr_relu_inplace(NULL))
    R(FR_EUSAGE, "leaf", "relu", fr_relu_inplace(leaf))
    R(FR_EUSAGE, "leaf", "leaky_relu", fr_leaky_relu_inplace(leaf, 0.1))
    R(FR_EUSAGE, "leaf", "scale", fr_scale_inplace(leaf, 3))
    R(FR_EUSAGE, "leaf", "add_scalar", fr_add_scalar_inplace(leaf, 3))
    R(FR_EINVAL, "label_smoothing", "0..1", fr_cross_entropy(m, flat, FR_CROSS_ENTROPY_OPTS(.label_smoothing = 2), &y))
    R(FR_ESHAPE, "[3, 4]", "[3, 5]", fr_cross_entropy(m, wide, NULL, &y))
    R(FR_EINVAL, "gamma", "-1", fr_bce(m, flat, FR_BCE_OPTS(.gamma = -1), &y))
    R(FR_EINVAL, "smooth", "-1", fr_dice(m, flat, FR_DICE_OPTS(.smooth = -1), &y))
    expect_bad_index(fr_cross_entropy(m, nine, NULL, &y), "row 0", "0..3", &y);
    expect_bad_index(fr_bce(m, nine, NULL, &y), "row 0", "0..3", &y);
    expect_bad_index(fr_dice(m, nine, NULL, &y), "row 0", "0..3", &y);
    expect_bad_index(fr_embedding(index, m, &y), "position 0", "0..2", &y);
    expect_bad_index(fr_gather(m, 0, index, &y), "position 0", "0..2", &y);
    RELEASE_ALL(&x, &w, &c, &narrow, &six, &planes, &m, &flat, &wide, &index, &nine, &leaf, &half);
    expect_nothing_left();
}
