/* resnet_step.c - a training step of ResNet-50 with the residual sums in batch norm's last pass, and in separate
 * passes.
 *
 *     build/benchmarks/resnet_step [batch] [pixels] [pairs] [f32|f16|bf16]      (8 images of 128 x 128, 15 pairs, f32)
 *
 * Steps run in pairs, one of each kind, the first kind changing from pair to pair; a block's last batch norm that may
 * not work in place adds nothing, and all else stays. Medians of the times and of the pairs' ratios, with quartiles.
 * Before any time is taken both kinds are compared: the losses of their first steps are the same bits. */
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PAIRS = 200, MAX_BLOCKS = 64 };

typedef struct training {
    fr_module *m, *last[MAX_BLOCKS]; /* each block's last batch norm */
    int blocks;
    fr_optimizer *o;
    fr_tensor *x, *target;
    fr_dtype dtype;
} training;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "resnet_step: %s: %s\n", what, fr_last_error());
    exit(1);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value with `share` of v below. */
static double quantile(double *v, int n, double share) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[(int)((double)(n - 1) * share)];
}

/* The last summed norm of each block: the downsample's, or the branch's. */
static void find_last(training *t, fr_module *m) {
    fr_layer l;
    fr_module *norm = NULL;
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l), "layer");
        if (strcmp(fr_module_class_of(l.module)->name, "BatchNorm2d") == 0) norm = l.module;
        if (strcmp(fr_module_class_of(l.module)->name, "Add") != 0) continue;
        if (t->blocks == MAX_BLOCKS) must(FR_EINTERNAL, "blocks");
        t->last[t->blocks++] = norm;
    }
}

static void prepare(training *t, int64_t batch, int64_t pixels) {
    *t = (training){.dtype = t->dtype};
    fr_seed(1);
    must(fr_resnet(50, FR_MODEL_OPTS(.classes = 10, .image_size = pixels), &t->m), "model");
    must(fr_sgd(t->m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &t->o), "optimizer");
    must(fr_tensor_uniform(4, (int64_t[]){batch, pixels, pixels, 3}, -1, 1, FR_F32, FR_CPU, &t->x), "images");
    must(fr_tensor_full(1, (int64_t[]){batch}, 2, FR_I64, FR_CPU, &t->target), "targets");
    find_last(t, t->m);
}

static void drop(training *t) {
    fr_optimizer_release(&t->o);
    fr_module_release(&t->m);
    fr_tensor_release(&t->x);
    fr_tensor_release(&t->target);
}

/* A step; times of the forward pass and of the whole step. */
static double step(training *t, bool fused, double *forward, double *whole) {
    fr_step_scope scope;
    fr_autocast_state was;
    fr_tensor *y = NULL, *loss = NULL;
    double value = 0, begin = seconds();
    for (int i = 0; i < t->blocks; i++) fr_module_inplace(t->last[i], fused);
    must(fr_step_begin(&scope), "step");
    if (t->dtype != FR_F32) must(fr_autocast_begin(t->dtype, &was), "autocast");
    must(fr_module_forward(t->m, t->x, &y), "forward");
    must(fr_cross_entropy(y, t->target, NULL, &loss), "loss");
    fr_tensor_release(&y);
    if (t->dtype != FR_F32) fr_autocast_end(was);
    must(fr_tensor_item(loss, &value), "loss");
    *forward = seconds() - begin;
    must(fr_backward(loss, NULL), "backward");
    fr_tensor_release(&loss);
    must(fr_optimizer_step(t->o), "optimizer");
    fr_optimizer_zero_grad(t->o);
    must(fr_step_end(&scope), "step");
    *whole = seconds() - begin;
    return value;
}

static void check(fr_dtype dtype, int64_t batch, int64_t pixels) {
    double loss[2][3], ignored;
    for (int fused = 0; fused < 2; fused++) {
        training t = {.dtype = dtype};
        prepare(&t, batch, pixels);
        for (int i = 0; i < 3; i++) loss[fused][i] = step(&t, fused, &ignored, &ignored);
        drop(&t);
    }
    if (memcmp(loss[0], loss[1], sizeof loss[0]) == 0) return;
    fprintf(stderr, "resnet_step: losses differ: %.9g, then %.9g\n", loss[0][2], loss[1][2]);
    exit(1);
}

int main(int argc, char **argv) {
    int64_t batch = argc > 1 ? atoll(argv[1]) : 8, pixels = argc > 2 ? atoll(argv[2]) : 128;
    int pairs = argc > 3 ? atoi(argv[3]) : 15;
    const char *type = argc > 4 ? argv[4] : "f32";
    static double whole[2][MAX_PAIRS], forward[2][MAX_PAIRS], ratio[MAX_PAIRS], forward_ratio[MAX_PAIRS];
    training t = {.dtype = strcmp(type, "f16") == 0 ? FR_F16 : strcmp(type, "bf16") == 0 ? FR_BF16 : FR_F32};
    if (batch < 2 || pixels < 32 || pairs < 1 || pairs > MAX_PAIRS || strcmp(type, fr_dtype_name(t.dtype)) != 0) {
        fprintf(stderr, "usage: resnet_step [batch >= 2] [pixels >= 32] [pairs 1..%d] [f32|f16|bf16]\n", MAX_PAIRS);
        return 2;
    }
    check(t.dtype, batch, pixels);
    prepare(&t, batch, pixels);
    for (int i = -2; i < 2 * pairs; i++) {
        double f, w;
        int pair = i / 2;
        bool fused = (i & 1) != (pair & 1);
        (void)step(&t, fused, &f, &w);
        if (i < 0) continue;
        forward[fused][pair] = f;
        whole[fused][pair] = w;
    }
    for (int i = 0; i < pairs; i++) {
        ratio[i] = whole[1][i] / whole[0][i];
        forward_ratio[i] = forward[1][i] / forward[0][i];
    }
    printf("ResNet-50, %lld x %lld x %lld, %s, %d blocks, %d pairs\n\n", (long long)batch, (long long)pixels,
           (long long)pixels, type, t.blocks, pairs);
    printf("| | passes of their own, ms | in batch norm, ms | ratio | quartiles |\n|---|---|---|---|---|\n");
    printf("| forward | %.1f | %.1f | %.3f | %.3f to %.3f |\n", 1e3 * quantile(forward[0], pairs, 0.5),
           1e3 * quantile(forward[1], pairs, 0.5), quantile(forward_ratio, pairs, 0.5),
           quantile(forward_ratio, pairs, 0.25), quantile(forward_ratio, pairs, 0.75));
    printf("| step | %.1f | %.1f | %.3f | %.3f to %.3f |\n", 1e3 * quantile(whole[0], pairs, 0.5),
           1e3 * quantile(whole[1], pairs, 0.5), quantile(ratio, pairs, 0.5), quantile(ratio, pairs, 0.25),
           quantile(ratio, pairs, 0.75));
    drop(&t);
    return 0;
}
