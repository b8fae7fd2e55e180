/* flags.h - the table of flags (fr_flag in train.h). Command-line parsing, --help, reports, states and error
 * sentences are driven by the table; a program's own flags are listed after the trainers'.
 *
 * To add a flag, add a field with a default to fr_train_opts and a row to table.c. A row without help text is a field
 * without a flag: its range is checked, and states and reports include it. */
#ifndef FRI_SESSION_FLAGS_H
#define FRI_SESSION_FLAGS_H

#include <frugal/train.h>
#include <stdio.h>

enum { FRI_FLAGS_MOST = 192 };
extern const fr_flag fri_flags[];
extern const int fri_flags_count;

/* FR_EINVAL if one of the program's own flags is malformed or its name is taken. */
fr_status fri_flags_check(const fr_train_program *p);

/* Row with this name (without dashes) among the flags common to all programs and fields without a flag; or NULL. */
const fr_flag *fri_flag_find(const char *name);
/* True if the flag or its "no-" form is among the words of a parsed command. f may be NULL. */
bool fri_flag_given(const fr_flag *f, int argc, char *const *argv);

/* True if the flag has different values in a and b. */
bool fri_flag_differs(const fr_flag *f, const fr_train_opts *a, const fr_train_opts *b);
/* "--no-encode", "--checkpoint-segments 4", "--amp=bf16": the flag with its value in o. Returns words. */
enum { FRI_FLAG_WORDS = 2 * FR_FLAG_TEXT_BYTES };
const char *fri_flag_words(const fr_flag *f, const fr_train_opts *o, char words[FRI_FLAG_WORDS]);

/* Writes "224", or "480x640", of the images. */
const char *fri_image_text(const fr_train_opts *o, char buf[FR_FLAG_TEXT_BYTES]);

/* fields.c, for programs that set fields instead of flags: checks that options are in range; replaces flags in the
 * current error sentence by fields ("--keep-last" becomes "train.data.keep_last") and returns s. */
fr_status fri_options_check(const fr_train_opts *o);
fr_status fri_speak_of_fields(fr_status s);

static inline const void *fri_flag_field(const fr_flag *f, const fr_train_opts *o) {
    return f->own != NULL ? f->own : (const char *)o + f->offset;
}

#endif
