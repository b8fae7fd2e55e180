/* checks.c - flags that contradict or lack another flag: one row {condition, sentence} per rule.
 *
 * {name} in a sentence is replaced by the value of flag `name`, {program} by the program's name. Rows are tested in
 * order, and the user sees the sentence of the first match. */
#include "session/config.h"
#include "session/flags.h"
#include "io/session_files.h"

#include <string.h>

typedef struct conflict {
    bool found;
    const char *sentence;
} conflict;

enum { SENTENCE = 1024 };

/* Text that replaces "{name}". */
static const char *value_of(const fri_config *c, const char *name, char buf[FR_FLAG_TEXT_BYTES]) {
    if (strcmp(name, "program") == 0) return c->program->name;
    const fr_flag *f = fri_flag_find(name);
    if (f == NULL) return "";
    if (f->kind == FR_FLAG_TEXT) return *(const char *const *)fri_flag_field(f, &c->opts); /* values of any length */
    return fr_flag_text(f, &c->opts, buf);
}

static void append_text(char text[SENTENCE], const char *more, size_t n) {
    size_t at = strlen(text);
    snprintf(text + at, SENTENCE - at, "%.*s", (int)n, more);
}

static fr_status refuse_flags(const fri_config *c, const char *sentence) {
    char text[SENTENCE] = "", name[FR_FLAG_TEXT_BYTES], buf[FR_FLAG_TEXT_BYTES];
    for (;;) {
        size_t n = strcspn(sentence, "{");
        append_text(text, sentence, n);
        sentence += n;
        if (*sentence == '\0') return fr_fail(FR_EINVAL, "%s", text);
        n = strcspn(sentence, "}");
        snprintf(name, sizeof name, "%.*s", (int)n - 1, sentence + 1);
        const char *value = value_of(c, name, buf);
        append_text(text, value, strlen(value));
        sentence += n + 1;
    }
}

static fr_status check_rows(const fri_config *c, const conflict *row, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        if (row[i].found) return refuse_flags(c, row[i].sentence);
    return FR_OK;
}
#define CHECK(c, row) check_rows(c, row, sizeof(row) / sizeof *(row))

static bool is_given(const fri_config *c, const char *name) {
    return fri_flag_given(fri_flag_find(name), c->argc, c->argv);
}

/* ---- the network and its optimizer --------------------------------------------------------------------------- */

static fr_status check_model(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    const fr_train_program *p = c->program;
    const bool sgd = o->optim.optimizer == FR_TRAIN_SGD, rmsprop = o->optim.optimizer == FR_TRAIN_RMSPROP;
    bool metrics = p->metrics != NULL && p->metric_names != NULL;
    const conflict rows[] = {
        {p->n_metrics < 0 || p->n_metrics > FR_METRICS_MAX || (p->n_metrics > 0) != metrics,
         "{program}: its metrics need a function, a name each, and a number of at most 8"},
        {!o->model.batch_norm && !p->batch_norm_optional,
         "--no-batch-norm: all networks of {program} have batch norm; leave the flag out"},
        {!o->model.batch_norm && o->model.inplace_abn && (p->defaults.model.batch_norm || c->model != NULL),
         "--inplace-abn works on batch norms, which --no-batch-norm removes; choose one"},
        {o->optim.nesterov && (!sgd || o->optim.momentum == 0),
         "train.optim.nesterov needs --optimizer sgd with a --momentum above 0, not {optimizer} and {momentum}"},
        {!sgd && !rmsprop && o->optim.momentum > 0 && is_given(c, "momentum"),
         "--momentum {momentum} is for --optimizer sgd and rmsprop, not {optimizer}; leave it out"},
    };
    return CHECK(c, rows);
}

/* ---- options of a step and their conflicts ------------------------------------------------------------------- */

static fr_status check_step(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    bool scaled = fri_loss_scaled(o), dynamic = o->precision.loss_scale == FR_TRAIN_AUTO;
    const conflict rows[] = {
        {o->precision.amp != FR_TRAIN_AMP_OFF && o->precision.half != FR_TRAIN_AMP_OFF,
         "--half with --amp: pure half precision has no f32 parameters to cast; choose one"},
        {o->precision.master_weights && o->precision.half == FR_TRAIN_AMP_OFF,
         "--master-weights keeps f32 copies of half parameters; add --half"},
        {o->optim.ema > 0 && o->precision.half != FR_TRAIN_AMP_OFF && !o->precision.master_weights,
         "train.optim.ema with --half: averages of half parameters would lose digits; add --master-weights"},
        {!dynamic && !scaled, "--loss-scale {loss-scale} needs --amp, or --half with --master-weights"},
        {o->sync_batch_norm && o->memory.accumulate != c->ranks,
         "--sync-batch-norm with --accumulate {accumulate}: a step must have one batch per rank"},
        {o->sync_batch_norm && o->device == FR_CUDA,
         "--sync-batch-norm with --device cuda: works on the CPU only; leave it out"},
        {o->data.keep_last && o->memory.accumulate > 1,
         "train.data.keep_last with --accumulate: batches must be full; choose one"},
        {o->memory.split_batch > 1 && o->optim.loss == FR_TRAIN_DICE,
         "--split-batch with --loss dice: the Dice loss of a batch is no mean over its parts; choose one"},
        {o->memory.split_batch > o->optim.batch_size,
         "--split-batch {split-batch}: at most {batch-size}, the images of a batch (--batch-size)"},
    };
    return CHECK(c, rows);
}

