/* test_conv2d_plan.c - convolutions are planned for a device description, without a GPU: all convolutions of the
 * library's networks, in every float type and all three directions, with their needs of workspace. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/conv2d.h"
#include "cuda/conv2d_plan.h"
#include "cuda/cudnn.h"
#include "cuda/kernels.h"
#include "cuda/networks.h"
#include "support/golden.h"

static void needs_cudnn(void) {
    char reason[256];
    if (fri_cudnn_open(reason, sizeof reason) == NULL) cr_skip_test("%s", reason);
}

TestSuite(conv2d_plan, .init = needs_cudnn);

/* ---- the convolutions of a network ----------------------------------------------------------------------------- */

static const char *const pass_name[] = {"forward", "backward input", "backward weight"};

/* The forward pass with bias as a single kernel: plans, and plans above the workspace limit. Then the number of
 * passes among the three that would have a different engine without --deterministic. */
static void expect_fused(const char *name, fr_dtype type, const convolutions *l, size_t limit) {
    int plans = 0, above = 0, others = 0;
    for (int i = 0; i < l->n; i++) {
        fri_conv2d_desc d = l->conv[i];
        fri_cuda_conv2d_choice c, other;
        d.dtype = type;
        d.workspace_limit = limit;
        if (fri_cuda_conv2d_choose(&d, FRI_CUDA_CONV2D_FORWARD_BIAS, &c) >= 0) {
            plans++;
            above += c.workspace > limit;
        }
        for (int pass = 0; pass < 3; pass++) {
            must(fri_cuda_conv2d_choose(&d, (fri_cuda_conv2d_pass)pass, &c));
            fr_cudnn_deterministic_set(false);
            must(fri_cuda_conv2d_choose(&d, (fri_cuda_conv2d_pass)pass, &other));
            fr_cudnn_deterministic_set(true);
            others += c.engine != other.engine;
        }
    }
    printf("%s %s: %d fused plans with bias, %d above the limit; %d of %d passes have another "
           "engine without --deterministic\n",
           name, fr_dtype_name(type), plans, above, others, 3 * l->n);
    cr_expect_eq(plans, l->n, "%s %s: bias", name, fr_dtype_name(type));
}

/* A line per type: directions planned, the largest workspace and its convolution. */
static void expect_planned(const char *name, const convolutions *l, size_t limit) {
    static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};
    cr_assert_gt(l->n, 0);
    for (size_t t = 0; t < 3; t++) {
        fri_cuda_conv2d_choice largest = {0};
        fri_conv2d_desc whose = l->conv[0];
        int planned = 0, fallback = 0, pass_of = 0;
        for (int i = 0; i < l->n; i++)
            for (int pass = 0; pass < 3; pass++) {
                fri_conv2d_desc d = l->conv[i];
                fri_cuda_conv2d_choice c;
                d.dtype = types[t];
                d.workspace_limit = limit;
                fr_status s = fri_cuda_conv2d_choose(&d, (fri_cuda_conv2d_pass)pass, &c);
                cr_expect_eq(s, FR_OK, "%s: %s", name, fr_last_error());
                if (s != FR_OK) continue;
                planned++;
                fallback += c.fallback;
                if (c.workspace <= largest.workspace) continue;
                largest = c;
                whose = d;
                pass_of = pass;
            }
        printf("%s %s: %d convolutions, %d plans, %d from the fallback list; largest workspace %.2f MiB (%s, x (%d, "
               "%d, %d, %d), w (%d, %d, %d, %d), stride %d)\n",
               name, fr_dtype_name(types[t]), l->n, planned, fallback, (double)largest.workspace / (1 << 20),
               pass_name[pass_of], (int)whose.n, (int)whose.c, (int)whose.h, (int)whose.w, (int)whose.k, (int)whose.c,
               (int)whose.r, (int)whose.s, (int)whose.stride_h);
        cr_expect_eq(planned, 3 * l->n);
        expect_fused(name, types[t], l, limit);
    }
    fflush(stdout);
}

enum { LIMIT = 64 << 20 };

static void expect_network(network which) {
    convolutions l;
    network_convolutions(which, &l);
    expect_planned(network_name[which], &l, LIMIT);
}

Test(conv2d_plan, vgg16) {
    expect_network(VGG16);
}

Test(conv2d_plan, resnet50) {
    expect_network(RESNET50);
}

Test(conv2d_plan, densenet121) {
    expect_network(DENSENET121);
}

Test(conv2d_plan, unet) {
    expect_network(UNET);
}

/* ---- more than 2^31 elements ------------------------------------------------------------------------------------ */

