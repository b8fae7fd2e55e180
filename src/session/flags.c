/* flags.c - looks up flags by name and prints their values. */
#include "session/flags.h"

#include <frugal/number.h>

#include <frugal/addon.h>
#include <frugal/try.h>
#include <inttypes.h>
#include <string.h>

_Static_assert(sizeof(fr_device) == sizeof(int) && sizeof(fr_dtype) == sizeof(int), "choices are stored as int");

static const fr_flag_choice *choice_of_value(const fr_flag *f, int64_t value) {
    for (const fr_flag_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if (c->value == value) return c;
    return NULL;
}

/* Number behind a choice; INT64_MAX: none. */
static int64_t number_of(const fr_flag *f, const void *field) {
    if (f->kind == FR_FLAG_INT || f->kind == FR_FLAG_SIDES) return *(const int64_t *)field;
    if (f->kind == FR_FLAG_CHOICE) return *(const int *)field;
    return f->kind == FR_FLAG_REAL && *(const double *)field < 0 ? (int64_t) * (const double *)field : INT64_MAX;
}

/* Joins the words of a list; if buf is too small, prints their number. */
static void join_words(const char *const *word, int64_t n, char buf[FR_FLAG_TEXT_BYTES]) {
    size_t at = 0;
    for (int64_t i = 0; i < n && at < FR_FLAG_TEXT_BYTES; i++)
        at += (size_t)snprintf(buf + at, FR_FLAG_TEXT_BYTES - at, "%s%s", i > 0 ? " " : "", word[i]);
    if (at >= FR_FLAG_TEXT_BYTES) snprintf(buf, FR_FLAG_TEXT_BYTES, "%" PRId64 " names", n);
}

static void sides_text(const int64_t side[2], char buf[FR_FLAG_TEXT_BYTES]) {
    const int n = snprintf(buf, FR_FLAG_TEXT_BYTES, "%" PRId64, side[0]);
    if (side[1] != side[0] && side[1] != FR_TRAIN_AUTO)
        snprintf(buf + n, (size_t)(FR_FLAG_TEXT_BYTES - n), "x%" PRId64, side[1]);
}

const char *fri_image_text(const fr_train_opts *o, char buf[FR_FLAG_TEXT_BYTES]) {
    return fr_flag_text(fri_flag_find("image-size"), o, buf);
}

const char *fr_flag_text(const fr_flag *f, const fr_train_opts *o, char buf[FR_FLAG_TEXT_BYTES]) {
    if (f == NULL || o == NULL || buf == NULL) return NULL;
    const void *field = fri_flag_field(f, o);
    int64_t number = number_of(f, field), words = f->kind == FR_FLAG_LIST ? ((const int64_t *)field)[1] : 0;
    const char *text = f->kind == FR_FLAG_TEXT ? *(const char *const *)field : NULL;
    const fr_flag_choice *word = choice_of_value(f, number);
    buf[0] = '\0';
    if (word != NULL)
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%s", word->name);
    else if (f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET)
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%s", *(const bool *)field ? "on" : "off");
    else if (f->kind == FR_FLAG_INT && number != FR_TRAIN_AUTO)
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%" PRId64, number);
    else if (f->kind == FR_FLAG_SIDES && number != FR_TRAIN_AUTO)
        sides_text(field, buf);
    else if (f->kind == FR_FLAG_REAL && number != FR_TRAIN_AUTO)
        fr_snprintf(buf, FR_FLAG_TEXT_BYTES, "%g", *(const double *)field);
    else if (f->kind == FR_FLAG_SIZE && *(const size_t *)field != SIZE_MAX)
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%zu", *(const size_t *)field);
    else if (text != NULL)
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%s", text);
    else if (words > 0)
        join_words(*(const char *const *const *)field, words, buf);
    return buf;
}

/* Flag after f in the add-ons' tables; if f is from the trainers' own table, the first flag of an add-on. */
static const fr_flag *next_of_addons(const fr_flag *f) {
    bool found = f >= fri_flags && f < fri_flags + fri_flags_count;
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        for (const fr_flag *g = (*a)->flags; g != NULL && g->name != NULL; g++) {
            if (found) return g;
            found = g == f;
        }
    return NULL;
}

const fr_flag *fr_flag_next(const fr_train_program *p, const fr_flag *f) {
    const fr_flag *own = p != NULL ? p->flags : NULL;
    if (f == NULL) return fri_flags;
    if (f >= fri_flags && f < fri_flags + fri_flags_count - 1) return f + 1;
    if (f->own != NULL)
        own = f + 1;
    else if ((f = next_of_addons(f)) != NULL)
        return f;
    return own != NULL && own->name != NULL ? own : NULL;
}

fr_status fri_flags_check(const fr_train_program *p) {
    int n = 0;
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f)) n++;
    for (const fr_flag *f = p->flags; f != NULL && f->name != NULL; f++, n++) {
        bool valued = f->kind != FR_FLAG_BOOL && f->kind != FR_FLAG_SET, no = false;
        const char *wrong = n == FRI_FLAGS_MOST                        ? "is one too many"
                            : f->own == NULL                           ? "has no variable"
                            : f->help == NULL                          ? "has no help"
                            : valued && f->value == NULL               ? "has no word for its value"
                            : f->kind == FR_FLAG_ACT                   ? "is of kind ACT"
                            : f->kind == FR_FLAG_CHOICE && !f->choices ? "has no choices"
                                                                       : NULL;
        if (wrong != NULL) return fr_fail(FR_EINVAL, "the program's own flag --%s %s", f->name, wrong);
        if (fr_flag_named(p, f->name, strlen(f->name), &no) != f)
            return fr_fail(FR_EINVAL, "the program's own flag --%s: the name is taken; rename it", f->name);
    }
    return FR_OK;
}

