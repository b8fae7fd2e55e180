/* depth.c - activation bytes against depth: a residual chain under none, sqrt, log and each; DenseNet's blocks.
 *
 *     build/benchmarks/depth [--svg FILE] [--csv FILE]
 *     build/benchmarks/depth --train none|sqrt|log|each [--layers N] [--steps N] [--memory-limit BYTES]
 *
 * The first form runs on meta: chains of 32 to 1,000 layers, x + relu(batch norm(conv 3x3 (x))), 8 channels, 64 images
 * of 32 x 32, all other switches off. Activations are the most bytes at one time that are neither parameter nor
 * gradient nor optimizer state. Printed with the exponents of a fit over all depths; then the bytes that DenseNet-BC's
 * blocks save, by depth, with all switches off and under rebuild. The second form trains on the CPU, with 8 images of
 * 16 x 16, under a cap on reserved memory: what does not fit ends with the out-of-memory report and exit status 1. */
#include "peak_chart.h"
#include "peak_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 8, DEPTHS = 6, METHODS = 4 };
enum { BATCH = 64, SIZE = 32, TRAIN_BATCH = 8, TRAIN_SIZE = 16 };

static const int depths[DEPTHS] = {32, 64, 128, 256, 512, 1000};
static const char *const names[METHODS] = {"none", "sqrt", "log", "each"};
static const int how[METHODS] = {PEAK_PLAIN, FR_SEGMENTS_SQRT, FR_SEGMENTS_LOG, FR_SEGMENTS_EACH};

/* ---- the chain --------------------------------------------------------------------------------------------- */

static int layers; /* of the next chain or DenseNet */

