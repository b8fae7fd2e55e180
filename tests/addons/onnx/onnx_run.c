/* onnx_run.c - what an ONNX file computes here, for test_onnx.py.
 *
 *   onnx_run FILE INPUT OUTPUT [exact] [fold] [plain] [steps=N] [lr=X] [budget] [save=FILE] [own=NAME]
 *            [result=NAME] [softmax] [load=FILE] [weights=FILE] [results=N] [planned]
 * INPUT holds "images" f32 [n, height, width, channels] and, for steps, "target" i64. OUTPUT gets "logits" of the
 * evaluation; with steps "loss" f32 [N] of N steps of SGD (momentum 0.9) and "after" f32, the logits of the evaluation
 * behind them; plain: without dropout and stochastic depth. budget: a session trains three steps on 128 images of that
 * size, with all switches off and within half of the planned bytes, and both must come to the same loss. planned: a
 * session trains one step on as many images as the input has, in the planned bytes. exact: fr_exact_convolutions_set.
 * save writes the network before the steps; with fold behind them, folded. own: not the file's network but fr_model's
 * of this name, with FILE as its weights. result: this value of the file is the result. softmax: a last softmax is
 * left out. load: other weights; weights: written after the steps. results: of the file, "logits", "logits1" ...; the
 * file's further inputs are "images1" ... */
#include "io/safetensors.h"

#include <frugal/addon.h>
#include <frugal/models.h>
#include <frugal/onnx.h>
#include <frugal/optim.h>
#include <frugal/session.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct words {
    bool exact, fold, budget, planned, plain, softmax;
    int64_t steps, results;
    double lr;
    const char *save, *own, *result, *load, *weights;
} words;

static words read_words(int argc, char **argv) {
    words w = {.lr = 0.01, .results = 1};
    for (int i = 4; i < argc; i++) {
        w.exact = w.exact || strcmp(argv[i], "exact") == 0;
        w.fold = w.fold || strcmp(argv[i], "fold") == 0;
        w.plain = w.plain || strcmp(argv[i], "plain") == 0;
        w.softmax = w.softmax || strcmp(argv[i], "softmax") == 0;
        if (strncmp(argv[i], "result=", 7) == 0) w.result = argv[i] + 7;
        w.budget = w.budget || strcmp(argv[i], "budget") == 0;
        w.planned = w.planned || strcmp(argv[i], "planned") == 0;
        if (strncmp(argv[i], "results=", 8) == 0) w.results = strtoll(argv[i] + 8, NULL, 10);
        if (strncmp(argv[i], "steps=", 6) == 0) w.steps = strtoll(argv[i] + 6, NULL, 10);
        if (strncmp(argv[i], "lr=", 3) == 0) w.lr = strtod(argv[i] + 3, NULL);
        if (strncmp(argv[i], "own=", 4) == 0) w.own = argv[i] + 4;
        if (strncmp(argv[i], "load=", 5) == 0) w.load = argv[i] + 5;
        if (strncmp(argv[i], "weights=", 8) == 0) w.weights = argv[i] + 8;
        if (strncmp(argv[i], "save=", 5) == 0) w.save = argv[i] + 5;
    }
    return w;
}

static fr_status read_tensor(fri_safetensors *file, const char *name, fr_tensor **x) {
    const fri_safetensors_entry *e = fri_safetensors_find(file, name);
    if (e == NULL) return fr_fail(FR_EFORMAT, "no '%s'", name);
    return fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, e->dtype, FR_CPU, x);
}

static fr_status evaluate(fr_module *m, fr_tensor *const *x, int n_x, fr_tensor **y, int n_y) {
    fr_module_evaluation_begin(m);
    const bool grad = fr_no_grad_begin();
    fr_status s = fr_module_forward_n(m, x, n_x, y, n_y);
    fr_no_grad_end(grad);
    fr_module_evaluation_end(m);
    return s;
}

/* Writes the network and reads the file, because every written file must be readable. */
static fr_status save(fr_module *m, const char *path) {
    fr_module *again = NULL;
    fr_status s = fr_onnx_save(m, path, NULL);
    if (s == FR_OK) s = fr_onnx_load(path, NULL, &again);
    fr_module_release(&again);
    return s;
}

/* ---- steps ----------------------------------------------------------------------------------------------- */

static void without_dropout(fr_module *m) {
    fr_layer l;
    for (int i = 0; i < fr_module_layers(m); i++) {
        if (fr_module_layer_get(m, i, &l) < 0) continue;
        const char *class_ = fr_module_class_of(l.module)->name;
        if (strcmp(class_, "Dropout") == 0 || strcmp(class_, "StochasticDepth") == 0)
            *(double *)fr_module_state(l.module) = 0;
    }
}

