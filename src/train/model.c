/* model.c - the model and its optimizer from the flags. */
#include "base/status.h"
#include "train/flags.h"
#include "train/run.h"

#include <math.h>
#include <string.h>

/* A batch's way through the model, on meta: finds a network that does not exist, images or batches that it cannot take,
 * and segments that it does not have, before anything is allocated. */
static fr_status try_batch(const fri_run *r, fr_module *model, int64_t batch) {
    int64_t size = r->opts.image_size;
    fr_tensor *x = NULL;
    fri_run trial = {.opts = r->opts, .model = model};
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){batch, size, size, 3}, FR_F32, FR_META, &x));
    FR_TRY(s, fri_model_forward(&trial, x, &x));
done:
    fr_tensor_release(&x);
    if (s == FR_ESHAPE || s == FR_EINVAL)
        return fri_fail_prefix(FR_EINVAL, "--batch-size %lld --image-size %lld: ", (long long)batch, (long long)size);
    return s;
}

/* --summary and --plan run nothing, so there is nothing to write about; a plan has its own report and picture. */
static fr_status check_views(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    const struct {
        const char *name, *value;
        bool of_a_plan;
    } files[] = {{"report", o->report, true},
                 {"memory-plot", o->memory_plot, true},
                 {"track", o->track, false},
                 {"trace", o->trace, false}};
    for (size_t i = 0; i < sizeof files / sizeof *files && (o->summary || o->plan); i++)
        if (files[i].value != NULL && !(o->plan && files[i].of_a_plan))
            return fri_fail(FR_EINVAL, "--%s %s with %s: no run that could be written there%s", files[i].name,
                            files[i].value, o->summary ? "--summary" : "--plan",
                            files[i].of_a_plan ? "; add --plan to write the plan's" : "");
    return FR_OK;
}

static fr_status check_flags(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    const fr_train_program *p = r->program;
    if (!o->batch_norm && !p->batch_norm_optional)
        return fri_fail(FR_EINVAL, "--no-batch-norm: the networks of %s always have batch norm", p->name);
    if (!o->batch_norm && o->inplace_abn)
        return fri_fail(FR_EINVAL, "--inplace-abn with --no-batch-norm: there is no batch norm to activate in place");
    if (o->head != FR_HEAD_AUTO && p->pixel_classes != NULL)
        return fri_fail(FR_EINVAL, "--head %s: %s classifies pixels and has no classifier to choose",
                        o->head == FR_HEAD_GLOBAL ? "global" : "torchvision", p->name);
    if (o->nesterov && (o->optimizer != FR_TRAIN_SGD || o->momentum == 0))
        return fri_fail(FR_EINVAL, "--nesterov needs --optimizer sgd with a --momentum above 0, not %s and %g",
                        o->optimizer == FR_TRAIN_SGD     ? "sgd"
                        : o->optimizer == FR_TRAIN_ADAM  ? "adam"
                        : o->optimizer == FR_TRAIN_ADAM8 ? "adam8"
                                                         : "adamw",
                        o->momentum);
    if (o->optimizer != FR_TRAIN_SGD && o->momentum > 0 && fri_flag_given(fri_flag_find("momentum"), r->argc, r->argv))
        return fri_fail(FR_EINVAL, "--momentum %g: is of --optimizer sgd; the others have their own", o->momentum);
    return FR_OK;
}

static fr_status both(const char *a, const char *b, const char *why) {
    return fri_fail(FR_EINVAL, "%s with %s: %s", a, b, why);
}

/* Files that need each other, and what has no weights to read or write. */
static fr_status check_files(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    if (o->resume != NULL && strcmp(o->resume, "latest") == 0 && o->save == NULL)
        return fri_fail(FR_EINVAL, "--resume latest: of which folder? --save DIR names it");
    if (o->save_every != FR_TRAIN_AUTO && o->save == NULL)
        return fri_fail(FR_EINVAL, "--save-every %lld: --save DIR says where to", (long long)o->save_every);
    if (o->save == NULL && fri_flag_given(fri_flag_find("keep"), r->argc, r->argv))
        return fri_fail(FR_EINVAL, "--keep %lld: --save DIR says of which states", (long long)o->keep);
    if (o->predict != NULL && o->weights == NULL && o->resume == NULL)
        return fri_fail(FR_EINVAL, "--predict: wants trained weights; add --weights FILE or --resume DIR");
    if (o->predict != NULL && r->program->pixel_classes != NULL)
        return fri_fail(FR_EINVAL, "--predict: %s classifies pixels, not images", r->program->name);
    const struct {
        const char *name, *value;
    } with_numbers[] = {{"weights", o->weights},
                        {"export", o->export_weights},
                        {"save", o->save},
                        {"resume", o->resume}};
    for (size_t i = 0; i < sizeof with_numbers / sizeof *with_numbers && o->device == FR_META; i++)
        if (with_numbers[i].value != NULL)
            return fri_fail(FR_EINVAL, "--%s %s with --device meta: there are no numbers there", with_numbers[i].name,
                            with_numbers[i].value);
    return FR_OK;
}

