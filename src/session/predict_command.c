/* predict_command.c - --predict: the likeliest classes of image files. */
#include "session/command.h"

#include <frugal/number.h>

#include <stdlib.h>
#include <string.h>

enum { TOP = 5, NAME_BYTES = 1024 };

/* Prints the TOP most likely of n classes in descending order. */
static void print_prediction(const fri_session *r, const fr_classifier *c, const char *path, const double *p) {
    char shown_name[NAME_BYTES];
    int64_t shown[TOP];
    fprintf(r->config->out, "%s\n", fr_text_printable(path, false, shown_name, sizeof shown_name));
    for (int k = 0; k < TOP && k < c->info.classes; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < c->info.classes; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= shown[j] == i;
            if (!taken && (best < 0 || p[i] > p[best])) best = i;
        }
        shown[k] = best;
        const char *name = c->info.class_name != NULL ? c->info.class_name[best]
                           : r->data.train != NULL    ? fr_dataset_class_name(r->data.train, best)
                                                      : NULL;
        fr_fprintf(r->config->out, "  %6.2f %%  %lld%s%s\n", 100 * p[best], (long long)best, name != NULL ? "  " : "",
                   name != NULL ? fr_text_printable(name, false, shown_name, sizeof shown_name) : "");
    }
}

static fr_status predict_one(fri_session *r, const fr_classifier *c, fr_image *image, const char *path) {
    const int64_t n = c->info.classes;
    fr_autocast_state was;
    FRI_OWNED(fri_free) double *p = calloc((size_t)n, sizeof *p);
    if (p == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory for %lld classes", path, (long long)n);
    FRI_TRY(fri_precision_begin(&r->config->opts, &was));
    fr_status s = fr_image_read(path, image);
    if (s == FR_OK) s = fr_predict(c->model, image, &c->input, p, n);
    if (s == FR_OK) print_prediction(r, c, path, p);
    fri_precision_end(&r->config->opts, was);
    return s;
}

/* Builds the program's own network, at the image size in the weights file, if the library does not know its kind. */
static fr_status program_model(const fri_session *r, fr_classifier *c) {
    const char *path = r->config->opts.files.weights;
    fr_train_opts o = r->config->opts;
    char name[FR_TRAIN_NAME_BYTES] = "";
    o.data.image_size = c->info.height;
    o.data.image_width = c->info.width;
    FRI_TRY(r->config->program->model(&o, c->info.classes, name, &c->model));
    if (strcmp(name, c->info.model) != 0)
        return fr_fail(FR_EINVAL, "--weights %s holds %s, but the flags ask for %s", path, c->info.model, name);
    FRI_TRY(fr_weights_load(c->model, path, NULL));
    fr_weights_input(&c->info, &c->input);
    return FR_OK;
}

/* Loads the network: described by the weights file, or by the flags for older files, foreign files and states. */
static fr_status load_classifier(fri_session *r, fr_classifier *c) {
    const fr_train_opts *o = &r->config->opts;
    FRI_OWNED(fr_weights_info_clear) fr_weights_info info = {0};
    const bool says =
        o->files.weights != NULL && o->files.resume == NULL && fr_weights_info_read(o->files.weights, &info) == FR_OK;
    if (says) {
        const fr_status s = fr_classifier_load(o->files.weights, o->device, c);
        if (s != FR_EINVAL) return s;
        c->info = info;
        info = (fr_weights_info){0};
        return program_model(r, c);
    }
    FRI_TRY(fri_model_build(r));
    FRI_TRY(fri_weights_begin(r));
    FRI_TRY(fri_resume(r));
    c->model = fr_module_retain(r->net.model);
    c->info.classes = r->config->outputs;
    fri_data_loader_opts(r->config, FR_SPLIT_TEST, &c->input);
    return FR_OK;
}

fr_status fri_predict_command(fri_session *r) {
    FRI_OWNED(fr_classifier_clear) fr_classifier c = {0};
    FRI_OWNED(fr_image_clear) fr_image image = {0};
    FRI_TRY(load_classifier(r, &c));
    for (int64_t i = 0; i < r->config->opts.files.n_predict; i++)
        FRI_TRY(predict_one(r, &c, &image, r->config->opts.files.predict[i]));
    return FR_OK;
}
