/* model.c - builds the model and its optimizer from the flags. */
#include "session/data.h"
#include "session/flags.h"
#include "session/model.h"
#include "session/state.h"
#include "tensor/tensor.h"
#include "io/session_files.h"
#include "data/input.h"

#include <frugal/number.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fr_train_width_name(const fr_train_opts *opts, char name[FR_TRAIN_NAME_BYTES]) {
    if (opts == NULL || name == NULL || opts->model.width == 1) return;
    const size_t at = strlen(name);
    fr_snprintf(name + at, FR_TRAIN_NAME_BYTES - at, "_w%g", opts->model.width);
    for (char *c = name + at + 2; *c != '\0'; c++)
        if (*c < '0' || *c > '9') *c = '.'; /* decimal point in every locale */
}

const fr_network_file *fri_network_file(const fri_config *c) {
    const fr_network_file *file = NULL;
    if (c->opts.files.weights != NULL) (void)fr_network_file_of(c->opts.files.weights, &file);
    return file != NULL && file->load != NULL ? file : NULL;
}

static fr_status load_network(const fri_config *c, const fr_network_file *file, char name[FR_TRAIN_NAME_BYTES],
                              fr_module **out) {
    const char *path = c->opts.files.weights, *slash = strrchr(path, '/');
    snprintf(name, FR_TRAIN_NAME_BYTES, "%.60s", slash != NULL ? slash + 1 : path);
    return file->load(path, c->opts.device, c->opts.data.image_size, c->opts.data.image_width, out);
}

/* Creates the module without optimizer, frozen layers or loss. */
static fr_status make_module(fri_run *r, char name[FR_TRAIN_NAME_BYTES]) {
    const fri_config *c = r->config;
    const fr_network_file *file = fri_network_file(c);
    if (file != NULL) {
        if (c->opts.model.width != 1 || c->opts.model.inplace_abn)
            return fr_fail(FR_EINVAL, "--%s: --weights %s brings its network; leave the flag out",
                           c->opts.model.width != 1 ? "width" : "inplace-abn", c->opts.files.weights);
        FRI_TRY(load_network(c, file, name, &r->net.model));
        FRI_TRY(fri_head_fit(r));
    } else if (c->model != NULL) {
        snprintf(name, FR_TRAIN_NAME_BYTES, "%s", c->program->name);
        FRI_TRY(FRI_CALLBACK("model", c->model(c->model_ctx, c->opts.device, c->outputs, &r->net.model)));
    } else {
        FRI_TRY(c->program->model(&c->opts, c->outputs, name, &r->net.model));
    }
    if (c->opts.model.width != 1 && strstr(name, "_w") == NULL)
        return fr_fail(FR_EINVAL, "the networks of %s have only width 1; leave --width out", c->program->name);
    if (c->opts.precision.half != FR_TRAIN_AMP_OFF)
        FRI_TRY(fr_module_to_dtype(r->net.model, fri_compute_dtype(&c->opts)));
    return FR_OK;
}

static fr_status make_trained(fri_run *r, char name[FR_TRAIN_NAME_BYTES]) {
    fr_status s = make_module(r, name);
    return s == FR_OK ? fri_freeze_parts(r) : s;
}

/* ---- trials on meta ------------------------------------------------------------------------------------------ */

/* Compares the results with what the loss needs: a number per class for each target, or the numbers of a vector.
 * *accuracy: they are class scores. A loss of the program's own may take any results. */
static fr_status check_results(const fri_config *c, const fr_tensor *y, const fr_shape *targets, bool *accuracy) {
    char has[FRI_SHAPE_TEXT], needs[FRI_SHAPE_TEXT];
    const bool vector = c->targets == FR_TARGET_VECTOR;
    fr_shape need = *targets;
    if (!vector && !fri_mixes(c)) need.dim[need.rank++] = c->outputs;
    const bool fits = fri_shape_equal(&y->shape, &need);
    *accuracy = fits && !vector;
    if (fits || c->program->loss != NULL || c->opts.files.predict != NULL) return FR_OK;
    return fr_fail(FR_EINVAL, "the network's results are %s, but the loss needs %s, for %lld %s",
                   fri_shape_text(&y->shape, has), fri_shape_text(&need, needs), (long long)c->outputs,
                   vector ? "numbers of a target" : "classes");
}

/* Refuses a network with several results, because the loss would use only the first. */
static fr_status one_result(const fri_run *trial, fr_tensor *images) {
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL;
    const fr_train_opts *o = &trial->config->opts;
    fr_tensor *y[2] = {NULL, NULL};
    FRI_TRY(fr_cast(images, o->precision.half != FR_TRAIN_AMP_OFF ? fri_compute_dtype(o) : FR_F32, &x));
    const bool grad = fr_no_grad_begin();
    const bool more = fr_module_forward_n(trial->net.model, &x, 1, y, 2) == FR_OK && y[1] != NULL;
    fr_no_grad_end(grad);
    fr_tensor_release(&y[0]);
    fr_tensor_release(&y[1]);
    if (!more) return FR_OK;
    return fr_fail(FR_EINVAL, "the network has several results, and the loss gets the first one alone: end it with one "
                              "(fr_net_end), or train it by hand (fr_module_forward_n)");
}

