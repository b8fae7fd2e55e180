/* predict.c - --predict: the likeliest classes of image files. */
#include "cli/commands.h"

#include <math.h>
#include <stdlib.h>

enum { TOP = 5, NAME_BYTES = 1024 };

/* The TOP largest of n logits with their softmax, in order. */
static void print(const fri_session *r, const char *path, const float *logit, int64_t n) {
    double sum = 0, largest = -INFINITY;
    char shown_name[NAME_BYTES];
    int64_t shown[TOP];
    for (int64_t i = 0; i < n; i++) largest = logit[i] > largest ? (double)logit[i] : largest;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logit[i] - largest);
    fprintf(r->config->out, "%s\n", fr_text_printable(path, false, shown_name, sizeof shown_name));
    for (int k = 0; k < TOP && k < n; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= shown[j] == i;
            if (!taken && (best < 0 || logit[i] > logit[best])) best = i;
        }
        shown[k] = best;
        const char *name = r->train != NULL ? fr_dataset_class_name(r->train, best) : NULL;
        fprintf(r->config->out, "  %6.2f %%  %lld%s%s\n", 100 * exp((double)logit[best] - largest) / sum,
                (long long)best, name != NULL ? "  " : "",
                name != NULL ? fr_text_printable(name, false, shown_name, sizeof shown_name) : "");
    }
}

static fr_status predict_one(fri_session *r, const fr_loader_opts *l, fr_image *image, const char *path) {
    fr_tensor *x = NULL, *y = NULL;
    fr_autocast_state was;
    float *logits = NULL;
    fr_status s = fri_precision_begin(&r->config->opts, &was);
    if (s < 0) return s;
    FR_TRY(s, fr_image_read(path, image));
    FR_TRY(s, fr_image_preprocess(image, l, r->config->opts.device, &x));
    FR_TRY(s, fri_model_forward(r, x, &y));
    FR_TRY(s, fr_cast(y, FR_F32, &y));
    logits = malloc(fr_tensor_nbytes(y));
    s = logits != NULL ? fr_tensor_to_host(y, logits) : fr_fail(FR_ENOMEM, "%s: no host memory", path);
    if (s == FR_OK) print(r, path, logits, fr_tensor_numel(y));
done:
    free(logits);
    fri_precision_end(&r->config->opts, was);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
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
