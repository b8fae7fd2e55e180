/* config.c - see config.h. */
#include "session/config.h"

#include <string.h>

static int64_t images_of(const fri_config *c, int split) {
    return split == FR_SPLIT_TRAIN ? c->train_count : c->test_count;
}

int64_t fri_batch_size(const fri_config *c, int split) {
    int64_t n = images_of(c, split);
    return c->opts.optim.batch_size < n ? c->opts.optim.batch_size : n;
}

int64_t fri_batch_rest(const fri_config *c, int split) {
    if ((split == FR_SPLIT_TRAIN && !c->opts.data.keep_last) || images_of(c, split) == 0) return 0;
    return images_of(c, split) % fri_batch_size(c, split);
}

int64_t fri_evaluation_part(const fri_config *c) {
    const int64_t n = fri_batch_size(c, FR_SPLIT_TEST), part = c->evaluation_images;
    return part > 0 && part < n && n % part == 0 && c->ranks <= 1 ? part : n;
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
    return (fr_shape){4, {n, c->opts.data.image_size, c->opts.data.image_width, c->channels}};
}

fr_dtype fri_target_dtype(const fri_config *c) {
    return c->targets == FR_TARGET_VECTOR || fri_mixes(c) ? FR_F32 : FR_I64;
}

fr_shape fri_target_shape(const fri_config *c, int64_t n) {
    if (c->targets == FR_TARGET_PIXELS) return (fr_shape){3, {n, c->opts.data.image_size, c->opts.data.image_width}};
    return c->targets == FR_TARGET_VECTOR || fri_mixes(c) ? (fr_shape){2, {n, c->outputs}} : (fr_shape){1, {n}};
}

int64_t fri_steps_per_epoch(const fri_config *c) {
    int64_t batches = c->train_count / fri_batch_size(c, FR_SPLIT_TRAIN) + (fri_batch_rest(c, FR_SPLIT_TRAIN) > 0);
    return batches / c->opts.memory.accumulate;
}

int64_t fri_epochs_total(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    int64_t per_epoch = fri_steps_per_epoch(c);
    if (o->optim.steps == FR_TRAIN_AUTO) return o->optim.epochs;
    int64_t needed = (o->optim.steps + per_epoch - 1) / per_epoch;
    return o->optim.epochs == FR_TRAIN_AUTO || needed < o->optim.epochs ? needed : o->optim.epochs;
}

int64_t fri_steps_total(const fri_config *c) {
    int64_t steps = fri_epochs_total(c) * fri_steps_per_epoch(c);
    return c->opts.optim.steps != FR_TRAIN_AUTO && c->opts.optim.steps < steps ? c->opts.optim.steps : steps;
}

int64_t fri_save_every(const fri_config *c) {
    return c->opts.files.save_every != FR_TRAIN_AUTO ? c->opts.files.save_every : fri_steps_per_epoch(c);
}

bool fri_evaluation_due(const fri_config *c, int64_t epoch, bool last) {
    if (c->test_count == 0) return false;
    return last || (c->opts.optim.eval_every > 0 && (epoch + 1) % c->opts.optim.eval_every == 0);
}

bool fri_evaluation_counts(const fri_config *c, int64_t step) {
    const int64_t per_epoch = fri_steps_per_epoch(c), epoch = step / per_epoch - 1;
    const int64_t epochs = c->opts.optim.epochs != FR_TRAIN_AUTO ? c->opts.optim.epochs : fri_epochs_total(c);
    return step > 0 && step % per_epoch == 0 && fri_evaluation_due(c, epoch, epoch == epochs - 1);
}

fr_schedule fri_schedule(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    int64_t total = fri_steps_total(c);
    return (fr_schedule){.kind = o->optim.schedule,
                         .lr = o->optim.lr,
                         .warmup = (int64_t)(o->optim.warmup * (double)fri_steps_per_epoch(c) + 0.5),
                         .total = total,
                         .step_size = (total + 2) / 3,
                         .gamma = 0.1};
}

void fri_config_resolve(fri_config *c) {
    fr_train_opts *o = &c->opts;
    c->target = o->device;
    c->fit_batch = o->optim.batch_size == FR_TRAIN_AUTO;
    if (c->fit_batch) o->optim.batch_size = fr_train_opts_default().optim.batch_size;
    if (c->ranks == 0) c->ranks = 1; /* no add-on has set a number of ranks */
    if (o->data.image_size == FR_TRAIN_AUTO) o->data.image_size = fri_dataset_in_folders(o->data.dataset) ? 224 : 32;
    if (o->data.image_width == FR_TRAIN_AUTO) o->data.image_width = o->data.image_size;
    if (o->optim.lr == FR_TRAIN_AUTO) o->optim.lr = o->optim.optimizer == FR_TRAIN_SGD ? c->program->sgd_lr : 1e-3;
    if (o->memory.offload != NULL) o->memory.switches.offload = true;
    c->workspace_auto = o->device == FR_CUDA && o->memory.switches.workspace_limit == SIZE_MAX;
    if (o->memory.switches.workspace_limit == SIZE_MAX)
        o->memory.switches.workspace_limit = fr_switches_default().workspace_limit;
}

fr_dtype fri_compute_dtype(const fr_train_opts *o) {
    fr_train_amp type = o->precision.half != FR_TRAIN_AMP_OFF ? o->precision.half : o->precision.amp;
    return type == FR_TRAIN_AMP_FP16 ? FR_F16 : type == FR_TRAIN_AMP_BF16 ? FR_BF16 : FR_F32;
}

bool fri_loss_scaled(const fr_train_opts *o) {
    bool scalable =
        o->precision.amp != FR_TRAIN_AMP_OFF || (o->precision.half != FR_TRAIN_AMP_OFF && o->precision.master_weights);
    return scalable && (fri_compute_dtype(o) == FR_F16 || o->precision.loss_scale != FR_TRAIN_AUTO);
}

bool fri_fused_step_possible(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    return (o->memory.accumulate == 1 || c->ranks > 1) && o->memory.split_batch == 1 &&
           o->optim.clip == FR_TRAIN_AUTO && !fri_loss_scaled(o) && !o->memory.grad_zero;
}

fr_train_fused fri_fused_step(const fri_config *c) {
    const fr_train_fused asked = c->opts.memory.fused_step;
    if (asked != (fr_train_fused)FR_TRAIN_AUTO) return asked;
    return c->target != FR_CUDA && fri_fused_step_possible(c) ? FR_TRAIN_FUSED_ON : FR_TRAIN_FUSED_OFF;
}

bool fri_without_data(const fr_train_opts *o) {
    return o->device == FR_META || o->plan || o->summary;
}

bool fri_trains_auto(const fr_train_opts *o) {
    for (int64_t i = 0; i < o->model.n_train_only; i++)
        if (strcmp(o->model.train_only[i], "auto") == 0) return true;
    return false;
}

void fri_train_only_set(fri_config *c, const char *words) {
    char *rest = c->train_only.text;
    fr_train_opts *o = &c->opts;
    snprintf(c->train_only.text, sizeof c->train_only.text, "%s", words);
    o->model.train_only = c->train_only.word;
    o->model.n_train_only = 0;
    for (char *w = strtok_r(rest, " ", &rest); w != NULL && o->model.n_train_only < FRI_TRAIN_ONLY_WORDS;
         w = strtok_r(rest, " ", &rest))
        c->train_only.word[o->model.n_train_only++] = w;
}
