/* state.c - --save, --resume, --weights, --export.
 *
 * A state is saved between steps only, so the step number says all about the position: the epoch, and the batch in it.
 * What the flags say again (schedule, switches, device) is taken from them; what would make another training of it
 * must match. */
#include "base/status.h"
#include "io/state_folder.h"
#include "train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SETTINGS = 6, NUMBERS = 3, VALUE_BYTES = 32 };

typedef struct parts {
    char value[SETTINGS][VALUE_BYTES];
    fr_state_setting setting[SETTINGS];
    fr_state_number number[NUMBERS];
    fr_state state;
} parts;

static void set(parts *p, size_t i, const char *name, int64_t value) {
    snprintf(p->value[i], VALUE_BYTES, "%" PRId64, value);
    p->setting[i] = (fr_state_setting){.name = name, .value = p->value[i], .must_match = true};
}

/* What this run's states hold; points into *p and the run. */
static void describe(fri_run *r, parts *p) {
    const fr_train_opts *o = &r->opts;
    set(p, 0, "batch-size", o->batch_size);
    set(p, 1, "image-size", o->image_size);
    set(p, 2, "accumulate", o->accumulate);
    set(p, 3, "split-batch", o->split_batch);
    set(p, 4, "amp", o->amp);
    set(p, 5, "half", o->half);
    p->number[0] = (fr_state_number){"epoch_loss", &r->epoch_loss};
    p->number[1] = (fr_state_number){"epoch_correct", &r->epoch_correct};
    p->number[2] = (fr_state_number){"epoch_targets", &r->epoch_targets};
    p->state = (fr_state){.model = r->model,
                          .optimizer = r->optimizer,
                          .scaler = fri_run_scaled(o) ? r->scaler : NULL,
                          .loader = r->loader,
                          .dataset = r->train,
                          .model_name = r->model_name,
                          .step = r->step,
                          .epoch = r->epoch,
                          .schedule = r->schedule,
                          .settings = p->setting,
                          .n_settings = SETTINGS,
                          .numbers = p->number,
                          .n_numbers = NUMBERS};
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- save -------------------------------------------------------------------------------------------------- */

/* The folder `path` can take a new file. */
static fr_status check_folder(const char *flag, const char *value, const char *path) {
    if (access(path, W_OK | X_OK) == 0) return FR_OK;
    return fri_fail(FR_EIO, "%s %s: nothing can be written there: %s", flag, value, strerror(errno));
}

static fr_status check_export(const char *path) {
    char folder[FR_STATE_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    if (is_folder(path)) return fri_fail(FR_EIO, "--export %s: is a folder, not a file", path);
    if (slash != NULL) {
        size_t n = slash == path ? 1 : (size_t)(slash - path);
        if (n >= sizeof folder) return fri_fail(FR_EINVAL, "--export: the name is too long");
        memcpy(folder, path, n);
        folder[n] = '\0';
    }
    return check_folder("--export", path, folder);
}

fr_status fri_saving_check(const fri_run *r) {
    const fr_train_opts *o = &r->opts;
    fr_status s = FR_OK;
    if (o->save != NULL) {
        s = fri_folder_make(o->save);
        if (s < 0) return fri_fail_prefix(s, "--save: ");
        FR_TRY(s, check_folder("--save", o->save, o->save));
    }
    if (o->export_weights != NULL) FR_TRY(s, check_export(o->export_weights));
done:
    return s;
}

bool fri_save_is_due(const fri_run *r, bool last) {
    const fr_train_opts *o = &r->opts;
    int64_t every = o->save_every != FR_TRAIN_AUTO ? o->save_every : r->steps_per_epoch;
    return o->save != NULL && r->saved_step != r->step && (last || r->step % every == 0);
}

fr_status fri_save_due(fri_run *r, bool last) {
    const fr_train_opts *o = &r->opts;
    parts p;
    if (!fri_save_is_due(r, last)) return FR_OK;
    describe(r, &p);
    fr_status s = fr_state_save(o->save, &p.state, o->keep, NULL);
    if (s == FR_OK) r->saved_step = r->step;
    if (last || (s != FR_EIO && s != FR_ENOMEM)) return s;
    fprintf(stderr, "%s: step %" PRId64 ": %s; the training goes on\n", r->program->name, r->step, fr_last_error());
    return FR_OK;
}

/* ---- resume ------------------------------------------------------------------------------------------------ */

static void passed_over(void *ctx, const char *path, const char *reason) {
    const fri_run *r = ctx;
    fprintf(stderr, "%s: %s is passed over: %s\n", r->program->name, path, reason);
}

/* FR_END: "latest", and the folder holds none yet. */
static fr_status find(fri_run *r, char path[FR_STATE_PATH_BYTES]) {
    const fr_train_opts *o = &r->opts;
    bool latest = strcmp(o->resume, "latest") == 0;
    const char *folder = latest ? o->save : o->resume;
    if (!latest && !is_folder(folder)) { /* a state by its name */
        if (strlen(folder) >= FR_STATE_PATH_BYTES) return fri_fail(FR_EINVAL, "--resume: the name is too long");
        strcpy(path, folder);
        return FR_OK;
    }
    if (latest && !is_folder(folder)) return FR_END;
    fr_status s = fr_state_find_latest(folder, path, passed_over, r);
    return latest && s == FR_EIO && is_folder(folder) ? FR_END : s;
}

fr_status fri_resume_find(fri_run *r) {
    if (r->opts.resume == NULL) return FR_OK;
    fr_status s = find(r, r->resume_path);
    r->resumes = s == FR_OK;
    return s == FR_END ? FR_OK : s;
}

/* Every state tensor is there: what it takes of the device is all that counts. */
static fr_status any_state(void *ctx, const char *name, fr_tensor *t) {
    (void)ctx;
    (void)name;
    (void)t;
    return FR_OK;
}

fr_status fri_resume_dry(fri_run *r) {
    return r->resumes ? fr_optimizer_set_state(r->optimizer, 1, any_state, NULL) : FR_OK;
}

fr_status fri_resume(fri_run *r) {
    const char *path = r->resume_path;
    parts p;
    fr_status s = FR_OK;
    if (!r->resumes) return FR_OK;
    describe(r, &p);
    FR_TRY(s, fr_state_load(path, &p.state));
    r->step = r->first_step = p.state.step;
    if (r->loader != NULL && r->step > r->steps_total)
        return fri_fail(FR_EINVAL, "--resume %s: is at step %" PRId64 ", the flags end the training at step %" PRId64,
                        path, r->step, r->steps_total);
    if (!r->opts.quiet) fprintf(r->out, "resumed from %s at step %" PRId64 "\n", path, r->step);
done:
    return s;
}

/* ---- weights ----------------------------------------------------------------------------------------------- */

fr_status fri_weights_begin(fri_run *r) {
    return r->opts.weights != NULL ? fr_weights_load(r->model, r->opts.weights, NULL) : FR_OK;
}

fr_status fri_weights_end(fri_run *r) {
    if (r->opts.export_weights == NULL || r->signal != 0) return FR_OK;
    return fr_weights_save(r->model, r->opts.export_weights, NULL);
}
