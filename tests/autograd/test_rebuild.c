/* test_rebuild.c - outputs made again in backward: the tensors held for a rebuild, cases where a rebuild must not be
 * tried, and graphs whose other half is gone. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "memory/allocator.h"
#include "ops/batchnorm2d.h"
#include "support/golden.h"
#include "tensor/tensor.h"

enum { C = 8, SIZE = 16, IMAGE = 2 * SIZE * SIZE * C * 4 };

static void rebuild_off(void) {
    fr_switches s = fr_switches_default();
    s.rebuild = false;
    fr_switches_set(s);
}

static void rebuild_on(bool encode) {
    fr_switches s = fr_switches_default();
    s.rebuild = true;
    s.encode = encode;
    fr_switches_set(s);
}

static fr_tensor *image(void) {
    fr_tensor *x = NULL;
    must(fr_tensor_normal(4, (int64_t[]){2, SIZE, SIZE, C}, 0, 1, FR_F32, test_device(), &x));
    fr_tensor_category_set(x, FR_MEM_INPUT);
    return x;
}

static fr_tensor *parameter(int rank, const int64_t *shape) {
    fr_tensor *w = NULL;
    must(fr_tensor_normal(rank, shape, 0.2, 0.3, FR_F32, test_device(), &w));
    must(fr_tensor_set_requires_grad(w, true));
    fr_tensor_category_set(w, FR_MEM_PARAMETER);
    return w;
}

static fr_tensor *kernel(void) {
    return parameter(4, (int64_t[]){C, 3, 3, C});
}

static size_t activations(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(test_device(), &t));
    return t.requested_by[FR_MEM_ACTIVATION];
}

static fr_status conv(fr_tensor *x, fr_tensor *w, fr_tensor **y) {
    return fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.padding = 1), y);
}

/* conv - batch norm - relu - conv. Before the second conv there may be a max pool, a max pool and a concat of its
 * output twice, or a concat of relu's result and relu's result resized, as in a U-Net. Gives the bytes kept for
 * backward, and the gradient of the second conv's weight. */
typedef enum between { NOTHING, POOL, POOL_TWICE, RESIZED } between;
static const bool joined[] = {[POOL_TWICE] = true, [RESIZED] = true};

static size_t two_convs(between what, bool rebuild, bool encode, float *gradient) {
    fr_seed(3);
    fr_tensor *w1 = kernel(), *x = image(), *y = NULL, *z = NULL;
    fr_tensor *w2 = joined[what] ? parameter(4, (int64_t[]){C, 3, 3, 2 * C}) : kernel();
    fr_tensor *gamma = parameter(1, (int64_t[]){C}), *beta = parameter(1, (int64_t[]){C});
    rebuild_on(encode);
    if (!rebuild) rebuild_off();
    must(conv(x, w1, &x));
    must(fr_batchnorm2d(x, gamma, beta, NULL, NULL, NULL, &x));
    must(fr_relu(x, &x));
    if (what == RESIZED) z = fr_tensor_retain(x);
    if (what == POOL || what == POOL_TWICE) must(fr_maxpool2d(x, 2, NULL, &x));
    if (what == RESIZED) must(fr_upsample(x, SIZE, SIZE, FR_UPSAMPLE_NEAREST, false, &x));
    if (joined[what]) {
        must(fr_concat((fr_tensor *[]){x, z != NULL ? z : x}, 2, &y));
        must(conv(y, w2, &y)); /* the concat settles while its inputs can still be seen */
        RELEASE_ALL(&x, &z);
    } else {
        must(conv(x, w2, &x));
        FRI_MOVE(&y, x);
    }
    must(fr_sum(y, &y));
    const size_t kept = activations();
    must(fr_backward(y, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(w2), gradient));
    RELEASE_ALL(&w1, &w2, &gamma, &beta, &y);
    expect_nothing_left();
    return kept;
}

/* The second conv's input is not kept, nor is a mask: backward takes the sign from the value made again for the
 * convolution. A max pool leaves its index, a byte for each pooled element. The pooled map stays where a longer chain
 * reads the map: each rebuild of the map reads four times its size. A resized map is made again; relu keeps its mask
 * then. */
