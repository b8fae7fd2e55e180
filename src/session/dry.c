/* dry.c - see dry.h.
 *
 * Note [Settling of the allocator]
 * The block that a request gets depends on the free blocks at that time, so allocated and reserved bytes of a step
 * depend on the previous step. The allocator is deterministic: once a step leaves the allocator in the state in which
 * the step found it, all further steps repeat that step and are left out of the dry run. Batches of an evaluation and
 * whole epochs are shortened in the same way. */
#include "session/dry.h"
#include "session/model.h"
#include "session/prepare.h"

#include "data/input.h"
#include "plan/section.h"
#include "session/driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Limits of repetition. Networks settle at the second or third step; runs that do not are marked as inexact. */
enum { STEPS_AT_MOST = 12, EPOCHS_AT_MOST = 6, SECTIONS_LEFT = 8 };

/* An epoch, and the allocator's state at its beginning. */
typedef struct epoch_kind {
    uint64_t before;
    fri_epoch like;
} epoch_kind;

typedef struct dry_run {
    fri_config config; /* copy of the command's, with device meta */
    fri_run run;       /* data sets of two full batches and a short one */
    fri_train_plan *out;
    fr_loader *loader;                /* of the evaluation */
    bool shorter;                     /* the evaluation's batch is the short one */
    epoch_kind now;                   /* current epoch */
    epoch_kind fixed[EPOCHS_AT_MOST]; /* epochs that left the allocator's state unchanged */
    int n_fixed, epochs_run;
    int64_t unchanged; /* consecutive epochs known to change nothing */
    int in_a_row;      /* steps of the epoch, or batches of the evaluation */
} dry_run;

/* ---- batches ----------------------------------------------------------------------------------------------- */

/* Copies a batch from the host, as the run does. Meta ignores the source, so any pointer will do. Test images are not
 * mixed. */
static fr_status host_batch(const dry_run *d, int split, int64_t n, fr_tensor **images, fr_tensor **targets) {
    fri_config c = d->config;
    if (split == FR_SPLIT_TEST) c.augmentation.batch = NULL;
    const fr_shape of_images = fri_image_shape(&c, n), shape = fri_target_shape(&c, n);
    FRI_TRY(fr_tensor_from_host(d, of_images.rank, of_images.dim, fri_image_dtype(&c), FR_META, images));
    fr_tensor_category_set(*images, FR_MEM_INPUT);
    FRI_TRY(fr_tensor_from_host(d, shape.rank, shape.dim, fri_target_dtype(&c), FR_META, targets));
    fr_tensor_category_set(*targets, FR_MEM_INPUT);
    return FR_OK;
}

/* The loader's data set has three batches: 0 and 1 are full, 2 is short. Returns `part` images of a batch, or the rest,
 * from image `first` on. */
static fr_status next_part(dry_run *d, int split, bool shorter, int64_t first, int64_t part, fr_tensor **images,
                           fr_tensor **targets) {
    fr_loader *loader = split == FR_SPLIT_TRAIN ? d->run.data.loader : d->loader;
    const int64_t full = fri_batch_size(&d->config, split), n = shorter ? fri_batch_rest(&d->config, split) : full;
    if (loader == NULL) return host_batch(d, split, n - first < part ? n - first : part, images, targets);
    if (first == 0) FRI_TRY(fr_loader_position_set(loader, 0, shorter ? 2 * full / part : 0));
    return fri_input_next(d->run.data.input, loader, images, targets);
}

/* Opens a loader whose buffers count as device memory, as on the CPU. For CUDA, batches are copied without a
 * loader. */
static fr_status open_loader(dry_run *d, int split, fr_loader **loader) {
    const fr_train_opts *o = &d->config.opts;
    const fr_shape image = fri_image_shape(&d->config, 1);
    int64_t images = 2 * fri_batch_size(&d->config, split) + fri_batch_rest(&d->config, split);
    fr_dataset **data = split == FR_SPLIT_TRAIN ? &d->run.data.train : &d->run.data.test;
    if (d->config.target == FR_CUDA) return FR_OK;
    fr_dataset_release(data);
    fr_status s =
        fr_dataset_create(&(fr_dataset_source){.count = images,
                                               .classes = o->data.classes,
                                               .height = image.dim[1],
                                               .width = image.dim[2],
                                               .channels = image.dim[3],
                                               .read = fri_nothing_read,
                                               .target = d->config.from_labels ? FR_TARGET_CLASS : d->config.targets},
                          data);
    return s < 0 ? s : fri_data_loader(&d->config, split, *data, loader);
}

