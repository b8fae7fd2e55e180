/* config.c - see config.h. */
#include "session/config.h"

#include <string.h>

static int64_t images_of(const fri_config *c, int split) {
    return split == FR_SPLIT_TRAIN ? c->train_count : c->test_count;
}

int64_t fri_batch_size(const fri_config *c, int split) {
    int64_t n = images_of(c, split);
    return c->opts.batch_size < n ? c->opts.batch_size : n;
}

int64_t fri_batch_rest(const fri_config *c, int split) {
    if ((split == FR_SPLIT_TRAIN && !c->opts.keep_last) || images_of(c, split) == 0) return 0;
    return images_of(c, split) % fri_batch_size(c, split);
}

int64_t fri_test_batches(const fri_config *c) {
    if (c->target == FR_META) return 1;
    return c->test_count / fri_batch_size(c, FR_SPLIT_TEST) + (fri_batch_rest(c, FR_SPLIT_TEST) > 0);
}

int64_t fri_test_share(const fri_config *c) {
    int64_t batches = fri_test_batches(c);
    if (c->target == FR_META) return batches;
    return batches > c->rank ? (batches - c->rank + c->ranks - 1) / c->ranks : 0;
}

fr_dtype fri_image_dtype(const fri_config *c) {
    return c->bytes ? FR_U8 : FR_F32;
}

fr_shape fri_image_shape(const fri_config *c, int64_t n) {
    return (fr_shape){4, {n, c->opts.image_size, c->opts.image_width, c->channels}};
}

fr_dtype fri_target_dtype(const fri_config *c) {
    return c->targets == FR_TARGET_VECTOR || fri_mixes(c) ? FR_F32 : FR_I64;
}

fr_shape fri_target_shape(const fri_config *c, int64_t n) {
    if (c->targets == FR_TARGET_PIXELS) return (fr_shape){3, {n, c->opts.image_size, c->opts.image_width}};
    return c->targets == FR_TARGET_VECTOR || fri_mixes(c) ? (fr_shape){2, {n, c->outputs}} : (fr_shape){1, {n}};
}

int64_t fri_steps_per_epoch(const fri_config *c) {
    int64_t batches = c->train_count / fri_batch_size(c, FR_SPLIT_TRAIN) + (fri_batch_rest(c, FR_SPLIT_TRAIN) > 0);
    return batches / c->opts.accumulate;
}

int64_t fri_epochs_total(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    int64_t per_epoch = fri_steps_per_epoch(c);
    if (o->steps == FR_TRAIN_AUTO) return o->epochs;
    int64_t needed = (o->steps + per_epoch - 1) / per_epoch;
    return o->epochs == FR_TRAIN_AUTO || needed < o->epochs ? needed : o->epochs;
}

int64_t fri_steps_total(const fri_config *c) {
    int64_t steps = fri_epochs_total(c) * fri_steps_per_epoch(c);
    return c->opts.steps != FR_TRAIN_AUTO && c->opts.steps < steps ? c->opts.steps : steps;
}

int64_t fri_save_every(const fri_config *c) {
    return c->opts.save_every != FR_TRAIN_AUTO ? c->opts.save_every : fri_steps_per_epoch(c);
}

bool fri_evaluation_due(const fri_config *c, int64_t epoch, bool last) {
    if (c->test_count == 0) return false;
    return last || (c->opts.eval_every > 0 && (epoch + 1) % c->opts.eval_every == 0);
}

fr_schedule fri_schedule(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    int64_t total = fri_steps_total(c);
    return (fr_schedule){.kind = o->schedule,
                         .lr = o->lr,
                         .warmup = (int64_t)(o->warmup * (double)fri_steps_per_epoch(c) + 0.5),
                         .total = total,
                         .step_size = (total + 2) / 3,
                         .gamma = 0.1};
}

void fri_config_resolve(fri_config *c) {
    fr_train_opts *o = &c->opts;
    c->target = o->device;
    c->fit_batch = o->batch_size == FR_TRAIN_AUTO;
    if (c->fit_batch) o->batch_size = fr_train_opts_default().batch_size;
    if (c->ranks == 0) c->ranks = 1; /* no add-on has set a number of ranks */
    if (o->image_size == FR_TRAIN_AUTO) o->image_size = fri_dataset_in_folders(o->dataset) ? 224 : 32;
    if (o->image_width == FR_TRAIN_AUTO) o->image_width = o->image_size;
    if (o->lr == FR_TRAIN_AUTO) o->lr = o->optimizer == FR_TRAIN_SGD ? c->program->sgd_lr : 1e-3;
    if (o->offload != NULL) o->switches.offload = true;
    c->workspace_auto = o->device == FR_CUDA && o->switches.workspace_limit == SIZE_MAX;
    if (o->switches.workspace_limit == SIZE_MAX) o->switches.workspace_limit = fr_switches_default().workspace_limit;
}

fr_dtype fri_compute_dtype(const fr_train_opts *o) {
    fr_train_amp type = o->half != FR_TRAIN_AMP_OFF ? o->half : o->amp;
    return type == FR_TRAIN_AMP_FP16 ? FR_F16 : type == FR_TRAIN_AMP_BF16 ? FR_BF16 : FR_F32;
}

bool fri_loss_scaled(const fr_train_opts *o) {
    bool scalable = o->amp != FR_TRAIN_AMP_OFF || (o->half != FR_TRAIN_AMP_OFF && o->master_weights);
    return scalable && (fri_compute_dtype(o) == FR_F16 || o->loss_scale != FR_TRAIN_AUTO);
}

bool fri_fused_step_possible(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    return (o->accumulate == 1 || c->ranks > 1) && o->split_batch == 1 && o->clip == FR_TRAIN_AUTO &&
           !fri_loss_scaled(o) && !o->grad_zero;
}

bool fri_without_data(const fr_train_opts *o) {
    return o->device == FR_META || o->plan || o->summary;
}

bool fri_trains_auto(const fr_train_opts *o) {
    for (int64_t i = 0; i < o->n_train_only; i++)
        if (strcmp(o->train_only[i], "auto") == 0) return true;
    return false;
}

void fri_train_only_set(fri_config *c, const char *words) {
    char *rest = c->train_only_text;
    fr_train_opts *o = &c->opts;
    snprintf(c->train_only_text, sizeof c->train_only_text, "%s", words);
    o->train_only = c->train_only;
    o->n_train_only = 0;
    for (char *w = strtok_r(rest, " ", &rest); w != NULL && o->n_train_only < FRI_TRAIN_ONLY_WORDS;
         w = strtok_r(rest, " ", &rest))
        c->train_only[o->n_train_only++] = w;
}
