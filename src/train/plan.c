/* plan.c - see plan.h.
 *
 * Note [Settling of the allocator]
 * What a request is given depends on the free blocks it finds, so allocated and reserved bytes of a step depend on the
 * step before. The allocator is deterministic: once a step leaves it in the state in which it found it, all further
 * steps are copies of that step, and the dry run leaves them out. The same holds for the batches of an evaluation and
 * for whole epochs. */
#include "train/plan.h"

#include "backend/backend.h"
#include "base/rng.h"
#include "base/status.h"
#include "memory/allocator.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Seen so far: networks settle at the second or third step. A run that did not settle within these is not exact. */
enum { STEPS_AT_MOST = 12, EPOCHS_AT_MOST = 6, SECTIONS_LEFT = 8 };

typedef struct epoch_kind {
    uint64_t before; /* the allocator's state */
    int64_t full;    /* steps with a full batch */
    bool shorter, evaluation;
} epoch_kind;

typedef struct dry_run {
    fri_config config; /* on meta */
    fri_run run;       /* with data sets of two full batches and a short one */
    fri_train_plan *out;
    fri_allocator *allocator;
    fr_device device;                 /* that meta stands for */
    epoch_kind fixed[EPOCHS_AT_MOST]; /* epochs that left the state as it was */
    int n_fixed, epochs_run;
    int64_t steps; /* that the run would have done */
} dry_run;

static fr_status section(dry_run *d, fri_part part, const char *name, bool is_part) {
    int i = fr_plan_sections(d->out->plan);
    fr_status s = fr_plan_section(d->out->plan, name);
    if (s < 0) return s;
    if (is_part && d->out->section[part] < 0) d->out->section[part] = i;
    d->out->is_evaluation[i] = part >= FRI_PART_EVALUATION;
    return FR_OK;
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

static fr_status filled(const dry_run *d, int64_t n, fr_tensor **images, fr_tensor **targets) {
    int64_t size = d->config.opts.image_size;
    bool pixels = d->config.program->pixel_target != NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){n, size, size, 3}, FR_F32, FR_META, images));
    fri_relabel(*images, FR_MEM_INPUT);
    FR_TRY(s, fr_tensor_empty(pixels ? 3 : 1, (int64_t[]){n, size, size}, FR_I64, FR_META, targets));
    fri_relabel(*targets, FR_MEM_INPUT);
done:
    return s;
}

/* The loader's data set holds batches 0 and 1, which are full, and 2, which is short. */
static fr_status next_batch(dry_run *d, fr_loader *loader, int64_t n, bool shorter, fr_tensor **images,
                            fr_tensor **targets) {
    if (loader == NULL) return filled(d, n, images, targets);
    fr_status s = fr_loader_position_set(loader, 0, shorter ? 2 : 0);
    return s < 0 ? s : fri_batch_next(&d->run, loader, images, targets);
}

/* A loader's buffers count where it fills them on the device itself. Elsewhere batches are copied there. */
static fr_status open_loader(dry_run *d, fr_split split, int64_t full, int64_t rest, fr_loader **loader) {
    const fr_train_opts *o = &d->config.opts;
    fr_dataset **data = split == FR_SPLIT_TRAIN ? &d->run.train : &d->run.test;
    if (d->device == FR_CUDA) return FR_OK;
    fr_dataset_release(data);
    fr_status s = fr_dataset_synthetic(2 * full + rest, o->classes, o->image_size, o->image_size, 3, 0, data);
    return s < 0 ? s : fri_data_loader(&d->config, split, *data, loader);
}

/* ---- training ---------------------------------------------------------------------------------------------- */

typedef struct step_batch {
    dry_run *d;
    int64_t n;
    bool shorter;
} step_batch;

static fr_status next_of_step(void *ctx, fr_tensor **images, fr_tensor **targets) {
    const step_batch *b = ctx;
    return next_batch(b->d, b->d->run.loader, b->n, b->shorter, images, targets);
}

static fr_status step(dry_run *d, int64_t n, bool shorter) {
    step_batch like = {d, n, shorter};
    const fri_batches batches = {next_of_step, &like};
    fr_tensor *images = NULL, *targets = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, next_of_step(&like, &images, &targets));
    FR_TRY(s, fri_train_step(&d->run, &batches, &images, &targets, d->run.values));
    d->steps++;
    if (d->config.opts.empty_cache_every > 0 && d->steps % d->config.opts.empty_cache_every == 0)
        FR_TRY(s, fr_memory_empty_cache(FR_META));
done:
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    return s;
}

/* The cache is emptied after some steps and not after others, so one step is not like the next. */
static bool steps_differ(const dry_run *d) {
    return d->config.opts.empty_cache_every > 1 && d->config.opts.empty_cache_every <= fri_steps_total(&d->config);
}

static bool room(dry_run *d) {
    if (fr_plan_sections(d->out->plan) + SECTIONS_LEFT < FRI_PLAN_SECTIONS) return true;
    d->out->settled = false;
    return false;
}

