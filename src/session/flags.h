/* flags.h - the table of flags (fr_flag in train.h), by which the command line is read, --help written, and options
 * named in reports, states and sentences; a program's own flags come after it.
 *
 * A new flag is a field in fr_train_opts with its default, and one line in table.c. A row without a help is a field
 * that no flag sets: its range is checked, states and reports name it. */
#ifndef FRI_SESSION_FLAGS_H
#define FRI_SESSION_FLAGS_H

#include <frugal/train.h>
#include <stdio.h>

enum { FRI_FLAGS_MOST = 192 };
extern const fr_flag fri_flags[];
extern const int fri_flags_count;
extern const char *const fri_flag_group_names[FR_GROUP_COUNT];

/* All flags of a program (NULL: those of all programs), in their order: the trainers', those of add-ons, the program's
 * own. Returns the one after f, after NULL the first one, after the last NULL. */
const fr_flag *fri_flag_next(const fr_train_program *p, const fr_flag *f);
/* FR_EINVAL for a flag of the program's own that cannot be one. */
fr_status fri_flags_check(const fr_train_program *p);

/* FR_EUNSUPPORTED with the name of its add-on: name[0..n) is a flag of one that was not built. Else FR_OK. */
fr_status fri_flag_missing(const char *name, size_t n);

/* A command line can set it. */
static inline bool fri_flag_on_line(const fr_flag *f) {
    return f->help != NULL;
}
/* The row of all programs with that name (without dashes), also one without a flag, or NULL. */
const fr_flag *fri_flag_find(const char *name);
/* A flag of name[0..n), or of its "no-" form: then *no. */
const fr_flag *fri_flag_named(const fr_train_program *p, const char *name, size_t n, bool *no);

/* Is the flag (NULL: none), or its "no-" form, among the words of a command that fri_flags_parse took? */
bool fri_flag_given(const fr_flag *f, int argc, char *const *argv);

/* The flag's value in o as one would write it after the flag; "" if it is unset. Returns buf. */
enum { FRI_FLAG_TEXT_BYTES = 64 };
const char *fri_flag_text(const fr_flag *f, const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]);

/* FR_EINVAL: the number (INT, REAL, SIZE) is out of the flag's range. text: the value as it was written. */
fr_status fri_flag_in_range(const fr_flag *f, const void *number, const char *text);

/* fields.c, for programs that set fields: the options are in the ranges of their flags; a sentence about flags
 * ("--keep-last") becomes one about fields ("train.keep_last"), s is returned. */
fr_status fri_options_check(const fr_train_opts *o);
fr_status fri_speak_of_fields(fr_status s);

static inline const void *fri_flag_field(const fr_flag *f, const fr_train_opts *o) {
    return f->own != NULL ? f->own : (const char *)o + f->offset;
}
static inline void *fri_flag_place(const fr_flag *f, fr_train_opts *o) {
    return f->own != NULL ? f->own : (char *)o + f->offset;
}

#endif
