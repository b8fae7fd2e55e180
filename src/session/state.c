/* state.c - --save, --resume, and room for --export.
 *
 * States are saved only between steps, so the step number determines epoch and batch. On resume, settings that define
 * the training must match (batch size, seed, ...); all others (schedule, switches, device) come from the flags, and
 * changes that affect later steps are printed. */
#include "io/session_files.h"
#include "session/step.h"
#include "session/flags.h"
#include "session/model.h"
#include "session/state.h"
#include "base/atomic_file.h"
#include "backend/backend.h"

#include <frugal/number.h>
#include "base/process.h"
#include "net/units.h"
#include "optim/optimizer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MUST_MATCH = 8, SETTINGS = MUST_MATCH + FRI_FLAGS_MOST + 3, NUMBERS = 8, CHANGES_TEXT = 512 };

/* The number `evaluated` of a state. A state without the number, of version 0.2.0, precedes or follows the evaluation
 * of the step. */
enum { EVALUATION_DUE, EVALUATION_NOT_DUE, EVALUATION_MADE, EVALUATION_UNKNOWN };

typedef struct parts {
    char value[SETTINGS][FR_FLAG_TEXT_BYTES];
    fr_state_setting setting[SETTINGS];
    fr_state_number number[NUMBERS];
    fr_state state;
    double evaluated;
    char computed_by[160];
    char changes[CHANGES_TEXT]; /* "lr 0.02 was 0.1, clip unset was 1" */
    char numerics[16];          /* numerics number of the state if it differs from the program's, else "" */
} parts;

static void set_required(parts *p, size_t i, const char *name, int64_t value) {
    snprintf(p->value[i], FR_FLAG_TEXT_BYTES, "%" PRId64, value);
    p->setting[i] = (fr_state_setting){.name = name, .value = p->value[i], .must_match = true};
}

/* Settings that decide the images of each step must match for training, but not for prediction. */
static void set_of_training(parts *p, size_t i, const char *name, int64_t value, bool predict) {
    set_required(p, i, name, value);
    p->setting[i].must_match = !predict;
}

/* Mean and deviation of the images, saved because a resumed run may omit the --weights that set them. */
static void set_normalization(parts *p, size_t i, const fri_config *c) {
    size_t at = 0;
    p->value[i][0] = '\0';
    for (int k = 0; k < c->channels && at < FR_FLAG_TEXT_BYTES; k++)
        at += (size_t)fr_snprintf(p->value[i] + at, FR_FLAG_TEXT_BYTES - at, "%s%.4g/%.4g", k > 0 ? " " : "",
                                  c->mean[k], c->std[k]);
    p->setting[i] = (fr_state_setting){.name = "normalization", .value = p->value[i], .if_missing = p->value[i]};
}

static void note_change(void *ctx, const fr_state_setting *now, const char *saved) {
    parts *p = ctx;
    size_t at = strlen(p->changes);
    if (now == p->setting + MUST_MATCH) {
        snprintf(p->numerics, sizeof p->numerics, "%s", saved);
        return;
    }
    snprintf(p->changes + at, sizeof p->changes - at, "%s%s %s was %s", at > 0 ? ", " : "", now->name,
             now->value[0] != '\0' ? now->value : "unset", saved[0] != '\0' ? saved : "unset");
}

/* Number of the device's numerics, raised by each commit that changes bits. */
static void set_numerics(parts *p, size_t i, fr_device device) {
    snprintf(p->value[i], FR_FLAG_TEXT_BYTES, "%d", fri_device_numerics(device));
    p->setting[i] = (fr_state_setting){.name = "numerics", .value = p->value[i], .if_missing = "0"};
}

/* Instructions and library versions, as far as they affect bits. */
static void set_computed_by(parts *p, size_t i, const fr_train_opts *o) {
    (void)fri_device_describe_bits(o->device, fri_compute_dtype(o), p->computed_by, sizeof p->computed_by);
    p->setting[i] = (fr_state_setting){.name = "computed-by", .value = p->computed_by, .if_missing = p->computed_by};
}

static double evaluated(const fri_run *r) {
    if (r->tested.counted == r->at.step) return EVALUATION_MADE;
    return fri_evaluation_counts(r->config, r->at.step) ? EVALUATION_DUE : EVALUATION_NOT_DUE;
}