/* The steps of an epoch with full batches, as many as it takes to settle. */
static fr_status full_steps(dry_run *d, int64_t steps, int64_t batch) {
    fr_status s = FR_OK;
    for (int64_t i = 0; i < steps; i++) {
        bool first = d->out->section[FRI_PART_FIRST_STEP] < 0, steady = d->out->section[FRI_PART_STEP] < 0;
        if (!first && !steady && (i == STEPS_AT_MOST || !room(d))) {
            d->out->settled = false;
            break;
        }
        uint64_t before = fri_allocator_fingerprint(d->allocator);
        if (first)
            FR_TRY(s, section(d, FRI_PART_FIRST_STEP, "first step", true));
        else
            FR_TRY(s, section(d, FRI_PART_STEP, steady ? "steady step" : "further step", steady));
        FR_TRY(s, step(d, batch, false));
        if (!first && !steps_differ(d) && fri_allocator_fingerprint(d->allocator) == before) break;
    }
done:
    return s;
}

/* ---- evaluation -------------------------------------------------------------------------------------------- */

static fr_status evaluation_batch(dry_run *d, fr_loader *loader, int64_t n, bool shorter) {
    fri_sums sum = {0};
    fr_tensor *images = NULL, *targets = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, next_batch(d, loader, n, shorter, &images, &targets));
    FR_TRY(s, fri_evaluate_batch(&d->run, &images, &targets, &sum));
done:
    fri_sums_drop(&sum);
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    return s;
}

static fr_status evaluation_batches(dry_run *d, fr_loader *loader, int64_t batch, int64_t rest) {
    int64_t full = d->config.test_count / batch;
    fr_status s = FR_OK;
    if (d->device == FR_META) return evaluation_batch(d, loader, batch, false); /* all that a run there does */
    for (int64_t i = 0; i < full; i++) {
        bool steady = d->out->section[FRI_PART_EVALUATION_BATCH] < 0;
        if (i > 0 && !steady && (i == STEPS_AT_MOST || !room(d))) {
            d->out->settled = false;
            break;
        }
        uint64_t before = fri_allocator_fingerprint(d->allocator);
        if (i > 0)
            FR_TRY(s, section(d, FRI_PART_EVALUATION_BATCH,
                              steady ? "evaluation, next batch" : "evaluation, further batch", steady));
        FR_TRY(s, evaluation_batch(d, loader, batch, false));
        if (i > 0 && fri_allocator_fingerprint(d->allocator) == before) break;
    }
    if (rest > 0) {
        FR_TRY(s, section(d, FRI_PART_EVALUATION_SHORT, "evaluation, short batch", true));
        FR_TRY(s, evaluation_batch(d, loader, rest, true));
    }
done:
    return s;
}

static fr_status evaluation(dry_run *d) {
    const fri_run *r = &d->run;
    int64_t batch = fri_batch_size(&d->config, FR_SPLIT_TEST), rest = fri_batch_rest(&d->config, FR_SPLIT_TEST);
    fr_loader *loader = NULL;
    fr_status s = section(d, FRI_PART_EVALUATION, "evaluation", true);
    if (s < 0) return s;
    fri_evaluation_scope was = fri_evaluation_begin(r);
    FR_TRY(s, open_loader(d, FR_SPLIT_TEST, batch, rest, &loader));
    FR_TRY(s, evaluation_batches(d, loader, batch, rest));
done:
    fr_loader_release(&loader);
    fri_evaluation_end(r, was);
    return s;
}

/* ---- the run ----------------------------------------------------------------------------------------------- */

static bool same_epoch(const epoch_kind *a, const epoch_kind *b) {
    return a->before == b->before && a->full == b->full && a->shorter == b->shorter && a->evaluation == b->evaluation;
}

static bool changes_nothing(const dry_run *d, const epoch_kind *e) {
    for (int i = 0; i < d->n_fixed; i++)
        if (same_epoch(&d->fixed[i], e)) return true;
    return false;
}

static fr_status epoch(dry_run *d, const epoch_kind *e, int64_t batch, int64_t rest) {
    fr_status s = FR_OK;
    FR_TRY(s, full_steps(d, e->full, batch));
    if (e->shorter) {
        FR_TRY(s, section(d, FRI_PART_SHORT_STEP, "step on the short batch", true));
        FR_TRY(s, step(d, rest, true));
    }
    if (e->evaluation) FR_TRY(s, evaluation(d));
    d->epochs_run++;
    if (!steps_differ(d) && fri_allocator_fingerprint(d->allocator) == e->before) d->fixed[d->n_fixed++] = *e;
done:
    return s;
}

