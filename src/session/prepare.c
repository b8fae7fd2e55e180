/* prepare.c - see prepare.h. */
#include "session/prepare.h"

#include "autograd/run.h"
#include "base/container.h"
#include "base/process.h"
#include "session/driver.h"
#include "session/fit.h"

#include <frugal/number.h>

#include <stdlib.h>
#include <sys/sysinfo.h>

static fr_status check_device(fri_config *c) {
    if (c->opts.device == (fr_device)FR_TRAIN_AUTO)
        c->opts.device = fri_device_built(FR_CUDA) && fr_device_available(FR_CUDA) ? FR_CUDA : FR_CPU;
    fr_device d = c->opts.device;
    if (c->opts.plan || c->opts.summary) return FR_OK;
    if (fr_device_available(d)) return FR_OK;
    return fr_fail(FR_EDEVICE, "--device %s: %s", fr_device_name(d), fr_device_reason(d));
}

/* Starts the threads before the loader's workers, because a loader can do with fewer. */
static fr_status start_threads(const fri_config *c) {
    const fr_train_opts *o = &c->opts;
    int n = o->threads != FR_TRAIN_AUTO ? (int)o->threads : fr_threads_get();
    if (o->threads == FR_TRAIN_AUTO && c->ranks > 1 && getenv("OMP_NUM_THREADS") == NULL) n = c->rank_calls->threads(n);
    fr_status s = fr_threads_set(n);
    return s < 0 ? fr_fail_prefix(s, "--threads %d: ", n) : FR_OK;
}

static fr_status open_offload(const fri_run *r) {
    const char *file = r->config->opts.memory.offload;
    fr_status s = fr_offload_open(file[0] != '\0' ? file : NULL);
    if (s == FR_OK && fri_offload_warning()[0] != '\0')
        fri_say(r->config, FRI_SAY_NOTE, "--offload: %s", fri_offload_warning());
    return s;
}

/* A plan above the limit of the process's container ends in a signal of the kernel, unless the kernel can swap. */
static fr_status check_container(fri_config *c, const fri_train_plan *p) {
    const size_t limit = fri_container_get()->memory, a = p->training.peak_allocated, b = p->evaluation.peak_allocated;
    char needs[FR_BYTES_TEXT], text[FR_BYTES_TEXT];
    struct sysinfo host;
    fr_memory_use now = {0};
    if (limit == 0 || c->opts.device != FR_CPU || c->opts.summary || (a <= limit && b <= limit)) return FR_OK;
    (void)fr_bytes_text(a > b ? a : b, needs);
    (void)fr_bytes_text(limit, text);
    if (c->opts.plan || sysinfo(&host) != 0 || host.totalswap > 0) {
        fri_say(c, FRI_SAY_NOTE,
                "the plan has %s, but the container's limit is %s: above it the kernel swaps, or kills", needs, text);
        return FR_OK;
    }
    (void)fr_memory_use_get(FR_CPU, &now);
    if (c->opts.memory.limit > limit) c->opts.memory.limit = limit > now.process ? limit - now.process : 0; /* advice */
    return fr_fail(FR_ENOMEM,
                   "the plan has %s (%zu bytes), but the container's limit is %s (%zu bytes), above which the kernel "
                   "kills the process; choose a --memory-budget below it, a smaller --batch-size, or raise the limit",
                   needs, a > b ? a : b, text, limit);
}

/* Fixes the parts of an evaluation's batches. An impossible plan is an error of the run itself, later. */
static fr_status look_ahead(fri_config *c) {
    FRI_OWNED(fri_train_plan_release) fri_train_plan p = {0};
    const bool parts = c->test_count > 0 && c->ranks == 1;
    if ((!parts && fri_container_get()->memory == 0) || c->opts.files.predict != NULL) return FR_OK;
    if (fri_train_plan_make(c, SIZE_MAX, &p) < 0) return FR_OK;
    if (parts) c->evaluation_images = p.evaluation_images > 0 ? p.evaluation_images : fri_batch_size(c, FR_SPLIT_TEST);
    return check_container(c, &p);
}

/* Makes the choices that depend on free memory. */
static fr_status choose_by_memory(fri_config *c, fri_run *r) {
    FRI_TRY(fri_room_choose(c, &r->memory));
    FRI_TRY(look_ahead(c));
    fri_workspace_choose(c, &r->net.scratch);
    return fri_segment_weights(c, &r->net.unit_weight);
}

