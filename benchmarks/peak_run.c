/* peak_run.c - see peak_run.h. */
#include "peak_run.h"

#include <frugal/tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

const peak_net peak_nets[] = {{"vgg16", "VGG-16", 224, 1000, false, false, NULL, vgg16},
                              {"resnet50", "ResNet-50", 224, 1000, false, true, NULL, resnet50},
                              {"densenet121", "DenseNet-121", 224, 1000, false, true, "denseblock", densenet121},
                              {"densenet_bc100", "DenseNet-BC-100 (k = 12)", 32, 10, false, true, "denseblock",
                               densenet_bc100},
                              {"unet", "U-Net", 224, 2, true, true, NULL, unet}};
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
    fr_grad_scaler *scaler; /* of mixed precision in f16, else NULL */
} trainee;

static fr_status trainee_make(trainee *t, const peak_setting *at, const peak_case *c) {
    fr_model_opts o = *FR_MODEL_OPTS(.classes = at->net->classes, .image_size = at->image_size,
                                     .abn_slope = c->abn ? FR_ABN_SLOPE : 0, .device = at->device);
    fr_status s = FR_OK;
    *t = (trainee){.at = at, .c = c};
    fr_seed(1);
    FR_TRY(s, at->net->build(&o, &t->m));
    if (c->adam)
        FR_TRY(s, fr_adam(t->m, NULL, &t->o));
    else
        FR_TRY(s, fr_sgd(t->m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &t->o));
    if (c->fused) FR_TRY(s, fr_optimizer_fuse(t->o, true));
    if (c->amp && at->low == FR_F16) FR_TRY(s, fr_grad_scaler_create(NULL, at->device, &t->scaler));
done:
    return s;
}

static void trainee_release(trainee *t) {
    fr_grad_scaler_release(&t->scaler);
    fr_optimizer_release(&t->o);
    fr_module_release(&t->m);
}

static fr_status batch_make(const peak_setting *at, int64_t n, fr_tensor **x, fr_tensor **target) {
    int64_t size = at->image_size, images[] = {n, size, size, 3}, pixels[] = {n, size, size};
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
    if (c->amp && (s = fr_autocast_begin(t->at->low, &was)) < 0) return s;
    if (c->how == PEAK_PLAIN)
        s = fr_module_forward(t->m, x, y);
    else if (c->how == PEAK_PLAN)
        s = fr_checkpoint_plan(t->m, c->plan, x, y);
    else
        s = fr_checkpoint_segments(t->m, (fr_segmentation)c->how, c->segments, NULL, x, y);
    if (c->amp) fr_autocast_end(was);
    return s;
}

/* Function called before the first backward of a step. */
typedef void look_fn(void *ctx);

static fr_status optimizer_step(trainee *t) {
    if (t->scaler == NULL) return fr_optimizer_step(t->o);
    fr_status s = fr_grad_scaler_step(t->scaler, t->o);
    return s < 0 ? s : fr_grad_scaler_update(t->scaler, NULL);
}

/* Forward and backward of a part of a batch. Releases both tensors as early as a training loop can. */
static fr_status train_part(trainee *t, fr_tensor **x, fr_tensor **target, look_fn *look, void *ctx, double *value) {
    fr_tensor *y = NULL, *loss = NULL, *scaled = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, forward(t, *x, &y));
    fr_tensor_release(x);
    FR_TRY(s, fr_cross_entropy(y, *target, NULL, &loss));
    fr_tensor_release(&y);
    fr_tensor_release(target);
    if (t->scaler != NULL) FR_TRY(s, fr_grad_scaler_scale(t->scaler, loss, &scaled));
    if (look != NULL) look(ctx);
    FR_TRY(s, fr_backward(scaled != NULL ? scaled : loss, NULL));
    if (value != NULL) FR_TRY(s, fr_tensor_item(loss, value));
done:
    fr_tensor_release(&y);
    fr_tensor_release(&scaled);
    fr_tensor_release(&loss);
    return s;
}

