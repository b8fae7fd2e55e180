/* flags.h - the one table of flags, by which the command line is read, --help written, and options named in reports,
 * states and sentences.
 *
 * A new flag is a field in fr_train_opts with its default, and one line in table.c. */
#ifndef FRI_SESSION_FLAGS_H
#define FRI_SESSION_FLAGS_H

#include <frugal/train.h>
#include <stdio.h>

typedef enum fri_flag_kind {
    FRI_FLAG_BOOL,   /* --name and --no-name; a bool */
    FRI_FLAG_SET,    /* --name alone; a bool */
    FRI_FLAG_INT,    /* int64_t */
    FRI_FLAG_REAL,   /* double */
    FRI_FLAG_SIZE,   /* size_t */
    FRI_FLAG_CHOICE, /* an enum, or any int */
    FRI_FLAG_TEXT,   /* const char * */
    FRI_FLAG_LIST,   /* all words up to the next flag: const char *const *, and an int64_t behind it */
    FRI_FLAG_ACT,    /* calls act; stores nothing */
} fri_flag_kind;

typedef enum fri_flag_group {
    FRI_GROUP_MODEL,
    FRI_GROUP_DATA,
    FRI_GROUP_TRAINING,
    FRI_GROUP_DEVICE,
    FRI_GROUP_MEMORY,
    FRI_GROUP_FILES,
    FRI_GROUP_OUTPUT,
    FRI_GROUP_COUNT,
} fri_flag_group;

/* What is done to the file or folder that a TEXT names. */
typedef enum fri_flag_file { FRI_FILE_NONE, FRI_FILE_WRITTEN, FRI_FILE_READ } fri_flag_file;

typedef struct fri_choice {
    const char *name; /* NULL ends the list */
    int value;
} fri_choice;

typedef struct fri_flag {
    const char *name; /* without dashes */
    fri_flag_kind kind;
    fri_flag_group group;
    size_t offset;       /* in fr_train_opts */
    const char *value;   /* what stands for the value in --help: "N" */
    const char *help;    /* sentences; the default and the choices are added */
    const char *brief;   /* its line in the short --help; NULL: it is in the long one only */
    const char *unset;   /* the default in words, where the field's is FR_TRAIN_AUTO, NULL or SIZE_MAX */
    const char *implied; /* the value of the flag alone; others are written --name=VALUE. NULL: a value must follow */
    int64_t least, most; /* INT */
    double real_least, below;  /* REAL: real_least <= value < below */
    const fri_choice *choices; /* CHOICE; INT and REAL: words beside the numbers */
    void (*act)(fr_train_opts *o);
    fri_flag_file file;  /* two that are written, or one written and one read, must differ (cli/places.c) */
    bool course;         /* another value is another training: a resumed run names it */
    const char *lacking; /* a course flag newer than some states: what those were made with */
} fri_flag;

enum { FRI_FLAGS_MOST = 128 };
extern const fri_flag fri_flags[];
extern const int fri_flags_count;
extern const char *const fri_flag_group_names[FRI_GROUP_COUNT];

/* The flag of that name (without dashes), or NULL. */
const fri_flag *fri_flag_find(const char *name);
/* The same of name[0..n), or of its "no-" form: then *no. */
const fri_flag *fri_flag_named(const char *name, size_t n, bool *no);

/* Is the flag, or its "no-" form, among the words of a command that fri_flags_parse took? */
bool fri_flag_given(const fri_flag *f, int argc, char *const *argv);

/* The flag's value in o as one would write it after the flag; "" if it is unset. Returns buf. */
enum { FRI_FLAG_TEXT_BYTES = 64 };
const char *fri_flag_text(const fri_flag *f, const fr_train_opts *o, char buf[FRI_FLAG_TEXT_BYTES]);

static inline const void *fri_flag_field(const fri_flag *f, const fr_train_opts *o) {
    return (const char *)o + f->offset;
}

#endif
