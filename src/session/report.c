/* report.c - the JSON of --report. docs/train.md lists its keys. */
#include "session/step.h"
#include "session/fit.h"
#include "session/flags.h"
#include "backend/backend.h"
#include "session/views.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* cJSON prints integers exactly up to 2^53, reals with all digits, and NAN as null. Adding to a NULL parent (no memory)
 * has no effect, and build_report() checks for failures at the end. */
static void add_number(cJSON *to, const char *key, double value) {
    cJSON_AddNumberToObject(to, key, value);
}

static void add_bytes(cJSON *to, const char *key, size_t bytes) {
    cJSON_AddNumberToObject(to, key, (double)bytes);
}

static void add_list(cJSON *to, const fr_flag *f, const void *field) {
    cJSON *list = cJSON_AddArrayToObject(to, f->name);
    const char *const *word = *(const char *const *const *)field;
    for (int64_t i = 0; i < ((const int64_t *)field)[1]; i++) cJSON_AddItemToArray(list, cJSON_CreateString(word[i]));
}

static void add_flags(cJSON *root, const fr_train_program *p, const fr_train_opts *o) {
    cJSON *flags = cJSON_AddObjectToObject(root, "flags");
    for (const fr_flag *f = fr_flag_next(p, NULL); f != NULL; f = fr_flag_next(p, f)) {
        const void *field = fri_flag_field(f, o);
        char text[FR_FLAG_TEXT_BYTES];
        bool unset = fr_flag_text(f, o, text)[0] == '\0';
        if (f->kind == FR_FLAG_ACT) continue;
        if (unset)
            cJSON_AddNullToObject(flags, f->name);
        else if (f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET)
            cJSON_AddBoolToObject(flags, f->name, *(const bool *)field);
        else if ((f->kind == FR_FLAG_INT && *(const int64_t *)field >= 0) ||
                 (f->kind == FR_FLAG_SIDES && strchr(text, 'x') == NULL))
            add_number(flags, f->name, (double)*(const int64_t *)field);
        else if (f->kind == FR_FLAG_REAL && *(const double *)field >= 0)
            add_number(flags, f->name, *(const double *)field);
        else if (f->kind == FR_FLAG_SIZE)
            add_bytes(flags, f->name, *(const size_t *)field);
        else if (f->kind == FR_FLAG_LIST)
            add_list(flags, f, field);
        else if (f->kind == FR_FLAG_TEXT)
            cJSON_AddStringToObject(flags, f->name, *(const char *const *)field);
        else
            cJSON_AddStringToObject(flags, f->name, text);
    }
}

static void add_categories(cJSON *to, const char *key, const size_t bytes[FR_CATEGORY_COUNT]) {
    cJSON *parts = cJSON_AddObjectToObject(to, key);
    for (int c = 0; c < FR_CATEGORY_COUNT; c++) add_bytes(parts, fr_category_name((fr_category)c), bytes[c]);
}

static void add_peak(cJSON *to, const fr_memory_stats *m) {
    add_bytes(to, "peak_requested", m->peak_requested);
    add_bytes(to, "peak_allocated", m->peak_allocated);
    add_bytes(to, "peak_reserved", m->peak_reserved);
    add_categories(to, "at_peak", m->at_peak_allocated);
    add_categories(to, "at_peak_requested", m->at_peak_requested);
    cJSON_AddStringToObject(to, "peak_op", m->peak_op != NULL ? m->peak_op : "");
    cJSON_AddStringToObject(to, "peak_module", m->peak_module != NULL ? m->peak_module : "");
    cJSON_AddStringToObject(to, "peak_phase", fr_phase_name(m->peak_phase));
}

