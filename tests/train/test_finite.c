/* test_finite.c - a run whose values become NaN ends with a failure; files and states keep the last finite values. */
#include "../data/files.h"
#include "optim/optimizer.h"
#include "program.h"
#include "session/step.h"

#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <unistd.h>

TestSuite(finite, .init = files_begin, .fini = files_end, .timeout = 120);

enum { ANY = -1, SIDE = 8, IMAGES = 20, BATCH = 4, EPOCH = IMAGES / BATCH, EPOCHS = 3, LAST = EPOCH * EPOCHS };

typedef struct app {
    fr_session *session;
    const char *poke; /* path of the tensor that becomes NaN after step `at` */
    int64_t at;
    bool masks;
} app;

static fr_status frame(void *ctx, int64_t index, void *pixels, void *target) {
    const app *a = ctx;
    for (int i = 0; i < SIDE * SIDE; i++) {
        ((uint8_t *)pixels)[i] = (uint8_t)((index * 31 + i * 7 + index % 3 * 40) % 251);
        if (a->masks) ((uint8_t *)target)[i] = (uint8_t)((index + i) % 3);
    }
    for (int i = 0; i < 3 && !a->masks; i++) ((float *)target)[i] = (float)((index + i) % 3);
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    const app *a = ctx;
    if (a->masks)
        return fr_model("unet1_w0.1",
                        FR_MODEL_OPTS(.classes = classes, .in_channels = 1, .image_size = SIDE, .device = device), out);
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 1});
    x = fr_net_batchnorm2d(n, "bn", fr_net_conv2d(n, "conv", x, 4, 3, NULL, FR_NO_BIAS), NULL);
    x = fr_net_linear(n, "fc", fr_net_flatten(n, "rows", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1), classes,
                      FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status fill(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const app *a = ctx;
    (void)is_parameter;
    return strstr(path, a->poke) != NULL && fr_dtype_is_float(fr_tensor_dtype(t)) ? fr_tensor_fill(t, NAN) : FR_OK;
}

static fr_status poke(void *ctx, const fr_session_info *now) {
    app *a = ctx;
    return now->step == a->at ? fr_module_each_tensor(fr_session_module(a->session), fill, a) : FR_OK;
}

static fr_dataset *frames(app *a) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = IMAGES,
                                                .classes = 3,
                                                .height = SIDE,
                                                .width = SIDE,
                                                .channels = 1,
                                                .read = frame,
                                                .ctx = a,
                                                .target = a->masks ? FR_TARGET_PIXELS : FR_TARGET_VECTOR},
                           &d));
    return d;
}

static fr_status look(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    if (fr_tensor_dtype(t) != FR_F32) return FR_OK;
    const float *x = fr_tensor_data(t);
    for (int64_t i = 0; i < fr_tensor_numel(t); i++)
        cr_expect(isfinite(x[i]), "%s: %s[%d] is %g", (const char *)ctx, path, (int)i, x[i]);
    return FR_OK;
}

typedef struct row {
    const char *poke;
    int64_t at;
    bool test, best, save, masks;
    double ema;
    int64_t file;     /* step of the exported file's weights; 0: there is no file; ANY: of any epoch */
    const char *said; /* of the sentence */
} row;

#define TESTED "the test loss is nan after step "
#define HOLDS  "the training holds inf or NaN, first in "

static const row rows[] = {
    {"fc.weight", LAST, true, false, false, false, 0, 0, TESTED "15"},
    {"fc.weight", LAST, true, true, true, false, 0, 2 * EPOCH, HOLDS "fc.weight"},
    {"fc.weight", LAST, true, true, false, false, 0, 2 * EPOCH, TESTED "15"},
    {"fc.weight", LAST, false, false, false, false, 0, 0, HOLDS "fc.weight"},
    {"fc.weight", EPOCH + 2, true, true, true, false, 0, EPOCH, HOLDS "fc.weight"},
    {"fc.weight", EPOCH + 2, true, true, false, false, 0, EPOCH, "the loss is nan after step 8"},
    {"running_var", LAST, true, true, false, false, 0, 2 * EPOCH, TESTED "15"},
    {"running_var", EPOCH, false, false, true, false, 0, 0, HOLDS "bn.running_var"},
    {"running_mean", LAST, false, false, false, false, 0, 0, HOLDS "bn.running_mean"},
    {"fc.bias", LAST, true, true, false, false, 0.5, 2 * EPOCH, HOLDS "fc.bias"}, /* the averages are still finite */
    {"fc.bias", 2 * EPOCH, true, false, true, false, 0.5, 0, HOLDS "fc.bias"},
    {"weight", LAST, true, true, true, true, 0, ANY, HOLDS}, /* the best accuracy decides */
    {"running_var", 2 * EPOCH, true, true, false, true, 0, EPOCH, TESTED "10"},
};