/* ---- steps and batches, repeated until the allocator settles ------------------------------------------------- */

static fr_status begin_section(dry_run *d, fri_section part, bool again) {
    static const struct {
        const char *name, *again;
    } names[FRI_PART_COUNT] = {[FRI_PART_SETUP] = {"setup"},
                               [FRI_PART_FIRST_STEP] = {"first step"},
                               [FRI_PART_STEP] = {"steady step", "further step"},
                               [FRI_PART_SHORT_STEP] = {"step on the short batch", "step on the short batch"},
                               [FRI_PART_EVALUATION] = {"evaluation", "evaluation"},
                               [FRI_PART_EVALUATION_BATCH] = {"evaluation, next batch", "evaluation, further batch"},
                               [FRI_PART_EVALUATION_SHORT] = {"evaluation, short batch", "evaluation, short batch"}};
    int i = fri_plan_sections(d->out->plan);
    FRI_TRY(fr_plan_section(d->out->plan, again ? names[part].again : names[part].name));
    if (!again) d->out->section[part] = i;
    d->out->is_evaluation[i] = part >= FRI_PART_EVALUATION;
    return FR_OK;
}

/* Runs one of `alike` equal parts as a section of the plan. *done becomes `alike` once the allocator has settled, or
 * when the limit of steps or sections is reached. */
static fr_status one_of(dry_run *d, fri_section part, int64_t alike, int64_t *done,
                        fr_status (*run)(dry_run *d, fri_section part)) {
    const bool repeats = part == FRI_PART_STEP || part == FRI_PART_EVALUATION_BATCH;
    bool again = d->out->section[part] >= 0;
    uint64_t before = fri_plan_state(d->out->plan);
    if (repeats && again &&
        (d->in_a_row == STEPS_AT_MOST || fri_plan_sections(d->out->plan) + SECTIONS_LEFT >= FRI_PLAN_SECTIONS)) {
        d->out->settled = false;
        *done = alike;
        return FR_OK;
    }
    if (part != FRI_PART_EVALUATION) FRI_TRY(begin_section(d, part, again)); /* evaluation_begin did */
    FRI_TRY(run(d, part));
    d->in_a_row++;
    if (!repeats) return FR_OK;
    if (fri_plan_state(d->out->plan) == before) *done = alike;
    return FR_OK;
}

typedef struct step_work {
    fri_step_work work;
    dry_run *d;
    bool shorter;
} step_work;

static fr_status dry_batch(void *ctx, int64_t i) {
    step_work *w = ctx;
    (void)i;
    return next_part(w->d, FR_SPLIT_TRAIN, w->shorter, 0, fri_batch_size(&w->d->config, FR_SPLIT_TRAIN),
                     &w->work.images, &w->work.targets);
}

static fr_status run_step(dry_run *d, fri_section part) {
    static const fri_stepping on_meta = {dry_batch, fri_step_train, fri_step_update};
    step_work w = {.work = {.r = &d->run, .v = d->run.numbers.values}, .d = d, .shorter = part == FRI_PART_SHORT_STEP};
    const uint64_t before = fr_graph_stats_get().recomputed_segments;
    fr_status s = fri_drive_step(&d->run, &on_meta, &w, w.work.v);
    if (!w.shorter) d->out->again = fr_graph_stats_get().recomputed_segments - before;
    fri_step_work_end(&w.work);
    return s;
}

static fr_status dry_step(void *ctx, fri_section part, int64_t alike, int64_t *done) {
    return one_of(ctx, part, alike, done, run_step);
}

static fr_status dry_part(void *ctx, int64_t first, fr_tensor **images, fr_tensor **targets, int64_t *count) {
    dry_run *d = ctx;
    *count = 1;
    return next_part(d, FR_SPLIT_TEST, d->shorter, first, fri_evaluation_part(&d->config), images, targets);
}

static fr_status run_evaluation(dry_run *d, fri_section part) {
    FRI_OWNED(fri_sums_drop) fri_sums sum = {0};
    d->shorter = part == FRI_PART_EVALUATION_SHORT;
    return fri_evaluate_batch(&d->run, d->shorter, dry_part, d, &sum);
}

static fr_status evaluation_begin(void *ctx) {
    dry_run *d = ctx;
    d->in_a_row = 0;
    FRI_TRY(begin_section(d, FRI_PART_EVALUATION, d->out->section[FRI_PART_EVALUATION] >= 0));
    return open_loader(d, FR_SPLIT_TEST, &d->loader);
}

static fr_status dry_evaluate(void *ctx, fri_section part, int64_t alike, int64_t *done) {
    return one_of(ctx, part, alike, done, run_evaluation);
}

