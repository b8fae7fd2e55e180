/* textbook_nets.c - see textbook.h. */
#include "train/textbook.h"

#include "base/rng.h"
#include "nn/module.h"

#include <string.h>

/* ---- networks ---------------------------------------------------------------------------------------------- */

static fr_status take(fr_status s, fr_module *net, fr_module **layer) {
    return s < 0 ? s : fr_nn_append(net, layer);
}

static fr_status conv(fr_module *net, int64_t in, int64_t out, int64_t kernel, int64_t padding) {
    fr_module *m = NULL;
    return take(fr_nn_conv2d(in, out, kernel, FR_CONV2D_MODULE_OPTS(.conv = *FR_CONV2D_OPTS(.padding = padding)),
                             FR_META, &m),
                net, &m);
}

static fr_status relu(fr_module *net) {
    fr_module *m = NULL;
    return take(fr_nn_relu(&m), net, &m);
}

static fr_status pool(fr_module *net) {
    fr_module *m = NULL;
    return take(fr_nn_maxpool2d(2, NULL, &m), net, &m);
}

static fr_status linear(fr_module *net, int64_t in, int64_t out) {
    fr_module *m = NULL;
    return take(fr_nn_linear(in, out, true, FR_META, &m), net, &m);
}

static fr_status guide(fr_module *net) {
    fr_status s = FR_OK;
    FR_TRY(s, conv(net, 3, 64, 3, 1));
    FR_TRY(s, relu(net));
    FR_TRY(s, conv(net, 64, 64, 3, 1));
    FR_TRY(s, relu(net));
    FR_TRY(s, pool(net));
    FR_TRY(s, conv(net, 64, 128, 3, 1));
done:
    return s;
}

static fr_status small(fr_module *net, int64_t channels, int64_t flat) {
    fr_module *m = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, conv(net, channels, 10, 5, 0));
    FR_TRY(s, pool(net));
    FR_TRY(s, relu(net));
    FR_TRY(s, conv(net, 10, 20, 5, 0));
    FR_TRY(s, take(fr_nn_dropout2d(0.5, &m), net, &m));
    FR_TRY(s, pool(net));
    FR_TRY(s, relu(net));
    FR_TRY(s, take(fr_nn_flatten(1, &m), net, &m));
    FR_TRY(s, linear(net, flat, 50));
    FR_TRY(s, relu(net));
    FR_TRY(s, linear(net, 50, 10));
done:
    return s;
}

static fr_status build(fri_textbook_net net, int64_t input[3], fr_module **m) {
    const fr_model_opts *o = FR_MODEL_OPTS(.device = FR_META);
    static const int depth[] = {[FRI_TEXTBOOK_VGG16] = 16,
                                [FRI_TEXTBOOK_VGG19] = 19,
                                [FRI_TEXTBOOK_RESNET50] = 50,
                                [FRI_TEXTBOOK_RESNET101] = 101,
                                [FRI_TEXTBOOK_RESNET152] = 152};
    fr_status s = FR_OK;
    memcpy(input, (int64_t[]){224, 224, 3}, 3 * sizeof *input);
    switch (net) {
    case FRI_TEXTBOOK_VGG16:
    case FRI_TEXTBOOK_VGG19: return fr_vgg(depth[net], o, m);
    case FRI_TEXTBOOK_RESNET50:
    case FRI_TEXTBOOK_RESNET101:
    case FRI_TEXTBOOK_RESNET152: return fr_resnet(depth[net], o, m);
    default: break;
    }
    s = fr_nn_sequential(m);
    if (s < 0) return s;
    if (net == FRI_TEXTBOOK_TORCHSTAT) return small(*m, 3, 56180);
    memcpy(input, net == FRI_TEXTBOOK_GUIDE ? (int64_t[]){682, 700, 3} : (int64_t[]){28, 28, 1}, 3 * sizeof *input);
    return net == FRI_TEXTBOOK_GUIDE ? guide(*m) : small(*m, 1, 320);
}

/* ---- counting ---------------------------------------------------------------------------------------------- */

static void on_module(void *ctx, const fr_module *m, const fr_tensor *x) {
    fri_textbook *t = ctx;
    if (m->n_children > 0 || t->n == FRI_TEXTBOOK_LAYERS) return;
    t->kind[t->n] = m->class_->name;
    t->values[t->n] = fri_numel(x);
    t->has_parameters[t->n++] = m->n_tensors > 0;
}

static fr_status count(void *ctx, const char *path, fr_tensor *p, bool is_parameter) {
    fri_textbook *t = ctx;
    (void)path;
    if (!is_parameter) return FR_OK;
    t->parameters += fri_numel(p);
    if (fr_tensor_rank(p) == 1) t->biases += fri_numel(p);
    return FR_OK;
}

fr_status fri_textbook_run(fri_textbook_net net, fri_textbook *out) {
    fr_module *m = NULL;
    fr_tensor *x = NULL;
    int64_t input[3] = {0};
    fri_rng rng = fri_rng_get();
    fri_module_watch was = fri_module_watch_set((fri_module_watch){on_module, out});
    bool no_grad = fr_no_grad_begin();
    fr_status s = FR_OK;
    *out = (fri_textbook){0};
    FR_TRY(s, build(net, input, &m));
    out->input = input[0] * input[1] * input[2];
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){1, input[0], input[1], input[2]}, FR_F32, FR_META, &x));
    FR_TRY(s, fr_module_forward(m, x, &x));
    FR_TRY(s, fr_module_each_tensor(m, count, out));
done:
    fr_no_grad_end(no_grad);
    (void)fri_module_watch_set(was);
    fri_rng_set(rng);
    fr_tensor_release(&x);
    fr_module_release(&m);
    return s;
}

int64_t fri_textbook_sum(const fri_textbook *t, const char *kinds) {
    int64_t sum = 0;
    for (int i = 0; i < t->n; i++) {
        bool taken = false;
        if (kinds == NULL)
            taken = strstr("AdaptiveAvgPool2d Flatten", t->kind[i]) == NULL;
        else
            taken = strcmp(kinds, "*") == 0 ? t->has_parameters[i] : strstr(kinds, t->kind[i]) != NULL;
        if (taken) sum += t->values[i];
    }
    return sum;
}
