/* fields.c - for programs that set fields of fr_train_opts: checks ranges, and names fields in error sentences. */
#include "session/flags.h"

#include <frugal/number.h>
#include <frugal/try.h>

#include <inttypes.h>
#include <string.h>

static bool is_choice(const fr_flag *f, double value) {
    for (const fr_flag_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if ((double)c->value == value) return true;
    return false;
}

/* True for the default, for a value with a word, and for epochs = AUTO if steps are given. */
static bool is_unset_or_word(const fr_flag *f, const fr_train_opts *o, const fr_train_opts *defaults) {
    const void *v = fri_flag_field(f, o), *d = fri_flag_field(f, defaults);
    if (f->kind == FR_FLAG_REAL) return memcmp(v, d, sizeof(double)) == 0 || is_choice(f, *(const double *)v);
    if (f->kind == FR_FLAG_CHOICE) return memcmp(v, d, sizeof(int)) == 0 || is_choice(f, *(const int *)v);
    if (f->kind == FR_FLAG_SIZE) return memcmp(v, d, sizeof(size_t)) == 0;
    const int64_t n = *(const int64_t *)v;
    if (f->kind == FR_FLAG_SIDES && ((const int64_t *)v)[1] != FR_TRAIN_AUTO) return false;
    return n == *(const int64_t *)d || is_choice(f, (double)n) ||
           (v == &o->optim.epochs && n == FR_TRAIN_AUTO && o->optim.steps > 0);
}

fr_status fri_options_check(const fr_train_opts *o) {
    const fr_train_opts defaults = fr_train_opts_default();
    char text[FR_FLAG_TEXT_BYTES];
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f)) {
        const void *v = fri_flag_field(f, o);
        const bool number =
            f->kind == FR_FLAG_INT || f->kind == FR_FLAG_SIDES || f->kind == FR_FLAG_REAL || f->kind == FR_FLAG_SIZE;
        if (!number && (f->kind != FR_FLAG_CHOICE || v == &o->data.dataset)) continue;
        if (is_unset_or_word(f, o, &defaults)) continue;
        if (f->kind == FR_FLAG_CHOICE)
            return fr_fail(FR_EINVAL, "--%s %d: not one of the values in <frugal/train.h>", f->name, *(const int *)v);
        if (f->kind == FR_FLAG_REAL)
            fr_snprintf(text, sizeof text, "%g", *(const double *)v);
        else if (f->kind == FR_FLAG_SIDES)
            (void)fr_flag_text(f, o, text);
        else
            snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)v);
        FRI_TRY(fr_flag_in_range(f, v, text));
    }
    return FR_OK;
}

/* "--no-arena" -> "train.memory.arena = false", "--export" -> "train.files.export_weights". Returns the length. */
static size_t write_field(const fr_flag *f, bool no, char *to, size_t bytes) {
    const int n = snprintf(to, bytes, "train.%s%s", f->field != NULL ? f->field : f->name, no ? " = false" : "");
    if (f->field == NULL)
        for (char *c = to; *c != '\0'; c++) *c = *c == '-' ? '_' : *c;
    return (size_t)n < bytes ? (size_t)n : bytes - 1;
}

/* Table row of flag name[0..n), or of a field that has no flag. */
static const fr_flag *find_row(const char *name, size_t n, bool *no) {
    char whole[FR_FLAG_TEXT_BYTES];
    snprintf(whole, sizeof whole, "%.*s", (int)n, name);
    const fr_flag *f = fr_flag_named(NULL, name, n, no);
    if (f != NULL) return f;
    *no = false;
    return fri_flag_find(whole);
}

fr_status fri_speak_of_fields(fr_status s) {
    enum { SENTENCE = 4096, MARGIN = 128 };
    char text[SENTENCE];
    size_t at = 0;
    bool found = false, no = false;
    if (s >= 0 || strchr(fr_last_error(), '\n') != NULL) return s; /* a report: fr_fail would escape newlines */
    for (const char *c = fr_last_error(); *c != '\0' && at < SENTENCE - MARGIN;) {
        const size_t n = strncmp(c, "--", 2) == 0 ? strspn(c + 2, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
        const fr_flag *f = n > 0 ? find_row(c + 2, n, &no) : NULL;
        if (f != NULL && f->kind != FR_FLAG_ACT) {
            at += write_field(f, no, text + at, MARGIN);
            c += n + 2;
            found = true;
        } else {
            text[at++] = *c++;
        }
    }
    text[at] = '\0';
    return found ? fr_fail(s, "%s", text) : s;
}
