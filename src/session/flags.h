/* flags.h - the table of flags (fr_flag in train.h). Command-line parsing, --help, reports, states and error
 * sentences are driven by the table; a program's own flags are listed after the trainers'.
 *
 * To add a flag, add a field with a default to fr_train_opts and a row to table.c. A row without help text is a field
 * without a flag: its range is checked, and states and reports include it. */
#ifndef FRI_SESSION_FLAGS_H
#define FRI_SESSION_FLAGS_H

#include <frugal/train.h>
#include <stdio.h>

#pragma GCC visibility push(default) /* what frugal-cli calls: frugal.map chooses */

enum { FRI_FLAGS_MOST = 192 };
extern const fr_flag fri_flags[];
extern const int fri_flags_count;
extern const char *const fri_flag_group_names[FR_GROUP_COUNT];

/* Iterates over all flags of program p (NULL: only flags common to all programs): the trainers', the add-ons', then
 * the program's own. Returns the first flag for f = NULL, else the flag after f; NULL after the last. */
const fr_flag *fri_flag_next(const fr_train_program *p, const fr_flag *f);
/* FR_EINVAL if one of the program's own flags is malformed or its name is taken. */
fr_status fri_flags_check(const fr_train_program *p);

/* FR_EUNSUPPORTED with the add-on's name if name[0..n) is a flag of an add-on that was not built, else FR_OK. */
fr_status fri_flag_missing(const char *name, size_t n);

/* True if a command line can set the flag. */
static inline bool fri_flag_on_line(const fr_flag *f) {
    return f->help != NULL;
}
/* Row with this name (without dashes) among the flags common to all programs and fields without a flag; or NULL. */
const fr_flag *fri_flag_find(const char *name);
/* Flag called name[0..n); *no: `name` is the flag's "no-" form. */
const fr_flag *fri_flag_named(const fr_train_program *p, const char *name, size_t n, bool *no);

/* True if the flag or its "no-" form is among the words of a parsed command. f may be NULL. */
bool fri_flag_given(const fr_flag *f, int argc, char *const *argv);

/* Value of the flag in o as text for a command line; "" if unset. Returns buf. */
enum { FRI_FLAG_TEXT_BYTES = 64 };
const char *fri_flag_text(const fr_flag *f, const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]);
/* Writes "224", or "480x640", of the images. */
const char *fri_image_text(const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]);

/* FR_EINVAL if the number (INT, REAL, SIZE) is out of the flag's range. text: the value as the user wrote it. */
fr_status fri_flag_in_range(const fr_flag *f, const void *number, const char *text);

/* fields.c, for programs that set fields instead of flags: checks that options are in range; replaces flags in the
 * current error sentence by fields ("--keep-last" becomes "train.data.keep_last") and returns s. */
fr_status fri_options_check(const fr_train_opts *o);
fr_status fri_speak_of_fields(fr_status s);

static inline const void *fri_flag_field(const fr_flag *f, const fr_train_opts *o) {
    return f->own != NULL ? f->own : (const char *)o + f->offset;
}
static inline void *fri_flag_place(const fr_flag *f, fr_train_opts *o) {
    return f->own != NULL ? f->own : (char *)o + f->offset;
}

#pragma GCC visibility pop
#endif