static fr_status train(fr_module *m, const words *w, fr_tensor *x, fr_tensor *target, float *loss) {
    fr_optimizer *sgd = NULL;
    fr_tensor *y = NULL, *l = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_sgd(m, FR_SGD_OPTS(.lr = w->lr, .momentum = 0.9), &sgd));
    for (int64_t i = 0; i < w->steps; i++) {
        double v = 0;
        fr_optimizer_zero_grad(sgd);
        FR_TRY(s, fr_module_forward(m, x, &y));
        FR_TRY(s, fr_cross_entropy(y, target, NULL, &l));
        FR_TRY(s, fr_tensor_item(l, &v));
        FR_TRY(s, fr_backward(l, NULL));
        FR_TRY(s, fr_optimizer_step(sgd));
        loss[i] = (float)v;
    }
done:
    fr_tensor_release(&y);
    fr_tensor_release(&l);
    fr_optimizer_release(&sgd);
    return s;
}

/* ---- a budget -------------------------------------------------------------------------------------------- */

typedef struct app {
    const char *path;
    int64_t pixels;
    bool mask;
} app;

static fr_status image(void *ctx, int64_t index, void *pixels, void *target) {
    const app *a = ctx;
    for (int64_t i = 0; i < a->pixels; i++)
        ((uint8_t *)pixels)[i] = (uint8_t)((uint64_t)(index * 7919 + i) * UINT64_C(2654435761) >> 24);
    if (a->mask)
        for (int64_t i = 0; i < a->pixels / 3; i++) ((uint8_t *)target)[i] = (uint8_t)(i % 3);
    else
        *(int64_t *)target = index % 2;
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)classes;
    return fr_onnx_load(((app *)ctx)->path, FR_ONNX_OPTS(.device = device), out);
}

static fr_status session(app *a, fr_dataset *d, int64_t batch, int64_t epochs, size_t budget, fr_session_info *info) {
    fr_session_opts o = fr_session_opts_default();
    fr_session *session = NULL;
    fr_status s = FR_OK;
    o.model = network;
    o.ctx = a;
    o.train.optim.epochs = epochs;
    o.train.optim.batch_size = batch;
    o.train.device = FR_CPU;
    o.train.optim.lr = 1e-3;
    o.train.memory.arena = true;
    if (budget > 0) o.train.memory.budget = budget;
    if (budget == SIZE_MAX) o.train.memory.switches = fr_switches_all_off();
    o.out = getenv("FRUGAL_TEST_VERBOSE") != NULL ? stderr : NULL;
    FR_TRY(s, fr_session_create(&o, d, NULL, &session));
    FR_TRY(s, fr_session_run(session));
    s = fr_session_info_get(session, info);
done:
    fr_session_release(&session);
    return s;
}

/* Trains within half of the planned bytes, or in the planned bytes. */
static fr_status within(const char *path, fr_tensor *x, fr_tensor *y, bool budget) {
    const int64_t batch = budget ? 128 : fr_tensor_dim(x, 0);
    app a = {path, fr_tensor_numel(x) / fr_tensor_dim(x, 0), fr_tensor_rank(y) == 4};
    fr_session_info plain, half;
    fr_dataset *d = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_dataset_create(&(fr_dataset_source){.count = batch,
                                                     .classes = fr_tensor_dim(y, -1),
                                                     .target = a.mask ? FR_TARGET_PIXELS : FR_TARGET_CLASS,
                                                     .height = fr_tensor_dim(x, 1),
                                                     .width = fr_tensor_dim(x, 2),
                                                     .channels = fr_tensor_dim(x, 3),
                                                     .read = image,
                                                     .ctx = &a},
                                &d));
    FR_TRY(s, session(&a, d, batch, budget ? 3 : 1, budget ? SIZE_MAX : 0, &plain));
    if (!budget && plain.peak_reserved != plain.planned)
        s = fr_fail(FR_EUSAGE, "%zu bytes planned, %zu used", plain.planned, plain.peak_reserved);
    if (!budget) goto done;
    FR_TRY(s, session(&a, d, batch, 3, plain.planned / 2, &half));
    printf("plain %zu bytes, loss %.9g; within half %zu bytes, loss %.9g\n", plain.planned, plain.loss,
           half.peak_reserved, half.loss);
    if (half.peak_reserved > plain.planned / 2 || !(half.loss == plain.loss))
        s = fr_fail(FR_EUSAGE, "half a budget is %zu bytes and another loss", half.peak_reserved);
