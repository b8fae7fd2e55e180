/* activation_step.c - a training step of MobileNetV2's blocks with relu, relu6, hardswish and silu in one place.
 *
 *     build/benchmarks/activation_step [batch] [pixels] [rounds]      (16 images of 32 x 32, 30 rounds)
 *
 * Six inverted residuals of 24 channels (Sandler et al. 2018): 1x1 to 144, depthwise 3x3, each with batch norm and the
 * activation, 1x1 back and batch norm. A round is a step of each network, in changing order. Prints minimum and median
 * times, the median and quartiles of the ratio to relu's step of the round, and the peak of a step. */
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KINDS = 4, MOST_ROUNDS = 1000, BLOCKS = 6, CHANNELS = 24, EXPANSION = 6 };

typedef struct training {
    fr_module *m;
    fr_optimizer *o;
    double time[MOST_ROUNDS], ratio[MOST_ROUNDS];
    size_t peak;
} training;

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "activation_step: %s: %s\n", what, fr_last_error());
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef fr_value bend(fr_net *n, const char *name, fr_value x);

static const struct {
    const char *name;
    bend *add;
} kinds[KINDS] = {{"relu", fr_net_relu},
                  {"relu6", fr_net_relu6},
                  {"hardswish", fr_net_hardswish},
                  {"silu", fr_net_silu}};

static fr_value conv_norm(fr_net *n, fr_value x, int64_t out, int64_t kernel, int64_t groups, bend *add) {
    x = fr_net_conv2d(n, NULL, x, out, kernel, FR_CONV2D_OPTS(.padding = kernel / 2, .groups = groups), FR_NO_BIAS);
    x = fr_net_batchnorm2d(n, NULL, x, NULL);
    return add != NULL ? add(n, NULL, x) : x;
}

static void prepare(training *t, bend *add, int64_t pixels) {
    const int64_t inner = EXPANSION * CHANNELS;
    fr_seed(1);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, pixels, pixels, 3});
    x = conv_norm(n, x, CHANNELS, 3, 1, add);
    for (int i = 0; i < BLOCKS; i++) {
        fr_value y = conv_norm(n, x, inner, 1, 1, add);
        y = conv_norm(n, conv_norm(n, y, inner, 3, inner, add), CHANNELS, 1, 1, NULL);
        x = fr_net_add(n, NULL, y, x);
    }
    x = fr_net_linear(n, NULL, fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1), 10, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &t->m), "network");
    must(fr_sgd(t->m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &t->o), "optimizer");
}

static double step(training *t, fr_tensor *images, fr_tensor *target) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_memory_stats memory;
    const double begin = seconds();
    must(fr_memory_reset_peak(FR_CPU), "memory");
    must(fr_module_forward(t->m, images, &y), "forward");
    must(fr_cross_entropy(y, target, NULL, &loss), "loss");
    fr_tensor_release(&y);
    must(fr_backward(loss, NULL), "backward");
    fr_tensor_release(&loss);
    must(fr_optimizer_step(t->o), "optimizer");
    fr_optimizer_zero_grad(t->o);
    const double end = seconds();
    must(fr_memory_stats_get(FR_CPU, &memory), "memory");
    t->peak = memory.peak_allocated;
    return end - begin;
}

int main(int argc, char **argv) {
    const int64_t batch = argc > 1 ? atoll(argv[1]) : 16, pixels = argc > 2 ? atoll(argv[2]) : 32;
    const int rounds = argc > 3 ? atoi(argv[3]) : 30;
    static training t[KINDS];
    fr_tensor *images = NULL, *target = NULL;
    if (argc > 4 || batch < 2 || pixels < 4 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: activation_step [batch >= 2] [pixels >= 4] [rounds 1..%d]\n", MOST_ROUNDS);
        return 2;
    }
    must(fr_tensor_uniform(4, (int64_t[]){batch, pixels, pixels, 3}, -1, 1, FR_F32, FR_CPU, &images), "images");
    must(fr_tensor_full(1, (int64_t[]){batch}, 2, FR_I64, FR_CPU, &target), "targets");
    for (int k = 0; k < KINDS; k++) prepare(&t[k], kinds[k].add, pixels);
    for (int i = -2; i < rounds; i++)
        for (int k = 0; k < KINDS; k++) {
            training *now = &t[(i + 2 + k) % KINDS];
            const double time = step(now, images, target);
            if (i >= 0) now->time[i] = time;
        }
    printf("| | least, ms | median, ms | to relu | quartiles | peak, bytes |\n|---|---|---|---|---|---|\n");
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < rounds; i++) t[k].ratio[i] = t[k].time[i] / t[0].time[i];
    for (int k = 0; k < KINDS; k++) {
        qsort(t[k].time, (size_t)rounds, sizeof(double), ascending);
        qsort(t[k].ratio, (size_t)rounds, sizeof(double), ascending);
        printf("| %s | %.2f | %.2f | %.3f | %.3f to %.3f | %zu |\n", kinds[k].name, 1e3 * t[k].time[0],
               1e3 * t[k].time[rounds / 2], t[k].ratio[rounds / 2], t[k].ratio[rounds / 4], t[k].ratio[3 * rounds / 4],
               t[k].peak);
        fr_optimizer_release(&t[k].o);
        fr_module_release(&t[k].m);
    }
    fr_tensor_release(&images);
    fr_tensor_release(&target);
    return 0;
}
