/* test_conv2d_statistics.c - a convolution that makes the sums for the batch norm behind it (fri_conv2d_sums): what
 * cuDNN is asked for and when it is not, who says that a batch norm follows, and whole networks on a fake runtime whose
 * cuDNN computes on the CPU. */
#include <criterion/criterion.h>
#include <frugal/models.h>
#include <frugal/optim.h>
#include <frugal/plan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/state.h"
#include "cuda/conv2d.h"
#include "cuda/cudnn.h"
#include "cuda/fake_cudnn.h"
#include "cuda/kernels.h"
#include "meta/calls.h"
#include "meta/meta.h"
#include "net/module.h"
#include "ops/conv2d.h"
#include "support/golden.h"

enum { MIB = 1 << 20 };

static void begin(void) {
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no file of plans: its texts name graphs of this process */
    fake_cudnn_begin();
    fr_cudnn_fuse_statistics_set(true);
}

TestSuite(conv2d_statistics, .init = begin);

static void engines(int n, const fake_engine *e) {
    fake_dnn.in_list_a = fake_dnn.n = n;
    for (int i = 0; i < n; i++) fake_dnn.engine[i] = e[i];
}

/* ---- what cuDNN is asked for ------------------------------------------------------------------------------------- */

static fri_conv2d_desc shape(int64_t height, size_t limit) {
    return (fri_conv2d_desc){.dtype = FR_F16,
                             .bias_dtype = FR_F16,
                             .n = 8,
                             .h = 2 * height,
                             .w = 28,
                             .c = 64,
                             .k = 128,
                             .r = 3,
                             .s = 5,
                             .p = height,
                             .q = 14,
                             .stride_h = 2,
                             .stride_w = 2,
                             .pad_h = 1,
                             .pad_w = 2,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1,
                             .workspace_limit = limit};
}

static _Alignas(512) char memory[5][1 << 20], scratch[1 << 20];

static bool is_supported(fri_conv2d_desc d, size_t *bytes) {
    bool there = true;
    *bytes = 77;
    must(fri_cuda_conv2d_forward_stats_workspace(&d, &there, bytes));
    return there;
}

static void expect_tensor(const char *name, const fake_tensor *t, int type, int64_t n, int64_t c, int64_t h,
                          int64_t w) {
    const int64_t dim[4] = {n, c, h, w}, stride[4] = {c * h * w, 1, w * c, c};
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(t->dim[i], dim[i], "%s: dimension %d is %lld", name, i, (long long)t->dim[i]);
        cr_expect_eq(t->stride[i], stride[i], "%s: stride %d is %lld", name, i, (long long)t->stride[i]);
    }
    cr_expect_eq(t->type, type, "%s: type %d", name, t->type);
    cr_expect(!t->is_virtual, "%s is never in memory", name);
    cr_expect_eq(t->alignment, 16);
}

