/* parse.c - see shell.h. */
#include "cli/shell.h"

#include "cli/size.h"

#include <frugal/addon.h>
#include <frugal/try.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Choice with the name `text`, or NULL. */
static const fr_flag_choice *find_choice(const fr_flag *f, const char *text) {
    for (const fr_flag_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if (strcmp(c->name, text) == 0) return c;
    return NULL;
}

/* Lists the choices: "sqrt, log, each". */
static const char *choice_names(const fr_flag *f, char *names, size_t bytes) {
    size_t at = 0;
    names[0] = '\0';
    for (const fr_flag_choice *c = f->choices; c != NULL && c->name != NULL; c++) {
        int n = snprintf(names + at, bytes - at, "%s%s", at > 0 ? ", " : "", c->name);
        if (n > 0 && (size_t)n < bytes - at) at += (size_t)n;
    }
    return names;
}

static fr_status not_a_number(const fr_flag *f, const char *text, const char *what) {
    char names[256];
    if (f->choices == NULL) return fr_fail(FR_EINVAL, "--%s %s: not %s", f->name, text, what);
    return fr_fail(FR_EINVAL, "--%s %s: neither %s nor one of %s", f->name, text, what,
                   choice_names(f, names, sizeof names));
}

static fr_status set_int(const fr_flag *f, const char *text, int64_t *to) {
    if (!fri_parse_int(text, to)) return not_a_number(f, text, "a whole number");
    return fr_flag_in_range(f, to, text);
}

/* "480x640", or one number for both. */
static fr_status set_sides(const fr_flag *f, const char *text, int64_t side[2]) {
    char height[32];
    const char *x = strchr(text, 'x');
    const size_t n = x != NULL ? (size_t)(x - text) : strlen(text);
    snprintf(height, sizeof height, "%.*s", (int)n, text);
    side[1] = FR_TRAIN_AUTO;
    if (n >= sizeof height || !fri_parse_int(height, &side[0]) || (x != NULL && !fri_parse_int(x + 1, &side[1])))
        return not_a_number(f, text, "a whole number, or two as in 480x640");
    if (x != NULL && side[1] < f->least) side[0] = 0; /* out of range, as -1 would be no width */
    return fr_flag_in_range(f, side, text);
}

static fr_status set_real(const fr_flag *f, const char *text, double *to) {
    if (!fri_parse_real(text, to)) return not_a_number(f, text, "a number");
    return fr_flag_in_range(f, to, text);
}

static fr_status set_size(const fr_flag *f, const char *text, size_t *to) {
    if (!fri_parse_size(text, to))
        return fr_fail(FR_EINVAL, "--%s %s: not a size such as 1048576, 512MiB or 2GiB", f->name, text);
    return fr_flag_in_range(f, to, text);
}

static fr_status set_text(const fr_flag *f, const char *text, const char **to) {
    *to = text;
    if (text[0] != '\0' || f->implied != NULL) return FR_OK;
    return fr_fail(FR_EINVAL, "--%s: the value is empty; give %s", f->name, f->value);
}

static fr_status set_value(const fr_flag *f, const char *text, fr_train_opts *o) {
    void *to = fr_flag_place(f, o);
    const fr_flag_choice *word = find_choice(f, text);
    char names[256];
    if (f->act != NULL) f->act(o);
    switch (f->kind) {
    case FR_FLAG_INT: return word == NULL ? set_int(f, text, to) : (*(int64_t *)to = word->value, FR_OK);
    case FR_FLAG_SIDES: return set_sides(f, text, to);
    case FR_FLAG_REAL: return word == NULL ? set_real(f, text, to) : (*(double *)to = word->value, FR_OK);
    case FR_FLAG_SIZE: return set_size(f, text, to);
    case FR_FLAG_TEXT: return set_text(f, text, to);
    case FR_FLAG_CHOICE:
        if (word != NULL) return *(int *)to = word->value, FR_OK;
        return fr_fail(FR_EINVAL, "--%s %s: must be one of %s", f->name, text, choice_names(f, names, sizeof names));
    case FR_FLAG_LIST:
    case FR_FLAG_BOOL:
    case FR_FLAG_SET:
    case FR_FLAG_ACT: break;
    }
    return fr_fail(FR_EINTERNAL, "--%s takes no value", f->name);
}

/* ---- names ------------------------------------------------------------------------------------------------- */

/* Flags of other programs, used as hints for unknown flags and not accepted as aliases. */
static const struct {
    const char *word, *flag;
} elsewhere[] = {{"--learning-rate", "--lr"}, {"--gpu", "--device"}, {"--budget", "--memory-budget"}};

/* Stores the spelling in buf if it is closer to `word` than *best. */
static void keep_nearer(const char *word, const char *no, const char *name, int *best, char buf[FR_FLAG_TEXT_BYTES]) {
    char spelling[FR_FLAG_TEXT_BYTES];
    snprintf(spelling, sizeof spelling, "--%s%s", no, name);
    int d = fr_text_distance(word, spelling);
    if (d >= *best) return;
    *best = d;
    memcpy(buf, spelling, sizeof spelling);
}

const char *fri_flag_nearest(const fr_train_program *p, const char *word, char buf[FR_FLAG_TEXT_BYTES]) {
    int best = 1 + (int)(strlen(word) + 2) / 4; /* tolerate an error in about every fourth letter */
    buf[0] = '\0';
    keep_nearer(word, "", "help", &best, buf);
    keep_nearer(word, "", "version", &best, buf);
    for (const fr_flag *f = fr_flag_next(p, NULL); f != NULL; f = fr_flag_next(p, f)) {
        if (f->help == NULL) continue;
        keep_nearer(word, "", f->name, &best, buf);
        if (f->kind == FR_FLAG_BOOL) keep_nearer(word, "no-", f->name, &best, buf);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        int d = fr_text_distance(word, elsewhere[i].word);
        if (d >= best) continue;
        best = d;
        snprintf(buf, FR_FLAG_TEXT_BYTES, "%s", elsewhere[i].flag);
    }
    return buf[0] != '\0' ? buf : NULL;
}

fr_status fri_flag_missing(const char *name, size_t n) {
    static const struct {
        const char *flag, *addon;
    } optional[] = {{"track", "views"}, {"track-lines", "views"}, {"memory-plot", "views"},
                    {"trace", "views"}, {"ranks", "ranks"},       {"sync-batch-norm", "ranks"}};
    char what[FR_FLAG_TEXT_BYTES];
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strlen(optional[i].flag) == n && memcmp(optional[i].flag, name, n) == 0 &&
            fr_addon_find(optional[i].addon) == NULL) {
            snprintf(what, sizeof what, "--%s", optional[i].flag);
            return fr_addon_missing(what, optional[i].addon);
        }
    return FR_OK;
}