/* U-Net's first layers at batch 512: cuDNN's engines for tensors of this size are unproven or of last resort. */
Test(conv2d_plan, a_batch_of_3_billion_elements_is_planned_in_two_parts) {
    convolutions l;
    network_convolutions(UNET, &l);
    fri_conv2d_desc d = l.conv[1], half;
    fri_cuda_conv2d_choice c;
    size_t bytes = 0;
    d.dtype = FR_F16;
    d.workspace_limit = LIMIT;
    d.n = 3300000000 / (d.h * d.w * d.c) / 2 * 2;
    cr_assert_gt(d.n * d.p * d.q * d.k, 3200000000);
    half = d;
    half.n /= 2;
    must(fri_cuda_conv2d_choose(&half, FRI_CUDA_CONV2D_BACKWARD_WEIGHT, &c));
    must(fri_cuda_conv2d_backward_weight_workspace(&d, &bytes));
    cr_expect(!c.slow);
    cr_expect_eq(bytes, (c.workspace + 511) / 512 * 512 + (size_t)(2 * d.k * d.r * d.s * d.c));
    must(fri_cuda_conv2d_choose(&half, FRI_CUDA_CONV2D_FORWARD, &c));
    must(fri_cuda_conv2d_forward_workspace(&d, &bytes));
    cr_expect_eq(bytes, c.workspace);
}

/* ---- channels padded in scratch -------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) {
    return (bytes + 511) / 512 * 512;
}

/* Scratch for x and w with zeros up to a multiple of 4 or 8 channels, and the workspace of the padded convolution. */
static size_t padded_total(fri_conv2d_desc d, fri_cuda_conv2d_pass pass, int64_t to) {
    fri_cuda_conv2d_choice c;
    const size_t size = fr_dtype_size(d.dtype);
    d.c = (d.c + to - 1) / to * to;
    if (fri_cuda_conv2d_choose(&d, pass, &c) < 0) return SIZE_MAX;
    return rounded((size_t)(d.n * d.h * d.w * d.c) * size) + rounded((size_t)(d.k * d.r * d.s * d.c) * size) +
           c.workspace;
}

/* cuDNN's workspace for a stem of 3 channels in half types is already such a copy: with our own padding the total
 * stayed equal, so convolutions are not padded. A newer cuDNN may change the rule, and fail the test. */
Test(conv2d_plan, padding_a_stem_in_scratch_saves_next_to_nothing) {
    static const struct {
        const char *whose;
        int64_t size, k, r, stride, pad;
    } stems[] = {{"ResNet-50, DenseNet-121", 224, 64, 7, 2, 3},
                 {"VGG-16", 224, 64, 3, 1, 1},
                 {"U-Net", 224, 32, 3, 1, 1},
                 {"ResNet, small images", 32, 64, 3, 1, 1}};
    static const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};
    static const fri_cuda_conv2d_pass passes[] = {FRI_CUDA_CONV2D_FORWARD, FRI_CUDA_CONV2D_BACKWARD_WEIGHT};
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++)
        for (int64_t batch = 64; batch <= 256; batch *= 4)
            for (size_t t = 0; t < 3; t++)
                for (int p = 0; p < 2; p++) {
                    const int64_t out = (stems[i].size + 2 * stems[i].pad - stems[i].r) / stems[i].stride + 1;
                    fri_conv2d_desc d = {.dtype = types[t],
                                         .n = batch,
                                         .h = stems[i].size,
                                         .w = stems[i].size,
                                         .c = 3,
                                         .k = stems[i].k,
                                         .r = stems[i].r,
                                         .s = stems[i].r,
                                         .p = out,
                                         .q = out,
                                         .stride_h = stems[i].stride,
                                         .stride_w = stems[i].stride,
                                         .pad_h = stems[i].pad,
                                         .pad_w = stems[i].pad,
                                         .dilation_h = 1,
                                         .dilation_w = 1,
                                         .groups = 1,
                                         .workspace_limit = LIMIT};
                    fri_cuda_conv2d_choice c;
                    must(fri_cuda_conv2d_choose(&d, passes[p], &c));
                    size_t four = padded_total(d, passes[p], 4), eight = padded_total(d, passes[p], 8);
                    size_t best = four < eight ? four : eight;
                    if (c.workspace > 0 || p > 0)
                        printf("stem of %s, %s, batch %d, %s: %.2f MiB of workspace; padded to 4 channels %.2f, to 8 "
                               "%.2f in all\n",
                               stems[i].whose, fr_dtype_name(types[t]), (int)batch, pass_name[passes[p]],
                               (double)c.workspace / (1 << 20), (double)four / (1 << 20), (double)eight / (1 << 20));
                    cr_expect_geq(best, c.workspace - c.workspace / 10, "padding the stem of %s would pay: %zu, %zu",
                                  stems[i].whose, best, c.workspace);
                }
    fflush(stdout);
}
