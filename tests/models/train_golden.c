/* train_golden.c - three SGD steps of whole networks against PyTorch in f64 (tests/golden/make_models.py).
 *
 * Parameters, images and labels are computed on both sides from the formulas in that script's docstring. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/checks.h"

#include "backend/backend.h"
#include "base/philox.h"
#include "io/safetensors.h"

enum { SAMPLES = 8, STEPS = 3 };

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

/* ---- the formulas ------------------------------------------------------------------------------------------- */

static double symmetric(uint64_t seed, uint64_t stream, int64_t i) {
    fri_philox4 v = fri_philox(seed, stream, (uint64_t)i / 4);
    return 2.0 * (double)fri_uniform_f32(v.v[i % 4]) - 1.0;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

struct init {
    uint64_t seed, p;
};

static fr_status initialize(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct init *c = ctx;
    if (!is_parameter) return FR_OK;
    int64_t n = fr_tensor_numel(t), fan = fr_tensor_rank(t) > 1 ? n / fr_tensor_dim(t, 0) : 0;
    float *v = fr_tensor_data(t);
    for (int64_t i = 0; i < n; i++) {
        double s = symmetric(c->seed, c->p, i);
        v[i] = (float)(fan > 0 ? sqrt(3.0 / (double)fan) * s : ends_with(path, ".weight") ? 1 + 0.1 * s : 0.1 * s);
    }
    c->p++;
    return FR_OK;
}

static void make_batch(uint64_t seed, int64_t batch, int step, fr_tensor **x, fr_tensor **target) {
    must(fr_tensor_empty(4, (int64_t[]){batch, 32, 32, 3}, FR_F32, FR_CPU, x));
    must(fr_tensor_empty(1, &batch, FR_I64, FR_CPU, target));
    float *images = fr_tensor_data(*x);
    int64_t *labels = fr_tensor_data(*target);
    for (int64_t i = 0; i < fr_tensor_numel(*x); i++) images[i] = (float)symmetric(seed, 1000 + (uint64_t)step, i);
    for (int64_t i = 0; i < batch; i++)
        labels[i] = fri_philox(seed, 2000 + (uint64_t)step, (uint64_t)i / 4).v[i % 4] % 10;
}

/* ---- comparing ------------------------------------------------------------------------------------------------ */

static const double *golden(const fri_safetensors *f, const char *net, const char *field) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", net, field);
    const fri_safetensors_entry *e = fri_safetensors_find(f, name);
    cr_assert_not_null(e, "golden file has no %s", name);
    return e->data;
}

struct compare {
    const char *net;
    int step;
    double tolerance;
    const double *sum, *norm, *samples;
    bool parameters;
    int i;
    double worst;
};

/* Error relative to the tensor's norm (sum, norm) or root mean square (samples). */
static fr_status compare(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct compare *c = ctx;
    if (is_parameter != c->parameters || fr_tensor_dtype(t) != FR_F32) return FR_OK;
    const float *v = fr_tensor_data(t);
    int64_t n = fr_tensor_numel(t);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        square += (double)v[i] * v[i];
    }
    double norm = c->norm[c->i], rms = norm / sqrt((double)n);
    double error = fmax(fabs(sqrt(square) - norm) / norm, fabs(sum - c->sum[c->i]) / (norm * sqrt((double)n)));
    for (int j = 0; j < SAMPLES; j++)
        error = fmax(error, fabs(v[j * n / SAMPLES] - c->samples[c->i * SAMPLES + j]) / rms);
    if (norm == 0) error = square > 0; /* a frozen mean, which stays 0 */
    cr_expect(error <= c->tolerance, "%s step %d %s: error %.3g, tolerance %.3g", c->net, c->step, path, error,
              c->tolerance);
    if (error > c->worst) c->worst = error;
    c->i++;
    return FR_OK;
}

static void expect_step(const fri_safetensors *f, const char *net, int step, fr_module *m, double tolerance) {
    static const char *const prefix[] = {"buffer_", ""};
    char field[48];
    for (int parameters = 0; parameters < 2; parameters++) {
        struct compare c = {.net = net, .step = step, .tolerance = tolerance, .parameters = parameters};
        snprintf(field, sizeof field, "step%d.%ssum", step, prefix[parameters]);
        if (!parameters) {
            char name[96];
            snprintf(name, sizeof name, "%s.%s", net, field);
            const fri_safetensors_entry *e = fri_safetensors_find(f, name);
            if (e == NULL || e->bytes == 0) continue; /* no running statistics */
        }
        c.sum = golden(f, net, field);
        snprintf(field, sizeof field, "step%d.%snorm", step, prefix[parameters]);
        c.norm = golden(f, net, field);
        snprintf(field, sizeof field, "step%d.%ssamples", step, prefix[parameters]);
        c.samples = golden(f, net, field);
        must(fr_module_each_tensor(m, compare, &c));
        cr_expect_gt(c.i, 0);
    }
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

/* Every norm, and what is below one of the names. */
static fr_status freeze_norm(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    char layer[256];
    (void)t;
    (void)is_parameter;
    if (!ends_with(path, ".running_mean")) return FR_OK;
    snprintf(layer, sizeof layer, "%.*s", (int)(strlen(path) - strlen(".running_mean")), path);
    return fr_module_freeze(ctx, layer, true);
}

/* Dropout is off: PyTorch's side has p = 0. */
static void nothing_random(fr_module *m) {
    fr_layer l;
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l));
        const char *name = fr_module_class_of(l.module)->name;
        if (strcmp(name, "StochasticDepth") == 0 || strcmp(name, "Dropout") == 0) fr_module_train(l.module, false);
    }
}