static void options(app *a, const row *r, fr_session_opts *o) {
    *o = fr_session_opts_default();
    o->model = network;
    o->on_step = poke;
    o->ctx = a;
    o->train.optim.epochs = EPOCHS;
    o->train.optim.batch_size = BATCH;
    o->train.optim.lr = 1e-4; /* each epoch has a lower loss, so the newest is the best */
    o->train.optim.ema = r->ema;
    o->train.files.export_weights = files_path("w.safetensors");
    o->train.files.keep_best = r->best;
    if (!r->save) return;
    o->train.files.save = files_path("states");
    o->train.files.save_every = 1;
    o->train.files.keep = 1;
}

static void expect_state(app *a, const row *r, const char *what) {
    fr_session_opts o;
    fr_session_info now;
    fr_dataset *d = frames(a);
    options(a, r, &o);
    o.train.files.keep_best = false;
    o.train.files.export_weights = NULL;
    o.train.files.resume = "latest";
    MUST(fr_session_create(&o, d, r->test ? d : NULL, &a->session));
    MUST(fr_session_info_get(a->session, &now));
    cr_expect_eq(now.step, r->at - 1, "%s: step %d", what, (int)now.step);
    MUST(fr_module_each_tensor(fr_session_module(a->session), look, (void *)(uintptr_t)what));
    fr_session_release(&a->session);
    fr_dataset_release(&d);
}

Test(finite, a_run_that_becomes_nan_leaves_the_last_finite_files) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        app a = {.poke = r->poke, .at = r->at, .masks = r->masks};
        fr_session_opts o;
        fr_dataset *d = frames(&a);
        fr_module *m = NULL;
        char what[64], command[700];
        snprintf(what, sizeof what, "row %zu", i);
        snprintf(command, sizeof command, "rm -rf %s/*", files_root);
        cr_assert_eq(system(command), 0);
        options(&a, r, &o);
        MUST(fr_session_create(&o, d, r->test ? d : NULL, &a.session));
        cr_expect_eq(fr_session_run(a.session), FR_EINVAL, "%s", what);
        cr_expect_not_null(strstr(fr_last_error(), r->said), "%s: %s", what, fr_last_error());
        fr_session_release(&a.session);
        fr_dataset_release(&d);
        cr_expect_eq(access(files_path("w.safetensors"), F_OK) == 0, r->file != 0, "%s", what);
        if (r->file != 0) {
            MUST(network(&a, FR_CPU, 3, &m));
            MUST(fr_weights_load(m, files_path("w.safetensors"), NULL));
            MUST(fr_module_each_tensor(m, look, what));
            int64_t steps = 0;
            for (int k = 0; k < fr_module_layers(m); k++) { /* counted by the norms */
                fr_layer l;
                MUST(fr_module_layer_get(m, k, &l));
                const fr_tensor *t = fr_module_tensor(l.module, "num_batches_tracked");
                if (t != NULL) MUST(fr_tensor_to_host(t, &steps));
            }
            if (r->file != ANY) cr_expect_eq(steps, r->file, "%s: weights of step %d", what, (int)steps);
            fr_module_release(&m);
        }
        if (r->save) expect_state(&a, r, what);
    }
}

static fr_status fill_state(void *ctx, const char *name, fr_tensor *t) {
    return strcmp(name, ctx) == 0 ? fr_tensor_fill(t, INFINITY) : FR_OK;
}

