/* predict.c - --predict: the likeliest classes of image files. */
#include "cli/commands.h"

#include <stdlib.h>

enum { TOP = 5, NAME_BYTES = 1024 };

/* The TOP likeliest of n classes, in order. */
static void print(const fri_session *r, const char *path, const double *p, int64_t n) {
    char shown_name[NAME_BYTES];
    int64_t shown[TOP];
    fprintf(r->config->out, "%s\n", fr_text_printable(path, false, shown_name, sizeof shown_name));
    for (int k = 0; k < TOP && k < n; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= shown[j] == i;
            if (!taken && (best < 0 || p[i] > p[best])) best = i;
        }
        shown[k] = best;
        const char *name = r->train != NULL ? fr_dataset_class_name(r->train, best) : NULL;
        fprintf(r->config->out, "  %6.2f %%  %lld%s%s\n", 100 * p[best], (long long)best, name != NULL ? "  " : "",
                name != NULL ? fr_text_printable(name, false, shown_name, sizeof shown_name) : "");
    }
}

static fr_status predict_one(fri_session *r, const fr_loader_opts *l, fr_image *image, const char *path) {
    int64_t n = r->config->outputs;
    fr_autocast_state was;
    double *p = calloc((size_t)n, sizeof *p);
    fr_status s = p != NULL ? fri_precision_begin(&r->config->opts, &was)
                            : fr_fail(FR_ENOMEM, "%s: no host memory for %lld classes", path, (long long)n);
    if (s < 0) goto done;
    s = fr_image_read(path, image);
    if (s == FR_OK) s = fr_predict(r->model, image, l, p, n);
    if (s == FR_OK) print(r, path, p, n);
    fri_precision_end(&r->config->opts, was);
done:
    free(p);
    return s;
}

fr_status fri_predict(fri_session *r) {
    fr_image image = {0};
    fr_loader_opts l;
    fr_status s = FR_OK;
    FR_TRY(s, fri_model_build(r));
    FR_TRY(s, fri_weights_begin(r));
    FR_TRY(s, fri_resume(r));
    fri_data_loader_opts(r->config, FR_SPLIT_TEST, &l);
    fri_evaluation_scope was = fri_evaluation_begin(r);
    for (int64_t i = 0; i < r->config->opts.n_predict && s == FR_OK; i++)
        s = predict_one(r, &l, &image, r->config->opts.predict[i]);
    fri_evaluation_end(r, was);
done:
    fr_image_clear(&image);
    return s;
}
