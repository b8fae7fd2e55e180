/* compare_worker.c - frugal's side of compare.py: training steps on demand.
 *
 *     compare_worker MODEL BATCH IMAGE_SIZE CLASSES DTYPE CONFIG SEGMENTS
 *
 * MODEL is a family of fr_model or an ONNX file. DTYPE f32, bf16 or f16 (autocast; f16 with a loss scaler). CONFIG
 * plain (all switches off), inplace, default, kept (the default without rebuild) or exact (the default, with exact
 * convolutions); SEGMENTS 0: no checkpoints. Reads commands from standard input, a line each, and answers each by one
 * line of standard output:
 *
 *     ready          (at the start)          "ready PARAMETERS"
 *     steps N        N training steps        their milliseconds
 *     memory                                 "peak_requested peak_allocated peak_reserved resident_idle resident_peak"
 *
 * A step is forward, cross-entropy, backward, SGD with momentum 0.9 and weight decay 5e-4, and the loss read back. */
#include <frugal/frugal.h>
#if __has_include(<frugal/onnx.h>)
#include <frugal/onnx.h>
#else
#define fr_onnx_load(path, opts, m) \
    (fprintf(stderr, "compare_worker: this build reads no ONNX files\n"), FR_EUNSUPPORTED)
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct worker {
    fr_module *model;
    fr_optimizer *optimizer;
    fr_grad_scaler *scaler;
    fr_tensor *images, *targets;
    fr_dtype autocast; /* FR_F32: none */
    int segments;
    size_t saved; /* bytes held for backward behind the forward pass */
} worker;

static void must(fr_status s, const char *what) {
    if (s >= 0) return;
    fprintf(stderr, "compare_worker: %s: %s\n", what, fr_last_error());
    exit(1);
}

static void usage(const char *what, const char *value) {
    fprintf(stderr, "compare_worker: %s '%s' is not known\n", what, value);
    exit(2);
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* A field of /proc/self/status in bytes; 0 without the field. */
static int64_t resident(const char *field) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int64_t kib = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0) kib = strtoll(line + strlen(field) + 1, NULL, 10);
    if (f != NULL) fclose(f);
    return kib * 1024;
}

static fr_switches switches_of(const char *config) {
    fr_switches s = fr_switches_all_off();
    if (strcmp(config, "plain") == 0) return s;
    s.inplace = true;
    if (strcmp(config, "inplace") == 0) return s;
    s = fr_switches_default();
    if (strcmp(config, "default") == 0 || strcmp(config, "exact") == 0) return s;
    if (strcmp(config, "kept") != 0) usage("configuration", config);
    s.rebuild = false;
    return s;
}

static fr_dtype dtype_of(const char *name) {
    if (strcmp(name, "f32") == 0) return FR_F32;
    if (strcmp(name, "bf16") == 0) return FR_BF16;
    if (strcmp(name, "f16") == 0) return FR_F16;
    usage("dtype", name);
    return FR_F32;
}

/* Random images, and cycling classes; per pixel for segmentation. */
static void make_batch(worker *w, const char *name, int64_t batch, int64_t size, int64_t classes) {
    bool pixels = strncmp(name, "unet", 4) == 0;
    int64_t n = pixels ? batch * size * size : batch;
    int64_t *t = malloc((size_t)n * sizeof *t);
    if (t == NULL) must(FR_ENOMEM, "targets");
    for (int64_t i = 0; i < n; i++) t[i] = i % classes;
    must(fr_tensor_uniform(4, (int64_t[]){batch, size, size, 3}, 0, 1, FR_F32, FR_CPU, &w->images), "images");
    must(fr_tensor_from_host(t, pixels ? 3 : 1, (int64_t[]){batch, size, size}, FR_I64, FR_CPU, &w->targets),
         "targets");
    free(t);
}

static fr_status forward(worker *w, fr_tensor **y) {
    if (w->segments > 0) return fr_checkpoint_sequential(w->model, w->segments, w->images, y);
    return fr_module_forward(w->model, w->images, y);
}

static void step(worker *w) {
    fr_step_scope scope;
    fr_autocast_state was;
    fr_memory_stats m;
    fr_tensor *y = NULL, *loss = NULL, *scaled = NULL;
    double value = 0;
    must(fr_step_begin(&scope), "step");
    if (w->autocast != FR_F32) must(fr_autocast_begin(w->autocast, &was), "autocast");
    must(forward(w, &y), "forward");
    must(fr_cross_entropy(y, w->targets, NULL, &loss), "loss");
    fr_tensor_release(&y);
    if (w->autocast != FR_F32) fr_autocast_end(was);
    must(fr_grad_scaler_scale(w->scaler, loss, &scaled), "scale");
    must(fr_memory_stats_get(FR_CPU, &m), "statistics");
    w->saved = m.requested_by[FR_MEM_ACTIVATION];
    must(fr_backward(scaled, NULL), "backward");
    fr_tensor_release(&scaled);
    must(fr_grad_scaler_step(w->scaler, w->optimizer), "optimizer");
    must(fr_grad_scaler_update(w->scaler, NULL), "scaler");
    fr_optimizer_zero_grad(w->optimizer);
    must(fr_tensor_item(loss, &value), "loss");
    fr_tensor_release(&loss);
    must(fr_step_end(&scope), "step");
}

static void answer(worker *w, const char *line, int64_t idle) {
    int n = 0;
    if (sscanf(line, "steps %d", &n) == 1) {
        for (int i = 0; i < n; i++) {
            double began = milliseconds();
            step(w);
            printf("%.4f ", milliseconds() - began);
        }
        printf("\n");
    } else if (strncmp(line, "memory", 6) == 0) {
        fr_memory_stats m;
        must(fr_memory_stats_get(FR_CPU, &m), "statistics");
        printf("%zu %zu %zu %" PRId64 " %" PRId64 " %zu\n", m.peak_requested, m.peak_allocated, m.peak_reserved, idle,
               resident("VmHWM"), w->saved);
    } else {
        usage("command", line);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: compare_worker MODEL BATCH IMAGE_SIZE CLASSES f32|bf16|f16 "
                        "plain|inplace|default|kept|exact SEGMENTS\n");
        return 2;
    }
    worker w = {.autocast = dtype_of(argv[5]), .segments = atoi(argv[7])};
    int64_t batch = atoll(argv[2]), size = atoll(argv[3]), classes = atoll(argv[4]), idle = resident("VmRSS");
    char line[64];
    fr_switches_set(switches_of(argv[6]));
    fr_exact_convolutions_set(strcmp(argv[6], "exact") == 0);
    const char *file = strstr(argv[1], ".onnx");
    must(file != NULL && file[5] == '\0'
             ? fr_onnx_load(argv[1], FR_ONNX_OPTS(.height = size, .width = size), &w.model)
             : fr_model(argv[1], FR_MODEL_OPTS(.classes = classes, .image_size = size, .batch_norm = true), &w.model),
         "model");
    must(fr_sgd(w.model, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4), &w.optimizer), "optimizer");
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = w.autocast == FR_F16), FR_CPU, &w.scaler), "scaler");
    make_batch(&w, argv[1], batch, size, classes);
    printf("ready %" PRId64 "\n", fr_module_parameter_count(w.model));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) answer(&w, line, idle);
    fr_tensor_release(&w.images);
    fr_tensor_release(&w.targets);
    fr_grad_scaler_release(&w.scaler);
    fr_optimizer_release(&w.optimizer);
    fr_module_release(&w.model);
    return 0;
}