static fr_status evaluation_over(void *ctx, fr_status s) {
    fr_loader_release(&((dry_run *)ctx)->loader);
    return s;
}

/* ---- epochs, repeated until the allocator settles ------------------------------------------------------------ */

static bool same_epoch(const epoch_kind *a, const epoch_kind *b) {
    return a->before == b->before && a->like.full == b->like.full && a->like.shorter == b->like.shorter &&
           a->like.evaluation == b->like.evaluation;
}

static bool changes_nothing(const dry_run *d, const epoch_kind *e) {
    for (int i = 0; i < d->n_fixed; i++)
        if (same_epoch(&d->fixed[i], e)) return true;
    return false;
}

static fr_status epoch_begin(void *ctx, const fri_epoch *e, int64_t *skip) {
    dry_run *d = ctx;
    int64_t every = d->config.opts.optim.eval_every, patience = (every > 0 ? every : 0) + 1;
    d->now = (epoch_kind){fri_plan_state(d->out->plan), *e};
    d->in_a_row = 0;
    if (changes_nothing(d, &d->now)) {
        /* all kinds of epochs are known to change nothing, so all epochs before the last can be left out */
        *skip = ++d->unchanged > patience && e->to_last > 0 ? e->to_last : 1;
        return FR_OK;
    }
    d->unchanged = 0;
    if (d->epochs_run < EPOCHS_AT_MOST - 1 || e->to_last == 0) return FR_OK;
    d->out->settled = false;
    *skip = e->to_last;
    return FR_OK;
}

static fr_status epoch_over(void *ctx) {
    dry_run *d = ctx;
    d->epochs_run++;
    if (fri_plan_state(d->out->plan) == d->now.before) d->fixed[d->n_fixed++] = d->now;
    return FR_OK;
}

static fr_status dry_train(dry_run *d) {
    static const fri_execution on_meta = {.epoch_begin = epoch_begin,
                                          .step = dry_step,
                                          .evaluation_begin = evaluation_begin,
                                          .evaluate = dry_evaluate,
                                          .evaluation_over = evaluation_over,
                                          .epoch_over = epoch_over};
    fri_run *r = &d->run;
    fr_status s = FR_OK;
    FR_TRY(s, begin_section(d, FRI_PART_SETUP, false));
    FR_TRY(s, fri_model_build(r));
    FR_TRY(s, open_loader(d, FR_SPLIT_TRAIN, &r->data.loader));
    r->net.schedule = fri_schedule(r->config);
    FR_TRY(s, fri_resume_dry(r));
    FR_TRY(s, fri_drive(r, &on_meta, d));
    d->out->parameters = r->net.parameters;
    d->out->trained = r->net.trained;
done:
    fri_run_end(r);
    return s;
}

/* Combines the sections' peaks, separately for training and evaluation, as a run does. */
static fr_status fold_sections(fri_train_plan *p) {
    p->training = p->evaluation = (fr_memory_stats){0};
    const int n = fri_plan_sections(p->plan);
    for (int i = 0; i < n; i++) {
        fr_plan_section_stats t;
        FRI_TRY(fr_plan_section_get(p->plan, i, &t));
        fri_peak_fold(&t.memory, p->is_evaluation[i] ? &p->evaluation : &p->training);
    }
    return FR_OK;
}

fr_status fri_train_plan_use_arena(fri_train_plan *p, fr_placement *out) {
    fr_status s = fr_plan_use_arena(p->plan, out);
    return s < 0 ? s : fold_sections(p);
}

static fr_status make_plan(const fri_config *c, size_t limit, bool workspaces, fri_train_plan *out) {
    const fr_train_opts *o = &c->opts;
    dry_run d = {.config = *c, .run.config = &d.config, .out = out};
    fr_switches switches = fr_switches_get();
    fr_rng rng = fr_rng_get();
    int threads = fr_threads_get();
    fr_status s = FR_OK;
    *out = (fri_train_plan){.settled = true, .workspaces = workspaces};
    memset(out->section, -1, sizeof out->section);
    d.config.opts.device = FR_META;
    double began = fri_seconds_now();
    if (o->threads != FR_TRAIN_AUTO) FR_TRY(s, fr_threads_set((int)o->threads));
    FR_TRY(s, fri_segment_weights(c, &d.run.net.unit_weight));
    FR_TRY(s, fr_plan_begin(out->workspaces ? o->device : FR_META, &out->plan));
    FR_TRY(s, fr_memory_limit_set(FR_META, limit));
    fr_switches_set(o->memory.switches);
    FR_TRY(s, dry_train(&d));
    FR_TRY(s, fr_plan_end(out->plan));
    FR_TRY(s, fold_sections(out));
    out->seconds = fri_seconds_now() - began;
done:
    if (s < 0) fri_train_plan_release(out);
    free(d.run.net.unit_weight);
    fr_switches_set(switches);
    fr_rng_set(rng);
    if (fr_threads_get() != threads) (void)fr_threads_set(threads);
    return s;
}