/* Types and places; a state alone may be the first to overflow. */
Test(finite, all_float_tensors_and_states_are_looked_at) {
    static const struct {
        fr_dtype dtype;
        double value;
        bool found;
    } cells[] = {{FR_F32, NAN, true},        {FR_F32, -INFINITY, true}, {FR_F32, 3e38, false}, {FR_F16, INFINITY, true},
                 {FR_F16, 65504, false},     {FR_F16, NAN, true},       {FR_BF16, NAN, true},  {FR_BF16, 3e38, false},
                 {FR_BF16, -INFINITY, true}, {FR_F64, 1e300, false},    {FR_F64, NAN, true}};
    static const fr_module_class class_ = {.name = "Weight"};
    app a = {0};
    fri_config c = {.opts = fr_train_opts_default()};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        fri_run r = {.config = &c};
        fr_tensor *w = NULL, *last = NULL;
        MUST(fr_tensor_zeros(2, (int64_t[]){3, 2}, cells[i].dtype, FR_CPU, &w));
        MUST(fr_tensor_detach(w, &last));
        MUST(fr_module_create(&class_, 0, &r.net.model));
        MUST(fr_module_add_parameter(r.net.model, "weight", &w));
        MUST(fr_sgd(r.net.model, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &r.net.optimizer));
        MUST(fri_watch_values(&r));
        MUST(fr_tensor_narrow0(last, 2, 1, &last));
        MUST(fr_tensor_fill(last, cells[i].value));
        cr_expect_eq(fri_watch_values(&r), cells[i].found ? FR_EINVAL : FR_OK, "cell %zu: %s", i, fr_last_error());
        fr_tensor_release(&last);
        fr_optimizer_release(&r.net.optimizer);
        fr_module_release(&r.net.model);
    }
    fri_run r = {.config = &c};
    fr_tensor *x = NULL, *loss = NULL;
    fr_step_scope scope;
    MUST(network(&a, FR_CPU, 3, &r.net.model));
    MUST(fr_sgd(r.net.model, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &r.net.optimizer));
    MUST(fr_tensor_full(4, (int64_t[]){2, SIDE, SIDE, 1}, 1, FR_F32, FR_CPU, &x));
    MUST(fr_step_begin(&scope));
    MUST(fr_module_forward(r.net.model, x, &x));
    MUST(fr_sum(x, &loss));
    MUST(fr_backward(loss, NULL));
    MUST(fr_optimizer_step(r.net.optimizer));
    MUST(fr_step_end(&scope));
    MUST(fri_watch_values(&r));
    MUST(fri_optimizer_each_state(r.net.optimizer, fill_state, "fc.bias.momentum_buffer"));
    EXPECT_FAIL(fri_watch_values(&r), FR_EINVAL, "first in fc.bias.momentum_buffer");
    fr_tensor_release(&x);
    fr_tensor_release(&loss);
    fr_optimizer_release(&r.net.optimizer);
    fr_module_release(&r.net.model);
}

/* Predictions of a network of NaN: status 1, a sentence, no mask. */
Test(finite, a_network_of_nan_predicts_nothing) {
    for (int masks = 0; masks < 2; masks++) {
        app a = {.poke = "weight"};
        fr_module *m = NULL;
        uint8_t rgb[3 * 64 * 64], *png = NULL;
        char arguments[2048];
        const char *const model = masks ? "unet1" : "resnet18_small";
        fr_weights_info info = {.classes = 3, .channels = 3, .height = 16, .width = 16, .std = {1, 1, 1}};
        picture_fill(rgb, 16, 16);
        files_write("x.png", png, png_bytes(PNG_KIND_RGB, rgb, 16, 16, &png));
        free(png);
        strcpy(info.model, model);
        MUST(fr_model(model, FR_MODEL_OPTS(.classes = 3, .image_size = 16), &m));
        MUST(fr_module_each_tensor(m, fill, &a));
        MUST(fr_weights_save(m, files_path("nan.safetensors"), FR_WEIGHTS_OPTS(.info = &info)));
        fr_module_release(&m);
        snprintf(arguments, sizeof arguments, "--weights %s --predict %s%s%s", files_path("nan.safetensors"),
                 files_path("x.png"), masks ? " --masks " : "", masks ? files_path("m") : "");
        const outcome o = program_run("train_unet", arguments);
        cr_expect_eq(o.status, 1, "%s: %s", model, o.err);
        EXPECT_MATCH(o.err, "predict: result 0 of the network is NaN");
        cr_expect_str_eq(o.out, "", "%s", model);
        cr_expect_neq(access(files_path("m/x.png"), F_OK), 0);
    }
}

/* The last step of a training makes the weights too large; no file is written. */
Test(finite, a_trainer_ends_with_status_1) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "--batch-size 1500 --epochs 1 --lr 9e5 --momentum 0 --keep-best --export %s",
             files_path("w"));
    const outcome o = program_run("train_own", arguments);
    cr_expect_eq(o.status, 1, "%s", o.out);
    EXPECT_MATCH(o.err, "the test loss is (nan|inf) after step 1: --lr 900000 may be too high");
    cr_expect_neq(access(files_path("w"), F_OK), 0);
}
