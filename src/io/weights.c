/* weights.c - a module's tensors to a safetensors file and back.
 *
 * Loading first reads, checks and allocates, and then changes the module. */
#include "io/scratch.h"
#include "io/safetensors.h"
#include "io/session_files.h"
#include "io/weights_info.h"

#include "base/status.h"
#include "base/text.h"
#include "tensor/tensor.h"

#include <frugal/weights.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT_KEY "frugal.layout"

static const char *const layout_names[] = {[FR_WEIGHTS_TORCH] = "torch", [FR_WEIGHTS_FRUGAL] = "frugal"};

static fr_status check_options(const fr_weights_opts *o) {
    if (o->layout < FR_WEIGHTS_AUTO || o->layout > FR_WEIGHTS_FRUGAL)
        return fr_fail(FR_EINVAL, "weights: %d is not a layout", (int)o->layout);
    if (o->flatten_height < 0 || o->flatten_width < 0 || (o->flatten_height > 0) != (o->flatten_width > 0))
        return fr_fail(FR_EINVAL, "weights: flatten_height %lld and flatten_width %lld must both be given, or both 0",
                       (long long)o->flatten_height, (long long)o->flatten_width);
    return FR_OK;
}

/* ---- saving ------------------------------------------------------------------------------------------------ */

typedef struct saving {
    fr_entries entries;
    void *bytes, *turned; /* a tensor in memory's layout, and in the file's */
    size_t bytes_capacity, turned_capacity;
} saving;

static fr_status hand_out_weight(void *context, size_t index, const void **data) {
    saving *v = context;
    const fr_entry *e = &v->entries.entry[index];
    FRI_TRY(fri_scratch(&v->bytes, &v->bytes_capacity, fri_nbytes(e->tensor)));
    FRI_TRY(fr_tensor_to_host(e->tensor, v->bytes));
    *data = v->bytes;
    if (e->spatial > 1 && e->channels > 1) {
        FRI_TRY(fri_scratch(&v->turned, &v->turned_capacity, fri_nbytes(e->tensor)));
        fr_host_transpose(v->bytes, v->turned, fr_dtype_size(e->tensor->dtype), e->outer, e->spatial, e->channels);
        *data = v->turned;
    }
    return FR_OK;
}

