/* state_save.c - writes a training state: a safetensors file with a checksum and the record as metadata. */
#include "io/scratch.h"
#include "io/state_folder.h"
#include "io/state.h"

#include "base/status.h"
#include "data/dataset.h"
#include "io/session_files.h"
#include "optim/scaler.h"
#include "tensor/tensor.h"
#include "optim/optimizer.h"

#include <frugal/weights.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- compared part -------------------------------------------------------------------------------------- */

/* Checksums of image 0 and the target. */
static fr_status first_image(const fr_dataset *d, bool f32, uint32_t *crc, uint32_t *target_crc) {
    int64_t height = 0, width = 0, channels = 0;
    FRI_OWNED(fri_free) uint8_t *bytes = NULL;
    size_t target = 0;
    FRI_TRY(fr_dataset_read(d, 0, NULL, 0, &height, &width, &channels));
    FRI_TRY(fri_dataset_target(d, 0, NULL, 0, &target));
    size_t image = (size_t)(height * width * channels) * (f32 ? sizeof(float) : 1); /* bounded by data.h's limits */
    size_t room = image > target ? image : target;
    if ((bytes = malloc(room)) == NULL) return fr_fail(FR_ENOMEM, "no host memory for an image of %zu bytes", room);
    FRI_TRY(fr_dataset_read(d, 0, bytes, image, &height, &width, &channels));
    *crc = (uint32_t)crc32_z(0, bytes, image);
    FRI_TRY(fri_dataset_target(d, 0, bytes, target, NULL));
    *target_crc = (uint32_t)crc32_z(0, bytes, target);
    return FR_OK;
}

fr_status fri_dataset_fingerprint(const fr_dataset *d, char text[FRI_FINGERPRINT_BYTES]) {
    FRI_NOT_NULL(d, text);
    fr_dataset_info info;
    uint32_t targets = 0, image = 0;
    int64_t label = 0;
    FRI_TRY(fr_dataset_info_get(d, &info));
    const bool labels = info.target == FR_TARGET_CLASS;
    int n = snprintf(text, FRI_FINGERPRINT_BYTES,
                     "%" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64 "%s, %" PRId64 " %s", info.count,
                     info.height, info.width, info.channels, info.f32 ? " f32" : "", info.classes,
                     info.target == FR_TARGET_VECTOR   ? "numbers"
                     : info.target == FR_TARGET_PIXELS ? "pixel classes"
                                                       : "classes");
    if (info.live) return FR_OK; /* a live dataset's images change */
    FRI_TRY(first_image(d, info.f32, &image, &targets));
    if (labels) targets = 0;
    for (int64_t i = 0; labels && i < info.count; i++) {
        FRI_TRY(fr_dataset_label(d, i, &label));
        targets = (uint32_t)crc32_z(targets, (const unsigned char *)&label, sizeof label);
    }
    snprintf(text + n, (size_t)(FRI_FINGERPRINT_BYTES - n), ", %s %08x, first image %08x",
             labels ? "labels" : "first target", targets, image);
    return FR_OK;
}

/* ---- the tensors ------------------------------------------------------------------------------------------- */

typedef struct list {
    fri_safetensors_entry *entry;
    fr_tensor **tensor;
    size_t n;
    fr_optimizer *optimizer;
    const char *prefix; /* of the next names */
    void *bytes;        /* a tensor on the host */
    size_t bytes_capacity;
} list;

static fr_status append_entry(list *l, const char *name, fr_tensor *t) {
    if (fri_device_of(t) == FR_META && l->optimizer == NULL)
        return fr_fail(FR_EUNSUPPORTED, "'%s' is on meta and has no values to save", name);
    fr_status s = FR_OK;
    if ((s = FRI_ROOM(l->entry, l->n, "state")) < 0 || (s = FRI_ROOM(l->tensor, l->n, "state")) < 0) return s;
    size_t room = strlen(l->prefix) + strlen(name) + 1;
    char *full = malloc(room);
    if (full == NULL) return fr_fail(FR_ENOMEM, "no host memory for a name");
    snprintf(full, room, "%s%s", l->prefix, name);
    l->tensor[l->n] = fr_tensor_retain(t);
    l->entry[l->n++] = (fri_safetensors_entry){.name = full, .dtype = t->dtype, .shape = t->shape};
    return FR_OK;
}

static fr_status append_model(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return append_entry(ctx, path, t);
}

static fr_status append_optimizer(void *ctx, const char *name, fr_tensor *t) {
    return append_entry(ctx, name, t);
}

static void list_free(list *l) {
    for (size_t i = 0; i < l->n; i++) {
        free((char *)(uintptr_t)l->entry[i].name);
        fr_tensor_release(&l->tensor[i]);
    }
    free(l->entry);
    free(l->tensor);
    free(l->bytes);
}

