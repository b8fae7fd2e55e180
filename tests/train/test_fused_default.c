/* test_fused_default.c - the fused step by default: where other options permit the fused step, with the bits and the
 * hooks of the ordinary step, in less memory. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <frugal/frugal.h>
#include <frugal/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 24, SIZE = 8, STEPS = 4 };

TestSuite(fused_default, .init = files_begin, .fini = files_end);

static cJSON *report_of(const char *flags) {
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             "--depth 11 --batch-size 4 --steps 2 --eval-every 0 --dataset synthetic --plan --quiet --report %s %s",
             files_path("r.json"), flags);
    const outcome o = program_run("train_vgg", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    return report_read(files_path("r.json"));
}

/* The report says the choice, and the planned gradients are one layer's or all. */
Test(fused_default, is_on_where_the_other_options_allow) {
    static const struct {
        const char *flags, *choice;
    } runs[] = {
        {"", "on"},
        {"--device meta", "on"},
        {"--device cuda", "off"},
        {"--amp=bf16", "on"},
        {"--half", "on"},
        {"--checkpoint-segments 2 --optimizer adam", "on"},
        {"--all-off --fused-step=auto", "on"},
        {"--fused-step --no-fused-step", "off"},
        {"--all-off", "off"},
        {"--amp", "off"},
        {"--half --master-weights", "off"},
        {"--accumulate 2", "off"},
        {"--split-batch 2", "off"},
        {"--clip 1", "off"},
        {"--grad-zero", "off"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cJSON *r = report_of(runs[i].flags), *flags = report_at(r, "flags", NULL);
        const bool on = strcmp(runs[i].choice, "on") == 0;
        cr_expect_str_eq(cJSON_GetObjectItem(flags, "fused-step")->valuestring, runs[i].choice, "%s", runs[i].flags);
        const double bytes = cJSON_GetObjectItem(report_at(r, "memory", "at_peak"), "gradient")->valuedouble;
        cr_expect(on ? bytes < 11e6 : bytes > 11e6, "%s: %.0f bytes of gradients", runs[i].flags, bytes);
        cJSON_Delete(r);
    }
}

/* Gradients wait for the step under a loss scale: in half of the bytes, until others are added. */
Test(fused_default, half_gradients_until_others_are_added) {
    static const struct {
        const char *flags;
        bool half;
    } runs[] = {{"--amp", true},
                {"--amp --checkpoint-segments 2", true},
                {"--amp --no-half-gradients", false},
                {"--amp --all-off", false},
                {"--amp --accumulate 2", false},
                {"--amp --split-batch 2", false},
                {"--amp --grad-zero", false}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cJSON *r = report_of(runs[i].flags);
        const double bytes = cJSON_GetObjectItem(report_at(r, "memory", "at_peak"), "gradient")->valuedouble;
        cr_expect(runs[i].half ? bytes < 20e6 : bytes > 30e6, "%s: %.0f bytes of gradients", runs[i].flags, bytes);
        cJSON_Delete(r);
    }
}

Test(fused_default, half_gradients_change_no_weight) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        char *w[2];
        for (int on = 0; on < 2; on++) {
            char arguments[512], name[16];
            snprintf(name, sizeof name, "w%d.safetensors", on);
            snprintf(arguments, sizeof arguments,
                     "--depth 16 --growth 8 --image-size 16 --batch-size 8 --steps 4 --eval-every 0 --quiet "
                     "--dataset synthetic --amp=%s --fused-step=%s %s --export %s",
                     bf16 ? "bf16" : "fp16", bf16 ? "on" : "off", on ? "" : "--no-half-gradients", files_path(name));
            const outcome o = program_run("train_densenet", arguments);
            cr_assert_eq(o.status, 0, "%s", o.err);
            w[on] = malloc(1 << 24);
            FILE *f = fopen(files_path(name), "rb");
            cr_assert_not_null(f, "%s", files_path(name));
            memset(w[on], 0, 1 << 24);
            cr_expect_gt(fread(w[on], 1, 1 << 24, f), 10000);
            fclose(f);
        }
        cr_expect_eq(memcmp(w[0], w[1], 1 << 24), 0, "weights differ, bf16 %d", bf16);
        free(w[0]);
        free(w[1]);
    }
}

/* ---- sessions ------------------------------------------------------------------------------------------------ */

typedef struct app {
    fr_session *session;
    int hooks, kept;
    bool backward; /* of the program, after each step */
} app;

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    (void)ctx;
    uint8_t *pixels = to;
    for (int i = 0; i < SIZE * SIZE; i++) pixels[i] = (uint8_t)((index * 37 + i * 11) % 251);
    *(int64_t *)target = index % 3;
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 1});
    x = fr_net_conv2d(n, "conv", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, "relu", fr_net_batchnorm2d(n, "bn", x, NULL));
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