/* If the device's libraries are not installed (no cuDNN), the plan is made without their workspaces. */
static fr_status plan_of(const fri_config *c, size_t limit, fri_train_plan *out) {
    bool workspaces = fri_plan_workspaces(c->opts.device);
    fr_status s = make_plan(c, limit, workspaces, out);
    return s == FR_ELIBRARY && workspaces ? make_plan(c, limit, false, out) : s;
}

/* The known peak of an evaluation with `images` in a part; units of the training change no evaluation. */
static const fri_evaluation_peak *find_peak(const fri_evaluations *e, int64_t images) {
    for (int i = 0; i < e->n; i++)
        if (e->peak[i].images == images) return &e->peak[i];
    return NULL;
}

static fri_evaluation_peak note_peak(fri_evaluations *e, int64_t images, const fr_memory_stats *m) {
    const fri_evaluation_peak now = {images, m->peak_requested, m->peak_allocated};
    if (e->n < FRI_EVALUATIONS_MOST && find_peak(e, images) == NULL) e->peak[e->n++] = now;
    return now;
}

/* Chooses the images of a part: the most without more memory than training, else the number with least memory. *out is
 * the plan of *images, before and after. */
static fr_status choose_parts(const fri_config *c, fri_evaluations *e, int64_t *images, fri_train_plan *out) {
    const int64_t n = fri_batch_size(c, FR_SPLIT_TEST);
    const size_t requested = out->training.peak_requested, allocated = out->training.peak_allocated;
    fri_config trial = *c;
    fri_evaluation_peak best = {.images = 0, .requested = SIZE_MAX};
    for (int64_t parts = 1; parts <= n; parts++) {
        if (n % parts != 0) continue;
        const fri_evaluation_peak *known = find_peak(e, n / parts);
        fri_evaluation_peak now = known != NULL ? *known : (fri_evaluation_peak){0};
        if (known == NULL) {
            FRI_OWNED(fri_train_plan_release) fri_train_plan p = {0};
            trial.evaluation_images = n / parts;
            if (plan_of(&trial, SIZE_MAX, &p) < 0) continue;
            now = note_peak(e, n / parts, &p.evaluation);
            if (now.requested < best.requested) {
                fri_train_plan_release(out);
                *out = p, p = (fri_train_plan){0};
                *images = n / parts;
            }
        }
        if (now.requested < best.requested) best = now;
        if (best.requested <= requested && best.allocated <= allocated) break;
    }
    if (best.images == 0 || best.images == *images) return FR_OK;
    fri_train_plan_release(out);
    *images = trial.evaluation_images = best.images;
    return plan_of(&trial, SIZE_MAX, out);
}

/* The limit does not influence the parts of an evaluation's batches. */
fr_status fri_train_plan_make(const fri_config *c, size_t limit, fri_train_plan *out) {
    fri_config trial = *c;
    fri_evaluations once = {0}, *e = c->evaluations != NULL ? c->evaluations : &once;
    const int64_t n = fri_batch_size(c, FR_SPLIT_TEST);
    if (c->evaluation_images > 0 || c->ranks > 1 || n == 0) return plan_of(c, limit, out);
    int64_t images = e->last > 0 && n % e->last == 0 ? e->last : n;
    trial.evaluation_images = images;
    FRI_TRY(plan_of(&trial, SIZE_MAX, out));
    const fri_evaluation_peak *known = find_peak(e, images),
                              now = {images, out->evaluation.peak_requested, out->evaluation.peak_allocated};
    if (known != NULL && (known->requested != now.requested || known->allocated != now.allocated)) e->n = 0;
    (void)note_peak(e, images, &out->evaluation);
    FRI_TRY(choose_parts(c, e, &images, out));
    e->last = out->evaluation_images = images;
    if (limit == SIZE_MAX) return FR_OK;
    trial.evaluation_images = images;
    fri_train_plan_release(out);
    FRI_TRY(plan_of(&trial, limit, out));
    out->evaluation_images = images;
    return FR_OK;
}

void fri_train_plan_release(fri_train_plan *p) {
    fr_plan_release(&p->plan);
    *p = (fri_train_plan){0};
}
