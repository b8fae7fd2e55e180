/* peak_run.c - see peak_run.h. */
#include "peak_run.h"

#include <frugal/tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- networks ---------------------------------------------------------------------------------------------- */

static fr_status vgg16(const fr_model_opts *o, fr_module **m) {
    return fr_vgg(16, o, m);
}

static fr_status resnet50(const fr_model_opts *o, fr_module **m) {
    return fr_resnet(50, o, m);
}

static fr_status densenet121(const fr_model_opts *o, fr_module **m) {
    return fr_densenet(121, o, m);
}

static fr_status densenet_bc100(const fr_model_opts *o, fr_module **m) {
    return fr_densenet(100, o, m);
}

static fr_status unet(const fr_model_opts *o, fr_module **m) {
    return fr_unet(4, o, m);
}

const peak_net peak_nets[] = {{"vgg16", "VGG-16 without norms", 224, 1000, false, NULL, vgg16},
                              {"resnet50", "ResNet-50", 224, 1000, false, NULL, resnet50},
                              {"densenet121", "DenseNet-121", 224, 1000, false, "denseblock", densenet121},
                              {"densenet_bc100", "DenseNet-BC-100 (k = 12)", 32, 10, false, "denseblock",
                               densenet_bc100},
                              {"unet", "U-Net", 224, 2, true, NULL, unet}};
const int peak_nets_count = (int)(sizeof peak_nets / sizeof *peak_nets);

void peak_must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "benchmark: %s\n", fr_last_error());
    exit(1);
}

/* ---- a trainee --------------------------------------------------------------------------------------------- */

typedef struct trainee {
    const peak_setting *at;
    const peak_case *c;
    fr_module *m;
    fr_optimizer *o;
    fr_grad_scaler *scaler; /* of mixed precision, else NULL */
} trainee;

static fr_status trainee_make(trainee *t, const peak_setting *at, const peak_case *c) {
    fr_status s = FR_OK;
    *t = (trainee){.at = at, .c = c};
    fr_seed(1);
    const fr_model_opts *o =
        FR_MODEL_OPTS(.classes = at->net->classes, .image_size = at->image_size, .device = at->device);
    FR_TRY(s, at->net->build(o, &t->m));
    FR_TRY(s, fr_sgd(t->m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &t->o));
    if (c->amp) FR_TRY(s, fr_grad_scaler_create(NULL, at->device, &t->scaler));
done:
    return s;
}

static void trainee_release(trainee *t) {
    fr_grad_scaler_release(&t->scaler);
    fr_optimizer_release(&t->o);
    fr_module_release(&t->m);
}

static fr_status batch_make(const peak_setting *at, fr_tensor **x, fr_tensor **target) {
    int64_t size = at->image_size, images[] = {at->batch, size, size, 3}, pixels[] = {at->batch, size, size};
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_normal(4, images, 0, 1, FR_F32, at->device, x));
    fr_tensor_category_set(*x, FR_MEM_INPUT);
    FR_TRY(s, fr_tensor_full(at->net->pixels ? 3 : 1, pixels, 1, FR_I64, at->device, target));
    fr_tensor_category_set(*target, FR_MEM_INPUT);
done:
    return s;
}

static fr_status forward(trainee *t, fr_tensor *x, fr_tensor **y) {
    const peak_case *c = t->c;
    fr_autocast_state was = {0};
    fr_status s = FR_OK;
    if (c->amp && (s = fr_autocast_begin(FR_F16, &was)) < 0) return s;
    s = c->how == PEAK_PLAIN ? fr_module_forward(t->m, x, y)
                             : fr_checkpoint_segments(t->m, (fr_segmentation)c->how, 0, NULL, x, y);
    if (c->amp) fr_autocast_end(was);
    return s;
}

/* Function called before the backward pass of a step. */
typedef void look_fn(void *ctx);

/* Releases each tensor as early as a training loop can. */
static fr_status train_step(trainee *t, look_fn *look, void *ctx, double *value) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL, *scaled = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, batch_make(t->at, &x, &target));
    FR_TRY(s, forward(t, x, &y));
    fr_tensor_release(&x);
    FR_TRY(s, fr_cross_entropy(y, target, NULL, &loss));
    fr_tensor_release(&y);
    fr_tensor_release(&target);
    if (t->scaler != NULL) FR_TRY(s, fr_grad_scaler_scale(t->scaler, loss, &scaled));
    if (look != NULL) look(ctx);
    FR_TRY(s, fr_backward(scaled != NULL ? scaled : loss, NULL));
    if (value != NULL) FR_TRY(s, fr_tensor_item(loss, value));
    fr_tensor_release(&scaled);
    fr_tensor_release(&loss);
    FR_TRY(s, t->scaler != NULL ? fr_grad_scaler_step(t->scaler, t->o) : fr_optimizer_step(t->o));
    if (t->scaler != NULL) FR_TRY(s, fr_grad_scaler_update(t->scaler, NULL));
    fr_optimizer_zero_grad(t->o);