/* True for --name and --no-name: a BOOL, and a CHOICE of on and off. */
static bool has_no(const fr_flag *f) {
    return f->kind == FR_FLAG_BOOL ||
           (f->kind == FR_FLAG_CHOICE && f->implied != NULL && strcmp(f->implied, "on") == 0);
}

const fr_flag *fr_flag_named(const fr_train_program *p, const char *name, size_t n, bool *no) {
    for (const fr_flag *f = name != NULL && no != NULL ? fr_flag_next(p, NULL) : NULL; f != NULL;
         f = fr_flag_next(p, f)) {
        size_t length = strlen(f->name);
        if (f->help == NULL) continue;
        *no = false;
        if (length == n && memcmp(f->name, name, n) == 0) return f;
        *no = true;
        if (has_no(f) && length + 3 == n && memcmp(name, "no-", 3) == 0 && memcmp(name + 3, f->name, length) == 0)
            return f;
    }
    return NULL;
}

const fr_flag *fri_flag_find(const char *name) {
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f))
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}

/* A word that begins with two dashes is a flag, never the value of the flag before. */
bool fri_flag_given(const fr_flag *f, int argc, char *const *argv) {
    if (f == NULL || f->help == NULL) return false;
    size_t n = strlen(f->name);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0) continue;
        word += 2;
        if (has_no(f) && strncmp(word, "no-", 3) == 0) word += 3;
        if (strncmp(word, f->name, n) == 0 && (word[n] == '\0' || word[n] == '=')) return true;
    }
    return false;
}

bool fri_flag_differs(const fr_flag *f, const fr_train_opts *a, const fr_train_opts *b) {
    char x[FR_FLAG_TEXT_BYTES], y[FR_FLAG_TEXT_BYTES];
    return strcmp(fr_flag_text(f, a, x), fr_flag_text(f, b, y)) != 0;
}

const char *fri_flag_words(const fr_flag *f, const fr_train_opts *o, char words[FRI_FLAG_WORDS]) {
    char value[FR_FLAG_TEXT_BYTES] = "";
    const bool on_or_off = f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET;
    const bool no = f->kind == FR_FLAG_BOOL && !*(const bool *)fri_flag_field(f, o);
    if (!on_or_off && f->kind != FR_FLAG_ACT) (void)fr_flag_text(f, o, value);
    const bool alone = value[0] == '\0' || (f->implied != NULL && strcmp(value, f->implied) == 0);
    snprintf(words, FRI_FLAG_WORDS, "--%s%s%s%s", no ? "no-" : "", f->name,
             alone                ? ""
             : f->implied != NULL ? "="
                                  : " ",
             alone ? "" : value);
    return words;
}

fr_status fr_flag_in_range(const fr_flag *f, const void *number, const char *text) {
    FRI_NOT_NULL(f, number, text);
    const int64_t *n = number;
    const double *x = number;
    const bool two = f->kind == FR_FLAG_SIDES && n[1] != FR_TRAIN_AUTO;
    if ((f->kind == FR_FLAG_INT || f->kind == FR_FLAG_SIDES) &&
        !(*n >= f->least && *n <= f->most && (!two || (n[1] >= f->least && n[1] <= f->most))))
        return fr_fail(FR_EINVAL, "--%s %s: must lie in %" PRId64 "..%" PRId64, f->name, text, f->least, f->most);
    if (f->kind == FR_FLAG_REAL && !(*x >= f->real_least && *x < f->below))
        return fr_fail(FR_EINVAL, "--%s %s: must be at least %g and below %g", f->name, text, f->real_least, f->below);
    if (f->kind == FR_FLAG_SIZE && *(const size_t *)number == 0)
        return fr_fail(FR_EINVAL, "--%s %s: must be at least 1 byte", f->name, text);
    return FR_OK;
}