static void freeze(fr_module *m, const char *const *frozen) {
    must(fr_module_each_tensor(m, freeze_norm, m));
    for (; *frozen != NULL; frozen++) must(fr_module_freeze(m, *frozen, true));
}

/* Processor, library and instruction set of the run, for the log. */
static void say_where(const char *net) {
    char line[256] = "", model[256] = "an unnamed processor\n", library[128] = "";
    FILE *cpu = fopen("/proc/cpuinfo", "r");
    while (cpu != NULL && fgets(line, sizeof line, cpu) != NULL)
        if (sscanf(line, "model name : %255[^\n]", model) == 1) break;
    if (cpu != NULL) fclose(cpu);
    model[strcspn(model, "\n")] = '\0';
    fprintf(stderr, "%s ran on %s: %s\n", net, model, fri_device_describe(FR_CPU, library, sizeof library));
}

static void train(const fri_safetensors *f, const char *net, fr_module *m, double tolerance) {
    fr_optimizer *o = NULL;
    uint64_t seed = (uint64_t) * (const int64_t *)golden(f, net, "seed");
    int64_t batch = *(const int64_t *)golden(f, net, "batch");
    const double *losses = golden(f, net, "loss");
    struct init init = {.seed = seed};
    must(fr_module_each_tensor(m, initialize, &init));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = *golden(f, net, "lr"), .momentum = 0.9, .weight_decay = 5e-4), &o));
    const int steps = strcmp(net, "resnet18") == 0 ? 1 : STEPS; /* see golden_run */
    for (int step = 1; step <= steps; step++) {
        fr_tensor *x = NULL, *target = NULL, *loss = NULL;
        double value = 0;
        make_batch(seed, batch, step, &x, &target);
        must(fr_module_forward(m, x, &x));
        must(fr_cross_entropy(x, target, NULL, &loss));
        must(fr_backward(loss, NULL));
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        must(fr_tensor_item(loss, &value));
        cr_expect(fabs(value - losses[step - 1]) <= tolerance * fabs(losses[step - 1]),
                  "%s step %d: loss %.9g, not %.9g", net, step, value, losses[step - 1]);
        expect_step(f, net, step, m, tolerance);
        fr_tensor_release(&x);
        fr_tensor_release(&target);
        fr_tensor_release(&loss);
    }
    fr_optimizer_release(&o);
}

/* Tolerance: ten times the difference between PyTorch's f32 and f64 runs after three steps (tests/golden/README.md).
 * For densenet_bc that difference is 1.8e-4 if a relu's input crosses zero; a single crossing is allowed. usual: with
 * Winograd convolutions. In vgg11_bn an input of the first relu then crosses zero, and four images average over
 * little: 4.1e-4 was seen (2.7e-3 with another seed). resnet18's last stage normalizes 16 values per channel, and a
 * crossing moves the next step's parameters by 1e-4 to 1e-2: of runs from parameters disturbed by 1.2e-7 a quarter has
 * a crossing in step 2. So step 1 alone is compared, with a small tolerance, and holds on every processor. frozen:
 * names of layers, or NULL if the norms train too. Crossings depend on the order of sums, hence on the number of
 * threads, which is always two. */
void golden_run(const char *net, model_fn *make, int depth, bool batch_norm, const char *const *frozen, double exact,
                double usual) {
    fri_safetensors *f = NULL;
    fr_module *m = NULL;
    fr_memory_stats t;
    char path[1024];
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/models.safetensors", root != NULL ? root : ".");
    must(fri_safetensors_open(path, &f));
    must(fr_threads_set(2));
    say_where(net);
    for (int plain = 0; plain < 2; plain++) {
        fr_exact_convolutions_set(plain);
        must(make(depth, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .batch_norm = batch_norm), &m));
        if (frozen != NULL) freeze(m, frozen);
        nothing_random(m);
        train(f, net, m, plain ? exact : usual);
        fr_module_release(&m);
    }
    fri_safetensors_close(&f);
    must(fr_memory_stats_get(FR_CPU, &t));
    cr_expect_eq(t.requested, 0u);
}
