/* state_load.c - finds and reads a training state.
 *
 * All reads, checks and allocations happen before the first change of the run; afterwards only a broken device can
 * fail. */
#include "io/scratch.h"
#include "io/state_folder.h"
#include "io/state.h"

#include "base/status.h"
#include "io/session_files.h"
#include "optim/scaler.h"
#include "tensor/tensor.h"
#include "optim/optimizer.h"

#include <frugal/weights.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct restoring {
    fri_safetensors *file;
    fr_state *state;
    fri_state_record record;
    fr_entries entries;
    const fri_safetensors_entry **from; /* per entry */
    void *converted;                    /* a tensor in the run's type */
    size_t converted_capacity;
} restoring;

/* ---- comparing --------------------------------------------------------------------------------------------- */

static fr_status check_same(fr_status other, const char *what, const char *saved, const char *now) {
    if (now == NULL || (saved != NULL && strcmp(saved, now) == 0)) return FR_OK;
    return fr_fail(other, "it was saved with another %s: %.300s, this run has %.300s", what,
                   saved != NULL ? saved : "none", now);
}

static fr_status compare_run(restoring *v) {
    char fingerprint[FRI_FINGERPRINT_BYTES];
    const fr_state *state = v->state;
    const fri_state_record *r = &v->record;
    FRI_TRY(check_same(FR_EINVAL, "model", r->model, state->model_name));
    if (state->dataset != NULL) {
        FRI_TRY(fri_dataset_fingerprint(state->dataset, fingerprint));
        FRI_TRY(check_same(FR_EDATA, "dataset", r->dataset, fingerprint));
    }
    for (size_t i = 0; i < state->n_settings; i++) {
        const fr_state_setting *w = &state->settings[i];
        const char *saved = fri_state_record_setting(r, w->name);
        if (w->must_match && !(saved == NULL && w->may_lack)) FRI_TRY(check_same(FR_EINVAL, w->name, saved, w->value));
    }
    if (state->optimizer != NULL)
        FRI_TRY(check_same(FR_EINVAL, "optimizer", r->optimizer, fr_optimizer_name(state->optimizer)));
    for (size_t i = 0; i < state->n_numbers; i++) {
        double value = 0;
        if (fri_state_record_number(r, state->numbers[i].name, &value) || state->numbers[i].may_lack) continue;
        return fr_fail(FR_EINVAL, "it has no number '%.100s', which this run needs", state->numbers[i].name);
    }
    if (state->loader == NULL) return FR_OK;
    int64_t batches = fr_loader_batches(state->loader);
    if (!r->has_loader) return fr_fail(FR_EINVAL, "it has no position in a dataset, but this run needs one");
    if (r->loader_batches != batches)
        return fr_fail(FR_EINVAL, "it was saved with %" PRId64 " batches per epoch, this run has %" PRId64,
                       r->loader_batches, batches);
    if (r->loader_batch > batches)
        return fr_fail(FR_EFORMAT, "its position is batch %" PRId64 ", outside 0..%" PRId64, r->loader_batch, batches);
    return FR_OK;
}

/* The tensor called prefix + name, with t's shape and a convertible type; *out NULL: none. */
static fr_status find_tensor(const restoring *v, const char *prefix, const char *name, const fr_tensor *t,
                             const fri_safetensors_entry **out) {
    char full[700], a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const fri_safetensors_entry *e = fri_safetensors_find(v->file, full);
    *out = e;
    if (e == NULL) return FR_OK;
    if (!fri_shape_equal(&e->shape, &t->shape))
        return fr_fail(FR_EINVAL, "it was saved with another model: its %s is %s, this run's is %s", full,
                       fri_shape_text(&e->shape, a), fri_shape_text(&t->shape, b));
    if (e->dtype != t->dtype && !(fr_dtype_is_float(e->dtype) && fr_dtype_is_float(t->dtype)))
        return fr_fail(FR_EINVAL, "it was saved with another model: its %s is %s, this run's is %s", full,
                       fr_dtype_name(e->dtype), fr_dtype_name(t->dtype));
    return FR_OK;
}

