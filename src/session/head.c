/* head.c - where a network meets its data: --weights, --export, and the last layer for the data's classes.
 *
 * One rule holds for every network: unless the program has its own loss, results are as many as the loss needs
 * (fri_model_check, before the first step and in plans). A file's last layer for another number of results, or for
 * classes of other names, starts fresh, and rows of classes with equal names are the file's. If no layer can be
 * replaced, the run is refused. A written file describes the network; without such a file a run does not start. */
#include "io/session_files.h"
#include "net/units.h"
#include "session/data.h"
#include "session/model.h"
#include "session/state.h"
#include "session/step.h"

#include <frugal/weights.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of the last layer -------------------------------------------------------------------------------------- */

/* Row for class i of the data. A name with two rows decides only at an equal place among equally many. */
static int64_t row_of(const fr_weights_info *file, const fr_dataset *data, int64_t classes, int64_t i) {
    const char *here = fr_dataset_class_name(data, i);
    int64_t row = -1, named = 0;
    if (file->classes == classes && fri_weights_names_equal(here, file->class_name[i])) return i;
    for (int64_t k = 0; k < file->classes; k++)
        if (fri_weights_names_equal(here, file->class_name[k])) row = k, named++;
    for (int64_t k = 0; k < classes && named == 1; k++)
        named += k != i && fri_weights_names_equal(here, fr_dataset_class_name(data, k));
    return named == 1 ? row : -1;
}

void fri_head_rows_find(const fri_run *r, fri_head_rows *out) {
    const fri_config *c = r->config;
    FRI_OWNED(fr_weights_info_clear) fr_weights_info file = {0};
    *out = (fri_head_rows){0};
    if (c->opts.files.weights == NULL || r->data.train == NULL || c->outputs > FRI_HEAD_ROWS ||
        fr_dataset_class_name(r->data.train, c->outputs - 1) == NULL || c->targets != FR_TARGET_CLASS ||
        fr_weights_info_read(c->opts.files.weights, &file) < 0 || file.class_name == NULL)
        return;
    out->classes = file.classes;
    out->moved = file.classes != c->outputs;
    for (int64_t i = 0; i < c->outputs; i++) {
        out->row[i] = row_of(&file, r->data.train, c->outputs, i);
        out->moved |= out->row[i] != i;
    }
}

/* Copies rows between two layers; of tensors with another number of rows, none. */
static fr_status copy_rows(fr_module *from, fr_module *to, const fri_head_rows *rows) {
    static const char *const name[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        const fr_tensor *a = fr_module_tensor(from, name[i]);
        fr_tensor *b = fr_module_tensor(to, name[i]);
        if (a == NULL || fr_tensor_dim(a, 0) != rows->classes) return FR_OK;
        const size_t row = fr_tensor_nbytes(a) / (size_t)rows->classes;
        FRI_OWNED(fri_free) char *old = malloc(fr_tensor_nbytes(a)), *new = malloc(fr_tensor_nbytes(b));
        if (old == NULL || new == NULL)
            return fr_fail(FR_ENOMEM, "no host memory for a tensor of %zu bytes", fr_tensor_nbytes(a));
        FRI_TRY(fr_tensor_to_host(a, old));
        FRI_TRY(fr_tensor_to_host(b, new));
        for (int64_t k = 0; k < fr_tensor_dim(b, 0); k++)
            if (rows->row[k] >= 0) memcpy(new + (size_t)k *row, old + (size_t)rows->row[k] * row, row);
        FRI_TRY(fr_tensor_upload(new, b));
    }
    return FR_OK;
}

fr_status fri_head_fit(fri_run *r) {
    const fri_config *c = r->config;
    const int64_t has = fri_module_results(r->net.model);
    FRI_OWNED(fr_module_release) fr_module *old = NULL;
    fri_head_rows rows;
    if (c->program->loss != NULL || c->opts.files.predict != NULL || (has == c->outputs && !c->other_classes))
        return FR_OK;
    fr_status s = fri_module_head_renew(r->net.model, c->outputs, &old);
    if (s == FR_EINVAL)
        return fr_fail_prefix(s, "--weights %s: its network has %" PRId64 " results, the data have %" PRId64 " %s: ",
                              c->opts.files.weights, has, c->outputs,
                              has != c->outputs ? "classes" : "classes of other names");
    r->net.old_head = has;
    if (s < 0 || c->opts.device == FR_META) return s;
    fri_head_rows_find(r, &rows);
    return copy_rows(old, fr_module_find(r->net.model, fri_module_head(r->net.model)), &rows);
}

/* ---- --weights --------------------------------------------------------------------------------------------------- */

/* Notes a fresh layer and the kept rows. A resumed run gets all values from the state. */
static void note_head(const fri_run *r, const char *head, const char *has, const fri_head_rows *rows) {
    const fri_config *c = r->config;
    char kept[256] = "", printable[sizeof kept * 4];
    size_t at = 0;
    if (c->resume.path[0] != '\0') return;
    for (int64_t i = 0; i < c->outputs && rows->kept; i++) {
        const char *name = fr_dataset_class_name(r->data.train, i);
        if (rows->row[i] >= 0 && at + strlen(name) + 3 < sizeof kept)
            at += (size_t)snprintf(kept + at, sizeof kept - at, "%s%s", at > 0 ? ", " : "", name);
    }
    fri_say(c, FRI_SAY_NOTE, "--weights: %s %s there and starts fresh%s%s; everything else is the file's", head, has,
            kept[0] != '\0' ? ", but for the classes of both: " : "",
            fr_text_printable(kept, false, printable, sizeof printable));
}