Test(conv2d_statistics, a_graph_of_two_operations_that_keeps_y) {
    fri_conv2d_desc d = shape(14, MIB);
    fri_exec e = {.workspace = scratch};
    engines(1, (fake_engine[]){{.workspace = MIB, .fused_workspace = 512}});
    cr_assert(is_supported(d, &e.workspace_bytes));
    cr_expect_eq(e.workspace_bytes, 512u);
    must(fri_cuda_conv2d_forward_stats(&e, &d, memory[0], memory[1], memory[2], memory[3]));
    const fake_graph *g = &fake_dnn.graph;
    cr_expect_eq(g->operations, 2);
    cr_expect_eq(g->kind[0], CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    cr_expect_eq(g->kind[1], CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    expect_tensor("x", &g->x, CUDNN_DATA_HALF, 8, 64, 28, 28);
    expect_tensor("w", &g->w, CUDNN_DATA_HALF, 128, 64, 3, 5);
    expect_tensor("y", &g->y, CUDNN_DATA_HALF, 8, 128, 14, 14);
    cr_expect_eq(g->read.uid, g->y.uid, "the statistics are of another tensor");
    expect_tensor("sums", &g->sums, CUDNN_DATA_FLOAT, 1, 128, 1, 1);
    expect_tensor("squares", &g->squares, CUDNN_DATA_FLOAT, 1, 128, 1, 1);
    cr_expect_neq(g->sums.uid, g->squares.uid);
    cr_expect_eq(g->statistics_math, CUDNN_DATA_FLOAT);
    cr_expect_eq(fake_dnn.pointers, 5);
    cr_expect_eq(fake_dnn.x, memory[0]);
    cr_expect_eq(fake_dnn.w, memory[1]);
    cr_expect_eq(fake_dnn.y, memory[2]);
    cr_expect_eq((void *)fake_dnn.sums, memory[3]);
    cr_expect_eq((void *)fake_dnn.squares, memory[3] + 128 * sizeof(float));
    cr_expect_null(fake_dnn.b);
}

Test(conv2d_statistics, only_for_what_cudnn_has_engines_for) {
    size_t bytes;
    engines(1, (fake_engine[]){{.fused_workspace = 512}});
    fri_conv2d_desc d[6];
    for (int i = 0; i < 6; i++) d[i] = shape(14, MIB);
    d[0].dtype = FR_BF16;
    d[1].dtype = FR_F32;
    d[2].c = 3;
    d[3].k = 12;
    d[4].bias = true;
    d[5].n = 0;
    for (int i = 0; i < 6; i++) cr_expect(!is_supported(d[i], &bytes), "%d", i);
    cr_expect_eq(fake_dnn.searches, 0, "cuDNN was asked all the same");
    fake_dnn.not_fused = true;
    cr_expect(!is_supported(shape(14, MIB), &bytes));
    int n = fake_dnn.searches;
    cr_expect(!is_supported(shape(14, MIB), &bytes));
    cr_expect_eq(fake_dnn.searches, n, "searched again");
}

Test(conv2d_statistics, keeps_to_the_workspace_limit_and_to_determinism) {
    size_t bytes;
    engines(1, (fake_engine[]){{.workspace = 1024, .fused_workspace = 2048}});
    cr_expect(!is_supported(shape(14, 1024), &bytes));
    cr_expect(is_supported(shape(14, 2048), &bytes) && bytes == 2048);
    cr_expect(is_supported(shape(14, 0), &bytes), "0: no limit");
    engines(1, (fake_engine[]){{.workspace = 4096, .fused_workspace = 2048}});
    cr_expect(is_supported(shape(14, 512), &bytes) && bytes == 2048, "above the limit, but not above the plain pass");
    engines(1, (fake_engine[]){{.nondeterministic = true}});
    cr_expect(!is_supported(shape(13, MIB), &bytes));
    fr_cudnn_deterministic_set(false);
    cr_expect(is_supported(shape(13, MIB), &bytes));
    fr_cudnn_deterministic_set(true);
}

Test(conv2d_statistics, is_timed_with_room_for_the_sums) {
    size_t bytes;
    engines(2, (fake_engine[]){{.fused_workspace = 512, .ms = 2}, {.fused_workspace = 1024, .ms = 1}});
    fr_cudnn_benchmark_set(true);
    cr_expect(is_supported(shape(14, MIB), &bytes));
    cr_expect_eq(bytes, 1024u, "the faster one");
    cr_expect_eq(fake_dnn.pointers, 5);
    cr_expect_not_null(fake_dnn.sums);
    fr_cudnn_benchmark_set(false);
}

Test(conv2d_statistics, an_unaligned_operand_is_copied_into_counted_scratch) {
    fri_conv2d_desc d = shape(7, MIB);
    fri_exec e = {.workspace = scratch};
    const size_t x = (size_t)(d.n * d.h * d.w * d.c) * 2;
    engines(1, (fake_engine[]){{.fused_workspace = 700}});
    d.unaligned = FRI_UNALIGNED_X;
    cr_assert(is_supported(d, &e.workspace_bytes));
    cr_expect_eq(e.workspace_bytes, 1024 + x);
    must(fri_cuda_conv2d_forward_stats(&e, &d, memory[0] + 2, memory[1], memory[2], memory[3]));
    cr_expect_eq(fake_dnn.x, scratch + 1024);
}

/* ---- who says that a batch norm follows -------------------------------------------------------------------------- */

typedef struct calls {
    int sums, finalized, stats, plain;
} calls;

static void count(void *ctx, const fri_kernel_call *c) {
    calls *n = ctx;
    n->sums += strcmp(c->name, "conv2d_forward_stats") == 0;
    n->finalized += strcmp(c->name, "batchnorm2d_finalize") == 0;
    n->stats += strcmp(c->name, "batchnorm2d_stats") == 0;
    n->plain += strcmp(c->name, "conv2d_forward") == 0;
}

/* A dry run of the forward pass, of f16 data, for the fake device. */
static calls dry_run(fr_module **m, bool train, int segments) {
    calls n = {0};
    fr_tensor *x = NULL;
    const fri_backend *was = fri_meta_target_set(fri_backend_get(FR_CUDA));
    must(fr_module_to_dtype(*m, FR_F16));
    fr_module_train(*m, train);
    must(fr_tensor_zeros(4, (int64_t[]){2, 64, 64, 3}, FR_F16, FR_META, &x));
    fri_call_listener before = fri_meta_listen((fri_call_listener){count, &n});
    if (segments == 0)
        must(fr_module_forward(*m, x, &x));
    else
        must(fr_checkpoint_sequential(*m, segments, x, &x));
    fri_meta_listen(before);
    fri_meta_target_set(was);
    fr_tensor_release(&x);
    fr_module_release(m);
    return n;
}

static void expect_calls(const char *what, calls n, int sums, int stats, int plain) {
    cr_expect_eq(n.sums, sums, "%s: %d convolutions make sums", what, n.sums);
    cr_expect_eq(n.finalized, sums, "%s: %d batch norms use them", what, n.finalized);
    cr_expect_eq(n.stats, stats, "%s: %d batch norms read for themselves", what, n.stats);
    cr_expect_eq(n.plain, plain, "%s: %d plain convolutions", what, n.plain);
}

static fr_module *network_of(int i) {
    fr_module *m = NULL;
    const fr_model_opts *o = FR_MODEL_OPTS(.device = FR_META, .image_size = 64);
    const fr_model_opts *abn = FR_MODEL_OPTS(.device = FR_META, .image_size = 64, .abn_slope = 0.01);
    if (i == 0 || i == 4) must(fr_resnet(50, i == 0 ? o : abn, &m));
    if (i == 1) must(fr_densenet(121, o, &m));
    if (i == 2) must(fr_unet(4, FR_MODEL_OPTS(.device = FR_META, .image_size = 64, .classes = 2), &m));
    if (i == 3) must(fr_vgg(16, FR_MODEL_OPTS(.device = FR_META, .image_size = 64, .batch_norm = true), &m));
    return m;
}

/* All convolutions before a batch norm but the stems, which have 3 channels; VGG's have a bias. In DenseNet every
 * second batch norm reads a list of features. */
Test(conv2d_statistics, the_networks_say_so_in_training_mode) {
    static const char *const name[] = {"ResNet-50", "DenseNet-121", "U-Net", "VGG-16", "ResNet-50 with InPlace-ABN"};
    static const int sums[] = {52, 58, 17, 0, 52}, stats[] = {1, 63, 1, 13, 1}, plain[] = {1, 62, 2, 13, 1};
    engines(1, (fake_engine[]){{.fused_workspace = 512}});
    for (int i = 0; i < 5; i++) {
        fr_module *m = network_of(i);
        expect_calls(name[i], dry_run(&m, true, 0), sums[i], stats[i], plain[i]);
        m = network_of(i);
        expect_calls("eval mode", dry_run(&m, false, 0), 0, 0, sums[i] + plain[i]);
        fr_cudnn_fuse_statistics_set(false);
        m = network_of(i);
        expect_calls("not asked for", dry_run(&m, true, 0), 0, sums[i] + stats[i], sums[i] + plain[i]);
        fr_cudnn_fuse_statistics_set(true);
    }
    fr_module *m = network_of(0);
    expect_calls("in segments", dry_run(&m, true, 5), 52, 1, 1);
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

/* The fake device: kernels are the CPU's, but for the convolution with sums, which is cuDNN's. */
static void begin_computing(void) {
    static fri_backend device;
    fake_kernels();
    device = *fri_backend_get(FR_CUDA);
    device.kernels.conv2d_forward_stats = fri_cuda_conv2d_forward_stats;
    device.kernels.conv2d_forward_stats_workspace = fri_cuda_conv2d_forward_stats_workspace;
    fri_backend_override(FR_CUDA, &device);
    fake_dnn.computes = true;
    engines(1, (fake_engine[]){{.fused_workspace = 4096}});
}

static fr_tensor *random_of(int rank, const int64_t *dim, double low, double high) {
    fr_tensor *t = NULL, *half = NULL;
    must(fr_tensor_uniform(rank, dim, low, high, FR_F32, FR_CUDA, &t));
    must(fr_cast(t, FR_F16, &half));
    fr_tensor_release(&t);
    return half;
}

enum { N = 3, H = 9, W = 7, C = 8, K = 16 };

/* conv - batch norm on numbers with a mean, without and with sums. */
Test(conv2d_statistics, mean_and_variance_are_those_of_the_result) {
    enum { WAYS = 2 };
    fr_tensor *x, *w, *y[WAYS] = {0}, *mean[WAYS] = {0}, *var[WAYS] = {0};
    int64_t k = K;
    begin_computing();
    fr_seed(5);
    x = random_of(4, (int64_t[]){N, H, W, C}, -0.5, 1.5);
    w = random_of(4, (int64_t[]){K, 3, 3, C}, -0.2, 0.4);
    for (int i = 0; i < WAYS; i++) {
        fr_tensor *v = NULL, *sums = NULL;
        must(fr_tensor_zeros(1, &k, FR_F32, FR_CUDA, &mean[i]));
        must(fr_tensor_full(1, &k, 1, FR_F32, FR_CUDA, &var[i]));
        must(fri_conv2d_sums(x, w, NULL, FR_CONV2D_OPTS(.padding = 1), &v, i == 0 ? NULL : &sums));
        cr_expect_eq(sums != NULL, i != 0);
        const fri_norm norm = {.running_mean = mean[i], .running_var = var[i], .sums = &sums};
        must(fri_norm_act(v, &norm, NULL, &y[i]));
        cr_expect_null(sums, "they stayed");
        fr_tensor_release(&v);
    }
    cr_expect_eq(fake_dnn.computed, 1);
    double *a[WAYS], *b[WAYS], *c[WAYS];
    for (int i = 0; i < WAYS; i++) {
        a[i] = values_of(y[i]);
        b[i] = values_of(mean[i]);
        c[i] = values_of(var[i]);
    }
    for (int i = 0; i < N * H * W * K; i++)
        cr_assert(close_enough(FR_F16, a[1][i], a[0][i]), "y[%d] is %g, not %g", i, a[1][i], a[0][i]);
    for (int i = 0; i < K; i++) {
        cr_expect(close_enough(FR_F32, b[1][i], b[0][i]), "mean[%d] is %g, not %g", i, b[1][i], b[0][i]);
        cr_expect(close_enough(FR_F32, c[1][i], c[0][i]), "var[%d] is %g, not %g", i, c[1][i], c[0][i]);
    }
    for (int i = 0; i < WAYS; i++) {
        free(a[i]);
        free(b[i]);
        free(c[i]);
        fr_tensor_release(&y[i]);
        fr_tensor_release(&mean[i]);
        fr_tensor_release(&var[i]);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    expect_nothing_left();
}

/* ---- trainings --------------------------------------------------------------------------------------------------- */

enum { BATCH = 4, CLASSES = 5, STEPS = 4 };

typedef struct training {
    bool fused, checkpoint, autocast;
    fr_switches switches;
} training;

static fr_status step(fr_module *m, fr_optimizer *o, const training *t, fr_device device) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_autocast_state cast;
    fr_step_scope scope;
    fr_status s = FR_OK;
    FR_TRY(s, fr_step_begin(&scope));
    if (t->autocast) FR_TRY(s, fr_autocast_begin(FR_F16, &cast)); /* the scope's end takes it back */
    FR_TRY(s, fr_tensor_uniform(4, (int64_t[]){BATCH, 32, 32, 3}, -1, 1, FR_F32, device, &x));
    FR_TRY(s, fr_tensor_full(1, (int64_t[]){BATCH}, 3, FR_I64, device, &target));
    if (!t->autocast) FR_TRY(s, fr_cast(x, FR_F16, &x));
    if (t->checkpoint)
        FR_TRY(s, fr_checkpoint_sequential(m, 4, x, &x));
    else
        FR_TRY(s, fr_module_forward(m, x, &x));
    FR_TRY(s, fr_cross_entropy(x, target, NULL, &loss));
    fr_tensor_release(&x);
    FR_TRY(s, fr_backward(loss, NULL));
    FR_TRY(s, fr_optimizer_step(o));
    fr_optimizer_zero_grad(o);
done:
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&loss);
    must(fr_step_end(&scope));
    return s;
}

typedef struct outcome {
    double *value; /* every parameter and buffer after the last step */
    int64_t n;
    int computed; /* convolutions with sums */
    fr_memory_stats memory;
} outcome;

static fr_status append_values(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    outcome *o = ctx;
    double *v = values_of(t);
    (void)path;
    (void)is_parameter;
    o->value = realloc(o->value, (size_t)(o->n + fr_tensor_numel(t)) * sizeof *v);
    memcpy(o->value + o->n, v, (size_t)fr_tensor_numel(t) * sizeof *v);
    o->n += fr_tensor_numel(t);
    free(v);
    return FR_OK;
}

static void train_on(const training *t, fr_device device, outcome *out) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_switches was = fr_switches_get();
    const int before = fake_dnn.computed;
    fr_switches_set(t->switches);
    fr_cudnn_fuse_statistics_set(t->fused);
    fr_seed(11);
    must(fr_resnet(18, FR_MODEL_OPTS(.device = device, .image_size = 32, .small_stem = true, .classes = CLASSES), &m));
    if (!t->autocast) must(fr_module_to_dtype(m, FR_F16));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &o));
    for (int i = 0; i < STEPS; i++) must(step(m, o, t, device));
    must(fr_memory_stats_get(device, &out->memory));
    out->computed = fake_dnn.computed - before;
    if (device != FR_META) must(fr_module_each_tensor(m, append_values, out));
    fr_optimizer_release(&o);
    fr_module_release(&m);
    fr_switches_set(was);
}