static fr_status compare_model(restoring *v) {
    size_t in_file = 0, largest = 0;
    FRI_TRY(fr_entries_collect(v->state->model, &v->entries));
    v->from = calloc(v->entries.n + 1, sizeof *v->from);
    if (v->from == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", v->entries.n);
    for (size_t i = 0; i < v->entries.n; i++) {
        const fr_entry *e = &v->entries.entry[i];
        FRI_TRY(find_tensor(v, FRI_STATE_MODEL, e->name, e->tensor, &v->from[i]));
        if (v->from[i] == NULL)
            return fr_fail(FR_EINVAL, "it was saved with another model: it has no '%.200s', this run's has", e->name);
        if (fri_nbytes(e->tensor) > largest) largest = fri_nbytes(e->tensor);
    }
    const size_t prefix = strlen(FRI_STATE_MODEL);
    for (size_t i = 0; i < v->file->n_entries; i++)
        in_file += strncmp(v->file->entries[i].name, FRI_STATE_MODEL, prefix) == 0;
    if (in_file != v->entries.n)
        return fr_fail(FR_EINVAL, "it was saved with another model, of %zu tensors; this run's has %zu", in_file,
                       v->entries.n);
    return fri_scratch(&v->converted, &v->converted_capacity, largest);
}

/* Parameters without state are legal: parameters without a gradient so far. */
static fr_status compare_optimizer(const restoring *v) {
    const int64_t saved = v->record.optimizer_tensors;
    const size_t prefix = strlen(FRI_STATE_OPTIMIZER);
    int64_t found = 0;
    if (v->record.optimizer == NULL) return FR_OK;
    for (size_t i = 0; i < v->file->n_entries; i++)
        found += strncmp(v->file->entries[i].name, FRI_STATE_OPTIMIZER, prefix) == 0;
    if (found == saved) return FR_OK;
    return fr_fail(FR_EFORMAT, "it holds %" PRId64 " tensors of the optimizer but was saved with %" PRId64, found,
                   saved);
}

/* ---- restoring --------------------------------------------------------------------------------------------- */

static fr_status restore_tensor(restoring *v, const fri_safetensors_entry *e, fr_tensor *t) {
    const void *data = e->data;
    if (e->dtype != t->dtype) {
        FRI_TRY(fri_scratch(&v->converted, &v->converted_capacity, fri_nbytes(t)));
        fr_host_convert(data, e->dtype, v->converted, t->dtype, fri_numel(t));
        data = v->converted;
    }
    return fr_tensor_upload(data, t);
}

static fr_status fill_optimizer(void *ctx, const char *name, fr_tensor *t) {
    restoring *v = ctx;
    const fri_safetensors_entry *e = NULL;
    FRI_TRY(find_tensor(v, FRI_STATE_OPTIMIZER, name, t, &e));
    return e != NULL ? restore_tensor(v, e, t) : FR_END;
}

/* Position and optimizer can fail, without a change. */
static fr_status change_parts(restoring *v) {
    const fri_state_record *r = &v->record;
    fr_state *state = v->state;
    int64_t epoch = 0, batch = 0;
    if (state->loader != NULL) {
        FRI_TRY(fr_loader_position_get(state->loader, &epoch, &batch));
        FRI_TRY(fr_loader_position_set(state->loader, r->loader_epoch, r->loader_batch));
    }
    if (state->optimizer == NULL) return FR_OK;
    const fr_status s = fri_optimizer_set_state(state->optimizer, r->optimizer_steps, fill_optimizer, v);
    if (s < 0 && state->loader != NULL) (void)fr_loader_position_set(state->loader, epoch, batch);
    return s;
}

static fr_status change_rest(restoring *v) {
    const fri_state_record *r = &v->record;
    fr_state *state = v->state;
    for (size_t i = 0; i < v->entries.n; i++) FRI_TRY(restore_tensor(v, v->from[i], v->entries.entry[i].tensor));
    if (state->scaler != NULL && r->has_scaler)
        FRI_TRY(fri_grad_scaler_set(state->scaler, r->scale, r->growth_tracker));
    fr_rng_set(r->random);
    state->step = r->step;
    state->epoch = r->epoch;
    state->schedule = r->schedule;
    state->run = r->run;
    for (size_t i = 0; i < state->n_numbers; i++)
        (void)fri_state_record_number(r, state->numbers[i].name, state->numbers[i].value);
    for (size_t i = 0; state->changed != NULL && i < state->n_settings; i++) {
        const fr_state_setting *now = &state->settings[i];
        const char *saved = fri_state_record_setting(r, now->name);
        if (saved == NULL) saved = now->if_missing;
        if (saved != NULL && strcmp(saved, now->value) != 0) state->changed(state->changed_ctx, now, saved);
    }
    return FR_OK;
}

fr_status fri_state_restore(fri_safetensors *file, fr_state *state) {
    restoring v = {.file = file, .state = state};
    const char *text = fri_safetensors_metadata(file, FRI_STATE_RECORD_KEY);
    if (text == NULL) return fr_fail(FR_EFORMAT, "it has no \"%s\": it is not a training state", FRI_STATE_RECORD_KEY);
    fr_status s = fri_state_record_parse(text, &v.record);
    if (s < 0) return s;
    FR_TRY(s, compare_run(&v));
    FR_TRY(s, compare_model(&v));
    FR_TRY(s, compare_optimizer(&v));
    FR_TRY(s, fri_safetensors_read(file));
    FR_TRY(s, change_parts(&v));
    FR_TRY(s, change_rest(&v));
done:
    fri_state_record_free(&v.record);
    fr_entries_free(&v.entries);
    free(v.from);
    free(v.converted);
    return s;
}

fr_status fr_state_load(const char *path, fr_state *state) {
    FRI_NOT_NULL(path, state);
    FRI_OWNED(fri_safetensors_close) fri_safetensors *file = NULL;
    if (state->model == NULL) return fr_fail(FR_EINVAL, "loading a training state: the model is NULL");
    fr_status s = fri_safetensors_open_as(path, FRI_SAFETENSORS_CHECKED, &file);
    if (s < 0) return fr_fail_prefix(s, "loading the training state: ");
    s = fri_state_restore(file, state);
    return s < 0 ? fr_fail_prefix(s, "loading the training state '%.300s': ", path) : s;
}

/* ---- finding ----------------------------------------------------------------------------------------------- */

/* Opens a state and reads the record; the caller frees the record. */
static fr_status open_record(const char *path, fri_safetensors_how how, fri_state_record *record) {
    FRI_OWNED(fri_safetensors_close) fri_safetensors *file = NULL;
    FRI_TRY(fri_safetensors_open_as(path, how, &file));
    const char *text = fri_safetensors_metadata(file, FRI_STATE_RECORD_KEY);
    if (text == NULL) return fr_fail(FR_EFORMAT, "'%.300s' is not a training state", path);
    return fri_state_record_parse(text, record);
}

fr_status fri_state_setting_read(const char *path, const char *name, char *value, size_t bytes) {
    FRI_NOT_NULL(path, name, value);
    FRI_OWNED(fri_state_record_free) fri_state_record record = {0};
    FRI_TRY(open_record(path, FRI_SAFETENSORS_COPIED, &record));
    const char *saved = fri_state_record_setting(&record, name);
    snprintf(value, bytes, "%s", saved != NULL && strlen(saved) < bytes ? saved : "");
    return FR_OK;
}

fr_status fri_state_numbers_read(const char *path, int64_t *step, const fr_state_number *numbers, size_t n) {
    FRI_OWNED(fri_state_record_free) fri_state_record record = {0};
    FRI_NOT_NULL(path, step, numbers);
    FRI_TRY(open_record(path, FRI_SAFETENSORS_COPIED, &record));
    *step = record.step;
    for (size_t i = 0; i < n; i++) (void)fri_state_record_number(&record, numbers[i].name, numbers[i].value);
    return FR_OK;
}

static fr_status check_file(const char *path) {
    FRI_OWNED(fri_state_record_free) fri_state_record record = {0};
    return open_record(path, FRI_SAFETENSORS_CHECKED, &record);
}

fr_status fri_state_summary_read(const char *path, fri_state_summary *out) {
    FRI_OWNED(fri_state_record_free) fri_state_record r = {0};
    FRI_TRY(open_record(path, FRI_SAFETENSORS_COPIED, &r));
    *out = (fri_state_summary){.run = r.run, .step = r.step};
    snprintf(out->model, sizeof out->model, "%s", r.model != NULL ? r.model : "a model without a name");
    return FR_OK;
}

/* The newest intact state in the folder. *gone: a listed state has vanished. */
static fr_status find_once(const char *dir, char *path, fr_state_skipped_fn *fn, void *ctx, bool *gone) {
    char place[FR_STATE_PATH_BYTES], newest[600] = "";
    FRI_OWNED(fri_folder_free) fri_state_files files = {0};
    size_t damaged = 0;
    *gone = false;
    FRI_TRY(fri_folder_list(dir, &files));
    for (size_t i = 0; i < files.n; i++) {
        const fri_state_file *f = &files.file[i];
        FRI_TRY(fri_folder_path(dir, f->name, place));
        if (f->temporary) {
            if (fn != NULL) fn(ctx, place, "it was left half written");
            continue;
        }
        const fr_status s = check_file(place);
        if (s == FR_OK) {
            memcpy(path, place, strlen(place) + 1);
            return FR_OK;
        }
        if (s == FR_ENOMEM) return s; /* unrelated to the file */
        if (s == FR_EIO && access(place, F_OK) != 0 && errno == ENOENT) {
            *gone = true;
            continue;
        }
        if (damaged++ == 0) snprintf(newest, sizeof newest, "%.599s", fr_last_error());
        if (fn != NULL) fn(ctx, place, fr_last_error());
    }
    if (damaged == 0) return fr_fail(FR_EIO, "the folder '%.300s' holds no training state", dir);
    return fr_fail(FR_EFORMAT, "none of the %zu training states in '%.300s' is intact; the newest: %s", damaged, dir,
                   newest);
}

/* A concurrent run removes states only after writing a newer state, so a second look finds the newer state. */
fr_status fr_state_find_latest(const char *dir, char *path, fr_state_skipped_fn *fn, void *ctx) {
    FRI_NOT_NULL(dir, path);
    bool gone = false;
    fr_status s = find_once(dir, path, fn, ctx, &gone);
    return s != FR_OK && gone ? find_once(dir, path, fn, ctx, &gone) : s;
}