bool fri_fused_step_possible(const fr_train_opts *o) {
    return o->accumulate == 1 && o->split_batch == 1 && o->clip == FR_TRAIN_AUTO && !fri_run_scaled(o) && !o->grad_zero;
}

/* What a step can be asked for, and what not at the same time. */
static fr_status check_step(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    bool scaled = fri_run_scaled(o);
    if (o->amp != FR_TRAIN_AMP_OFF && o->half != FR_TRAIN_AMP_OFF)
        return both("--half", "--amp", "pure half precision has no f32 parameters to cast");
    if (o->loss_scale != FR_TRAIN_AUTO && o->amp == FR_TRAIN_AMP_OFF)
        return fri_fail(FR_EINVAL, "--loss-scale %g: scales the loss of --amp, which is off", o->loss_scale);
    if (o->loss_scale_floor > 0 && (!scaled || o->loss_scale != FR_TRAIN_AUTO))
        return fri_fail(FR_EINVAL, "--loss-scale-floor %g: is for a dynamic loss scale (--amp=fp16), and there is none",
                        o->loss_scale_floor);
    if (o->keep_last && o->accumulate > 1) return both("--keep-last", "--accumulate", "a step is made of full batches");
    if (o->split_batch > o->batch_size)
        return fri_fail(FR_EINVAL, "--split-batch %lld: more parts than the %lld images of --batch-size",
                        (long long)o->split_batch, (long long)o->batch_size);
    int64_t batches = r->train_count / (o->batch_size < r->train_count ? o->batch_size : r->train_count);
    if (o->accumulate > batches)
        return fri_fail(FR_EINVAL, "--accumulate %lld: an epoch has %lld batches of %lld", (long long)o->accumulate,
                        (long long)batches, (long long)o->batch_size);
    if (o->cuda_graph) {
        if (o->device != FR_CUDA)
            return fri_fail(FR_EINVAL, "--cuda-graph: records the steps of a GPU, and this run is on %s",
                            fr_device_name(o->device));
        if (!o->arena) return both("--cuda-graph", "--no-arena", "a recorded step needs its tensors at fixed places");
        if (o->empty_cache_every > 0) return both("--cuda-graph", "--empty-cache-every", "that turns the arena off");
        if (o->offload != NULL) return both("--cuda-graph", "--offload", "the host moves the saved tensors");
        if (o->detect_anomaly) return both("--cuda-graph", "--detect-anomaly", "the host looks at each result");
    }
    if (o->fused_step == FR_TRAIN_FUSED_OFF) return FR_OK;
    if (o->accumulate > 1) return both("--fused-step", "--accumulate", "gradients are complete after the last batch");
    if (o->split_batch > 1) return both("--fused-step", "--split-batch", "gradients are complete after the last part");
    if (o->clip != FR_TRAIN_AUTO) return both("--fused-step", "--clip", "the norm needs all gradients at once");
    if (scaled && o->fused_step == FR_TRAIN_FUSED_ON)
        return both("--fused-step", "a loss scale (--amp=fp16)",
                    "whether a step is skipped is known when all gradients are; --fused-step=two-pass looks first, and "
                    "--amp=bf16 needs no scale");
    if (!scaled && o->fused_step == FR_TRAIN_FUSED_TWO_PASS)
        return fri_fail(FR_EINVAL, "--fused-step=two-pass: looks for inf and NaN under a loss scale (--amp=fp16), and "
                                   "there is none; --fused-step does it in one pass");
    if (o->grad_zero) return both("--fused-step", "--grad-zero", "its gradients go as soon as they are used");
    return FR_OK;
}

