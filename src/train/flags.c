/* flags.c - reading the command line by the table. */
#include "train/flags.h"

#include "base/status.h"
#include "train/commands.h"
#include "train/size.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(sizeof(fr_device) == sizeof(int) && sizeof(fr_dtype) == sizeof(int), "choices are stored as int");

/* ---- values ------------------------------------------------------------------------------------------------ */

/* The choice of that name, or NULL. */
static const fri_choice *choice(const fri_flag *f, const char *text) {
    for (const fri_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if (strcmp(c->name, text) == 0) return c;
    return NULL;
}

static const fri_choice *choice_of_value(const fri_flag *f, int64_t value) {
    for (const fri_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if (c->value == value) return c;
    return NULL;
}

/* "sqrt, log, each" */
static const char *choice_names(const fri_flag *f, char *names, size_t bytes) {
    size_t at = 0;
    names[0] = '\0';
    for (const fri_choice *c = f->choices; c != NULL && c->name != NULL; c++) {
        int n = snprintf(names + at, bytes - at, "%s%s", at > 0 ? ", " : "", c->name);
        if (n > 0 && (size_t)n < bytes - at) at += (size_t)n;
    }
    return names;
}

static fr_status not_a_number(const fri_flag *f, const char *text, const char *what) {
    char names[256];
    if (f->choices == NULL) return fri_fail(FR_EINVAL, "--%s %s: not %s", f->name, text, what);
    return fri_fail(FR_EINVAL, "--%s %s: neither %s nor one of %s", f->name, text, what,
                    choice_names(f, names, sizeof names));
}

static fr_status set_int(const fri_flag *f, const char *text, int64_t *to) {
    if (!fri_parse_int(text, to)) return not_a_number(f, text, "a whole number");
    if (*to >= f->least && *to <= f->most) return FR_OK;
    return fri_fail(FR_EINVAL, "--%s %s: must lie in %" PRId64 "..%" PRId64, f->name, text, f->least, f->most);
}

static fr_status set_real(const fri_flag *f, const char *text, double *to) {
    if (!fri_parse_real(text, to)) return not_a_number(f, text, "a number");
    if (*to >= f->real_least && *to < f->below) return FR_OK;
    return fri_fail(FR_EINVAL, "--%s %s: must be at least %g and below %g", f->name, text, f->real_least, f->below);
}

static fr_status set_size(const fri_flag *f, const char *text, size_t *to) {
    if (!fri_parse_size(text, to))
        return fri_fail(FR_EINVAL, "--%s %s: not a size; write bytes, or a number with KiB, MiB or GiB", f->name, text);
    if (*to == 0) return fri_fail(FR_EINVAL, "--%s %s: must be at least 1 byte", f->name, text);
    return FR_OK;
}

static fr_status set_text(const fri_flag *f, const char *text, const char **to) {
    *to = text;
    if (text[0] != '\0' || f->implied != NULL) return FR_OK;
    return fri_fail(FR_EINVAL, "--%s: its value %s is empty", f->name, f->value);
}

static fr_status set(const fri_flag *f, const char *text, fr_train_opts *o) {
    void *to = (char *)o + f->offset;
    const fri_choice *word = choice(f, text);
    char names[256];
    switch (f->kind) {
    case FRI_FLAG_INT: return word == NULL ? set_int(f, text, to) : (*(int64_t *)to = word->value, FR_OK);
    case FRI_FLAG_REAL: return word == NULL ? set_real(f, text, to) : (*(double *)to = word->value, FR_OK);
    case FRI_FLAG_SIZE: return set_size(f, text, to);
    case FRI_FLAG_TEXT: return set_text(f, text, to);
    case FRI_FLAG_CHOICE:
        if (word != NULL) return *(int *)to = word->value, FR_OK;
        return fri_fail(FR_EINVAL, "--%s %s: must be one of %s", f->name, text, choice_names(f, names, sizeof names));
    case FRI_FLAG_LIST:
    case FRI_FLAG_BOOL:
    case FRI_FLAG_SET:
    case FRI_FLAG_ACT: break;
    }
    return fri_fail(FR_EINTERNAL, "--%s takes no value", f->name);
}

/* The number that a choice may stand for; INT64_MAX: there is none. */
static int64_t number_of(const fri_flag *f, const void *field) {
    if (f->kind == FRI_FLAG_INT) return *(const int64_t *)field;
    if (f->kind == FRI_FLAG_CHOICE) return *(const int *)field;
    return f->kind == FRI_FLAG_REAL && *(const double *)field < 0 ? (int64_t) * (const double *)field : INT64_MAX;
}

const char *fri_flag_text(const fri_flag *f, const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]) {
    const void *field = fri_flag_field(f, o);
    int64_t number = number_of(f, field), files = f->kind == FRI_FLAG_LIST ? ((const int64_t *)field)[1] : 0;
    const char *text = f->kind == FRI_FLAG_TEXT ? *(const char *const *)field : NULL;
    const fri_choice *word = choice_of_value(f, number);
    buf[0] = '\0';
    if (word != NULL)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%s", word->name);
    else if (f->kind == FRI_FLAG_BOOL || f->kind == FRI_FLAG_SET)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%s", *(const bool *)field ? "on" : "off");
    else if (f->kind == FRI_FLAG_INT && number != FR_TRAIN_AUTO)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%" PRId64, number);
    else if (f->kind == FRI_FLAG_REAL && number != FR_TRAIN_AUTO)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%g", *(const double *)field);
    else if (f->kind == FRI_FLAG_SIZE && *(const size_t *)field != SIZE_MAX)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%zu", *(const size_t *)field);
    else if (text != NULL)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%s", text);
    else if (files > 0)
        snprintf(buf, FRI_FLAG_TEXT_BYTES, "%" PRId64 " files", files);
    return buf;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

static int smallest(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Levenshtein's distance; words longer than the row count as far away. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 48 };
    int row[LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[m];
}

const char *fri_flag_nearest(const char *word, char buf[FRI_FLAG_TEXT_BYTES]) {
    int best = 1 + (int)(strlen(word) + 2) / 4; /* about one letter in four may be wrong */
    bool found = false;
    for (int i = -2; i < fri_flags_count; i++) {
        const char *name = i == -2 ? "help" : i == -1 ? "version" : fri_flags[i].name;
        for (int no = 0; no <= (i >= 0 && fri_flags[i].kind == FRI_FLAG_BOOL); no++) {
            char spelling[FRI_FLAG_TEXT_BYTES];
            snprintf(spelling, sizeof spelling, "--%s%s", no ? "no-" : "", name);
            int d = distance(word, spelling);
            if (d >= best) continue;
            best = d;
            found = true;
            memcpy(buf, spelling, sizeof spelling);
        }
    }
    return found ? buf : NULL;
}

/* The flag called name[0..n), and whether it was written with "no-". */
static const fri_flag *find(const char *name, size_t n, bool *no) {
    for (int i = 0; i < fri_flags_count; i++) {
        const fri_flag *f = &fri_flags[i];
        size_t length = strlen(f->name);
        *no = false;
        if (length == n && memcmp(f->name, name, n) == 0) return f;
        *no = true;
        if (f->kind == FRI_FLAG_BOOL && length + 3 == n && memcmp(name, "no-", 3) == 0 &&
            memcmp(name + 3, f->name, length) == 0)
            return f;
    }
    return NULL;
}

/* ---- the command line -------------------------------------------------------------------------------------- */

static fr_status unknown(const fr_train_program *p, const char *word, size_t n) {
    char name[FRI_FLAG_TEXT_BYTES], near[FRI_FLAG_TEXT_BYTES];
    if (strncmp(word, "-", 1) != 0)
        return fri_fail(
            FR_EINVAL,
            "unexpected argument '%s': a command ('%s --help' lists them) comes first, every other argument "
            "is a flag or a flag's value",
            word, p->name);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    if (strcmp(name, "--textbook") == 0) /* a flag until 0.1; this sentence stays for one minor version */
        return fri_fail(FR_EINVAL, "--textbook is no flag any more; build/benchmarks/textbook prints its figures");
    if (fri_flag_nearest(name, near) != NULL)
        return fri_fail(FR_EINVAL, "unknown flag '%s'; did you mean '%s'?", name, near);
    return fri_fail(FR_EINVAL, "unknown flag '%s'; '%s --help' lists all", name, p->name);
}

/* The words after argv[*i] that are no flags. */
static fr_status read_list(const fri_flag *f, int argc, char **argv, int *i, fr_train_opts *o) {
    int first = *i + 1;
    while (*i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0) ++*i;
    if (*i < first) return fri_fail(FR_EINVAL, "--%s needs a value: --%s %s", f->name, f->name, f->value);
    o->predict = (const char *const *)(argv + first);
    o->n_predict = *i + 1 - first;
    return FR_OK;
}

/* Reads argv[*i], and argv[*i + 1] if it is the value. */
static fr_status read_flag(const fr_train_program *p, int argc, char **argv, int *i, fr_train_opts *o) {
    const char *word = argv[*i], *equals = strchr(word, '=');
    size_t n = equals != NULL ? (size_t)(equals - word) : strlen(word);
    bool no = false;
    const fri_flag *f = n > 2 && strncmp(word, "--", 2) == 0 ? find(word + 2, n - 2, &no) : NULL;
    if (f == NULL) return unknown(p, word, n);
    if (f->kind == FRI_FLAG_BOOL || f->kind == FRI_FLAG_SET || f->kind == FRI_FLAG_ACT) {
        if (equals != NULL)
            return fri_fail(FR_EINVAL, "%.*s takes no value, but '%s' was given", (int)n, word, equals + 1);
        if (f->kind == FRI_FLAG_ACT)
            f->act(o);
        else
            *(bool *)((char *)o + f->offset) = !no;
        return FR_OK;
    }
    if (f->kind == FRI_FLAG_LIST && equals == NULL) return read_list(f, argc, argv, i, o);
    if (equals != NULL && f->kind == FRI_FLAG_LIST)
        return fri_fail(FR_EINVAL, "%.*s: its values follow it, '%.*s FILE ...', not '='", (int)n, word, (int)n, word);
    if (equals != NULL) return set(f, equals + 1, o);
    if (f->implied != NULL) return set(f, f->implied, o);
    if (*i + 1 >= argc) return fri_fail(FR_EINVAL, "%s needs a value: %s %s", word, word, f->value);
    if (strncmp(argv[*i + 1], "--", 2) == 0)
        return fri_fail(FR_EINVAL, "%s needs a value, but '%s' follows; a value that begins so is written %s=%s", word,
                        argv[*i + 1], word, argv[*i + 1]);
    *i += 1;
    return set(f, argv[*i], o);
}

/* A flag's value does not begin with two dashes, unless it is part of the flag's own word. */
bool fri_flag_given(const fri_flag *f, int argc, char *const *argv) {
    size_t n = strlen(f->name);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0) continue;
        word += 2;
        if (f->kind == FRI_FLAG_BOOL && strncmp(word, "no-", 3) == 0) word += 3;
        if (strncmp(word, f->name, n) == 0 && (word[n] == '\0' || word[n] == '=')) return true;
    }
    return false;
}

const fri_flag *fri_flag_find(const char *name) {
    bool no = false;
    return find(name, strlen(name), &no);
}

fr_status fri_flags_parse(const fr_train_program *p, int argc, char **argv, fr_train_opts *o, FILE *out) {
    const fri_command *command = argc > 1 ? fri_command_find(argv[1]) : NULL;
    bool epochs = false, steps = false;
    if (command != NULL && command->flag != NULL) argv[1] = (char *)command->flag; /* as if it had stood there */
    for (int i = command != NULL && command->flag == NULL ? 2 : 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fri_help_print(p, out);
            return FR_END;
        }
        if (strcmp(argv[i], "--version") == 0) {
            fprintf(out, "%s (frugal) %d.%d.%d\n", p->name, FR_VERSION_MAJOR, FR_VERSION_MINOR, FR_VERSION_PATCH);
            return FR_END;
        }
        epochs |= strncmp(argv[i], "--epochs", 8) == 0;
        steps |= strncmp(argv[i], "--steps", 7) == 0;
        fr_status s = read_flag(p, argc, argv, &i, o);
        if (s < 0) return s;
    }
    if (steps && !epochs) o->epochs = FR_TRAIN_AUTO; /* as many as the steps need */
    return FR_OK;
}
