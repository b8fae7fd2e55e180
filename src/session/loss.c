/* loss.c - the loss of a run: the program's own, mean squared error for vectors, or a loss of classes (--loss). */

#include "session/model.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- class weights ------------------------------------------------------------------------------------------- */

/* Weight of a class: n / (classes * images of the class), or 0 for a class without images. */
static fr_status balance_weights(const fri_run *r, int64_t classes, float *weight) {
    const int64_t n = r->config->train_count;
    int64_t label = 0;
    fr_status s = FR_OK;
    for (int64_t i = 0; i < n && s == FR_OK; i++)
        if ((s = fr_dataset_label(r->data.train, i, &label)) == FR_OK) weight[label]++;
    for (int64_t c = 0; c < classes; c++)
        weight[c] = weight[c] > 0 ? (float)((double)n / ((double)classes * (double)weight[c])) : 0;
    return s;
}

fr_status fri_class_weights_begin(fri_run *r) {
    const fri_config *c = r->config;
    const fr_train_opts *o = &c->opts;
    const int64_t classes = c->outputs;
    const bool asked = o->optim.class_weights != NULL || o->optim.balanced_weights;
    FRI_OWNED(fri_free) float *weight = asked ? calloc((size_t)classes, sizeof *weight) : NULL;
    if (!asked) return FR_OK;
    if (weight == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for the weights of classes");
    for (int64_t i = 0; i < classes && !o->optim.balanced_weights; i++) weight[i] = (float)o->optim.class_weights[i];
    if (o->device == FR_META) {
        FRI_TRY(fr_tensor_empty(1, &classes, FR_F32, FR_META, &r->net.class_weights));
    } else {
        if (o->optim.balanced_weights) FRI_TRY(balance_weights(r, classes, weight));
        FRI_TRY(fr_tensor_from_host(weight, 1, &classes, FR_F32, o->device, &r->net.class_weights));
    }
    fr_tensor_category_set(r->net.class_weights, FR_MEM_INPUT);
    return FR_OK;
}

static fr_status check_class_weights(const fri_config *c, const char *has) {
    const fr_train_opts *o = &c->opts;
    if (o->optim.class_weights == NULL && !o->optim.balanced_weights) return FR_OK;
    if (has != NULL || o->optim.loss != FR_TRAIN_CROSS_ENTROPY)
        return fr_fail(FR_EINVAL, "train.optim.class_weights are for cross entropy, and this run has %s",
                       has != NULL ? has : "another --loss");
    if (o->optim.balanced_weights && (o->optim.class_weights != NULL || c->targets != FR_TARGET_CLASS))
        return fr_fail(FR_EINVAL, "train.optim.balanced_weights counts the images of each class, and %s",
                       o->optim.class_weights != NULL ? "train.optim.class_weights are given"
                                                      : "here pixels have classes");
    if (o->optim.class_weights != NULL && o->optim.n_class_weights != c->outputs)
        return fr_fail(FR_EINVAL,
                       "train.optim.class_weights has %" PRId64 " numbers; %" PRId64 " are needed, one per class",
                       o->optim.n_class_weights, c->outputs);
    for (int64_t i = 0; i < o->optim.n_class_weights; i++)
        if (!(o->optim.class_weights[i] >= 0 && o->optim.class_weights[i] <= 1e6))
            return fr_fail(FR_EINVAL, "train.optim.class_weights: %g is not between 0 and 1e6",
                           o->optim.class_weights[i]);
    return FR_OK;
}

fr_status fri_loss_check(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    const bool own = c->program->loss != NULL, classes = !own && c->targets != FR_TARGET_VECTOR;
    const char *has = own ? "a loss of its own" : "mean squared error";
    /* A program's default smoothing is dropped for a --loss without smoothing; only a changed value is an error. */
    const bool asked = o->optim.label_smoothing != c->program->defaults.optim.label_smoothing;
    if (o->optim.label_smoothing > 0 && (!classes || (o->optim.loss != FR_TRAIN_CROSS_ENTROPY && asked)))
        return fr_fail(FR_EINVAL, "train.optim.label_smoothing %g is for cross entropy, and this run has %s",
                       o->optim.label_smoothing, classes ? "another --loss" : has);
    if (!classes && o->optim.loss != FR_TRAIN_CROSS_ENTROPY)
        return fr_fail(FR_EINVAL, "--loss is for classification, and this run has %s; leave the flag out", has);
    if (fri_mixes(c) && (!classes || c->targets != FR_TARGET_CLASS || c->from_labels || o->optim.loss == FR_TRAIN_DICE))
        return fr_fail(FR_EINVAL,
                       "train.data.augmentation mixes classes: use it with image classes and a loss but dice");
    if (o->data.balanced_sampling && c->targets != FR_TARGET_CLASS && !c->from_labels)
        return fr_fail(FR_EINVAL, "train.data.balanced_sampling needs images with one class each");
    return check_class_weights(c, classes ? NULL : has);
}

/* ---- the loss ------------------------------------------------------------------------------------------------ */

static fr_status class_loss(const fri_run *r, fr_tensor *y, fr_tensor *targets, bool training, fr_tensor **loss) {
    const fr_train_opts *o = &r->config->opts;
    switch (o->optim.loss) {
    case FR_TRAIN_CROSS_ENTROPY:
        return fr_cross_entropy(y, targets,
                                FR_CROSS_ENTROPY_OPTS(.label_smoothing = training ? o->optim.label_smoothing : 0,
                                                      .weight = training ? r->net.class_weights : NULL),
                                loss);
    case FR_TRAIN_BCE: return fr_bce(y, targets, NULL, loss);
    case FR_TRAIN_FOCAL: return fr_bce(y, targets, FR_BCE_OPTS(.gamma = 2, .alpha = 0.25), loss);
    case FR_TRAIN_DICE: return fr_dice(y, targets, NULL, loss);
    }
    return fr_fail(FR_EINTERNAL, "trainer: loss %d", (int)o->optim.loss);
}

fr_status fri_loss_of_batch(const fri_run *r, fr_tensor *y, fr_tensor *targets, bool training, fr_tensor **loss) {
    const fr_train_program *p = r->config->program;
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL;
    if (p->loss == NULL && r->config->targets != FR_TARGET_VECTOR) return class_loss(r, y, targets, training, loss);
    if (p->loss != NULL) {
        FRI_TRY(FRI_CALLBACK("loss", p->loss(p->ctx, y, targets, loss)));
        if (*loss == NULL || fr_tensor_numel(*loss) != 1)
            return fr_fail(FR_ESHAPE, "the program's own loss returns %s%" PRId64 " elements; 1 is needed",
                           *loss == NULL ? "no tensor, " : "", *loss != NULL ? fr_tensor_numel(*loss) : 0);
        return FR_OK;
    }
    if (fr_tensor_dtype(y) != FR_F32) FRI_TRY(fr_cast(y, FR_F32, &x));
    return fr_mse(x != NULL ? x : y, targets, loss);
}