static void add_memory(cJSON *root, const fri_run *r) {
    const fr_memory_stats *m = &r->memory.training;
    cJSON *memory = cJSON_AddObjectToObject(root, "memory");
    add_peak(memory, m);
    add_bytes(memory, "step_memory",
              m->peak_allocated - m->at_peak_allocated[FR_MEM_PARAMETER] - m->at_peak_allocated[FR_MEM_OPTIMIZER]);
    add_bytes(memory, "floor",
              m->allocated_by[FR_MEM_PARAMETER] + m->allocated_by[FR_MEM_OPTIMIZER] + r->memory.largest_op);
    add_bytes(memory, "largest_op", r->memory.largest_op);
    if (r->tested.targets > 0 || (r->planned && r->memory.evaluation.peak_allocated > 0))
        add_peak(cJSON_AddObjectToObject(memory, "evaluation"), &r->memory.evaluation);
}

/* Adds process memory from outside of the engine, which plans do not contain. */
static void add_process(cJSON *root, const fri_run *r) {
    fr_memory_use use;
    size_t reserved, outside = fri_watch_outside(r, &use, &reserved);
    bool host = r->config->opts.device == FR_CPU;
    cJSON *process = cJSON_AddObjectToObject(root, "process");
    add_number(process, "resident", host && use.process > 0 ? (double)use.process : NAN);
    add_number(process, "on_device", !host && use.process > 0 ? (double)use.process : NAN);
    add_number(process, "outside_the_engine", outside > 0 ? (double)outside : NAN);
    add_number(process, "device_used", use.device > 0 ? (double)use.device : NAN);
    add_number(process, "device_total", use.total > 0 ? (double)use.total : NAN);
    cJSON_AddStringToObject(process, "source", use.source);
}

/* Adds the arena's reserved bytes, beside the minimum of any placement. */
static void add_arena(cJSON *root, const fri_run *r) {
    const fri_train_arena *a = &r->memory.arena;
    cJSON *arena = cJSON_AddObjectToObject(root, "arena");
    cJSON_AddBoolToObject(arena, "used", a->used);
    if (a->reason[0] != '\0') cJSON_AddStringToObject(arena, "reason", a->reason);
    if (a->used) {
        add_bytes(arena, "reserved", a->placement.extent);
        add_bytes(arena, "largest_live_set", a->placement.peak);
        add_number(arena, "blocks", (double)a->placement.blocks);
        add_number(arena, "placement_ms", a->placement.milliseconds);
        add_number(arena, "plan_ms", 1000 * a->plan_seconds);
        add_number(arena, "departures", (double)a->departures);
    }
    add_number(arena, "device_calls_from_second_step", a->counting ? (double)a->calls : NAN);
}

/* Adds what the device's free memory decided. */
static void add_room(cJSON *root, const fri_run *r) {
    const fri_room *decided = &r->memory.room;
    cJSON *room = decided->bytes > 0 ? cJSON_AddObjectToObject(root, "room") : NULL;
    if (room == NULL) return;
    add_bytes(room, "bytes", decided->bytes);
    cJSON_AddStringToObject(room, "choice", decided->choice);
    cJSON_AddStringToObject(room, "reason", decided->reason);
}

/* Adds the choice of --memory-budget. */
static void add_fit(cJSON *root, const fri_run *r) {
    if (r->config->opts.memory.unit_plan == NULL) return;
    const fr_fit *f = &r->memory.fit;
    char units[FRI_UNITS_TEXT];
    cJSON *fit = cJSON_AddObjectToObject(root, "fit");
    add_bytes(fit, "budget", r->config->opts.memory.budget);
    cJSON_AddStringToObject(fit, "units", fri_units_text(&f->plan, units));
    cJSON_AddBoolToObject(fit, "fused_step", fri_fused_step(r->config) != FR_TRAIN_FUSED_OFF);
    add_bytes(fit, "planned_reserved", f->memory.peak_reserved);
    add_bytes(fit, "planned_allocated", f->memory.peak_allocated);
    add_number(fit, "relative_time", f->keep_seconds > 0 ? f->seconds / f->keep_seconds : NAN);
    add_number(fit, "kernels_measured", (double)f->kernels_measured);
    add_number(fit, "kernels_estimated", (double)f->kernels_estimated);
    add_number(fit, "dry_runs", f->dry_runs);
    add_number(fit, "search_ms", f->milliseconds);
}