/* y = x + relu(batch norm(conv(x))). */
static fr_value residual(fr_net *n, int i, fr_value x) {
    fr_net_scope_begin(n, "%d", i);
    fr_value y = fr_net_conv2d(n, NULL, x, CHANNELS, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    y = fr_net_batchnorm2d(n, NULL, y, NULL);
    if (fr_net_layer_of(n, y) != NULL)
        fr_net_try(n, fr_tensor_fill(fr_module_tensor(fr_net_layer_of(n, y), "weight"), 1 / sqrt((double)layers)));
    y = fr_net_relu(n, NULL, y);
    y = fr_net_add(n, NULL, y, x);
    fr_net_scope_end(n);
    return y;
}

static fr_status chain_build(const fr_model_opts *o, fr_module **out) {
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->image_size, o->image_size, 3});
    x = fr_net_conv2d(n, NULL, x, CHANNELS, 1, NULL, FR_BIAS);
    for (int i = 0; i < layers; i++) x = residual(n, i + 1, x);
    x = fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1);
    x = fr_net_linear(n, NULL, fr_net_flatten(n, NULL, x, 1), o->classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status dense_build(const fr_model_opts *o, fr_module **out) {
    return fr_densenet(6 * layers + 4, o, out);
}

static const peak_net chain = {"chain", "residual chain", SIZE, 10, false, NULL, chain_build};
static const peak_net dense = {"densenet_bc", "DenseNet-BC", 32, 10, false, "denseblock", dense_build};

/* ---- measuring ------------------------------------------------------------------------------------------------ */

static void measure_chain(peak_chart *chart) {
    peak_setting at = {.net = &chain, .device = FR_META, .batch = BATCH, .image_size = SIZE};
    double x[DEPTHS], y[DEPTHS];
    *chart = (peak_chart){.title = "residual chain: activation bytes at the peak against layers",
                          .points = DEPTHS,
                          .lines = METHODS};
    printf(
        "Residual chain of %d channels, batch %d, %d pixels, f32, other switches off, on meta: activation bytes at the "
        "peak\n\n| layers |",
        CHANNELS, BATCH, SIZE);
    for (int k = 0; k < METHODS; k++) printf(" %s |", names[k]);
    printf("\n|---|---|---|---|---|\n");
    for (int i = 0; i < DEPTHS; i++) {
        layers = depths[i];
        chart->x[i] = layers;
        printf("| %d |", layers);
        for (int k = 0; k < METHODS; k++) {
            peak_case c = {.switches = fr_switches_all_off(), .how = how[k]};
            peak_result r;
            peak_measure(&at, &c, &r);
            chart->y[k][i] = (double)r.activations;
            printf(" %zu |", r.activations);
        }
        printf("\n");
        fflush(stdout);
    }
    printf("| exponent |");
    for (int k = 0; k < METHODS; k++) {
        for (int i = 0; i < DEPTHS; i++) {
            x[i] = chart->x[i];
            y[i] = chart->y[k][i];
        }
        chart->line[k].name = names[k];
        chart->line[k].exponent = peak_exponent(x, y, DEPTHS);
        printf(" %.2f |", chart->line[k].exponent);
    }
    printf("\n");
}

/* log: bytes = a + b log2(layers) by least squares, and the largest distance from the line. */
static void fit_log(const peak_chart *chart, int k) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0, worst = 0;
    for (int i = 0; i < DEPTHS; i++) {
        double x = log2(chart->x[i]), y = chart->y[k][i];
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    double b = (DEPTHS * sxy - sx * sy) / (DEPTHS * sxx - sx * sx), a = (sy - b * sx) / DEPTHS;
    for (int i = 0; i < DEPTHS; i++)
        worst = fmax(worst, fabs(chart->y[k][i] - a - b * log2(chart->x[i])) / chart->y[k][i]);
    printf("\n%s: bytes = %.0f + %.0f log2(layers), off by %.1f %% at most; a map has %d bytes\n", names[k], a, b,
           100 * worst, BATCH * SIZE * SIZE * CHANNELS * 4);
}

static void measure_dense(void) {
    static const int per_block[] = {4, 8, 16, 32, 64};
    enum { N = sizeof per_block / sizeof *per_block };
    peak_setting at = {.net = &dense, .device = FR_META, .batch = 64, .image_size = 32};
    double x[N], y[2][N];
    printf("\nDenseNet-BC (k = 12), batch 64, 32 pixels, f32, on meta: bytes saved inside the dense blocks\n\n"
           "| depth | all off | rebuild | ratio |\n|---|---|---|---|\n");
    for (int i = 0; i < N; i++) {
        layers = per_block[i];
        x[i] = layers;
        for (int k = 0; k < 2; k++) {
            peak_case c = {.switches = fr_switches_all_off(), .how = PEAK_PLAIN};
            peak_result r;
            c.switches.rebuild = k == 1;
            peak_measure(&at, &c, &r);
            y[k][i] = (double)r.saved_part;
        }
        printf("| %d | %.0f | %.0f | %.3f |\n", 6 * layers + 4, y[0][i], y[1][i], y[1][i] / y[0][i]);
        fflush(stdout);
    }
    printf("| exponent of the last doubling | %.2f | %.2f | |\n", peak_exponent(x + N - 2, y[0] + N - 2, 2),
           peak_exponent(x + N - 2, y[1] + N - 2, 2));
}

/* ---- main ---------------------------------------------------------------------------------------------------- */

static int usage(const char *what) {
    fprintf(stderr,
            "depth: %s is not understood\nusage: depth [--svg FILE] [--csv FILE] | depth --train none|sqrt|log|each "
            "[--layers 1..4000] [--steps 1..1000] [--memory-limit BYTES]\n",
            what);
    return 2;
}

static bool number(const char *text, long long least, long long most, long long *out) {
    char *end = NULL;
    *out = strtoll(text, &end, 10);
    return end != text && *end == 0 && *out >= least && *out <= most;
}

static int train(int method, int steps, size_t limit) {
    peak_setting at = {.net = &chain, .device = FR_CPU, .batch = TRAIN_BATCH, .image_size = TRAIN_SIZE};
    peak_case c = {.switches = fr_switches_all_off(), .how = how[method]};
    peak_must(fr_memory_limit_set(FR_CPU, limit));
    fr_status s = peak_train(&at, &c, steps);
    if (s == FR_OK) return 0;
    fprintf(stderr, "%s\n", fr_last_error());
    return 1;
}

int main(int argc, char **argv) {
    static peak_chart chart;
    const char *svg = NULL, *csv = NULL;
    long long n = 0, steps = 2, limit = -1, count = 1000;
    int method = -1;
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL) return usage(flag);
        if (strcmp(flag, "--svg") == 0) {
            svg = value;
        } else if (strcmp(flag, "--csv") == 0) {
            csv = value;
        } else if (strcmp(flag, "--train") == 0) {
            for (int k = 0; k < METHODS; k++)
                if (strcmp(value, names[k]) == 0) method = k;
            if (method < 0) return usage(value);
        } else if (strcmp(flag, "--layers") == 0 && number(value, 1, 4000, &n)) {
            count = n;
        } else if (strcmp(flag, "--steps") == 0 && number(value, 1, 1000, &n)) {
            steps = n;
        } else if (strcmp(flag, "--memory-limit") == 0 && number(value, 1, INT64_MAX, &n)) {
            limit = n;
        } else {
            return usage(flag);
        }
    }
    layers = (int)count;
    if (method >= 0) return train(method, (int)steps, limit < 0 ? SIZE_MAX : (size_t)limit);
    measure_chain(&chart);
    fit_log(&chart, 2);
    measure_dense();
    if (csv != NULL && !peak_chart_csv(&chart, csv)) return 1;
    if (svg != NULL && !peak_chart_svg(&chart, svg)) return 1;
    return 0;
}