/* ---- the command line -------------------------------------------------------------------------------------- */

static fr_status unknown_argument(const fr_train_program *p, const char *word, size_t n) {
    char name[FR_FLAG_TEXT_BYTES], near[FR_FLAG_TEXT_BYTES];
    if (strncmp(word, "-", 1) != 0)
        return fr_fail(FR_EINVAL,
                       "unexpected argument '%s': a command ('%s --help' lists them) comes first, every other argument "
                       "is a flag or a flag's value",
                       word, p->name);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    if (fri_flag_nearest(p, name, near) != NULL)
        return fr_fail(FR_EINVAL, "unknown flag '%s'; did you mean '%s'?", name, near);
    return fr_fail(FR_EINVAL, "unknown flag '%s'; '%s --help all' lists all", name, p->name);
}

/* Reads the words after argv[*i] up to the next flag. */
static fr_status read_list(const fr_flag *f, int argc, char **argv, int *i, fr_train_opts *o) {
    int first = *i + 1;
    while (*i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0) ++*i;
    if (*i < first) return fr_fail(FR_EINVAL, "--%s needs a value: --%s %s", f->name, f->name, f->value);
    void *field = fr_flag_place(f, o);
    *(const char *const **)field = (const char *const *)(argv + first);
    ((int64_t *)field)[1] = *i + 1 - first;
    return FR_OK;
}