static void add_loss(cJSON *root, const fri_run *r) {
    cJSON *loss = cJSON_AddObjectToObject(root, "loss");
    int64_t n = r->at.step - r->at.first_step;
    add_number(loss, "first", n > 0 ? r->numbers.losses[0] : NAN);
    add_number(loss, "last", n > 0 ? r->numbers.losses[n - 1] : NAN);
    add_number(loss, "test", r->tested.loss);
    cJSON *steps = cJSON_AddArrayToObject(loss, "steps");
    for (int64_t i = 0; i < n; i++) cJSON_AddItemToArray(steps, cJSON_CreateNumber(r->numbers.losses[i]));
}

/* Adds the numbers of each class, and the predictions for its targets (rows) by class. */
static void add_classes(cJSON *root, const fri_run *r) {
    const int64_t n = r->config->outputs;
    cJSON *classes = cJSON_AddObjectToObject(root, "classes");
    cJSON *accuracy = cJSON_AddArrayToObject(classes, "accuracy"), *iou = cJSON_AddArrayToObject(classes, "iou");
    cJSON *confusion = cJSON_AddArrayToObject(classes, "confusion");
    for (int64_t i = 0; i < n; i++) {
        const fri_class_numbers c = fri_class_numbers_of(r, i);
        cJSON *row = cJSON_CreateArray();
        cJSON_AddItemToArray(accuracy, cJSON_CreateNumber(c.accuracy));
        cJSON_AddItemToArray(iou, cJSON_CreateNumber(c.iou));
        for (int64_t k = 0; k < n; k++)
            cJSON_AddItemToArray(row, cJSON_CreateNumber((double)r->tested.confusion[i * n + k]));
        cJSON_AddItemToArray(confusion, row);
    }
    add_number(classes, "mean_iou", fri_mean_iou(r));
}

static void add_scale(cJSON *root, const fri_run *r) {
    cJSON *scale =
        fri_loss_scaled(&r->config->opts) && r->net.scaler != NULL ? cJSON_AddObjectToObject(root, "loss_scale") : NULL;
    if (scale == NULL) return;
    add_number(scale, "last", fr_grad_scaler_value(r->net.scaler));
    add_number(scale, "skipped", (double)fr_grad_scaler_skipped(r->net.scaler));
    if (r->numbers.overflow_step == 0) return;
    cJSON *overflow = cJSON_AddObjectToObject(scale, "overflow");
    add_number(overflow, "step", (double)r->numbers.overflow_step);
    cJSON_AddStringToObject(overflow, "parameter", r->numbers.overflow_path != NULL ? r->numbers.overflow_path : "");
    cJSON_AddStringToObject(overflow, "op", r->numbers.overflow_op != NULL ? r->numbers.overflow_op : "");
    if (r->numbers.overflow_first.op == NULL) return;
    cJSON *first = cJSON_AddObjectToObject(overflow, "first");
    cJSON_AddStringToObject(first, "op", r->numbers.overflow_first.op);
    cJSON_AddStringToObject(first, "module", r->numbers.overflow_first.module);
    cJSON_AddBoolToObject(first, "backward", r->numbers.overflow_first.backward);
}

static void add_ranks(cJSON *root, const fri_run *r) {
    cJSON *list = r->rank != NULL ? cJSON_AddArrayToObject(root, "ranks") : NULL;
    for (int i = 0; list != NULL && i < r->config->ranks; i++) {
        const fri_rank_numbers *n = &r->rank[i];
        cJSON *one = cJSON_CreateObject();
        if (one == NULL) return;
        cJSON_AddStringToObject(one, "host", n->host);
        add_bytes(one, "peak_requested", n->peak_requested);
        add_bytes(one, "peak_reserved", n->peak_reserved);
        add_bytes(one, "planned", n->planned);
        add_number(one, "departures", (double)n->departures);
        if (n->links > 0) add_bytes(one, "links", n->links);
        add_bytes(one, "step_bytes", n->step_bytes);
        add_number(one, "exchange_seconds", n->exchanged);
        add_number(one, "waited_seconds", n->waited);
        cJSON_AddItemToArray(list, one);
    }
}