/* Runs one batch through model and loss on meta. */
static fr_status try_batch(const fri_run *trial, int64_t batch, bool *accuracy, uint64_t *drawn) {
    const fri_config *c = trial->config;
    char size[FR_FLAG_TEXT_BYTES];
    const fr_shape shape = fri_target_shape(c, batch);
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL, *targets = NULL, *loss = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_empty(4, fri_image_shape(c, batch).dim, FR_F32, FR_META, &x));
    FR_TRY(s, fr_tensor_empty(shape.rank, shape.dim, fri_target_dtype(c), FR_META, &targets));
    FR_TRY(s, one_result(trial, x));
    const uint64_t streams = fr_rng_get().next_stream;
    FR_TRY(s, fri_model_forward(trial, x, &x));
    if (check_results(c, x, &shape, accuracy) < 0) return FR_EINVAL;
    FR_TRY(s, fri_loss_of_batch(trial, x, targets, true, &loss));
    *drawn = fr_rng_get().next_stream - streams;
done:
    if (s == FR_ESHAPE || s == FR_EINVAL)
        return fr_fail_prefix(FR_EINVAL, "%s %lld --image-size %s: ",
                              batch == c->opts.optim.batch_size ? "--batch-size"
                                                                : "the last batch of an epoch, of images:",
                              (long long)batch, fri_image_text(&c->opts, size));
    return s;
}

fr_status fri_model_check(fri_config *c, fr_dataset *train) {
    fri_config meta = *c;
    FRI_OWNED(fri_model_release) fri_run trial = {.config = &meta, .data.train = train};
    int64_t rest = fri_batch_rest(c, FR_SPLIT_TRAIN);
    fri_head_rows rows;
    meta.opts.device = FR_META;
    fri_head_rows_find(&trial, &rows);
    meta.other_classes = c->other_classes = rows.moved && c->opts.files.predict == NULL;
    fr_status s = make_module(&trial, meta.model_name);
    memcpy(c->model_name, meta.model_name, sizeof c->model_name);
    if (c->model == NULL && (s == FR_EINVAL || s == FR_ESHAPE)) {       /* a session's network has no flags to name */
        const bool named = strncmp(fr_last_error(), "model '", 7) == 0; /* the name alone is wrong */
        if (strncmp(fr_last_error(), "--", 2) == 0) return s;           /* the sentence names its flag */
        char size[FR_FLAG_TEXT_BYTES];
        if (!named) s = fr_fail_prefix(FR_EINVAL, "--image-size %s: ", fri_image_text(&c->opts, size));
        if (!named && c->opts.model.width != 1) s = fr_fail_prefix(s, "--width %g ", c->opts.model.width);
        if (c->opts.model.depth != FR_TRAIN_AUTO)
            s = fr_fail_prefix(s, "--depth %lld%s", (long long)c->opts.model.depth, named ? ": " : " ");
        return s;
    }
    if (s < 0) return s;
    FRI_TRY(fri_freeze_parts(&trial));
    FRI_TRY(fri_segments_check(&trial));
    FRI_TRY(try_batch(&trial, fri_batch_size(c, FR_SPLIT_TRAIN), &c->accuracy, &c->streams));
    if (rest > 0) FRI_TRY(try_batch(&trial, rest, &c->accuracy, &c->streams));
    return FR_OK;
}

fr_status fri_on_meta(const fri_config *c, fr_status (*fn)(const fri_run *trial, void *ctx), void *ctx) {
    fri_config meta = *c;
    fri_run trial = {.config = &meta};
    fr_switches switches = fr_switches_get();
    fr_rng rng = fr_rng_get();
    FRI_OWNED(fr_pool_release) fr_pool *pool = NULL;
    fr_pool_state was;
    FRI_TRY(fr_pool_create(FR_META, &pool));
    FRI_TRY(fr_pool_begin(pool, &was));
    meta.opts.device = FR_META;
    fr_switches_set(c->opts.memory.switches);
    fr_status s = make_trained(&trial, meta.model_name);
    if (s == FR_OK) s = fn(&trial, ctx);
    fri_model_release(&trial);
    fr_switches_set(switches);
    fr_rng_set(rng);
    fr_pool_end(was);
    return s;
}

static fr_status count_units(const fri_run *trial, void *ctx) {
    *(int *)ctx = fr_module_units(trial->net.model, NULL, 0);
    return FR_OK;
}

fr_status fri_model_units(const fri_config *c, int *out) {
    return fri_on_meta(c, count_units, out);
}