fr_status fri_weights_begin(fri_run *r, bool tells) {
    const fri_config *c = r->config;
    const char *path = c->opts.files.weights, *has = c->other_classes ? "is for other classes" : "has another size";
    const char *head = c->opts.files.predict == NULL ? fri_module_head(r->net.model) : NULL;
    const bool network = fri_network_file(c) != NULL;
    fri_head_rows rows;
    if (path == NULL) return FR_OK;
    if (!network && (head == NULL || !c->other_classes)) {
        const fr_status s = fr_weights_load(r->net.model, path, NULL);
        if ((s != FR_ESHAPE && s != FR_EINVAL) || head == NULL) return s;
        if (s == FR_EINVAL) has = "is missing or has other layers or another name";
    }
    if (network && r->net.old_head == 0) return FR_OK;
    fri_head_rows_find(r, &rows);
    rows.kept = network && rows.classes == r->net.old_head;
    if (!network && fri_weights_load_head(r->net.model, path, head, &rows) < 0)
        return fr_weights_load(r->net.model, path, NULL); /* for a sentence with the head */
    if (tells) note_head(r, head, has, &rows);
    return FR_OK;
}

static fr_status compare_weights(const fri_run *trial, void *ctx) {
    fri_run here = *trial;
    here.data.train = ctx;
    return fri_weights_begin(&here, true);
}

fr_status fri_weights_check(const fri_run *r) {
    return r->config->opts.files.weights != NULL ? fri_on_meta(r->config, compare_weights, r->data.train) : FR_OK;
}

/* ---- --export ---------------------------------------------------------------------------------------------------- */

/* Describes the network for later predictions; *out points into the run and `names`. */
static void describe_network(const fri_run *r, char *names[FRI_HEAD_ROWS], fr_weights_info *out) {
    const fri_config *c = r->config;
    const int64_t own = fri_network_file(c) != NULL ? fri_module_results(r->net.model) : 0;
    fr_loader_opts l;
    fri_data_loader_opts(c, FR_SPLIT_TEST, &l);
    *out = (fr_weights_info){.classes = own > 0 ? own : c->outputs,
                             .channels = l.channels,
                             .height = l.height,
                             .width = l.width};
    snprintf(out->model, sizeof out->model, "%s", c->model_name);
    memcpy(out->mean, l.mean, sizeof l.mean);
    memcpy(out->std, l.std, sizeof l.std);
    for (int64_t i = 0; i < c->outputs && out->classes == c->outputs && out->classes <= FRI_HEAD_ROWS; i++) {
        names[i] = (char *)(uintptr_t)(r->data.train != NULL ? fr_dataset_class_name(r->data.train, i) : NULL);
        if (names[i] == NULL) return;
        if (i + 1 == out->classes) out->class_name = names;
    }
}

/* Finds the file's format, NULL for weights alone. */
static fr_status format_of(const fri_config *c, const char *path, const fr_network_file **out) {
    const fr_network_file *from = fri_network_file(c);
    FRI_TRY(fr_network_file_of(path, out));
    if (*out == NULL && from != NULL)
        return fr_fail(FR_EINVAL, "weights alone are not the network of %s, so nothing could read them; name a file %s",
                       c->opts.files.weights, from->ending);
    return *out == NULL ? fri_weights_ending(path) : FR_OK;
}

static fr_status could_be_written(const fri_run *trial, void *ctx) {
    const fr_network_file *const *file = ctx;
    return (*file)->save(trial->net.model, NULL, NULL);
}

/* Reports a missing add-on, a layer unknown to the format, or an impossible description, before the training. */
fr_status fri_weights_can_be_written(fri_run *r) {
    const fri_config *c = r->config;
    const fr_network_file *file = NULL;
    FRI_OWNED(fri_free) char *text = NULL;
    char *names[FRI_HEAD_ROWS];
    fr_weights_info info;
    describe_network(r, names, &info);
    fr_status s = format_of(c, c->opts.files.export_weights, &file);
    if (s == FR_OK) s = fr_weights_info_text(&info, &text);
    if (s == FR_OK && file != NULL) s = fri_on_meta(c, could_be_written, &file);
    return s < 0 ? fr_fail_prefix(s, "--export %s: ", c->opts.files.export_weights) : FR_OK;
}

fr_status fri_weights_end(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    const char *file = o->files.export_weights;
    if (file == NULL || r->at.signal != 0) return FR_OK;
    if (o->files.keep_best && (r->tested.written || fri_best_is_in_file(r))) return FR_OK;
    FRI_TRY(fri_weights_write(r, file));
    r->tested.written = true;
    if (!o->files.keep_best) return FR_OK;
    if (isnan(r->tested.best) && isnan(r->config->accuracy ? r->tested.accuracy : r->tested.loss))
        return fr_fail(FR_EFORMAT,
                       "--keep-best: no evaluation measured anything, so none is the best; %s has the weights of the "
                       "last step",
                       file);
    fri_say(r->config, FRI_SAY_NOTE,
            "--keep-best: no epoch of this run had the best evaluation; %s gets the weights of the last step", file);
    return FR_OK;
}

fr_status fri_weights_write(fri_run *r, const char *path) {
    const fr_network_file *file = NULL;
    FRI_TRY(format_of(r->config, path, &file));
    FRI_TRY(fri_watch_values(r));
    char *names[FRI_HEAD_ROWS];
    fr_weights_info info;
    describe_network(r, names, &info);
    if (file != NULL) return file->save(r->net.model, path, &info);
    return fr_weights_save(r->net.model, path, FR_WEIGHTS_OPTS(.info = &info));
}