static fr_status save_weights(fr_module *m, const char *path, const fr_weights_opts *o, saving *v) {
    FRI_OWNED(fri_free) fri_safetensors_entry *list = NULL;
    FRI_OWNED(fri_free) char *info = NULL;
    FRI_TRY(check_options(o));
    FRI_TRY(fri_weights_ending(path));
    const bool torch = o->layout != FR_WEIGHTS_FRUGAL;
    if (o->info != NULL) FRI_TRY(fr_weights_info_text(o->info, &info));
    /* "format": other readers of safetensors require the entry for PyTorch tensors. */
    const fri_safetensors_text metadata[] = {{"format", "pt"},
                                             {LAYOUT_KEY, layout_names[torch ? FR_WEIGHTS_TORCH : FR_WEIGHTS_FRUGAL]},
                                             {FR_WEIGHTS_INFO_KEY, info}};
    FRI_TRY(fr_entries_collect(m, &v->entries));
    if (torch) FRI_TRY(fr_entries_torch_layout(m, o, &v->entries));
    list = calloc(v->entries.n + 1, sizeof *list);
    if (list == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", v->entries.n);
    for (size_t i = 0; i < v->entries.n; i++) {
        const fr_entry *e = &v->entries.entry[i];
        if (fri_device_of(e->tensor) == FR_META)
            return fr_fail(FR_EUNSUPPORTED, "'%s' is on meta and has no values to save", e->name);
        list[i] = (fri_safetensors_entry){.name = e->name,
                                          .dtype = e->tensor->dtype,
                                          .shape = torch ? fr_entry_torch_shape(e) : e->tensor->shape};
    }
    return fri_safetensors_write(path, list, v->entries.n, metadata, info != NULL ? 3 : 2, hand_out_weight, v);
}

fr_status fr_weights_save(fr_module *m, const char *path, const fr_weights_opts *opts) {
    FRI_NOT_NULL(m, path);
    saving v = {0};
    const fr_status s = save_weights(m, path, opts != NULL ? opts : FR_WEIGHTS_OPTS(), &v);
    free(v.bytes);
    free(v.turned);
    fr_entries_free(&v.entries);
    return s < 0 ? fr_fail_prefix(s, "saving weights: ") : s;
}

/* ---- loading: list of mismatches ---------------------------------------------------------------------------- */

enum { COMPLAINT_BYTES = 2048, NAMED = 8, LONGEST_NAME = 512 };

/* "missing a, b and 3 more; unexpected c": the first few of a kind are named, all are counted. */
typedef struct complaint {
    char text[COMPLAINT_BYTES];
    size_t at, of_kind;
    fr_status status;
} complaint;

__attribute__((format(printf, 2, 3))) static void say(complaint *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(c->text + c->at, sizeof c->text - c->at, format, args);
    va_end(args);
    c->at = n < 0 || (size_t)n >= sizeof c->text - c->at ? sizeof c->text - 1 : c->at + (size_t)n;
}

/* Adds a name, with the different sides of file and module (NULL: the name alone). */
static void complain(complaint *c, const char *kind, fr_status status, const char *name, const char *file,
                     const char *module) {
    if (c->status == FR_OK) c->status = status;
    if (++c->of_kind > NAMED) return;
    say(c, "%s%s%.200s", c->of_kind > 1 ? ", " : c->at > 0 ? "; " : "", c->of_kind > 1 ? "" : kind, name);
    if (file != NULL) say(c, " is %s in the file but %s in the module", file, module);
}

static void end_kind(complaint *c) {
    if (c->of_kind > NAMED) say(c, " and %zu more", c->of_kind - NAMED);
    c->of_kind = 0;
}

static bool may_be_missing(const char *name) {
    static const char suffix[] = "num_batches_tracked";
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

/* ---- loading: phases --------------------------------------------------------------------------------------- */

typedef struct loading {
    fr_entries entries;
    fri_safetensors *file;
    const fri_safetensors_entry **from; /* per entry; NULL: unchanged */
    bool torch;
    const char *skip;         /* NULL: none */
    void *turned, *converted; /* the largest tensor in the module's layout and type */
} loading;

static fr_shape shape_in_file(const loading *l, const fr_entry *e) {
    return l->torch ? fr_entry_torch_shape(e) : e->tensor->shape;
}

static bool is_skipped(const loading *l, const char *name) {
    return l->skip != NULL && l->skip[0] != '\0' && fri_path_is_below(name, l->skip);
}

static void find_missing(loading *l, bool strict, complaint *c) {
    for (size_t i = 0; i < l->entries.n; i++) {
        const fr_entry *e = &l->entries.entry[i];
        if (is_skipped(l, e->name)) continue;
        l->from[i] = fri_safetensors_find(l->file, e->name);
        if (l->from[i] == NULL && strict && !may_be_missing(e->name))
            complain(c, "missing ", FR_EINVAL, e->name, NULL, NULL);
    }
    end_kind(c);
}

static int by_wording(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* True if skip leaves out a tensor of the file as the head's under a different name: "head.weight" for "fc.weight". A
 * head has at most two names, and the module has no tensor below either. */
static bool is_other_head(const loading *l, const char *name, const char **parent) {
    const char *dot = strrchr(name, '.');
    const size_t n = dot != NULL ? (size_t)(dot - name) + 1 : 0;
    if (l->skip == NULL || l->skip[0] == '\0' || n == 0) return false;
    if (*parent == NULL) *parent = name;
    for (size_t i = 0; i < l->entries.n; i++)
        if (strncmp(l->entries.entry[i].name, name, n) == 0) return false;
    return strncmp(*parent, name, n) == 0 && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0);
}

static fr_status find_unexpected(const loading *l, complaint *c) {
    const char *head = NULL;
    FRI_OWNED(fri_free) const char **names = calloc(l->entries.n + 1, sizeof *names);
    if (names == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu names", l->entries.n);
    for (size_t i = 0; i < l->entries.n; i++) names[i] = l->entries.entry[i].name;
    qsort(names, l->entries.n, sizeof *names, by_wording);
    for (size_t i = 0; i < l->file->n_entries; i++) {
        const char *name = l->file->entries[i].name;
        if (bsearch(&name, names, l->entries.n, sizeof *names, by_wording) == NULL && !is_skipped(l, name) &&
            !is_other_head(l, name, &head))
            complain(c, "unexpected ", FR_EINVAL, name, NULL, NULL);
    }
    end_kind(c);
    return FR_OK;
}

static void find_unfit(const loading *l, complaint *c) {
    char have[FRI_SHAPE_TEXT], want[FRI_SHAPE_TEXT];
    for (size_t i = 0; i < l->entries.n; i++) {
        const fr_entry *e = &l->entries.entry[i];
        const fri_safetensors_entry *f = l->from[i];
        if (f == NULL) continue;
        fr_shape shape = shape_in_file(l, e);
        if (!fri_shape_equal(&f->shape, &shape))
            complain(c, "", FR_ESHAPE, e->name, fri_shape_text(&f->shape, have), fri_shape_text(&shape, want));
    }
    end_kind(c);
    for (size_t i = 0; i < l->entries.n; i++) {
        const fr_entry *e = &l->entries.entry[i];
        if (l->from[i] == NULL || l->from[i]->dtype == e->tensor->dtype || may_be_missing(e->name)) continue;
        if (fr_dtype_is_float(l->from[i]->dtype) && fr_dtype_is_float(e->tensor->dtype)) continue;
        complain(c, "", FR_EDTYPE, e->name, fr_dtype_name(l->from[i]->dtype), fr_dtype_name(e->tensor->dtype));
    }
    end_kind(c);
}

/* Copies the text before `own` in a longer name of the file, "module." of "module.conv.weight". Returns the number of
 * bytes, 0 without a longer name. */
static size_t prefix_in(const fri_safetensors *file, const char *own, char prefix[LONGEST_NAME]) {
    const size_t n = strlen(own);
    for (size_t i = 0; i < file->n_entries; i++) {
        const char *name = file->entries[i].name;
        const size_t k = strlen(name);
        if (k <= n || k - n >= LONGEST_NAME || name[k - n - 1] != '.' || strcmp(name + k - n, own) != 0) continue;
        memcpy(prefix, name, k - n);
        return k - n;
    }
    return 0;
}

/* Advice for files with a prefix before each name (module.), without the head or with a renamed head, and for files of
 * a different network. */
static void advise(const loading *l, complaint *c) {
    const char *first = NULL;
    size_t missing = 0, below = 0, prefixed = 0, known = 0, prefix = 0, parent = 0;
    char name[LONGEST_NAME];
    for (size_t i = 0; i < l->entries.n; i++) {
        const char *own = l->entries.entry[i].name;
        known += l->from[i] != NULL;
        if (l->from[i] != NULL || is_skipped(l, own) || may_be_missing(own)) continue;
        if (missing++ == 0) {
            first = own;
            parent = strrchr(own, '.') != NULL ? (size_t)(strrchr(own, '.') - own) : strlen(own);
            prefix = prefix_in(l->file, own, name);
        }
        below += strncmp(own, first, parent) == 0 && own[parent] == '.';
        snprintf(name + prefix, sizeof name - prefix, "%s", own);
        prefixed += prefix > 0 && fri_safetensors_find(l->file, name) != NULL;
    }
    name[prefix] = '\0';
    if (missing > 0 && prefixed == missing)
        say(c,
            "; the file has the missing names with the prefix '%s': in Python, {k.removeprefix('%s'): v for k, v in "
            "STATE_DICT.items()} takes it off",
            name, name);
    else if (missing > 0 && below == missing && known > 0)
        say(c,
            "; only %.*s is missing: rename the file's tensors, or load with .strict = false, which leaves %.*s as it "
            "is",
            (int)parent, first, (int)parent, first);
    else if (missing > 0 && known == 0)
        say(c, "; no name agrees, so the file is of another network");
}

static fr_status check_layout(const fr_weights_opts *o, loading *l) {
    const char *said = fri_safetensors_metadata(l->file, LAYOUT_KEY);
    fr_weights_layout layout = o->layout;
    for (int i = FR_WEIGHTS_TORCH; said != NULL && i <= FR_WEIGHTS_FRUGAL; i++) {
        if (strcmp(said, layout_names[i]) != 0) continue;
        if (layout != FR_WEIGHTS_AUTO && (int)layout != i)
            return fr_fail(FR_EINVAL, "its layout is %s, but the caller asks for %s", said, layout_names[layout]);
        layout = (fr_weights_layout)i;
        said = NULL;
    }
    if (said != NULL) return fr_fail(FR_EFORMAT, "its layout is '%.40s'; only torch and frugal exist", said);
    l->torch = layout != FR_WEIGHTS_FRUGAL;
    return FR_OK;
}

static fr_status prepare_loading(fr_module *m, const fr_weights_opts *o, loading *l) {
    complaint c = {.status = FR_OK};
    size_t largest = 1;
    l->skip = o->skip;
    FRI_TRY(check_layout(o, l));
    FRI_TRY(fr_entries_collect(m, &l->entries));
    if (l->torch) FRI_TRY(fr_entries_torch_layout(m, o, &l->entries));
    l->from = calloc(l->entries.n + 1, sizeof *l->from);
    if (l->from == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu tensors", l->entries.n);
    find_missing(l, o->strict, &c);
    if (o->strict) FRI_TRY(find_unexpected(l, &c));
    find_unfit(l, &c);
    if (o->strict) advise(l, &c);
    if (c.status < 0) return fr_fail(c.status, "does not fit the module, which is unchanged: %s", c.text);
    for (size_t i = 0; i < l->entries.n; i++) {
        size_t a = fri_nbytes(l->entries.entry[i].tensor), b = l->from[i] != NULL ? l->from[i]->bytes : 0;
        largest = a > largest ? a : largest;
        largest = b > largest ? b : largest;
    }
    l->turned = malloc(largest);
    l->converted = malloc(largest);
    if (l->turned == NULL || l->converted == NULL)
        return fr_fail(FR_ENOMEM, "no host memory for two copies of a tensor of %zu bytes", largest);
    return FR_OK;
}

/* A counter of another type, as {k: v.float() for k, v in ...} leaves it. */
static fr_status fill_counter(const fr_entry *e, const fri_safetensors_entry *f) {
    int64_t count = 0;
    double x = -1;
    if (fr_dtype_is_float(f->dtype))
        fr_host_convert(f->data, f->dtype, &x, FR_F64, 1);
    else
        memcpy(&count, f->data, f->bytes < sizeof count ? f->bytes : sizeof count);
    if (x >= 0 && x < 0x1p62) count = (int64_t)x;
    return fr_tensor_upload(&count, e->tensor);
}

static fr_status fill_tensor(const loading *l, const fr_entry *e, const fri_safetensors_entry *f) {
    const void *data = f->data;
    if (e->tensor->dtype == FR_I64 && f->dtype != FR_I64) return fill_counter(e, f);
    if (l->torch && e->spatial > 1 && e->channels > 1) {
        fr_host_transpose(data, l->turned, fr_dtype_size(f->dtype), e->outer, e->channels, e->spatial);
        data = l->turned;
    }
    if (f->dtype != e->tensor->dtype) {
        fr_host_convert(data, f->dtype, l->converted, e->tensor->dtype, fri_numel(e->tensor));
        data = l->converted;
    }
    return fr_tensor_upload(data, e->tensor);
}

/* Fills rows of one tensor. FR_END: number, shape or type of the rows in the file differ. */
static fr_status fill_rows(const loading *l, const fr_entry *e, const fri_head_rows *from) {
    const fri_safetensors_entry *f = fri_safetensors_find(l->file, e->name);
    fr_shape shape = shape_in_file(l, e);
    const int64_t rows = shape.rank > 0 ? shape.dim[0] : 0, classes = from->classes, *row = from->row;
    if (f == NULL || rows == 0 || classes == 0 || !fr_dtype_is_float(f->dtype)) return FR_END;
    shape.dim[0] = classes;
    if (!fri_shape_equal(&shape, &f->shape)) return FR_END;
    if (fri_device_of(e->tensor) == FR_META) return FR_OK;
    const size_t theirs = f->bytes / (size_t)classes, ours = fri_nbytes(e->tensor) / (size_t)rows;
    FRI_OWNED(fri_free) char *all = malloc(ours * (size_t)rows + theirs);
    if (all == NULL) return fr_fail(FR_ENOMEM, "no host memory for a tensor of %zu bytes", fri_nbytes(e->tensor));
    FRI_TRY(fr_tensor_to_host(e->tensor, all));
    for (int64_t i = 0; i < rows; i++) {
        if (row[i] < 0) continue;
        const char *data = (const char *)f->data + (size_t)row[i] * theirs;
        if (l->torch && e->spatial > 1 && e->channels > 1) {
            fr_host_transpose(data, all + ours * (size_t)rows, fr_dtype_size(f->dtype), 1, e->channels, e->spatial);
            data = all + ours * (size_t)rows;
        }
        fr_host_convert(data, f->dtype, all + (size_t)i * ours, e->tensor->dtype, fri_numel(e->tensor) / rows);
    }
    return fr_tensor_upload(all, e->tensor);
}

static fr_status load_weights(fr_module *m, const char *path, const fr_weights_opts *o, fri_head_rows *rows) {
    loading l = {0};
    FRI_TRY(check_options(o));
    fr_status s = fri_safetensors_open_as(path, FRI_SAFETENSORS_COPIED, &l.file);
    if (s < 0) return fr_fail_prefix(s, "loading weights: ");
    FR_TRY(s, prepare_loading(m, o, &l));
    const bool meta = l.entries.n > 0 && fri_device_of(l.entries.entry[0].tensor) == FR_META;
    if (!meta) FR_TRY(s, fri_safetensors_read(l.file));
    for (size_t i = 0; i < l.entries.n; i++) {
        const fr_entry *e = &l.entries.entry[i];
        if (l.from[i] != NULL && !meta) FR_TRY(s, fill_tensor(&l, e, l.from[i]));
        if (rows == NULL || !is_skipped(&l, e->name)) continue;
        FR_TRY(s, fill_rows(&l, e, rows));
        rows->kept |= s == FR_OK;
    }
    s = FR_OK;
done:
    fri_safetensors_close(&l.file);
    fr_entries_free(&l.entries);
    free(l.from);
    free(l.turned);
    free(l.converted);
    return s < 0 ? fr_fail_prefix(s, "loading weights: file '%.300s': ", path) : s;
}

fr_status fr_weights_load(fr_module *m, const char *path, const fr_weights_opts *opts) {
    FRI_NOT_NULL(m, path);
    return load_weights(m, path, opts != NULL ? opts : FR_WEIGHTS_OPTS(), NULL);
}

fr_status fri_weights_load_head(fr_module *m, const char *path, const char *head, fri_head_rows *rows) {
    return load_weights(m, path, FR_WEIGHTS_OPTS(.skip = head), rows);
}