/* Describes the state of this run; *p points into *p and into the run. */
static void describe_parts(fri_run *r, parts *p) {
    const fr_train_opts *o = &r->config->opts;
    set_required(p, 0, "batch-size", o->optim.batch_size);
    set_required(p, 1, "image-size", o->data.image_size);
    (void)fri_image_text(o, p->value[1]);
    set_required(p, 2, "accumulate", o->memory.accumulate);
    set_required(p, 3, "split-batch", o->memory.split_batch);
    set_required(p, 4, "amp", o->precision.amp);
    set_required(p, 5, "half", o->precision.half);
    set_of_training(p, 6, "seed", o->optim.seed, o->files.predict != NULL);
    set_of_training(p, 7, "augment", o->data.augment, o->files.predict != NULL);
    set_numerics(p, MUST_MATCH, o->device);
    size_t n = MUST_MATCH + 1;
    for (const fr_flag *f = fr_flag_next(r->config->program, NULL); f != NULL;
         f = fr_flag_next(r->config->program, f)) {
        if (!f->per_run) continue;
        p->setting[n] =
            (fr_state_setting){.name = f->name, .value = fr_flag_text(f, o, p->value[n]), .if_missing = f->if_missing};
        /* Averages with another decay, or without the steps before, would be averages of neither training. */
        p->setting[n].must_match = p->setting[n].may_lack = strcmp(f->name, "ema") == 0 && o->files.predict == NULL;
        n++;
    }
    set_computed_by(p, n++, o);
    set_normalization(p, n++, r->config);
    p->changes[0] = p->numerics[0] = '\0';
    p->number[0] = (fr_state_number){"epoch_loss", &r->numbers.epoch_loss};
    p->number[1] = (fr_state_number){"epoch_correct", &r->numbers.epoch_correct};
    p->number[2] = (fr_state_number){"epoch_targets", &r->numbers.epoch_targets};
    p->number[3] = (fr_state_number){"best", &r->tested.best};
    p->number[4] = (fr_state_number){"since_best", &r->tested.since_best};
    p->evaluated = evaluated(r);
    p->number[5] = (fr_state_number){"evaluated", &p->evaluated, .may_lack = true};
    p->number[6] = (fr_state_number){"best_file", &r->tested.best_file, .may_lack = true};
    p->number[7] = (fr_state_number){"loss", &r->numbers.loss, .may_lack = true};
    p->state = (fr_state){.model = r->net.model,
                          .optimizer = r->net.optimizer,
                          .scaler = fri_loss_scaled(o) ? r->net.scaler : NULL,
                          .loader = r->data.loader,
                          .dataset = r->data.train,
                          .model_name = r->config->model_name,
                          .step = r->at.step,
                          .epoch = r->at.epoch,
                          .schedule = r->net.schedule,
                          .settings = p->setting,
                          .n_settings = n,
                          .numbers = p->number,
                          .n_numbers = NUMBERS,
                          .run = r->at.run_number,
                          .changed = note_change,
                          .changed_ctx = p};
}