done:
    fr_dataset_release(&d);
    return s;
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static fri_safetensors_entry entry(const char *name, fr_tensor *t) {
    return (fri_safetensors_entry){.name = name,
                                   .dtype = FR_F32,
                                   .shape = fri_shape_of(fr_tensor_rank(t), fr_tensor_shape(t)),
                                   .data = fr_tensor_data(t)};
}

static fr_status work(char **argv, const words *w) {
    fri_safetensors *file = NULL;
    fr_module *m = NULL;
    enum { MOST = 8 };
    fr_tensor *x = NULL, *in[MOST] = {NULL}, *target = NULL, *y = NULL, *out[MOST] = {NULL}, *after = NULL,
              *loss = NULL;
    const int results = w->results < MOST ? (int)w->results : MOST;
    int n = 0, inputs = 1;
    fr_status s = FR_OK;
    FR_TRY(s, fri_safetensors_open_as(argv[2], FRI_SAFETENSORS_COPIED, &file));
    FR_TRY(s, fri_safetensors_read(file));
    FR_TRY(s, read_tensor(file, "images", &x));
    in[0] = x;
    for (char name[16]; inputs < MOST; inputs++) {
        snprintf(name, sizeof name, "images%d", inputs);
        if (fri_safetensors_find(file, name) == NULL) break;
        FR_TRY(s, read_tensor(file, name, &in[inputs]));
    }
    if (w->own != NULL) {
        FR_TRY(s, fr_model(w->own, FR_MODEL_OPTS(.head = FR_HEAD_TORCHVISION), &m));
        FR_TRY(s, fr_weights_load(m, argv[1], NULL));
    } else {
        fr_onnx_opts o = *FR_ONNX_OPTS();
        if (fr_tensor_rank(x) == 4) o.height = fr_tensor_dim(x, 1), o.width = fr_tensor_dim(x, 2);
        o.drop_softmax = w->softmax;
        o.results = &w->result;
        o.n_results = w->result != NULL;
        FR_TRY(s, fr_onnx_load(argv[1], &o, &m));
    }
    if (w->load != NULL) FR_TRY(s, fr_weights_load(m, w->load, NULL));
    FR_TRY(s, evaluate(m, in, inputs, out, results));
    y = out[0];
    static const char *const called[MOST] = {"logits",  "logits1", "logits2", "logits3",
                                             "logits4", "logits5", "logits6", "logits7"};
    fri_safetensors_entry e[MOST + 2];
    for (; n < results; n++) e[n] = entry(called[n], out[n]);
    if (w->save != NULL && !w->fold) FR_TRY(s, save(m, w->save));
    if (w->budget) FR_TRY(s, within(argv[1], x, y, true));
    if (w->planned) FR_TRY(s, within(argv[1], x, y, false));
    if (w->plain) without_dropout(m);
    if (w->steps > 0) {
        FR_TRY(s, read_tensor(file, "target", &target));
        FR_TRY(s, fr_tensor_zeros(1, &w->steps, FR_F32, FR_CPU, &loss));
        FR_TRY(s, train(m, w, x, target, fr_tensor_data(loss)));
        FR_TRY(s, evaluate(m, &x, 1, &after, 1));
        e[n++] = entry("loss", loss);
        e[n++] = entry("after", after);
    }
    if (w->weights != NULL) FR_TRY(s, fr_weights_save(m, w->weights, NULL));
    if (w->save != NULL && w->fold) {
        const fr_addon *fold = fr_addon_find("fold");
        FR_TRY(s, fold != NULL ? fold->fold(&m) : fr_addon_missing("fold", "fold"));
        FR_TRY(s, save(m, w->save));
    }
    s = fri_safetensors_write(argv[3], e, (size_t)n, NULL, 0, NULL, NULL);
done:
    fri_safetensors_close(&file);
    for (int i = 0; i < MOST; i++) {
        fr_tensor_release(&in[i]);
        fr_tensor_release(&out[i]);
    }
    fr_tensor_release(&target);
    fr_tensor_release(&after);
    fr_tensor_release(&loss);
    fr_module_release(&m);
    return s;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr,
                "usage: onnx_run FILE INPUT OUTPUT [exact] [fold] [plain] [steps=N] [lr=X] [budget] [save=FILE]\n");
        return 2;
    }
    const words w = read_words(argc, argv);
    fr_exact_convolutions_set(w.exact);
    const fr_status s = work(argv, &w);
    if (s < 0) fprintf(stderr, "onnx_run: %s: %s\n", fr_status_name(s), fr_last_error());
    return s < 0;
}