/* A hook of the program sees the gradient before the update. */
static fr_status see_gradient(void *ctx, fr_tensor *leaf) {
    ((app *)ctx)->hooks += fr_tensor_get_grad(leaf) != NULL;
    return FR_OK;
}

static fr_tensor *weight_of(const app *a) {
    return fr_module_tensor(fr_module_find(fr_session_module(a->session), "fc"), "weight");
}

/* The program's own backward leaves gradients and moves no parameter. */
static fr_status own_backward(void *ctx, const fr_session_info *now) {
    app *a = ctx;
    fr_module *m = fr_session_module(a->session);
    fr_tensor *x = NULL, *w = weight_of(a);
    (void)now;
    if (!a->backward) return FR_OK;
    const float before = *(const float *)fr_tensor_data(w);
    cr_expect_null(fr_tensor_get_grad(w), "a step leaves a gradient");
    fr_module_evaluation_begin(m);
    MUST(fr_tensor_full(4, (int64_t[]){2, SIZE, SIZE, 1}, 1, FR_F32, FR_CPU, &x));
    MUST(fr_module_forward(m, x, &x));
    MUST(fr_sum(x, &x));
    MUST(fr_backward(x, NULL));
    fr_module_evaluation_end(m);
    a->kept += fr_tensor_get_grad(w) != NULL;
    cr_expect_eq(*(const float *)fr_tensor_data(w), before, "a parameter moved outside of a step");
    fr_module_zero_grad(m);
    fr_tensor_release(&x);
    return FR_OK;
}

static fr_status add_bits(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const unsigned char *p = fr_tensor_data(t);
    uint64_t *hash = ctx;
    (void)path, (void)is_parameter;
    for (size_t i = 0; i < fr_tensor_nbytes(t); i++) *hash = (*hash ^ p[i]) * UINT64_C(1099511628211);
    return FR_OK;
}

static uint64_t trained(app *a, const fr_train_opts *with) {
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *d = NULL;
    uint64_t hash = UINT64_C(14695981039346656037);
    o.train = *with;
    o.model = network;
    o.on_step = own_backward;
    o.ctx = a;
    o.train.device = FR_CPU;
    o.train.optim.batch_size = 8;
    o.train.optim.epochs = FR_TRAIN_AUTO;
    o.train.optim.steps = STEPS;
    const fr_dataset_source of =
        {.count = IMAGES, .classes = 3, .height = SIZE, .width = SIZE, .channels = 1, .read = frame};
    MUST(fr_dataset_create(&of, &d));
    MUST(fr_session_create(&o, d, NULL, &a->session));
    if (a->hooks >= 0) MUST(fr_tensor_set_grad_hook(weight_of(a), see_gradient, a));
    MUST(fr_session_run(a->session));
    MUST(fr_module_each_tensor(fr_session_module(a->session), add_bits, &hash));
    fr_session_release(&a->session);
    fr_dataset_release(&d);
    return hash;
}

/* Optimizers with fields that no flag sets; with a hook and a backward pass of the program, and without. */
Test(fused_default, sessions_end_with_the_bits_of_the_ordinary_step) {
    fr_train_opts o[6];
    for (int i = 0; i < 6; i++) o[i] = fr_session_opts_default().train;
    o[1].optim.optimizer = FR_TRAIN_ADAM;
    o[2].optim.optimizer = FR_TRAIN_RMSPROP;
    o[3].optim.ema = 0.9;
    o[4].optim.head_lr_scale = 3, o[4].optim.no_norm_decay = true;
    o[5].optim.optimizer = FR_TRAIN_ADAM8, o[5].optim.nesterov = false;
    for (int i = 0; i < 6; i++) {
        app plain = {.hooks = -1}, fused = {.hooks = -1}, hooked = {.backward = true};
        fr_train_opts off = o[i];
        off.memory.fused_step = FR_TRAIN_FUSED_OFF;
        const uint64_t want = trained(&plain, &off);
        cr_expect_eq(trained(&fused, &o[i]), want, "options %d: other weights", i);
        cr_expect_eq(trained(&hooked, &o[i]), want, "options %d: other weights with a hook", i);
        cr_expect_eq(hooked.hooks, 2 * STEPS, "options %d: the hook saw %d gradients", i, hooked.hooks);
        cr_expect_eq(hooked.kept, STEPS, "options %d: %d gradients were kept", i, hooked.kept);
    }
}