/* Reads argv[*i], and argv[*i + 1] if that is the value. */
static fr_status read_flag(const fr_train_program *p, int argc, char **argv, int *i, fr_train_opts *o) {
    const char *word = argv[*i], *equals = strchr(word, '=');
    size_t n = equals != NULL ? (size_t)(equals - word) : strlen(word);
    bool no = false;
    const fr_flag *f = n > 2 && strncmp(word, "--", 2) == 0 ? fr_flag_named(p, word + 2, n - 2, &no) : NULL;
    if (f == NULL && n > 2 && strncmp(word, "--", 2) == 0) FRI_TRY(fri_flag_missing(word + 2, n - 2));
    if (f == NULL) return unknown_argument(p, word, n);
    if (f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET || f->kind == FR_FLAG_ACT || no) {
        if (equals != NULL)
            return fr_fail(FR_EINVAL, "%.*s takes no value, but '%s' was given", (int)n, word, equals + 1);
        if (f->kind == FR_FLAG_ACT)
            f->act(o);
        else if (f->kind == FR_FLAG_CHOICE)
            return set_value(f, "off", o);
        else
            *(bool *)fr_flag_place(f, o) = !no;
        return FR_OK;
    }
    if (f->kind == FR_FLAG_LIST && equals == NULL) return read_list(f, argc, argv, i, o);
    if (equals != NULL && f->kind == FR_FLAG_LIST)
        return fr_fail(FR_EINVAL, "%.*s: write its values without '=': '%.*s FILE ...'", (int)n, word, (int)n, word);
    if (equals != NULL) return set_value(f, equals + 1, o);
    const bool word_follows = f->kind == FR_FLAG_CHOICE && *i + 1 < argc && find_choice(f, argv[*i + 1]) != NULL;
    if (f->implied != NULL && !word_follows) return set_value(f, f->implied, o);
    if (*i + 1 >= argc) return fr_fail(FR_EINVAL, "%s needs a value: %s %s", word, word, f->value);
    if (strncmp(argv[*i + 1], "--", 2) == 0)
        return fr_fail(FR_EINVAL, "%s needs a value, but '%s' follows; a value that begins so is written %s=%s", word,
                       argv[*i + 1], word, argv[*i + 1]);
    *i += 1;
    return set_value(f, argv[*i], o);
}

static fr_status print_help(const fr_train_program *p, const char *what, FILE *out) {
    if (what != NULL && strcmp(what, "all") == 0)
        fri_help_print(p, out);
    else
        fri_help_brief(p, out);
    return FR_END;
}

static const fri_command *find_command(const char *name) {
    for (const fri_command *c = fri_commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

fr_status fri_flags_parse(const fr_train_program *p, int argc, char **argv, fr_train_opts *o, FILE *out) {
    const fri_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    bool epochs = false, steps = false;
    if (command != NULL && command->flag != NULL) argv[1] = (char *)command->flag; /* treat the command as its flag */
    for (int i = command != NULL && command->flag == NULL ? 2 : 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_help(p, argv[i + 1], out);
        if (strcmp(argv[i], "--version") == 0) {
            fprintf(out, "%s (frugal) %s\n", p->name, fr_version());
            return FR_END;
        }
        epochs |= strncmp(argv[i], "--epochs", 8) == 0;
        steps |= strncmp(argv[i], "--steps", 7) == 0;
        FRI_TRY(read_flag(p, argc, argv, &i, o));
    }
    if (steps && !epochs) o->optim.epochs = FR_TRAIN_AUTO; /* the number of steps decides */
    return FR_OK;
}