static bool is_folder(const char *path) {
    struct stat st;
    return path != NULL && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- save -------------------------------------------------------------------------------------------------- */

/* Opens and abandons the file, which finds what would stop the writing at the end. The reader of a FIFO would see
 * that. */
static fr_status check_export(const char *path) {
    FRI_OWNED(fr_atomic_abandon) fr_atomic_file file = FR_ATOMIC_FILE_CLOSED;
    struct stat st;
    fr_status s = FR_OK;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        s = fr_atomic_open(path, 0666, &file);
    else if (access(path, W_OK) != 0)
        s = fr_fail(FR_EIO, "cannot be written: %s", strerror(errno));
    return s < 0 ? fr_fail_prefix(s, "--export %s: ", path) : FR_OK;
}

static fr_status add_weight_bytes(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path, (void)is_parameter;
    *(size_t *)ctx += fr_tensor_nbytes(t);
    return FR_OK;
}

static fr_status count_weight_bytes(const fri_run *trial, void *ctx) {
    return fr_module_each_tensor(trial->net.model, add_weight_bytes, ctx);
}

/* Notes a disk that lacks the room for the weights, which a state holds, too. Some file systems do not count blocks. */
static fr_status note_room(const fri_config *c, const char *flag, const char *path) {
    char place[FRI_TARGET_BYTES], needs[FR_BYTES_TEXT], has[FR_BYTES_TEXT];
    struct statvfs disk;
    struct stat st;
    size_t need = 0;
    if (path == NULL || !fri_file_target(path, place)) return FR_OK;
    if (stat(place, &st) != 0)
        *(strrchr(place, '/') + 1) = '\0';
    else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return FR_OK;
    if (statvfs(place, &disk) != 0 || disk.f_blocks == 0) return FR_OK;
    const size_t room = (size_t)disk.f_bavail * disk.f_frsize;
    FRI_TRY(fri_on_meta(c, count_weight_bytes, &need));
    if (need > room)
        fri_say(c, FRI_SAY_NOTE,
                "%s %s: the weights need %s (%zu bytes), and the disk has %s (%zu bytes) free; make room", flag, path,
                fr_bytes_text(need, needs), need, fr_bytes_text(room, has), room);
    return FR_OK;
}

static bool is_resumed(const fri_run *r) {
    return r->config->resume.path[0] != '\0';
}

/* True if the run resumes from a state in this folder. */
static bool goes_on_in(const fri_run *r, const char *folder) {
    char state[FRI_TARGET_BYTES], here[FRI_TARGET_BYTES];
    if (!is_resumed(r) || !fri_file_target(r->config->resume.path, state) || !fri_file_target(folder, here))
        return false;
    *strrchr(state, '/') = '\0';
    return strcmp(state, here) == 0;
}

/* Refuses a folder with states of another training. */
static fr_status check_states(const fri_run *r) {
    const char *folder = r->config->opts.files.save;
    char of[128] = "";
    fri_state_folder held;
    fr_status s = fri_state_folder_get(folder, &held);
    if (s < 0 || held.states == 0 || goes_on_in(r, folder)) return s;
    if (held.newest_model[0] != '\0')
        snprintf(of, sizeof of, ", the newest of %s at step %" PRId64, held.newest_model, held.newest_step);
    return fr_fail(FR_EUSAGE, "--save %s: holds %zu %s already%s: add --resume latest, or name another folder", folder,
                   held.states, held.states == 1 ? "state" : "states", of);
}

fr_status fri_saving_check(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    fr_status s = FR_OK;
    parts p;
    describe_parts(r, &p);
    r->at.run_number = fri_state_run_of(&p.state);
    if (r->config->rank > 0) return FR_OK; /* only rank 0 writes */
    if (o->files.save != NULL) {
        s = fri_state_folder_make(o->files.save);
        if (s < 0) return fr_fail_prefix(s, "--save: ");
        if (access(o->files.save, W_OK | X_OK) != 0)
            return fr_fail(FR_EIO, "--save %s: nothing can be written there: %s", o->files.save, strerror(errno));
        FR_TRY(s, check_states(r));
    }
    if (o->files.export_weights != NULL) FR_TRY(s, check_export(o->files.export_weights));
    if (o->files.export_weights != NULL) FR_TRY(s, fri_weights_can_be_written(r));
    FR_TRY(s, note_room(r->config, "--export", o->files.export_weights));
    FR_TRY(s, note_room(r->config, "--save", o->files.save));
done:
    return s;
}

bool fri_save_is_due(const fri_run *r, bool last) {
    const fr_train_opts *o = &r->config->opts;
    if (o->files.save == NULL) return false;
    if (r->at.saved_step == r->at.step) return last && r->at.saved_counted != r->tested.counted;
    return last || r->at.step % fri_save_every(r->config) == 0;
}

/* Distributes the result of saving. Ranks other than 0 send their parts and get rank 0's status s, or FR_EPEER after
 * a failure. */
static fr_status save_together(const fri_run *r, fr_status s) {
    char sentence[1024];
    if (r->config->rank > 0) {
        s = r->config->rank_calls->serve(r->net.share);
        return s == FR_EIO || s == FR_ENOMEM ? fr_fail(s, "rank 0 could not save the training") : s;
    }
    snprintf(sentence, sizeof sentence, "%s", s < 0 ? fr_last_error() : "");
    fr_status told = r->config->rank_calls->served(r->net.share, s);
    return told < 0 ? told : s < 0 ? fr_fail(s, "%s", sentence) : s;
}

fr_status fri_save(fri_run *r, bool last) {
    const fr_train_opts *o = &r->config->opts;
    parts p;
    fr_status s = FR_OK;
    describe_parts(r, &p);
    if (r->config->rank == 0) s = fri_watch_values(r);
    if (r->config->rank == 0 && s == FR_OK) s = fr_state_save(o->files.save, &p.state, o->files.keep, NULL);
    if (r->net.share != NULL) FR_TRY(s, save_together(r, s));
    if (s == FR_OK) r->at.saved_step = r->at.step, r->at.saved_counted = r->tested.counted;
done:
    if (last || (s != FR_EIO && s != FR_ENOMEM)) return s;
    fri_say_goes_on(r);
    return FR_OK;
}

/* ---- resume ------------------------------------------------------------------------------------------------ */

static void report_skipped_state(void *ctx, const char *path, const char *reason) {
    const fri_config *c = *(const fri_config **)ctx;
    char name[FR_STATE_PATH_BYTES];
    fri_say(c, FRI_SAY_WARNING, "%s is passed over: %s", fr_text_printable(path, false, name, sizeof name), reason);
}

/* FR_END: --resume latest, and the folder holds no state yet. */
static fr_status find_state(const fri_config *c, char path[FR_STATE_PATH_BYTES]) {
    const fr_train_opts *o = &c->opts;
    bool latest = strcmp(o->files.resume, "latest") == 0;
    const char *folder = latest ? o->files.save : o->files.resume;
    if (!latest && !is_folder(folder)) { /* path of a single state */
        if (strlen(folder) >= FR_STATE_PATH_BYTES)
            return fr_fail(FR_EINVAL, "--resume: the path has more than %d bytes", FR_STATE_PATH_BYTES - 1);
        strcpy(path, folder);
        return FR_OK;
    }
    if (latest && !is_folder(folder)) return FR_END;
    fr_status s = fr_state_find_latest(folder, path, report_skipped_state, &c);
    return latest && s == FR_EIO && is_folder(folder) ? FR_END : s;
}

/* Takes the number of batches per step from the state: a training keeps the number, whatever its ranks. */
static fr_status take_accumulate(fri_config *c) {
    char value[32];
    fr_status s = fri_state_setting_read(c->resume.path, "accumulate", value, sizeof value);
    const long long n = s == FR_OK ? strtoll(value, NULL, 10) : 0;
    if (n > 0) c->opts.memory.accumulate = n;
    return FR_OK; /* a faulty state is reported when it is loaded */
}

/* Takes the choice of --train-only auto from the state. If the training named its layers, a new choice is made and
 * printed. */
static void take_train_only(fri_config *c) {
    char value[FRI_TRAIN_ONLY_BYTES];
    fr_status s = fri_state_setting_read(c->resume.path, "train-only", value, sizeof value);
    if (s == FR_OK && (strncmp(value, "last=", 5) == 0 || strcmp(value, "all") == 0)) fri_train_only_set(c, value);
}

/* Keeps the training's pixels. Version 0.2.0 turned no image and says nothing. */
static void take_exif(fri_config *c) {
    char value[8];
    if (fri_state_setting_read(c->resume.path, "exif", value, sizeof value) == FR_OK)
        c->opts.data.exif = strcmp(value, "on") == 0;
}

fr_status fri_resume_find(fri_config *c) {
    char path[FR_STATE_PATH_BYTES];
    if (c->opts.files.resume == NULL) return FR_OK;
    fr_status s = find_state(c, path);
    if (s == FR_OK) strcpy(c->resume.path, path);
    if (s == FR_END) s = FR_OK;
    if (s == FR_OK) s = fri_ranks_from_first(c, c->resume.path, sizeof c->resume.path);
    if (s < 0 || c->resume.path[0] == '\0') return s;
    c->resume.evaluated = EVALUATION_UNKNOWN;
    const fr_state_number number[] = {{"evaluated", &c->resume.evaluated, true},
                                      {"since_best", &c->resume.since_best, true}};
    (void)fri_state_numbers_read(c->resume.path, &c->resume.step, number, 2); /* fri_resume reports a faulty state */
    take_exif(c);
    if (fri_trains_auto(&c->opts)) take_train_only(c);
    return s == FR_OK && c->opts.memory.accumulate == FR_TRAIN_AUTO ? take_accumulate(c) : s;
}

/* Claims that every state tensor exists, so that the optimizer allocates all. */
static fr_status any_state(void *ctx, const char *name, fr_tensor *t) {
    (void)ctx;
    (void)name;
    (void)t;
    return FR_OK;
}

/* A run evaluates first if the state stands at the end of an epoch without the epoch's evaluation, or if no step is
 * left. */
static void begin_at(fri_run *r, int64_t step, double known) {
    const bool over = fri_patience_is_over(r) || step >= fri_steps_total(r->config);
    const bool due = known == EVALUATION_DUE || (known == EVALUATION_UNKNOWN && fri_evaluation_counts(r->config, step));
    r->tested.may_be_known = known == EVALUATION_UNKNOWN;
    r->tested.given_up = fri_patience_is_over(r);
    if (known == EVALUATION_MADE) r->tested.counted = step;
    if (r->config->test_count > 0 && (due || over))
        r->at.first_evaluation = due ? FRI_FIRST_EVALUATION : FRI_FIRST_MEASUREMENT;
}

/* A plan makes the first evaluation and then all steps of the training. */
fr_status fri_resume_dry(fri_run *r) {
    const fri_resume_point *at = &r->config->resume;
    if (!is_resumed(r)) return FR_OK;
    r->tested.since_best = at->since_best;
    begin_at(r, at->step, at->evaluated);
    r->tested.given_up = false;
    return fri_optimizer_set_state(r->net.optimizer, 1, any_state, NULL);
}

/* Rejects implausible sums: later steps add to them, and the epoch's accuracy would be wrong. */
static fr_status check_numbers(const fri_run *r, const char *path) {
    if (r->numbers.epoch_targets >= 0 && r->numbers.epoch_targets <= 0x1p60 && r->numbers.epoch_correct >= 0 &&
        r->numbers.epoch_correct <= r->numbers.epoch_targets)
        return FR_OK;
    return fr_fail(FR_EFORMAT, "--resume %s: damaged: %g correct answers of %g; use an older state", path,
                   r->numbers.epoch_correct, r->numbers.epoch_targets);
}

/* Loads the state, or a newer one if another run has deleted the state since fri_resume_find. */
static fr_status load_found_state(fri_run *r, char path[FR_STATE_PATH_BYTES], fr_state *state) {
    strcpy(path, r->config->resume.path);
    fr_status s = fr_state_load(path, state);
    if (s != FR_EIO || access(path, F_OK) == 0) return s;
    return find_state(r->config, path) == FR_OK ? fr_state_load(path, state) : s;
}

fr_status fri_resume(fri_run *r) {
    const fri_config *c = r->config;
    char path[FR_STATE_PATH_BYTES], text[FR_STATE_PATH_BYTES];
    parts p;
    if (!is_resumed(r)) return FR_OK;
    describe_parts(r, &p);
    p.evaluated = EVALUATION_UNKNOWN;
    r->tested.best_file = -1;
    FRI_TRY(load_found_state(r, path, &p.state));
    FRI_TRY(check_numbers(r, path));
    r->at.step = r->at.first_step = p.state.step;
    r->at.run_number = p.state.run;
    begin_at(r, r->at.step, p.evaluated);
    if (c->opts.files.predict == NULL && r->at.step > fri_steps_total(c))
        return fr_fail(FR_EINVAL, "--resume %s is at step %" PRId64 ", the flags end at %" PRId64 "; raise --epochs",
                       path, r->at.step, fri_steps_total(c));
    fri_say(c, FRI_SAY_CHOICE, "resumed from %s at step %" PRId64, fr_text_printable(path, false, text, sizeof text),
            r->at.step);
    if (p.changes[0] != '\0' && c->opts.files.predict == NULL)
        fri_say(c, FRI_SAY_NOTE, "other settings than when it was saved: %s", p.changes);
    if (p.numerics[0] != '\0')
        fri_say(c, FRI_SAY_NOTE, "the state has numerics %s, this program %s: last bits of the steps to come differ",
                p.numerics, p.setting[MUST_MATCH].value);
    return FR_OK;
}
