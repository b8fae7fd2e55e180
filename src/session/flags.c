/* flags.c - flags by name, and their values in words. */
#include "session/flags.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(sizeof(fr_device) == sizeof(int) && sizeof(fr_dtype) == sizeof(int), "choices are stored as int");

static const fri_choice *choice_of_value(const fri_flag *f, int64_t value) {
    for (const fri_choice *c = f->choices; c != NULL && c->name != NULL; c++)
        if (c->value == value) return c;
    return NULL;
}

/* The number that a choice may stand for; INT64_MAX: there is none. */
static int64_t number_of(const fri_flag *f, const void *field) {
    if (f->kind == FRI_FLAG_INT) return *(const int64_t *)field;
    if (f->kind == FRI_FLAG_CHOICE) return *(const int *)field;
    return f->kind == FRI_FLAG_REAL && *(const double *)field < 0 ? (int64_t) * (const double *)field : INT64_MAX;
}

/* The words of a list, or how many there are where they are longer. */
static void join(const char *const *word, int64_t n, char buf[FRI_FLAG_TEXT_BYTES]) {
    size_t at = 0;
    for (int64_t i = 0; i < n && at < FRI_FLAG_TEXT_BYTES; i++)
        at += (size_t)snprintf(buf + at, FRI_FLAG_TEXT_BYTES - at, "%s%s", i > 0 ? " " : "", word[i]);
    if (at >= FRI_FLAG_TEXT_BYTES) snprintf(buf, FRI_FLAG_TEXT_BYTES, "%" PRId64 " names", n);
}

const char *fri_flag_text(const fri_flag *f, const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]) {
    const void *field = fri_flag_field(f, o);
    int64_t number = number_of(f, field), words = f->kind == FRI_FLAG_LIST ? ((const int64_t *)field)[1] : 0;
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
    else if (words > 0)
        join(*(const char *const *const *)field, words, buf);
    return buf;
}

const fri_flag *fri_flag_named(const char *name, size_t n, bool *no) {
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

const fri_flag *fri_flag_find(const char *name) {
    bool no = false;
    return fri_flag_named(name, strlen(name), &no);
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
