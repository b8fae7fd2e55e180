/* predict_command.c - --predict: the likeliest classes of image files; masks and shares where pixels have classes. */
#include "trainer/command.h"

#include "data/dataset.h"
#include "net/units.h"

#include <frugal/number.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TOP = 5, NAME_BYTES = 1024 };

static const char *name_of(const fri_run *r, const fr_classifier *c, int64_t class) {
    if (c->info.class_name != NULL) return c->info.class_name[class];
    return r->data.train != NULL ? fr_dataset_class_name(r->data.train, class) : NULL;
}

/* Prints the TOP most likely of n classes in descending order. */
static void print_prediction(const fri_run *r, const fr_classifier *c, const char *path, const double *p) {
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
        const char *name = name_of(r, c, best);
        fr_fprintf(r->config->out, "  %6.2f %%  %lld%s%s\n", 100 * p[best], (long long)best, name != NULL ? "  " : "",
                   name != NULL ? fr_text_printable(name, false, shown_name, sizeof shown_name) : "");
    }
}

/* Prints a line: the share of each class in the mask. */
static void print_shares(const fri_run *r, const char *path, const uint8_t *mask, int64_t pixels) {
    char shown_name[NAME_BYTES];
    int64_t count[FR_MASK_IGNORED + 1] = {0};
    for (int64_t i = 0; i < pixels; i++) count[mask[i]]++;
    fprintf(r->config->out, "%s:", fr_text_printable(path, false, shown_name, sizeof shown_name));
    for (int class = 0; class < FR_MASK_IGNORED; class ++)
        if (count[class] > 0)
            fr_fprintf(r->config->out, "  %d %.2f %%", class, 100 * (double)count[class] / (double)pixels);
    fputc('\n', r->config->out);
}

/* Classifies the pixels of the image, and writes the mask or prints the shares. */
static fr_status predict_pixels(fri_run *r, const fr_classifier *c, const fr_image *image, int64_t i) {
    const fr_train_files *files = &r->config->opts.files;
    const int64_t pixels = image->height * image->width;
    char path[FRI_TARGET_BYTES];
    FRI_OWNED(fri_free) uint8_t *mask = malloc((size_t)pixels);
    if (mask == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory for its mask", files->predict[i]);
    FRI_TRY(fr_predict_mask(c->model, image, &c->input, c->info.classes, mask));
    print_shares(r, files->predict[i], mask, pixels);
    if (files->masks == NULL || !fri_mask_path(&r->config->opts, i, path)) return FR_OK;
    return fri_png_write_mask(path, mask, image->height, image->width);
}

/* Predicts image i. *pixels: the network is known to classify pixels; the first image shows so. */
static fr_status predict_one(fri_run *r, const fr_classifier *c, fr_image *image, int64_t i, bool *pixels) {
    const int64_t n = c->info.classes;
    const char *path = r->config->opts.files.predict[i];
    fr_autocast_state was;
    FRI_OWNED(fri_free) double *p = calloc((size_t)n, sizeof *p);
    if (p == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory for %lld classes", path, (long long)n);
    FRI_TRY(fri_precision_begin(&r->config->opts, &was));
    image->as_stored = !r->config->opts.data.exif;
    fr_status s = fr_image_read(path, image);
    if (s == FR_OK && !*pixels) s = fr_predict(c->model, image, &c->input, p, n);
    if (s == FR_OK && !*pixels) print_prediction(r, c, path, p);
    *pixels |= s == FR_ESHAPE && n <= FR_MASK_IGNORED;
    if ((s == FR_OK || s == FR_ESHAPE) && *pixels) s = predict_pixels(r, c, image, i);
    fri_precision_end(&r->config->opts, was);
    return s;
}

/* Makes the folder of the masks, if it is missing. */
static fr_status make_folder(const char *path) {
    if (path == NULL || mkdir(path, 0777) == 0 || errno == EEXIST) return FR_OK;
    return fr_fail(FR_EIO, "--masks %s: the folder cannot be made: %s", path, strerror(errno));
}

/* Builds the program's own network, at the image size in the weights file, if the library does not know its kind. */
static fr_status program_model(const fri_run *r, fr_classifier *c) {
    const char *path = r->config->opts.files.weights;
    fr_train_opts o = r->config->opts;
    char name[FR_TRAIN_NAME_BYTES] = "";
    o.data.image_size = c->info.height;
    o.data.image_width = c->info.width;
    FRI_TRY(r->config->program->model(&o, c->info.classes, name, &c->model));
    if (strcmp(name, c->info.model) != 0)
        return fr_fail(FR_EINVAL, "--weights %s holds network '%s', but the flags ask for '%s'", path, c->info.model,
                       name);
    FRI_TRY(fr_weights_load(c->model, path, NULL));
    fr_weights_input(&c->info, &c->input);
    return FR_OK;
}

/* Loads the network: described by the weights file, or by the flags for older files, foreign files and states. */
static fr_status load_classifier(fri_run *r, fr_classifier *c) {
    const fr_train_opts *o = &r->config->opts;
    FRI_OWNED(fr_weights_info_clear) fr_weights_info info = {0};
    const bool says =
        o->files.weights != NULL && o->files.resume == NULL && fr_weights_info_read(o->files.weights, &info) == FR_OK;
    if (says) {
        const fr_status s = fr_classifier_load(o->files.weights, o->device, c);
        const int64_t results = fri_module_results(c->model);
        if (s == FR_OK && results > 0 && results != info.classes)
            return fr_fail(FR_EFORMAT, "--weights %s: says %lld classes, but its network has %lld results",
                           o->files.weights, (long long)info.classes, (long long)results);
        if (s != FR_EINVAL) return s;
        c->info = info;
        info = (fr_weights_info){0};
        return program_model(r, c);
    }
    FRI_TRY(fri_model_build(r));
    FRI_TRY(fri_weights_begin(r, false));
    FRI_TRY(fri_resume(r));
    c->model = fr_module_retain(r->net.model);
    c->info.classes = r->config->outputs;
    fri_data_loader_opts(r->config, FR_SPLIT_TEST, &c->input);
    return FR_OK;
}

fr_status fri_predict_command(fri_run *r) {
    FRI_OWNED(fr_classifier_clear) fr_classifier c = {0};
    FRI_OWNED(fr_image_clear) fr_image image = {0};
    const fr_train_files *files = &r->config->opts.files;
    bool pixels = files->masks != NULL;
    FRI_TRY(load_classifier(r, &c));
    FRI_TRY(make_folder(files->masks));
    for (int64_t i = 0; i < files->n_predict; i++) FRI_TRY(predict_one(r, &c, &image, i, &pixels));
    return FR_OK;
}