static fr_status check_ranks(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    const conflict rows[] = {
        {o->memory.split_batch > 1,
         "--split-batch {split-batch} on several ranks: use smaller batches and a larger --accumulate instead"},
        {o->memory.fused_step == FR_TRAIN_FUSED_TWO_PASS,
         "--fused-step=two-pass on several ranks: gradients would travel twice; --amp=bf16 needs no loss scale"},
        {o->memory.grad_zero, "--grad-zero on several ranks: gradients are sent and released early; leave it out"},
        {o->precision.cudnn_benchmark,
         "--cudnn-benchmark on several ranks: ranks could choose different kernels; leave it out"},
        {o->data.keep_last && o->memory.accumulate != 1,
         "train.data.keep_last on several ranks: full batches are needed; leave it out"},
        {o->memory.calibrate, "--calibrate on several ranks: run it in one process"},
        {o->files.predict != NULL, "--predict on several ranks: run it in one process"},
    };
    return c->ranks > 1 ? CHECK(c, rows) : FR_OK;
}

static fr_status check_fused_step(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    bool scaled = fri_loss_scaled(o);
    const conflict rows[] = {
        {o->memory.accumulate > 1 && c->ranks == 1,
         "--fused-step with --accumulate: only the last batch completes the gradients; choose one"},
        {o->memory.split_batch > 1,
         "--fused-step with --split-batch: only the last part completes the gradients; choose one"},
        {o->optim.clip != FR_TRAIN_AUTO,
         "--fused-step with --clip {clip}: the norm needs all gradients at once; choose one"},
        {scaled && o->memory.fused_step == FR_TRAIN_FUSED_ON,
         "--fused-step with a loss scale (--amp=fp16): whether a step is skipped is known when all gradients are; "
         "--fused-step=two-pass looks first, and --amp=bf16 needs no scale"},
        {!scaled && o->memory.fused_step == FR_TRAIN_FUSED_TWO_PASS,
         "--fused-step=two-pass: looks for inf and NaN under a loss scale (--amp=fp16), and there is none; "
         "--fused-step does it in one pass"},
        {o->memory.grad_zero, "--fused-step with --grad-zero: a fused step releases gradients; choose one"},
    };
    return fri_fused_step(c) != FR_TRAIN_FUSED_OFF ? CHECK(c, rows) : FR_OK;
}

/* ---- files, and flags that need a run to read or write files ------------------------------------------------- */

static fr_status check_files(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    bool meta = o->device == FR_META, reads = fri_dataset_reads_files(o->data.dataset);
    FRI_OWNED(fr_weights_info_clear)
    fr_weights_info info = {0}; /* may hold all facts for a prediction */
    fr_status read = FR_END;
    if (o->files.weights != NULL && o->files.resume == NULL) read = fri_weights_info_find(o->files.weights, &info);
    if (read < 0) return read;
    const bool says = read == FR_OK && o->files.predict != NULL;
    const conflict rows[] = {
        {o->data.dataset == FR_TRAIN_DIGITS && c->program->digits == NULL && !says,
         "{program} has no digits; --dataset NAME is needed: folder, masks, mnist, cifar10 ..."},
        {reads && o->data.path == NULL && !fri_without_data(o) && !says,
         "--dataset {dataset} needs --data PATH, the folder with its files"},
        {!reads && o->data.path != NULL, "--data {data}: --dataset {dataset} reads no files; mnist, fashion-mnist, "
                                         "cifar10, cifar100, folder, masks and tar do"},
        {o->data.dataset == FR_TRAIN_MASKS && o->data.classes == FR_TRAIN_AUTO,
         "--dataset masks needs --classes N, the number of pixel classes"},
        {o->files.resume != NULL && strcmp(o->files.resume, "latest") == 0 && o->files.save == NULL,
         "--resume latest needs --save DIR, the folder with the states"},
        {o->files.save_every != FR_TRAIN_AUTO && o->files.save == NULL,
         "--save-every {save-every} needs --save DIR for the states"},
        {o->files.save == NULL && is_given(c, "keep"), "--keep {keep} needs --save DIR, the folder of the states"},
        {o->data.balanced_sampling && o->data.shuffle_window > 0,
         "train.data.balanced_sampling with train.data.shuffle_window {shuffle-window}: images are drawn from all "
         "files"},
        {o->files.keep_best && o->files.export_weights == NULL && c->rank == 0,
         "--keep-best needs --export FILE, the file for the weights"},
        {o->files.predict != NULL && o->files.weights == NULL && o->files.resume == NULL,
         "--predict needs trained weights; add --weights FILE or --resume DIR"},
        {o->files.masks != NULL && o->files.predict == NULL,
         "--masks needs --predict IMAGE..., the images to classify"},
        {meta && o->files.weights != NULL, "--weights {weights} with --device meta: meta has no data; choose one"},
        {meta && o->files.export_weights != NULL, "--export {export} with --device meta: meta has no data; choose one"},
        {meta && o->files.save != NULL, "--save {save} with --device meta: meta has no data; choose one"},
        {meta && o->files.resume != NULL, "--resume {resume} with --device meta: meta has no data; choose one"},
    };
    return CHECK(c, rows);
}