Test(rebuild, what_is_between_convolutions_costs_little) {
    static const size_t bytes[] = {[POOL] = IMAGE / 16, [POOL_TWICE] = IMAGE / 16 + IMAGE / 4, [RESIZED] = IMAGE / 32};
    float kept[2 * C * 3 * 3 * C], made[2 * C * 3 * 3 * C];
    for (int i = 0; i <= RESIZED; i++) {
        const size_t more = two_convs((between)i, false, true, kept), less = two_convs((between)i, true, true, made);
        cr_expect_eq(less, (size_t)IMAGE + 2 * 512 + bytes[i], "%d: %zu", i, less);
        cr_expect_gt(more, less);
        cr_expect_eq(memcmp(kept, made, (joined[i] ? 2 : 1) * sizeof kept / 2), 0, "%d", i);
    }
    cr_expect_eq(two_convs(NOTHING, true, false, made), (size_t)IMAGE + 2 * 512, "without encode, too");
}

/* ---- residual blocks --------------------------------------------------------------------------------------------- */

enum { BLOCKS = 6 };

/* x = relu(norm(conv(x)) + x). Variants: the sum the other way round, a sum of two norms, no relu, hardswish, half
 * the norm, a vector of channels. */
typedef enum sum_kind { AHEAD, BEHIND, TWO_NORMS, NO_RELU, HARDSWISH, SCALED, VECTOR, BLOCK_KINDS } sum_kind;

static fr_status block(sum_kind kind, fr_tensor *const *w, fr_tensor *const *norm, fr_tensor **x) {
    fr_tensor *y = NULL, *z = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, conv(*x, w[0], &y));
    FR_TRY(s, fr_batchnorm2d(y, norm[0], norm[1], NULL, NULL, NULL, &y));
    if (kind == TWO_NORMS) {
        FR_TRY(s, conv(*x, w[1], &z));
        FR_TRY(s, fr_batchnorm2d(z, norm[1], norm[0], NULL, NULL, NULL, &z));
        fr_tensor_release(x);
        FR_TRY(s, fr_add(y, z, x));
    } else if (kind == VECTOR) {
        fr_tensor_release(x);
        FR_TRY(s, fr_scale(norm[1], 0.5, &z));
        FR_TRY(s, fr_add(y, z, x));
    } else {
        if (kind == SCALED) FR_TRY(s, fr_scale(y, 0.5, &y));
        FR_TRY(s, kind == BEHIND ? fr_add(*x, y, x) : fr_add(y, *x, x));
    }
    fr_tensor_release(&y);
    if (kind != NO_RELU) FR_TRY(s, kind == HARDSWISH ? fr_hardswish(*x, x) : fr_relu(*x, x));
done:
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    return s;
}

typedef struct residual {
    float gradient[2][C * 3 * 3 * C];
    size_t kept, peak; /* activations before backward; further bytes that backward needs */
} residual;

static residual residual_net(fr_device d, fr_dtype t, int blocks, sum_kind kind, fr_switches switches) {
    residual r = {0};
    fr_memory_stats m;
    fr_tensor *f = NULL, *x = NULL, *w[2] = {0}, *norm[2] = {0};
    fr_switches_set(switches);
    fr_seed(5);
    must(fr_tensor_normal(4, (int64_t[]){2, SIZE, SIZE, C}, 0, 1, FR_F32, d, &f));
    must(fr_cast(f, t, &x));
    fr_tensor_release(&f);
    for (int i = 0; i < 2; i++) {
        must(fr_tensor_normal(4, (int64_t[]){C, 3, 3, C}, 0, 0.1, FR_F32, d, &f));
        must(fr_cast(f, t, &w[i]));
        fr_tensor_release(&f);
        must(fr_tensor_normal(1, (int64_t[]){C}, 0.2, 0.3, FR_F32, d, &norm[i]));
        must(fr_tensor_set_requires_grad(w[i], true));
        must(fr_tensor_set_requires_grad(norm[i], true));
    }
    must(conv(x, w[1], &x));
    for (int i = 0; i < blocks; i++) must(block(kind, w, norm, &x));
    must(conv(x, w[0], &x));
    must(fr_sum(x, &x));
    must(fr_memory_stats_get(d, &m));
    r.kept = m.requested_by[FR_MEM_ACTIVATION];
    r.peak = m.requested;
    must(fr_memory_reset_peak(d));
    must(fr_backward(x, NULL));
    must(fr_memory_stats_get(d, &m));
    r.peak = m.peak_requested - r.peak;
    for (int i = 0; i < 2 && d != FR_META; i++) {
        must(fr_cast(fr_tensor_get_grad(w[i]), FR_F32, &f));
        must(fr_tensor_to_host(f, r.gradient[i]));
        fr_tensor_release(&f);
    }
    fr_tensor_release(&x);
    for (int i = 0; i < 2; i++) {
        fr_tensor_release(&w[i]);
        fr_tensor_release(&norm[i]);
    }
    return r;
}