static fr_status hand_out(void *context, size_t index, const void **data) {
    list *l = context;
    FRI_TRY(fri_scratch(&l->bytes, &l->bytes_capacity, fri_nbytes(l->tensor[index])));
    if (fri_device_of(l->tensor[index]) == FR_META) /* spread over ranks */
        FRI_TRY(
            fri_optimizer_state_to_host(l->optimizer, l->entry[index].name + strlen(FRI_STATE_OPTIMIZER), l->bytes));
    else
        FRI_TRY(fr_tensor_to_host(l->tensor[index], l->bytes));
    *data = l->bytes;
    return FR_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static fr_status check_request(const fr_state *state, int64_t keep) {
    if (state->model == NULL) return fr_fail(FR_EINVAL, "the model is NULL");
    if (state->step < 0 || state->epoch < 0 || keep < 0)
        return fr_fail(FR_EINVAL, "step %" PRId64 ", epoch %" PRId64 " and keep %" PRId64 " must not be negative",
                       state->step, state->epoch, keep);
    if (state->step > FRI_STATE_COUNT_MOST || state->epoch > FRI_STATE_COUNT_MOST)
        return fr_fail(FR_EINVAL, "step %" PRId64 " and epoch %" PRId64 " must not be above 2^60", state->step,
                       state->epoch);
    if (!(state->schedule.lr >= 0 && isfinite(state->schedule.lr)) ||
        !(state->schedule.gamma >= 0 && isfinite(state->schedule.gamma)))
        return fr_fail(FR_EINVAL, "the schedule's lr %g and gamma %g must be finite and not negative",
                       state->schedule.lr, state->schedule.gamma);
    if (state->schedule.kind < FR_SCHEDULE_CONSTANT || state->schedule.kind > FR_SCHEDULE_COSINE)
        return fr_fail(FR_EINVAL, "%d is not a kind of schedule", (int)state->schedule.kind);
    for (size_t i = 0; i < state->n_settings; i++)
        if (state->settings[i].name == NULL || state->settings[i].value == NULL)
            return fr_fail(FR_EINVAL, "the name or the value of setting %zu is NULL", i);
    for (size_t i = 0; i < state->n_numbers; i++)
        if (state->numbers[i].name == NULL || state->numbers[i].value == NULL)
            return fr_fail(FR_EINVAL, "the name or the address of number %zu is NULL", i);
    return FR_OK;
}

static fr_status make_record(const fr_state *state, size_t optimizer_tensors, char fingerprint[FRI_FINGERPRINT_BYTES],
                             char **text) {
    fri_state_record r = {.step = state->step,
                          .epoch = state->epoch,
                          .run = state->run,
                          .model = state->model_name,
                          .random = fr_rng_get(),
                          .schedule = state->schedule};
    if (state->dataset != NULL) {
        FRI_TRY(fri_dataset_fingerprint(state->dataset, fingerprint));
        r.dataset = fingerprint;
    }
    if (state->optimizer != NULL) {
        r.optimizer = fr_optimizer_name(state->optimizer);
        r.optimizer_steps = fr_optimizer_steps(state->optimizer);
        r.optimizer_tensors = (int64_t)optimizer_tensors;
    }
    if (state->scaler != NULL) {
        r.has_scaler = true;
        r.scale = fr_grad_scaler_value(state->scaler);
        r.growth_tracker = fri_grad_scaler_growth_tracker(state->scaler);
    }
    if (state->loader != NULL) {
        r.has_loader = true;
        r.loader_batches = fr_loader_batches(state->loader);
        FRI_TRY(fr_loader_position_get(state->loader, &r.loader_epoch, &r.loader_batch));
    }
    return fri_state_record_print(&r, state, text);
}

/* The highest serial in the folder, temporary files included, plus 1. */
static fr_status next_path(const char *dir, int64_t step, char *path) {
    fri_state_files files = {0};
    char name[80];
    FRI_TRY(fri_folder_list(dir, &files));
    int64_t serial = files.n > 0 ? files.file[0].serial + 1 : 1;
    fri_folder_free(&files);
    if (serial > FRI_STATE_SERIAL_MAX)
        return fr_fail(FR_EINVAL, "the folder '%.300s' has a state with the last serial number", dir);
    snprintf(name, sizeof name, "state-%08" PRId64 "-step-%" PRId64 ".safetensors", serial, step);
    return fri_folder_path(dir, name, path);
}

fr_status fr_state_save(const char *dir, const fr_state *state, int64_t keep, char *path) {
    FRI_NOT_NULL(dir, state);
    char place[FR_STATE_PATH_BYTES], fingerprint[FRI_FINGERPRINT_BYTES];
    char *text = NULL;
    FRI_OWNED(list_free) list l = {.prefix = FRI_STATE_MODEL};
    fr_status s = FR_OK;
    FR_TRY(s, check_request(state, keep));
    FR_TRY(s, fr_module_each_tensor(state->model, append_model, &l));
    const size_t of_model = l.n;
    l.prefix = FRI_STATE_OPTIMIZER;
    l.optimizer = state->optimizer;
    if (state->optimizer != NULL) FR_TRY(s, fri_optimizer_each_state(state->optimizer, append_optimizer, &l));
    FR_TRY(s, make_record(state, l.n - of_model, fingerprint, &text));
    FR_TRY(s, fri_state_folder_make(dir));
    FR_TRY(s, next_path(dir, state->step, place));
    fri_safetensors_text metadata = {FRI_STATE_RECORD_KEY, text};
    FR_TRY(s, fri_safetensors_write_checked(place, l.entry, l.n, &metadata, 1, hand_out, &l));
    if (path != NULL) memcpy(path, place, strlen(place) + 1);
    FR_TRY(s, fri_folder_clean(dir, keep, state->run));
done:
    fri_state_record_text_free(text);
    return s < 0 ? fr_fail_prefix(s, "saving the training state: ") : s;
}