static void forget_choices(fri_config *c, fri_run *r) {
    fri_train_arena_release(r);
    r->memory.arena = (fri_train_arena){0};
    fr_fit_release(&r->memory.fit);
    fri_scratch_release(&r->net.scratch);
    free(r->net.unit_weight);
    r->net.unit_weight = NULL;
    c->evaluation_images = 0;
    c->opts.memory = r->memory.room.asked;
    r->memory.room = (fri_room){0};
    fr_switches_set(c->opts.memory.switches);
}

/* Reserves the arena. If others have taken memory since the choice, chooses once again. */
static fr_status reserve_arena(fri_config *c, fri_run *r) {
    fri_train_arena_begin(r);
    size_t enough = !r->memory.arena.short_of_memory;
    if (!r->memory.room.fits) return FR_OK;
    FRI_TRY(fri_ranks_least(c, &enough));
    if (enough) return FR_OK;
    forget_choices(c, r);
    FRI_TRY(choose_by_memory(c, r));
    FRI_TRY(fr_memory_limit_set(c->opts.device, c->opts.memory.limit));
    fri_train_arena_begin(r);
    return FR_OK;
}

fr_status fri_run_prepare(fri_config *c, fri_run *r, fri_views **views) {
    const fr_train_opts *o = &c->opts;
    FRI_TRY(check_device(c));
    fri_config_resolve(c);
    FRI_TRY(fri_resume_find(c));
    if (c->opts.memory.accumulate == FR_TRAIN_AUTO) c->opts.memory.accumulate = c->ranks;
    FRI_TRY(start_threads(c));
    fr_switches_set(o->memory.switches);
    fr_cudnn_deterministic_set(o->precision.deterministic);
    fr_cudnn_benchmark_set(o->precision.cudnn_benchmark);
    fr_exact_convolutions_set(o->precision.exact_convolutions);
    fri_pin_memory_set(o->data.pin_memory);
    FRI_TRY(fri_check_flags(c));
    FRI_TRY(fri_data_open(c, &r->data.train, &r->data.test));
    FRI_TRY(fri_model_check(c, r->data.train));
    FRI_TRY(fri_ranks_compare(r));
    if (c->ranks > 1) FRI_TRY(c->rank_calls->connect(c->comm, o->device, &c->link_bytes));
    FRI_TRY(fri_views_begin(r, views));
    FRI_TRY(fri_train_only_choose(c));
    FRI_TRY(fri_prefix_choose(c));
    FRI_TRY(fri_fit(c, &r->memory.fit));
    FRI_TRY(choose_by_memory(c, r));
    if (o->plan || o->summary) return FR_OK;
    FRI_TRY(fr_pool_create(o->device, &r->pool));
    FRI_TRY(fr_pool_begin(r->pool, &r->no_pool));
    if (o->memory.offload != NULL) FRI_TRY(open_offload(r));
    if (o->files.predict == NULL) FRI_TRY(fri_saving_check(r));
    if (o->memory.limit != SIZE_MAX) FRI_TRY(fr_memory_limit_set(o->device, o->memory.limit));
    return o->files.predict == NULL ? reserve_arena(c, r) : FR_OK;
}

fr_status fri_run_setup(fri_run *r, fri_calibration **calibration) {
    FRI_TRY(fri_weights_check(r));
    FRI_TRY(fri_run_emit(r, FR_RUN_SETUP));
    if (r->config->opts.memory.calibrate && calibration != NULL) FRI_TRY(fri_calibration_begin(r->config, calibration));
    FRI_TRY(fri_model_build(r));
    FRI_TRY(fri_weights_begin(r, false));
    return fri_train_begin(r);
}

void fri_run_end(fri_run *r) {
    fr_loader_release(&r->data.loader);
    fri_model_release(r);
    fr_dataset_release(&r->data.train);
    fr_dataset_release(&r->data.test);
    fri_scratch_release(&r->net.scratch);
    free(r->net.unit_weight);
    free(r->rank);
    r->net.unit_weight = NULL;
    free(r->data.pixels);
    free(r->data.pixel_classes);
    for (int i = 0; i < 2; i++) fri_step_values_free(&r->numbers.values[i]);
    free(r->numbers.losses);
    free(r->tested.confusion);
    free(r->numbers.step_ms);
    fr_fit_release(&r->memory.fit);
    fri_train_arena_release(r);
    if (r->pool == NULL) return;
    fr_pool_end(r->no_pool);
    fr_pool_release(&r->pool);
}