/* Sum and relu are made in the norm's pass, on either side of the sum. */
Test(rebuild, residual_blocks_have_the_bits_of_kept_ones) {
    static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};
    for (int i = 0; i < 3 * BLOCK_KINDS; i++) {
        fr_switches s = fr_switches_default();
        if (i / 3 == VECTOR && types[i % 3] != FR_F32) continue; /* the vector is f32 */
        s.rebuild = false;
        const residual kept = residual_net(test_device(), types[i % 3], BLOCKS, i / 3, s);
        s.rebuild = true;
        for (int k = 0; k < 4; k++) {
            s.inplace = k & 1;
            s.encode = k & 2;
            const residual made = residual_net(test_device(), types[i % 3], BLOCKS, i / 3, s);
            cr_expect_lt(made.kept, kept.kept);
            cr_expect_eq(memcmp(made.gradient, kept.gradient, sizeof kept.gradient), 0, "%s, sum %d, switches %d",
                         fr_dtype_name(types[i % 3]), i / 3, k);
        }
    }
    expect_nothing_left();
}

/* A single value of a chain of blocks is alive, however long the chain: the sums' other sides wait for the value, not
 * the value for them. The remaining bytes are the masks taken on the way. */
Test(rebuild, a_chain_of_blocks_needs_one_value) {
    static const sum_kind kinds[] = {AHEAD, BEHIND, SCALED};
    fr_switches s = fr_switches_default();
    s.rebuild = true;
    for (int i = 0; i < 3; i++) {
        const int most = kinds[i] == SCALED ? BLOCKS - 1 : BLOCKS; /* a chain has 13 ops at most */
        const residual few = residual_net(FR_META, FR_F32, 3, kinds[i], s);
        const residual all = residual_net(FR_META, FR_F32, most, kinds[i], s);
        const size_t more = (size_t)most - 3;
        cr_expect_eq(all.kept - few.kept, more * (IMAGE + 2 * 512), "each block keeps what its convolution made");
        cr_expect_eq(all.peak - few.peak, more * IMAGE / 32, "%zu bytes for %d blocks, %zu for three", all.peak, most,
                     few.peak);
    }
    expect_nothing_left();
}

static void count_applies(void *count, const char *kernel) {
    *(int *)count += strcmp(kernel, "batchnorm2d_apply") == 0;
}

static void ended(void *count, const char *kernel, const fri_backend *b) {
    (void)count;
    (void)kernel;
    (void)b;
}

/* Backward of a chain of blocks keeps values for a second use, as long as its peak stays: 17 passes, not 21. */
Test(rebuild, a_chain_of_blocks_is_made_in_few_passes) {
    int passes = 0;
    const fri_kernel_watch watch = {count_applies, ended, &passes};
    fr_switches s = fr_switches_default();
    s.rebuild = true;
    fri_here.kernel_watch = &watch;
    const residual r = residual_net(FR_META, FR_F32, BLOCKS, AHEAD, s);
    fri_here.kernel_watch = NULL;
    cr_expect_leq(passes - BLOCKS, 17, "%d passes in backward", passes - BLOCKS);
    cr_expect_lt(r.peak, 6 * (size_t)IMAGE, "%zu", r.peak);
    expect_nothing_left();
}