/* A plan writes its own report and picture, so --plan permits both. */
static fr_status check_views(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    bool summary = o->summary && !o->plan;
    const conflict rows[] = {
        {summary && o->files.report != NULL,
         "--report {report} with --summary: no run that could be written there; add "
         "--plan to write the plan's"},
        {summary && o->files.memory_plot != NULL,
         "--memory-plot {memory-plot} with --summary: no run that could be written "
         "there; add --plan to write the plan's"},
        {o->summary && o->files.track != NULL, "--track {track} with --summary: no run that could be written there"},
        {o->summary && o->files.track_lines != NULL,
         "--track-lines {track-lines} with --summary: no run that could be written there"},
        {o->summary && o->files.trace != NULL, "--trace {trace} with --summary: no run that could be written there"},
        {o->plan && o->files.track != NULL, "--track {track} with --plan: no run that could be written there"},
        {o->plan && o->files.track_lines != NULL,
         "--track-lines {track-lines} with --plan: no run that could be written there"},
        {o->plan && o->files.trace != NULL, "--trace {trace} with --plan: no run that could be written there"},
    };
    return CHECK(c, rows);
}

static fr_status check_budget(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    const bool automatic = fri_trains_auto(o);
    const conflict rows[] = {
        {c->fit_batch && o->memory.budget == SIZE_MAX, "--batch-size fit needs a --memory-budget to fit into"},
        {automatic && o->model.n_train_only > 1, "--train-only auto chooses all that trains; give no other names"},
        {automatic && o->memory.budget == SIZE_MAX, "--train-only auto needs a --memory-budget to fit into"},
        {automatic && c->fit_batch, "--train-only auto with --batch-size fit: both fill the budget; give a size"},
        {automatic && c->ranks > 1 && !o->plan,
         "--train-only auto on several ranks: give the choice that --plan --ranks N prints"},
        {o->memory.calibrate && o->plan, "--calibrate measures a run, --plan runs nothing; choose one"},
        {o->memory.calibrate && o->device == FR_META,
         "--calibrate measures a run, --device meta runs nothing; choose one"},
    };
    return CHECK(c, rows);
}

fr_status fri_check_flags(const fri_config *c) {
    fr_status (*const check_each[])(const fri_config *) = {check_model, check_step,  check_ranks, check_fused_step,
                                                           check_files, check_views, check_budget};
    for (size_t i = 0; i < sizeof check_each / sizeof *check_each; i++) FRI_TRY(check_each[i](c));
    return FR_OK;
}

/* ---- data set sizes ------------------------------------------------------------------------------------------ */

fr_status fri_check_counts(const fri_config *c, const char *source) {
    const fr_train_opts *o = &c->opts;
    int64_t batch = fri_batch_size(c, FR_SPLIT_TRAIN), batches = c->train_count / batch;
    if (c->targets == FR_TARGET_CLASS && c->outputs == 1 && o->files.predict == NULL && c->program->loss == NULL &&
        o->data.dataset != FR_TRAIN_SYNTHETIC)
        return fr_fail(FR_EINVAL,
                       "%s has a single class, so every answer is right and nothing can be learned; add images of "
                       "a second one",
                       source);
    if (o->optim.batch_size > c->train_count && !o->data.keep_last)
        return fr_fail(FR_EINVAL,
                       "--batch-size %lld: %s has %lld training images, so no batch would be full; lower it%s",
                       (long long)o->optim.batch_size, source, (long long)c->train_count,
                       c->model != NULL ? " or set train.data.keep_last" : ""); /* which is no flag of trainers */
    if (c->test_count == 0 && (o->files.keep_best || o->optim.patience != FR_TRAIN_AUTO))
        return fr_fail(FR_EINVAL, "%s needs test images, and there are none",
                       o->files.keep_best ? "--keep-best" : "train.optim.patience");
    if (o->memory.accumulate > batches)
        return fr_fail(FR_EINVAL, "--accumulate %lld: an epoch has only %lld batches of %lld; lower one of both",
                       (long long)o->memory.accumulate, (long long)batches, (long long)o->optim.batch_size);
    return FR_OK;
}