static fr_status epochs(dry_run *d, int64_t batch, int64_t rest) {
    fri_run *r = &d->run;
    const fri_config *c = &d->config;
    int64_t total = fri_epochs_total(c), per_epoch = fri_steps_per_epoch(c);
    int64_t unchanged = 0, patience = (c->opts.eval_every > 0 ? c->opts.eval_every : 0) + 1;
    fr_status s = FR_OK;
    for (r->epoch = 0; r->epoch < total; r->epoch++) {
        bool last = r->epoch == total - 1;
        int64_t left = fri_steps_total(c) - r->epoch * per_epoch;
        bool whole = left >= per_epoch;
        epoch_kind e = {.before = fri_allocator_fingerprint(d->allocator),
                        .full = whole ? c->train_count / batch / c->opts.accumulate : left,
                        .shorter = whole && rest > 0,
                        .evaluation = fri_evaluation_due(c, r->epoch, last)};
        if (changes_nothing(d, &e)) {
            /* Every kind of epoch was seen to change nothing: so do all up to the last. */
            if (++unchanged > patience && !last) r->epoch = total - 2;
            continue;
        }
        unchanged = 0;
        if (d->epochs_run >= EPOCHS_AT_MOST - 1 && !last) {
            d->out->settled = false;
            r->epoch = total - 2;
            continue;
        }
        FR_TRY(s, epoch(d, &e, batch, rest));
    }
done:
    return s;
}

static fr_status run(dry_run *d) {
    fri_run *r = &d->run;
    int64_t batch = fri_batch_size(&d->config, FR_SPLIT_TRAIN), rest = fri_batch_rest(&d->config, FR_SPLIT_TRAIN);
    fr_status s = FR_OK;
    FR_TRY(s, section(d, FRI_PART_SETUP, "setup", true));
    FR_TRY(s, fri_model_build(r));
    FR_TRY(s, open_loader(d, FR_SPLIT_TRAIN, batch, rest, &r->loader));
    r->schedule = fri_schedule(r->config);
    FR_TRY(s, fri_resume_dry(r));
    FR_TRY(s, epochs(d, batch, rest));
    d->out->parameters = r->parameters;
done:
    fri_step_values_free(r->values);
    fr_loader_release(&r->loader);
    fri_model_release(r);
    fr_dataset_release(&r->train);
    fr_dataset_release(&r->test);
    return s;
}

/* The peaks of training and of evaluation, as a run keeps them. */
static fr_status fold(fri_train_plan *p) {
    p->training = p->evaluation = (fr_memory_stats){0};
    for (int i = 0; i < fr_plan_sections(p->plan); i++) {
        fr_plan_section_stats t;
        fr_status s = fr_plan_section_get(p->plan, i, &t);
        if (s < 0) return s;
        fri_peak_fold(&t.memory, p->is_evaluation[i] ? &p->evaluation : &p->training);
    }
    return FR_OK;
}

fr_status fri_train_plan_use_arena(fri_train_plan *p, fr_placement *out) {
    fr_status s = fr_plan_use_arena(p->plan, out);
    return s < 0 ? s : fold(p);
}

/* A backend that can be asked for its libraries' workspaces. */
static bool answers(fr_device device) {
    const fri_backend *b = fri_backend_get(device);
    return device != FR_META && b != NULL && fri_kernels_for(b, FR_F32)->conv2d_forward_workspace != NULL;
}

static fr_status make(const fri_config *c, bool workspaces, fri_train_plan *out) {
    const fr_train_opts *o = &c->opts;
    dry_run d = {.config = *c, .run.config = &d.config, .out = out, .device = o->device};
    fr_switches switches = fr_switches_get();
    fri_rng rng = fri_rng_get();
    int threads = fr_threads_get();
    fr_status s = FR_OK;
    *out = (fri_train_plan){.settled = true, .workspaces = workspaces};
    for (int i = 0; i < FRI_PART_COUNT; i++) out->section[i] = -1;
    d.config.opts.device = FR_META;
    double began = fri_seconds_now();
    if (o->threads != FR_TRAIN_AUTO) FR_TRY(s, fr_threads_set((int)o->threads));
    FR_TRY(s, fri_segment_weights(c, &d.run.unit_weight));
    FR_TRY(s, fr_plan_begin(out->workspaces ? o->device : FR_META, &out->plan));
    FR_TRY(s, fri_allocator_get(FR_META, &d.allocator));
    fri_allocator_limit(d.allocator, o->memory_limit);
    fr_switches_set(o->switches);
    FR_TRY(s, run(&d));
    FR_TRY(s, fr_plan_end(out->plan));
    FR_TRY(s, fold(out));
    out->seconds = fri_seconds_now() - began;
done:
    if (s < 0) fri_train_plan_release(out);
    free(d.run.unit_weight);
    fr_switches_set(switches);
    fri_rng_set(rng);
    if (fr_threads_get() != threads) (void)fr_threads_set(threads);
    return s;
}

/* A backend whose libraries are not on this machine (no cuDNN) is planned without their workspaces. */
fr_status fri_train_plan_make(const fri_config *c, fri_train_plan *out) {
    bool workspaces = answers(c->opts.device);
    fr_status s = make(c, workspaces, out);
    return s == FR_ELIBRARY && workspaces ? make(c, false, out) : s;
}

void fri_train_plan_release(fri_train_plan *p) {
    fr_plan_release(&p->plan);
    *p = (fri_train_plan){0};
}