/* conv - norm and relu - depthwise conv: where the gradient of the depthwise weight normalizes its input, no map is
 * made again; with a sum in place of the relu, or a view of other channels, one is. Bits are those of a kept map. */
Test(rebuild, a_weight_gradient_normalizes_what_it_reads) {
    enum { CHANNELS = 16, COUNT = 2 * CHANNELS * 9 };
    float gradient[6][COUNT] = {{0}};
    for (int i = 0; i < 6; i++) {
        const int kind = i / 2, channels = kind == 2 ? 2 * CHANNELS : CHANNELS; /* relu, sum, view */
        int passes = 0;
        const fri_kernel_watch watch = {count_applies, ended, &passes};
        fr_switches s = fr_switches_default();
        fr_tensor *x = NULL, *y = NULL, *w = NULL, *depthwise = NULL, *gamma = NULL, *beta = NULL;
        s.rebuild = i % 2;
        fr_switches_set(s);
        fr_seed(3);
        w = parameter(4, (int64_t[]){CHANNELS, 3, 3, C});
        depthwise = parameter(4, (int64_t[]){channels, 3, 3, 1});
        gamma = parameter(1, (int64_t[]){CHANNELS});
        beta = parameter(1, (int64_t[]){CHANNELS});
        x = image();
        must(conv(x, w, &x));
        const fri_norm norm = {.gamma = gamma, .beta = beta};
        must(fri_norm_act(x, &norm, NULL, kind == 1 ? FRI_ACTIVATION_NONE : FRI_ACTIVATION_RELU, &y));
        if (kind == 1) must(fr_add(y, x, &y));
        fri_tensor_put(&y, &x);
        if (kind == 2) must(fr_reshape(x, 4, (int64_t[]){2, SIZE, SIZE / 2, channels}, &x));
        must(fr_conv2d(x, depthwise, NULL, FR_CONV2D_OPTS(.padding = 1, .groups = channels), &x));
        must(fr_sum(x, &x));
        fri_here.kernel_watch = &watch;
        must(fr_backward(x, NULL));
        fri_here.kernel_watch = NULL;
        if (fri_backend_of(w)->kernels.conv2d_reads_norm != NULL) cr_expect_eq(passes, kind > 0 && i % 2, "%d", passes);
        must(fr_tensor_to_host(fr_tensor_get_grad(depthwise), gradient[i]));
        if (i % 2) cr_expect_eq(memcmp(gradient[i - 1], gradient[i], sizeof gradient[i]), 0, "kind %d", kind);
        fr_tensor *all[] = {x, w, depthwise, gamma, beta};
        for (int k = 0; k < 5; k++) fr_tensor_release(&all[k]);
    }
    expect_nothing_left();
}

/* z = a + b: holding a and b to be rid of z is no bargain. */
Test(rebuild, never_holds_more_than_it_frees) {
    for (int on = 0; on < 2; on++) {
        fr_tensor *x = image(), *w[3] = {kernel(), kernel(), kernel()}, *a = NULL, *b = NULL, *z = NULL;
        rebuild_on(true);
        if (!on) rebuild_off();
        must(conv(x, w[0], &a));
        must(conv(x, w[1], &b));
        must(fr_add(a, b, &z));
        must(conv(z, w[2], &z)); /* z settles while a and b can still be seen */
        fr_tensor_release(&a);
        fr_tensor_release(&b);
        must(fr_sum(z, &z));
        cr_expect_leq(activations(), (size_t)IMAGE, "rebuild %d: %zu bytes instead of %d", on, activations(), IMAGE);
        must(fr_backward(z, NULL));
        fr_tensor_release(&x);
        fr_tensor_release(&z);
        for (int i = 0; i < 3; i++) fr_tensor_release(&w[i]);
        expect_nothing_left();
    }
}

/* ---- with checkpoints -------------------------------------------------------------------------------------------- */

enum { SEGMENTS = 8 };

struct segment {
    fr_tensor *w, *gamma, *beta;
};

