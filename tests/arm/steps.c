/* steps.c - work whose instructions count.c counts between marks: a training step and the inference of one image.
 *
 *     steps MODEL PIXELS BATCH          MODEL: a family of fr_model, or `mixed`, which has each activation and groups
 *
 * Each mark is a call of prctl, which the plugin sees. Prints the loss of the last step and the largest logit with all
 * digits, and a hash of all weights, to compare processors. */
#include <frugal/fold.h>
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { CLASSES = 1000, MARK = 0x46525547, TURNS = 2, MOST_IMAGES = 64 };

static void must(fr_status s) {
    if (s >= 0) return;
    fprintf(stderr, "steps: %s\n", fr_last_error());
    exit(1);
}

static fr_tensor *images(int64_t n, int64_t pixels) {
    const int64_t count = n * pixels * pixels * 3;
    float *v = malloc((size_t)count * sizeof *v);
    fr_tensor *x = NULL;
    if (v == NULL) exit(1);
    for (int64_t i = 0; i < count; i++) v[i] = (float)(i * 7919 % 1000) / 500 - 1;
    must(fr_tensor_from_host(v, 4, (int64_t[]){n, pixels, pixels, 3}, FR_F32, FR_CPU, &x));
    free(v);
    return x;
}

static double train(fr_module *m, fr_optimizer *o, fr_tensor *x, fr_tensor *labels) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_step_scope scope;
    double value = 0;
    must(fr_step_begin(&scope));
    must(fr_module_forward(m, x, &y));
    must(fr_cross_entropy(y, labels, NULL, &loss));
    fr_tensor_release(&y);
    must(fr_backward(loss, NULL));
    must(fr_optimizer_step(o));
    must(fr_tensor_item(loss, &value));
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&loss);
    fr_step_end(&scope);
    return value;
}

/* FNV-1a over the words of parameters and buffers. */
static fr_status add_words(void *hash, const char *path, fr_tensor *t, bool is_parameter) {
    const size_t bytes = (size_t)fr_tensor_numel(t) * fr_dtype_size(fr_tensor_dtype(t));
    uint32_t *word = malloc(bytes);
    uint64_t h = *(uint64_t *)hash;
    (void)path, (void)is_parameter;
    if (word == NULL) exit(1);
    must(fr_tensor_to_host(t, word));
    for (size_t i = 0; i < bytes / sizeof *word; i++) h = (h ^ word[i]) * 1099511628211u;
    *(uint64_t *)hash = h;
    free(word);
    return FR_OK;
}

/* Groups of 4, 8 and 16 channels, shuffled, with each of the activations. */
static fr_status make_mixed(int64_t pixels, fr_module **m) {
    typedef fr_value activation(fr_net * n, const char *name, fr_value x);
    static activation *const each[] = {fr_net_sigmoid,   fr_net_tanh, fr_net_silu,     fr_net_hardsigmoid,
                                       fr_net_hardswish, fr_net_gelu, fr_net_gelu_tanh};
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, pixels, pixels, 3});
    x = fr_net_conv2d(n, "first", x, 48, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    for (int i = 0; i < (int)(sizeof each / sizeof *each); i++) {
        char name[32];
        snprintf(name, sizeof name, "conv%d", i);
        x = fr_net_conv2d(n, name, x, 48, 3,
                          FR_CONV2D_OPTS(.padding = 1, .stride = i % 4 == 3 ? 2 : 1, .groups = 12 >> i % 3), FR_BIAS);
        snprintf(name, sizeof name, "act%d", i);
        x = each[i](n, name, x);
        snprintf(name, sizeof name, "shuffle%d", i);
        x = fr_net_channel_shuffle(n, name, x, 4);
    }
    x = fr_net_conv2d(n, "last", x, CLASSES, 1, FR_CONV2D_OPTS(), FR_BIAS);
    x = fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1);
    x = fr_net_flatten(n, "flat", x, 1);
    return fr_net_end(&n, &x, 1, m);
}

static float infer(fr_module *m, fr_tensor *x) {
    static float logit[CLASSES];
    fr_tensor *y = NULL;
    must(fr_module_forward(m, x, &y));
    must(fr_tensor_to_host(y, logit));
    fr_tensor_release(&y);
    for (int i = 1; i < CLASSES; i++) logit[0] = logit[i] > logit[0] ? logit[i] : logit[0];
    return logit[0];
}

int main(int argc, char **argv) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_tensor *labels = NULL;
    int64_t label[MOST_IMAGES];
    uint64_t hash = 14695981039346656037u;
    double loss = 0;
    float logit = 0;
    const int64_t pixels = argc == 4 ? atoll(argv[2]) : 0, batch = argc == 4 ? atoll(argv[3]) : 0;
    if (pixels < 1 || batch < 1 || batch > MOST_IMAGES) {
        fprintf(stderr, "usage: steps MODEL PIXELS BATCH, with a batch of 1 to %d images\n", MOST_IMAGES);
        return 2;
    }
    fr_seed(1);
    must(strcmp(argv[1], "mixed") == 0
             ? make_mixed(pixels, &m)
             : fr_model(argv[1], FR_MODEL_OPTS(.classes = CLASSES, .image_size = pixels), &m));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &o));
    fr_tensor *x = images(batch, pixels), *one = images(1, pixels);
    for (int64_t i = 0; i < batch; i++) label[i] = i * 37 % CLASSES;
    must(fr_tensor_from_host(label, 1, (int64_t[]){batch}, FR_I64, FR_CPU, &labels));
    for (int i = 0; i < TURNS; i++) {
        if (i == TURNS - 1) prctl(MARK, 0);
        loss = train(m, o, x, labels);
    }
    prctl(MARK, 0);
    fr_optimizer_release(&o);
    must(fr_module_each_tensor(m, add_words, &hash));
    fr_module_train(m, false);
    must(fr_net_fold(&m));
    const bool was = fr_no_grad_begin();
    for (int i = 0; i < TURNS; i++) {
        if (i == TURNS - 1) prctl(MARK, 0);
        logit = infer(m, one);
    }
    prctl(MARK, 0);
    fr_no_grad_end(was);
    printf("loss %.17g logit %.9g weights %016llx\n", loss, (double)logit, (unsigned long long)hash);
    fr_tensor_release(&x);
    fr_tensor_release(&one);
    fr_tensor_release(&labels);
    fr_module_release(&m);
    return 0;
}