done:
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_tensor_release(&scaled);
    return s;
}

static fr_status evaluate(trainee *t) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL;
    bool graph = t->c->work == PEAK_EVALUATE_GRAPH, was = graph ? false : fr_no_grad_begin();
    fr_status s = FR_OK;
    fr_module_evaluation_begin(t->m);
    FR_TRY(s, batch_make(t->at, &x, &target));
    FR_TRY(s, forward(t, x, &y));
done:
    fr_module_evaluation_end(t->m);
    if (!graph) fr_no_grad_end(was);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&y);
    return s;
}

static fr_status step(trainee *t, look_fn *look, void *ctx, double *value) {
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    if (s < 0) return s;
    fr_switches_set(t->c->switches);
    s = t->c->work == PEAK_TRAIN ? train_step(t, look, ctx, value) : evaluate(t);
    return fr_step_end(&scope) < 0 && s == FR_OK ? FR_EUSAGE : s;
}

/* ---- looking ------------------------------------------------------------------------------------------------- */

typedef struct watch {
    const peak_setting *at;
    size_t live[FR_CATEGORY_COUNT], part;
    peak_result *r;
} watch;

static void change(watch *w, const fr_event *e, fr_category c, bool more) {
    const char *part = w->at->net->part;
    size_t n = e->requested;
    w->live[c] = more ? w->live[c] + n : w->live[c] - n;
    if (part != NULL && c == FR_MEM_ACTIVATION && strstr(e->tag.module, part) != NULL)
        w->part = more ? w->part + n : w->part - n;
}

static void on_event(void *ctx, const fr_event *e) {
    watch *w = ctx;
    if (e->device != w->at->device) return;
    switch (e->kind) {
    case FR_EVENT_ALLOC: change(w, e, e->tag.category, true); break;
    case FR_EVENT_FREE: change(w, e, e->tag.category, false); break;
    case FR_EVENT_RELABEL:
        change(w, e, e->from, false);
        change(w, e, e->tag.category, true);
        break;
    default: return;
    }
    size_t rest = 0;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++)
        if (c != FR_MEM_PARAMETER && c != FR_MEM_GRADIENT && c != FR_MEM_OPTIMIZER) rest += w->live[c];
    if (rest > w->r->activations) w->r->activations = rest;
}

static void before_backward(void *ctx) {
    watch *w = ctx;
    w->r->saved = w->live[FR_MEM_ACTIVATION] + w->live[FR_MEM_INPUT];
    w->r->saved_part = w->part;
}

static fr_status hash_tensor(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *hash = ctx;
    size_t n = fr_tensor_nbytes(t);
    (void)path;
    (void)is_parameter;
    unsigned char *bytes = malloc(n + 1);
    if (bytes == NULL) exit(1);
    peak_must(fr_tensor_to_host(t, bytes));
    for (size_t i = 0; i < n; i++) *hash = (*hash ^ bytes[i]) * 1099511628211u; /* FNV-1a */
    free(bytes);
    return FR_OK;
}

void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out) {
    fr_memory_stats s;
    trainee t;
    *out = (peak_result){0};
    watch w = {.at = at, .r = out};
    peak_must(fr_event_subscribe(on_event, &w));
    peak_must(trainee_make(&t, at, c));
    peak_must(step(&t, NULL, NULL, NULL));
    out->activations = 0;
    peak_must(fr_memory_reset_peak(at->device));
    peak_must(step(&t, before_backward, &w, NULL));
    peak_must(fr_memory_stats_get(at->device, &s));
    out->peak = s.peak_requested;
    memcpy(out->by, s.at_peak_requested, sizeof out->by);
    out->step_memory = out->peak - out->by[FR_MEM_PARAMETER] - out->by[FR_MEM_OPTIMIZER];
    trainee_release(&t);
    fr_event_unsubscribe(on_event, &w);
}

fr_status peak_train(const peak_setting *at, const peak_case *c, int steps) {
    trainee t;
    fr_memory_stats m;
    uint64_t fingerprint = 14695981039346656037u;
    fr_status s = trainee_make(&t, at, c);
    for (int i = 0; i < steps && s == FR_OK; i++) {
        double loss = 0;
        FR_TRY(s, step(&t, NULL, NULL, &loss));
        printf("step %d: loss %.9g\n", i + 1, loss);
    }
    FR_TRY(s, s);
    FR_TRY(s, fr_module_each_tensor(t.m, hash_tensor, &fingerprint));
    FR_TRY(s, fr_memory_stats_get(at->device, &m));
    printf("parameters after it: %016llx; peak %zu bytes, reserved %zu\n", (unsigned long long)fingerprint,
           m.peak_requested, m.peak_reserved);
done:
    trainee_release(&t);
    return s;
}

double peak_exponent(const double *x, const double *y, int n) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < n; i++) {
        double lx = log(x[i]), ly = log(y[i]);
        sx += lx;
        sy += ly;
        sxx += lx * lx;
        sxy += lx * ly;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}