fr_status fri_model_check(fri_run *r) {
    fr_train_opts o = r->opts;
    fr_module *model = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, check_flags(r));
    FR_TRY(s, check_step(r));
    FR_TRY(s, check_files(r));
    FR_TRY(s, check_views(r));
    o.device = FR_META;
    s = r->program->model(&o, r->outputs, r->model_name, &model);
    if (s == FR_EINVAL || s == FR_ESHAPE) {
        s = fri_fail_prefix(FR_EINVAL, "--depth %lld --image-size %lld: ", (long long)o.depth, (long long)o.image_size);
        goto done;
    }
    FR_TRY(s, s);
    if (o.half != FR_TRAIN_AMP_OFF) FR_TRY(s, fr_module_to_dtype(model, fri_run_dtype(&o)));
    FR_TRY(s, fri_segments_check(r, model));
    int64_t full = o.batch_size < r->train_count ? o.batch_size : r->train_count;
    FR_TRY(s, try_batch(r, model, full));
    int64_t rest = r->train_count % full;
    if (o.keep_last && rest > 0) FR_TRY(s, try_batch(r, model, rest));
done:
    fr_module_release(&model);
    return s;
}

static fr_status build_optimizer(fri_run *r) {
    fr_train_opts *o = &r->opts;
    if (o->lr == FR_TRAIN_AUTO) o->lr = o->optimizer == FR_TRAIN_SGD ? r->program->sgd_lr : 1e-3;
    switch (o->optimizer) {
    case FR_TRAIN_SGD:
        return fr_sgd(r->model,
                      FR_SGD_OPTS(.lr = o->lr, .momentum = o->momentum, .weight_decay = o->weight_decay,
                                  .nesterov = o->nesterov),
                      &r->optimizer);
    case FR_TRAIN_ADAM:
        return fr_adam(r->model, FR_ADAM_OPTS(.lr = o->lr, .weight_decay = o->weight_decay), &r->optimizer);
    case FR_TRAIN_ADAMW:
        return fr_adamw(r->model, FR_ADAMW_OPTS(.lr = o->lr, .weight_decay = o->weight_decay), &r->optimizer);
    case FR_TRAIN_ADAM8:
        return fr_adam8(r->model, FR_ADAM_OPTS(.lr = o->lr, .weight_decay = o->weight_decay), &r->optimizer);
    }
    return fri_fail(FR_EINTERNAL, "trainer: optimizer %d", (int)o->optimizer);
}

static fr_status build_scaler(fri_run *r) {
    const fr_train_opts *o = &r->opts;
    bool dynamic = o->loss_scale == FR_TRAIN_AUTO;
    return fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = fri_run_scaled(o),
                                                     .init_scale = dynamic ? 65536 : o->loss_scale,
                                                     .min_scale = o->loss_scale_floor, .dynamic = dynamic),
                                 o->device, &r->scaler);
}

fr_status fri_model_build(fri_run *r) {
    fr_status s = FR_OK;
    fr_seed((uint64_t)r->opts.seed);
    FR_TRY(s, r->program->model(&r->opts, r->outputs, r->model_name, &r->model));
    if (r->opts.half != FR_TRAIN_AMP_OFF) FR_TRY(s, fr_module_to_dtype(r->model, fri_run_dtype(&r->opts)));
    r->parameters = fr_module_parameter_count(r->model);
    FR_TRY(s, build_optimizer(r));
    if (r->opts.fused_step != FR_TRAIN_FUSED_OFF) FR_TRY(s, fr_optimizer_fuse(r->optimizer, true));
    FR_TRY(s, build_scaler(r));
    FR_TRY(s, fri_ahead_prepare(r));
    FR_TRY(s, fri_train_graph_prepare(r));
done:
    return s;
}

void fri_model_release(fri_run *r) {
    fri_train_graph_release(r);
    fri_ahead_release(r);
    fr_grad_scaler_release(&r->scaler);
    fr_optimizer_release(&r->optimizer);
    fr_module_release(&r->model);
}

fr_status fri_model_forward(const fri_run *r, fr_tensor *x, fr_tensor **y) {
    if (r->opts.half != FR_TRAIN_AMP_OFF) {
        fr_status s = fr_cast(x, fri_run_dtype(&r->opts), y);
        if (s < 0) return s;
        x = *y;
    }
    if (r->opts.unit_plan != NULL && fr_grad_enabled()) return fr_checkpoint_plan(r->model, r->opts.unit_plan, x, y);
    if (r->opts.checkpoint_segments != FR_TRAIN_AUTO && fr_grad_enabled()) return fri_segments_forward(r, x, y);
    return fr_module_forward(r->model, x, y);
}