static fr_status conv_norm_relu(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    struct segment *g = ctx;
    fr_tensor *x = NULL;
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    FR_TRY(s, conv(in[0], g->w, &x));
    FR_TRY(s, fr_batchnorm2d(x, g->gamma, g->beta, NULL, NULL, NULL, &x));
    FR_TRY(s, fr_relu(x, &x));
    fri_tensor_put(&x, out);
done:
    fr_tensor_release(&x);
    return s;
}

static size_t peak_of_chain(bool rebuild) {
    struct segment g[SEGMENTS];
    fr_tensor *x = image();
    fr_memory_stats t;
    rebuild_on(true);
    if (!rebuild) rebuild_off();
    for (int i = 0; i < SEGMENTS; i++)
        g[i] = (struct segment){kernel(), parameter(1, (int64_t[]){C}), parameter(1, (int64_t[]){C})};
    must(fr_memory_reset_peak(test_device()));
    for (int i = 0; i < SEGMENTS; i++) must(fr_checkpoint(conv_norm_relu, &g[i], NULL, &x, 1, &x, 1));
    must(fr_sum(x, &x));
    must(fr_backward(x, NULL));
    must(fr_memory_stats_get(test_device(), &t));
    fr_tensor_release(&x);
    for (int i = 0; i < SEGMENTS; i++) {
        fr_tensor_release(&g[i].w);
        fr_tensor_release(&g[i].gamma);
        fr_tensor_release(&g[i].beta);
    }
    expect_nothing_left();
    return t.peak_requested;
}

/* The input of a segment is never "rebuilt" by running the segment before it: all segments would be alive at once. */
Test(rebuild, checkpoints_stay_independent_of_each_other) {
    size_t without = peak_of_chain(false), with = peak_of_chain(true);
    cr_expect_leq(with, without, "peak %zu with rebuild, %zu without", with, without);
}

/* ---- graphs of which a half is gone -------------------------------------------------------------------------- */

/* Two losses over a batch norm: the first backward frees the graph, the second finds a used graph. */
Test(rebuild, a_source_that_was_used_and_freed_is_an_error) {
    fr_tensor *w[3] = {kernel(), kernel(), kernel()}, *x = image(), *loss[2] = {0};
    fr_tensor *gamma = parameter(1, (int64_t[]){C}), *beta = parameter(1, (int64_t[]){C});
    rebuild_on(true);
    must(conv(x, w[0], &x));
    must(fr_batchnorm2d(x, gamma, beta, NULL, NULL, NULL, &x));
    for (int i = 0; i < 2; i++) {
        must(fr_relu(x, &loss[i]));
        must(conv(loss[i], w[1 + i], &loss[i]));
        must(fr_sum(loss[i], &loss[i]));
    }
    fr_tensor_release(&x);
    must(fr_backward(loss[0], NULL));
    expect_refused(fr_backward(loss[1], NULL), FR_EUSAGE, "batchnorm2d", "already used", NULL);
    for (int i = 0; i < 2; i++) fr_tensor_release(&loss[i]);
    for (int i = 0; i < 3; i++) fr_tensor_release(&w[i]);
    fr_tensor_release(&gamma);
    fr_tensor_release(&beta);
    expect_nothing_left();
}

/* Sources of a rebuild after detach stay alive when the backward of another loss has passed them: the source, a batch
 * norm, and the batch norm needed to make a relu again. */
static void two_losses(bool rectified, bool held, bool rebuild, float *gradient) {
    fr_seed(11);
    fr_tensor *w[3] = {kernel(), kernel(), kernel()}, *x = image(), *d = NULL, *h = NULL, *loss[2] = {0};
    fr_tensor *gamma = parameter(1, (int64_t[]){C}), *beta = parameter(1, (int64_t[]){C});
    rebuild_on(true);
    if (!rebuild) rebuild_off();
    must(conv(x, w[0], &x));
    must(fr_batchnorm2d(x, gamma, beta, NULL, NULL, NULL, &x));
    if (held) h = fr_tensor_retain(x); /* the norm's node lives as long */
    if (rectified) must(fr_relu(x, &x));
    must(fr_tensor_detach(x, &d));
    must(conv(x, w[1], &loss[0]));
    must(conv(d, w[2], &loss[1]));
    for (int i = 0; i < 2; i++) must(fr_sum(loss[i], &loss[i]));
    fr_tensor_release(&x);
    fr_tensor_release(&d);
    for (int i = 0; i < 2; i++) must(fr_backward(loss[i], NULL));
    cr_expect_eq(activations(), 0u);
    fr_tensor_release(&h);
    must(fr_tensor_to_host(fr_tensor_get_grad(w[2]), gradient));
    for (int i = 0; i < 2; i++) fr_tensor_release(&loss[i]);
    for (int i = 0; i < 3; i++) fr_tensor_release(&w[i]);
    fr_tensor_release(&gamma);
    fr_tensor_release(&beta);
    expect_nothing_left();
}

