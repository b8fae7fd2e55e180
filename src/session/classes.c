/* classes.c - accuracy and IoU per class after an evaluation, counted in a confusion matrix: of pixels, and of images
 * with train.optim.per_class. */

#include "session/step.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool fri_counts_classes(const fri_config *c) {
    const bool pixels = c->program->pixel_classes != NULL || c->targets == FR_TARGET_PIXELS;
    return c->accuracy && (c->opts.optim.per_class || (pixels && c->outputs <= FR_MASK_IGNORED));
}

fr_status fri_confusion_begin(fri_run *r) {
    const size_t n = (size_t)r->config->outputs;
    if (!fri_counts_classes(r->config)) return FR_OK;
    free(r->tested.confusion);
    r->tested.confusion =
        n <= SIZE_MAX / n / sizeof *r->tested.confusion ? calloc(n * n, sizeof *r->tested.confusion) : NULL;
    return r->tested.confusion != NULL
               ? FR_OK
               : fr_fail(FR_ENOMEM, "train.optim.per_class: no host memory for %zu x %zu numbers", n, n);
}

/* Index of the first maximum, or of the first NaN: the rule of fr_count_correct. */
static int64_t index_of_largest(const float *x, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n && x[at] == x[at]; i++)
        if (x[i] > x[at] || x[i] != x[i]) at = i;
    return at;
}

static void tally(const fri_run *r, const float *y, const int64_t *target, int64_t rows) {
    const int64_t classes = r->config->outputs;
    for (int64_t i = 0; i < rows; i++)
        if (target[i] >= 0 && target[i] < classes)
            r->tested.confusion[target[i] * classes + index_of_largest(y + i * classes, classes)]++;
}

fr_status fri_confusion_add(const fri_run *r, fr_tensor *y, fr_tensor *targets) {
    const bool near = fr_tensor_device(y) == FR_CPU;
    FRI_OWNED(fri_free) float *values = near ? NULL : malloc(fr_tensor_nbytes(y));
    FRI_OWNED(fri_free) int64_t *classes = near ? NULL : malloc(fr_tensor_nbytes(targets));
    if (!near && (values == NULL || classes == NULL))
        return fr_fail(FR_ENOMEM, "train.optim.per_class: no host memory for a batch");
    if (!near) FRI_TRY(fr_tensor_to_host(y, values));
    if (!near) FRI_TRY(fr_tensor_to_host(targets, classes));
    tally(r, near ? fr_tensor_data(y) : values, near ? fr_tensor_data(targets) : classes, fr_tensor_numel(targets));
    return FR_OK;
}

fr_status fri_confusion_total(fri_run *r) {
    const fri_config *c = r->config;
    const size_t n = (size_t)(c->outputs * c->outputs);
    if (r->tested.confusion == NULL || c->ranks == 1) return FR_OK;
    FRI_OWNED(fri_free) int64_t *all = malloc(n * sizeof *all * (size_t)c->ranks);
    if (all == NULL)
        return fr_fail(FR_ENOMEM, "train.optim.per_class: no host memory for the numbers of %d ranks", c->ranks);
    fr_status s = c->rank_calls->agree(c->comm, r->tested.confusion, n * sizeof *all, all);
    memset(r->tested.confusion, 0, n * sizeof *all);
    for (size_t i = 0; i < n * (size_t)c->ranks && s == FR_OK; i++) r->tested.confusion[i % n] += all[i];
    return s;
}

fri_class_numbers fri_class_numbers_of(const fri_run *r, int64_t class) {
    const int64_t n = r->config->outputs, *m = r->tested.confusion, right = m[class * n + class];
    int64_t here = 0, said = 0;
    for (int64_t i = 0; i < n; i++) {
        here += m[class * n + i];
        said += m[i * n + class];
    }
    const int64_t either = here + said - right;
    const bool named = !r->config->from_labels && r->config->targets == FR_TARGET_CLASS;
    return (fri_class_numbers){.name = named ? fr_dataset_class_name(r->data.train, class) : NULL,
                               .targets = here,
                               .accuracy = here > 0 ? (double)right / (double)here : NAN,
                               .iou = either > 0 ? (double)right / (double)either : NAN};
}

double fri_mean_iou(const fri_run *r) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < r->config->outputs; i++) {
        const double iou = fri_class_numbers_of(r, i).iou;
        if (isnan(iou)) continue;
        sum += iou;
        n++;
    }
    return n > 0 ? sum / (double)n : NAN;
}