static cJSON *build_report(const fri_run *r) {
    char library[160];
    fr_train_opts resolved = r->config->opts;
    resolved.memory.fused_step = fri_fused_step(r->config);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "model", r->config->model_name);
    cJSON_AddStringToObject(root, "device", fr_device_name(r->config->opts.device));
    cJSON_AddStringToObject(root, "environment", fri_device_describe(r->config->opts.device, library, sizeof library));
    cJSON_AddStringToObject(root, "dtype", fr_dtype_name(fri_compute_dtype(&r->config->opts)));
    cJSON_AddStringToObject(root, "dataset", fri_dataset_name(r->config->opts.data.dataset));
    add_number(root, "parameters", (double)r->net.parameters);
    add_number(root, "trained_parameters", (double)r->net.trained);
    add_number(root, "batch_size", (double)r->config->opts.optim.batch_size);
    add_number(root, "image_size", (double)r->config->opts.data.image_size);
    add_number(root, "image_width", (double)r->config->opts.data.image_width);
    cJSON_AddBoolToObject(root, "planned", r->planned);
    add_number(root, "steps", (double)(r->planned ? fri_steps_total(r->config) : r->at.step));
    add_number(root, "epochs", (double)fri_epochs_total(r->config));
    cJSON_AddBoolToObject(root, "interrupted", r->at.signal != 0);
    add_flags(root, r->config->program, &resolved);
    add_memory(root, r);
    add_process(root, r);
    add_arena(root, r);
    add_ranks(root, r);
    add_room(root, r);
    add_fit(root, r);
    cJSON *time = cJSON_AddObjectToObject(root, "time");
    add_number(time, "step_ms_median", fri_median_step_ms(r));
    add_number(time, "images_per_second", fri_images_per_second(r));
    add_number(time, "seconds", r->at.seconds);
    add_loss(root, r);
    add_scale(root, r);
    cJSON *accuracy = cJSON_AddObjectToObject(root, "accuracy");
    if (accuracy == NULL) {
        cJSON_Delete(root);
        return NULL;
    }
    add_number(accuracy, "test", r->tested.accuracy);
    if (r->config->accuracy) add_number(accuracy, "best", r->tested.best);
    if (r->tested.confusion != NULL && isfinite(r->tested.accuracy)) add_classes(root, r);
    cJSON *metrics = r->config->program->n_metrics > 0 ? cJSON_AddObjectToObject(root, "metrics") : NULL;
    for (int64_t i = 0; i < r->config->program->n_metrics; i++)
        add_number(metrics, r->config->program->metric_names[i], r->tested.metric[i]);
    return root;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static fr_status report_begin(void *state, const fri_run *r) {
    return fr_flag_output_open("report", r->config->opts.files.report, state);
}

static fr_status report_event(void *state, const fri_run *r, fr_run_event e) {
    fr_flag_output *f = state;
    if (e != FR_RUN_END) return FR_OK;
    cJSON *root = build_report(r);
    char *text = root != NULL ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (text == NULL) return fr_fail(FR_ENOMEM, "--report %s: no host memory", f->path);
    const bool written =
        fr_atomic_put(&f->output, text, strlen(text)) == FR_OK && fr_atomic_put(&f->output, "\n", 1) == FR_OK;
    cJSON_free(text);
    return written ? fr_flag_output_commit(f)
                   : fr_fail(FR_EIO, "--report %s: cannot be written: %s", f->path, strerror(errno));
}

static void report_end(void *state) {
    fr_flag_output *f = state;
    fr_atomic_abandon(&f->output);
}

const fri_view fri_report_view = {sizeof(fr_flag_output), report_begin, report_event, report_end};