Test(rebuild, a_source_that_backward_passed_serves_who_is_left) {
    float gradient[2][C * 3 * 3 * C];
    for (int k = 0; k < 3; k++) {
        for (int on = 0; on < 2; on++) two_losses(k > 0, k > 1, on, gradient[on]);
        cr_expect_gt(fr_graph_stats_get().rebuilt, 1u, "two slots are rebuilt from the batch norm");
        cr_expect_eq(memcmp(gradient[0], gradient[1], sizeof gradient[0]), 0, "with a relu %d", k > 0);
    }
}

/* ---- depth ------------------------------------------------------------------------------------------------------- */

/* A chain of cheap ops is looked at a few ops deep, not to its beginning; time stays linear. */
Test(rebuild, long_chains, .timeout = 60) {
    enum { LENGTH = 100000 };
    fr_switches s = fr_switches_default();
    fr_tensor *x = parameter(1, (int64_t[]){3}), *w = parameter(1, (int64_t[]){3}), *y = NULL, *z = NULL;
    s.rebuild = true;
    s.inplace = false;
    fr_switches_set(s);
    must(fr_scale(x, 1, &y));
    for (int i = 0; i < LENGTH; i++) {
        must(fr_scale(y, 1, &y));
        if (i % 1000 == 0) must(fr_mul(y, w, &z)); /* saves y, which settles while the chain goes on */
    }
    must(fr_mul(y, w, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    RELEASE_ALL(&x, &w, &y, &z);
    expect_nothing_left();
}

/* y = y + 2 y doubles the paths at every step; a search for a rebuild must not follow every path. */
Test(rebuild, branching_chains, .timeout = 60) {
    enum { LENGTH = 60 };
    fr_tensor *x = parameter(1, (int64_t[]){3}), *w = parameter(1, (int64_t[]){3}), *y = NULL, *t = NULL;
    fr_switches s = fr_switches_default();
    s.rebuild = true;
    s.inplace = false;
    fr_switches_set(s);
    must(fr_scale(x, 1, &y));
    for (int i = 0; i < LENGTH; i++) {
        must(fr_scale(y, 0.25, &t));
        must(fr_add(y, t, &y));
    }
    fr_tensor_release(&t);
    must(fr_mul(y, w, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    RELEASE_ALL(&x, &w, &y);
    expect_nothing_left();
}

/* segment - scale - segment - ...: releasing the graph must not recurse from segment to segment. */
static fr_status times(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    return fr_mul(in[0], ctx, out);
}

Test(rebuild, many_segments, .timeout = 60) {
    /* The stand-in device locks all of its memory after each kernel, so there length costs its square. */
    const int length = test_device() == FR_CPU ? 50000 : 5000;
    for (int walk = 0; walk < 2; walk++) {
        fr_tensor *w = parameter(1, (int64_t[]){3}), *y = NULL, *out = NULL;
        rebuild_on(true);
        must(fr_tensor_fill(w, 1));
        must(fr_scale(w, 1, &y));
        for (int i = 0; i < length; i++) {
            must(fr_checkpoint(times, w, NULL, &y, 1, &out, 1));
            must(fr_scale(out, 1, &y)); /* rebuilt from the segment's output */
        }
        fr_tensor_release(&out);
        must(fr_sum(y, &y));
        if (walk) must(fr_backward(y, NULL));
        fr_tensor_release(&y);
        fr_tensor_release(&w);
        expect_nothing_left();
    }
}

/* ---- places inside a storage ------------------------------------------------------------------------------------- */

/* An op in place on the second half of a storage: a rebuild reads the right half. */
Test(rebuild, remembers_where_in_the_storage) {
    float gradient[2][4];
    for (int on = 0; on < 2; on++) {
        fr_tensor *all = NULL, *half = NULL, *w = NULL, *v = NULL, *y = NULL;
        rebuild_on(true);
        if (!on) fr_switches_set(fr_switches_all_off());
        must(fr_tensor_from_host((float[]){1, 2, 3, 4, 5, 6, 7, 8}, 1, (int64_t[]){8}, FR_F32, test_device(), &all));
        must(fr_tensor_full(1, (int64_t[]){4}, 0.5, FR_F32, test_device(), &w));
        must(fr_tensor_set_requires_grad(w, true));
        must(fr_tensor_full(1, (int64_t[]){4}, 1, FR_F32, test_device(), &v));
        must(fr_tensor_set_requires_grad(v, true));
        must(fr_tensor_narrow0(all, 4, 4, &half));
        fr_tensor_release(&all);
        must(fr_add(half, w, &half)); /* half is the only handle left: in place, at offset 16 */
        must(fr_scale(half, 2, &y));
        must(fr_mul(y, v, &y)); /* saves 2 half, which can be rebuilt from half */
        fr_tensor_release(&half);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        must(fr_tensor_to_host(fr_tensor_get_grad(v), gradient[on]));
        RELEASE_ALL(&w, &v, &y);
        expect_nothing_left();
    }
    cr_expect_float_eq(gradient[0][0], 11, 1e-5, "2 (5 + 0.5), not %g", gradient[0][0]);
    cr_expect_eq(memcmp(gradient[0], gradient[1], sizeof gradient[0]), 0, "%g with rebuild, %g without", gradient[1][0],
                 gradient[0][0]);
}

/* ---- bits at the last moment ---------------------------------------------------------------------------------- */

/* conv, relu, conv: the second convolution needs relu's output, relu the signs of the output. With early release and
 * encode the signs become bits once the convolution has read the values: values and input gradient do not live
 * together. */
static size_t two_convolutions(fr_device d, bool early, float *gradient) {
    fr_memory_stats t;
    fr_switches s = fr_switches_default();
    fr_tensor *x = NULL, *w = NULL, *v = NULL, *y = NULL;
    s.early_release = early;
    fr_switches_set(s);
    fr_seed(7);
    must(fr_tensor_normal(4, (int64_t[]){2, SIZE, SIZE, C}, 0, 1, FR_F32, d, &x));
    must(fr_tensor_normal(4, (int64_t[]){C, 3, 3, C}, 0, 0.3, FR_F32, d, &w));
    must(fr_tensor_normal(4, (int64_t[]){C, 3, 3, C}, 0, 0.3, FR_F32, d, &v));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_tensor_set_requires_grad(v, true));
    must(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.padding = 1), &y));
    must(fr_relu(y, &y));
    must(fr_conv2d(y, v, NULL, FR_CONV2D_OPTS(.padding = 1), &y));
    must(fr_sum(y, &y));
    must(fr_memory_reset_peak(d));
    must(fr_backward(y, NULL));
    must(fr_memory_stats_get(d, &t));
    if (gradient != NULL) must(fr_tensor_to_host(fr_tensor_get_grad(w), gradient));
    RELEASE_ALL(&x, &w, &v, &y);
    return t.peak_requested;
}

Test(rebuild, values_become_bits_before_the_next_gradient) {
    float late[C * 3 * 3 * C], early[C * 3 * 3 * C];
    size_t kept = two_convolutions(FR_META, false, NULL), bits = two_convolutions(FR_META, true, NULL);
    cr_expect_eq(kept - bits, (size_t)IMAGE - IMAGE / 32, "%zu and %zu bytes, an image has %d", kept, bits, IMAGE);
    two_convolutions(test_device(), false, late);
    two_convolutions(test_device(), true, early);
    cr_expect_eq(memcmp(late, early, sizeof late), 0);
    expect_nothing_left();
}