static outcome run(training t) {
    outcome o = {0};
    train_on(&t, FR_CUDA, &o);
    return o;
}

static void expect_same_outcome(const char *what, outcome *a, const outcome *b) {
    cr_assert_eq(a->n, b->n);
    cr_expect_eq(memcmp(a->value, b->value, (size_t)a->n * sizeof *a->value), 0, "%s: other weights", what);
    free(a->value);
}

static void expect_close(const char *what, const outcome *a, const outcome *b) {
    double most = 0;
    cr_assert_eq(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        double d = fabs(a->value[i] - b->value[i]);
        most = d > most ? d : most;
        cr_assert(close_enough(FR_F16, a->value[i], b->value[i]), "%s: value %lld is %.9g, plain %.9g", what,
                  (long long)i, a->value[i], b->value[i]);
    }
    printf("%s: largest difference of a value from the plain training %g\n", what, most);
    cr_expect_gt(most, 0, "%s: the same numbers, so was anything fused?", what);
}

/* 20 convolutions before a batch norm, 19 of them not of 3 channels. What only moves bytes changes no bit; a
 * recomputation makes its sums again, so that it runs the forward's kernel. */
Test(conv2d_statistics, a_training_comes_to_the_weights_of_the_plain_one) {
    enum { SUMS = 19 };
    begin_computing();
    fr_switches rebuild = fr_switches_default();
    rebuild.rebuild = true;
    for (int autocast = 0; autocast < 2; autocast++) {
        training t = {.autocast = autocast, .switches = fr_switches_default()};
        outcome plain = run(t);
        t.fused = true;
        outcome fused = run(t);
        cr_expect_eq(plain.computed, 0);
        cr_expect_eq(fused.computed, SUMS * STEPS, "%d convolutions with sums", fused.computed);
        expect_close(autocast ? "autocast" : "f16", &fused, &plain);
        t.switches = rebuild;
        outcome other = run(t);
        expect_same_outcome("rebuild", &other, &fused);
        t.switches = fr_switches_all_off();
        other = run(t);
        expect_same_outcome("all off", &other, &fused);
        t.switches = fr_switches_default();
        t.checkpoint = true;
        other = run(t);
        cr_expect_gt(other.computed, SUMS * STEPS, "%d: nothing was computed again", other.computed);
        expect_same_outcome("checkpoint", &other, &fused);
        t.switches = rebuild;
        other = run(t);
        expect_same_outcome("checkpoint and rebuild", &other, &fused);
        free(plain.value);
        free(fused.value);
    }
}

/* The dry run makes the same allocations: sums, and the scratch of the other kernel. */
Test(conv2d_statistics, a_plan_is_what_the_run_takes) {
    begin_computing();
    for (int i = 0; i < 4; i++) {
        fr_plan *plan = NULL;
        outcome planned = {0}, measured = {0};
        training t = {.fused = i != 3, .checkpoint = i == 1, .autocast = i == 2, .switches = fr_switches_default()};
        must(fr_memory_empty_cache(FR_CUDA));
        must(fr_memory_reset_peak(FR_CUDA));
        must(fr_plan_begin(FR_CUDA, &plan));
        must(fr_plan_section(plan, "all"));
        train_on(&t, FR_META, &planned);
        must(fr_plan_end(plan));
        train_on(&t, FR_CUDA, &measured);
        cr_expect_eq(fr_plan_verify(plan, 0, FR_CUDA, &measured.memory), FR_OK, "%d: %s", i, fr_last_error());
        free(measured.value);
        fr_plan_release(&plan);
    }
}
