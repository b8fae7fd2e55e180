/* latency.c - frugal's side of latency.py: one image after the other through a folded network.
 *
 *     latency MODEL WEIGHTS PIXELS
 *
 * MODEL: a name for fr_model (resnet18, mobilenet_v2); WEIGHTS: a safetensors file with torchvision's
 * names. After the first result it writes "ready RESIDENT_BYTES CLASS LOGIT", the likeliest of the image whose element
 * i (in torch's order, N C H W) is (i * 7919 % 1000) / 500 - 1. Then it reads numbers from standard input, and for each
 * n writes the milliseconds of n inferences in a line. */
#include <frugal/fold.h>
#include <frugal/frugal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLASSES = 1000 };

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "latency: %s\n", fr_last_error());
    exit(1);
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static fr_tensor *image(int64_t pixels) {
    float *v = malloc((size_t)(pixels * pixels * 3) * sizeof *v);
    fr_tensor *x = NULL;
    if (v == NULL) exit(1);
    for (int64_t i = 0; i < pixels * pixels; i++)
        for (int64_t c = 0; c < 3; c++) v[i * 3 + c] = (float)((c * pixels * pixels + i) * 7919 % 1000) / 500 - 1;
    must(fr_tensor_from_host(v, 4, (int64_t[]){1, pixels, pixels, 3}, FR_F32, FR_CPU, &x));
    free(v);
    return x;
}

static void infer(fr_module *m, fr_tensor *x, float logit[CLASSES]) {
    fr_tensor *y = NULL;
    must(fr_module_forward(m, x, &y));
    must(fr_tensor_to_host(y, logit));
    fr_tensor_release(&y);
}

int main(int argc, char **argv) {
    static float logit[CLASSES];
    fr_module *m = NULL;
    fr_memory_use use;
    int n = 0, best = 0;
    if (argc != 4) {
        fprintf(stderr, "latency: MODEL WEIGHTS PIXELS\n");
        return 2;
    }
    const int64_t pixels = atoll(argv[3]);
    must(fr_model(argv[1], FR_MODEL_OPTS(.classes = CLASSES, .image_size = pixels), &m));
    must(fr_weights_load(m, argv[2], NULL));
    must(fr_net_fold(&m));
    fr_tensor *x = image(pixels);
    fr_no_grad_begin();
    infer(m, x, logit);
    for (int i = 1; i < CLASSES; i++) best = logit[i] > logit[best] ? i : best;
    fr_memory_use_get(FR_CPU, &use);
    printf("ready %zu %d %.6g\n", use.process, best, (double)logit[best]);
    fflush(stdout);
    while (scanf("%d", &n) == 1) {
        for (int i = 0; i < n; i++) {
            double from = milliseconds();
            infer(m, x, logit);
            printf("%s%.3f", i > 0 ? " " : "", milliseconds() - from);
        }
        printf("\n");
        fflush(stdout);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
    return 0;
}