static fr_status build_optimizer(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    const fr_sgd_opts *sgd = FR_SGD_OPTS(.lr = o->optim.lr, .momentum = o->optim.momentum,
                                         .weight_decay = o->optim.weight_decay, .nesterov = o->optim.nesterov);
    switch (o->optim.optimizer) {
    case FR_TRAIN_SGD: return fr_sgd(r->net.model, sgd, &r->net.optimizer);
    case FR_TRAIN_RMSPROP:
        return fr_rmsprop(r->net.model,
                          FR_RMSPROP_OPTS(.lr = o->optim.lr, .momentum = o->optim.momentum,
                                          .weight_decay = o->optim.weight_decay),
                          &r->net.optimizer);
    case FR_TRAIN_ADAM:
        return fr_adam(r->net.model, FR_ADAM_OPTS(.lr = o->optim.lr, .weight_decay = o->optim.weight_decay),
                       &r->net.optimizer);
    case FR_TRAIN_ADAMW:
        return fr_adamw(r->net.model, FR_ADAMW_OPTS(.lr = o->optim.lr, .weight_decay = o->optim.weight_decay),
                        &r->net.optimizer);
    case FR_TRAIN_ADAM8:
        return fr_adam8(r->net.model, FR_ADAM_OPTS(.lr = o->optim.lr, .weight_decay = o->optim.weight_decay),
                        &r->net.optimizer);
    }
    return fr_fail(FR_EINTERNAL, "trainer: optimizer %d", (int)o->optim.optimizer);
}

static fr_status build_scaler(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    bool dynamic = o->precision.loss_scale == FR_TRAIN_AUTO;
    return fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = fri_loss_scaled(o),
                                                     .init_scale = dynamic ? 65536 : o->precision.loss_scale,
                                                     .dynamic = dynamic),
                                 o->device, &r->net.scaler);
}

fr_status fri_model_build(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    char name[FR_TRAIN_NAME_BYTES];
    fr_seed((uint64_t)o->optim.seed);
    FRI_TRY(make_trained(r, name));
    r->net.parameters = fr_module_parameter_count(r->net.model);
    FRI_TRY(build_optimizer(r));
    FRI_TRY(fri_groups_build(r));
    FRI_TRY(fr_optimizer_master_weights(r->net.optimizer, o->precision.master_weights));
    if (r->config->ranks > 1)
        FRI_TRY(r->config->rank_calls->share(r->net.model, r->net.optimizer, r->config->comm, o->memory.accumulate,
                                             r->config->streams, o->sync_batch_norm, &r->net.share));
    if (o->memory.fused_step == FR_TRAIN_FUSED_TWO_PASS) FRI_TRY(fr_optimizer_fuse(r->net.optimizer, true));
    FRI_TRY(build_scaler(r));
    FRI_TRY(fri_class_weights_begin(r));
    return fri_session_input(r);
}

void fri_model_release(fri_run *r) {
    fri_input_release(&r->data.input);
    fr_tensor_release(&r->net.class_weights);
    fri_casts_release(&r->net.casts);
    if (r->net.share != NULL) r->config->rank_calls->unshare(&r->net.share);
    fr_grad_scaler_release(&r->net.scaler);
    fr_optimizer_release(&r->net.optimizer);
    fr_module_release(&r->net.model);
}

fr_dtype fri_model_dtype(const fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    const int layers = o->precision.amp != FR_TRAIN_AMP_OFF ? fr_module_layers(r->net.model) : 0;
    fr_layer l;
    for (int i = 0; i < layers; i++) {
        if (fr_module_layer_get(r->net.model, i, &l) < 0) return FR_F32;
        for (int k = 0; k < l.n_in; k++)
            if (l.in[k] == 0 && (fr_module_class_of(l.module)->traits & FR_LAYER_CASTS) == 0) return FR_F32;
    }
    return fri_compute_dtype(o);
}

fr_status fri_model_images(const fri_run *r, fr_tensor **images) {
    const fri_config *c = r->config;
    if (fr_tensor_dtype(*images) != FR_U8) return FR_OK;
    return fr_images_normalize(*images, c->mean, c->std, fri_model_dtype(r), images);
}

static fr_status forward_trained(const fri_run *r, fr_tensor *x, fr_tensor **y) {
    const fr_train_opts *o = &r->config->opts;
    if (o->memory.unit_plan != NULL && fr_grad_enabled())
        return fr_checkpoint_plan(r->net.model, o->memory.unit_plan, x, y);
    if (o->memory.checkpoint_segments != FR_TRAIN_AUTO && fr_grad_enabled()) return fri_segments_forward(r, x, y);
    return fr_module_forward(r->net.model, x, y);
}

fr_status fri_model_forward(const fri_run *r, fr_tensor *x, fr_tensor **y) {
    const fr_train_opts *o = &r->config->opts;
    if (o->precision.half != FR_TRAIN_AMP_OFF) FRI_TRY(fr_cast(x, fri_compute_dtype(o), y));
    return forward_trained(r, o->precision.half != FR_TRAIN_AMP_OFF ? *y : x, y);
}