static fr_status train_step(trainee *t, look_fn *look, void *ctx, double *value) {
    const peak_case *c = t->c;
    fr_tensor *all = NULL, *targets = NULL, *x = NULL, *target = NULL;
    int parts = c->parts > 0 ? c->parts : 1;
    int64_t n = t->at->batch / parts;
    fr_status s = FR_OK;
    if (c->whole) FR_TRY(s, batch_make(t->at, t->at->batch, &all, &targets));
    for (int i = 0; i < parts; i++) {
        if (c->whole) {
            FR_TRY(s, fr_tensor_narrow0(all, i * n, n, &x));
            FR_TRY(s, fr_tensor_narrow0(targets, i * n, n, &target));
        } else {
            FR_TRY(s, batch_make(t->at, n, &x, &target));
        }
        FR_TRY(s, train_part(t, &x, &target, i == 0 ? look : NULL, ctx, value));
    }
    FR_TRY(s, optimizer_step(t));
    fr_optimizer_zero_grad(t->o);
done:
    fr_tensor_release(&all);
    fr_tensor_release(&targets);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    return s;
}

static fr_status evaluate(trainee *t, look_fn *look, void *ctx) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL;
    bool graph = t->c->work == PEAK_EVALUATE_GRAPH, was = graph ? false : fr_no_grad_begin();
    fr_status s = FR_OK;
    fr_module_evaluation_begin(t->m);
    FR_TRY(s, batch_make(t->at, t->at->batch, &x, &target));
    FR_TRY(s, forward(t, x, &y));
    if (look != NULL) look(ctx);
done:
    fr_module_evaluation_end(t->m);
    if (!graph) fr_no_grad_end(was);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&y);
    return s;
}

static fr_status step_loss(trainee *t, look_fn *look, void *ctx, double *value) {
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    if (s < 0) return s;
    fr_switches_set(t->c->switches);
    s = t->c->work == PEAK_TRAIN ? train_step(t, look, ctx, value) : evaluate(t, look, ctx);
    return fr_step_end(&scope) < 0 && s == FR_OK ? FR_EUSAGE : s;
}

static fr_status step(trainee *t, look_fn *look, void *ctx) {
    return step_loss(t, look, ctx, NULL);
}

/* ---- looking ------------------------------------------------------------------------------------------------- */

enum { MAX_PARAMETERS = 1024 };

typedef struct watch {
    const peak_setting *at;
    size_t live[FR_CATEGORY_COUNT], part, casts;
    int64_t parameter[MAX_PARAMETERS]; /* elements */
    int parameters;
    char layer[256]; /* path of the last parameter's module */
    size_t layer_casts;
    peak_result *r;
} watch;

static bool in_part(const watch *w, const fr_event *e, fr_category c) {
    return w->at->net->part != NULL && c == FR_MEM_ACTIVATION && strstr(e->tag.module, w->at->net->part) != NULL;
}

static int64_t numel(const fr_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

/* The low-precision copy of a parameter: a cast with a parameter's number of elements. */
static bool is_weight_cast(const watch *w, const fr_event *e) {
    if ((e->tag.dtype != FR_F16 && e->tag.dtype != FR_BF16) || strcmp(e->tag.op, "cast") != 0) return false;
    for (int i = 0; i < w->parameters; i++)
        if (w->parameter[i] == numel(&e->tag.shape)) return true;
    return false;
}

static void change(watch *w, const fr_event *e, fr_category c, bool more) {
    size_t n = e->requested;
    w->live[c] = more ? w->live[c] + n : w->live[c] - n;
    if (in_part(w, e, c)) w->part = more ? w->part + n : w->part - n;
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
    if (e->kind != FR_EVENT_RELABEL && is_weight_cast(w, e)) {
        w->casts = e->kind == FR_EVENT_ALLOC ? w->casts + e->requested : w->casts - e->requested;
        if (w->casts > w->r->casts) w->r->casts = w->casts;
    }
    size_t update = w->live[FR_MEM_PARAMETER] + w->live[FR_MEM_GRADIENT] + w->live[FR_MEM_OPTIMIZER];
    if (update > w->r->update) w->r->update = update;
    size_t rest = 0;
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) rest += w->live[c];
    rest -= update;
    if (rest > w->r->activations) w->r->activations = rest;
}

static void before_backward(void *ctx) {
    watch *w = ctx;
    w->r->saved = w->live[FR_MEM_ACTIVATION] + w->live[FR_MEM_INPUT] - w->casts;
    w->r->saved_part = w->part;
}

/* Weight and bias of a layer are consecutive, with paths equal up to the last name. */
static fr_status note_parameter(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    watch *w = ctx;
    if (!is_parameter || w->parameters == MAX_PARAMETERS) return FR_OK;
    const char *name = strrchr(path, '.');
    size_t n = name != NULL ? (size_t)(name - path) : 0, cast = (fr_tensor_nbytes(t) / 2 + 511) / 512 * 512;
    bool same = strncmp(path, w->layer, n) == 0 && w->layer[n] == 0;
    snprintf(w->layer, sizeof w->layer, "%.*s", (int)n, path);
    w->layer_casts = same ? w->layer_casts + cast : cast;
    if (w->layer_casts > w->r->largest_cast) w->r->largest_cast = w->layer_casts;
    w->parameter[w->parameters++] = fr_tensor_numel(t);
    size_t bytes = (fr_tensor_nbytes(t) + 511) / 512 * 512;
    if (bytes > w->r->largest_parameter) w->r->largest_parameter = bytes;
    return FR_OK;
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

fr_status peak_two_steps(const peak_setting *at, const peak_case *c) {
    trainee t;
    fr_status s = trainee_make(&t, at, c);
    for (int i = 0; i < 2 && s == FR_OK; i++) s = step(&t, NULL, NULL);
    trainee_release(&t);
    return s;
}

static int least_units(const peak_case *c) {
    return c->how == (int)FR_SEGMENTS_COUNT ? c->segments : 2;
}

void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out) {
    fr_memory_stats s;
    fr_largest_op *largest = NULL;
    trainee t;
    *out = (peak_result){.possible = true};
    watch w = {.at = at, .r = out};
    peak_must(fr_event_subscribe(on_event, &w));
    peak_must(trainee_make(&t, at, c));
    if (c->how != PEAK_PLAIN && fr_module_units(t.m, NULL, 0) < least_units(c)) {
        out->possible = false;
    } else {
        peak_must(step(&t, NULL, NULL));
        out->update = out->activations = 0;
        peak_must(fr_module_each_tensor(t.m, note_parameter, &w));
        peak_must(fr_memory_reset_peak(at->device));
        peak_must(fr_largest_op_begin(at->device, &largest));
        peak_must(step(&t, before_backward, &w));
        size_t largest_op = fr_largest_op_bytes(largest);
        fr_largest_op_end(&largest);
        peak_must(fr_memory_stats_get(at->device, &s));
        out->peak = s.peak_requested;
        memcpy(out->by, s.at_peak_requested, sizeof out->by);
        out->step_memory = out->peak - out->by[FR_MEM_PARAMETER] - out->by[FR_MEM_OPTIMIZER];
        out->floor = out->by[FR_MEM_PARAMETER] + out->by[FR_MEM_OPTIMIZER] + largest_op;
        if (at->device != FR_META) {
            out->fingerprint = 14695981039346656037u;
            peak_must(fr_module_each_tensor(t.m, hash_tensor, &out->fingerprint));
        }
    }
    trainee_release(&t);
    fr_event_unsubscribe(on_event, &w);
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

static double timed_step(trainee *t) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    peak_must(step(t, NULL, NULL));
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double peak_time_ratio(const peak_setting *at, const peak_case *base, const peak_case *c, int rounds) {
    enum { MAX_ROUNDS = 99 };
    double ratio[MAX_ROUNDS];
    trainee a, b;
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    peak_must(trainee_make(&a, at, base));
    peak_must(trainee_make(&b, at, c));
    timed_step(&a); /* memory, primitives and pages exist from the second step on */
    timed_step(&b);
    for (int i = 0; i < rounds; i++) {
        bool first = i % 2 == 0;
        double x = timed_step(first ? &a : &b), y = timed_step(first ? &b : &a);
        ratio[i] = first ? y / x : x / y;
    }
    trainee_release(&a);
    trainee_release(&b);
    qsort(ratio, (size_t)rounds, sizeof *ratio, ascending);
    return ratio[rounds / 2];
}

fr_status peak_train(const peak_setting *at, const peak_case *c, int steps) {
    trainee t;
    fr_memory_stats m;
    uint64_t fingerprint = 14695981039346656037u;
    fr_status s = trainee_make(&t, at, c);
    for (int i = 0; i < steps && s == FR_OK; i++) {
        double loss = 0;
        FR_TRY(s, step_loss(&t, NULL, NULL, &loss));
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
