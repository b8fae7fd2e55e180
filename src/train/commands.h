/* commands.h - what a trainer can be asked for: the table of commands.
 *
 * A command is the first word of the command line, "train_vgg plan", and a flag of the same name, --plan, which asks
 * for the same. Without any a trainer trains. */
#ifndef FRI_TRAIN_COMMANDS_H
#define FRI_TRAIN_COMMANDS_H

#include "train/run.h"

typedef struct fri_command {
    const char *name, *flag; /* "plan", "--plan"; flag NULL: it is what is done without one */
    const char *operand;     /* "FILE"; NULL: none follows */
    const char *help;
    bool (*asked)(const fr_train_opts *o); /* by the word, by the flag, or as what is done without either */
    fr_status (*run)(fri_run *r);          /* NULL: another command does it, told by the flag */
    bool advises;                          /* running out of memory is followed by advice */
} fri_command;

extern const fri_command fri_commands[];
extern const int fri_commands_count;

/* The command of that name, or NULL. */
const fri_command *fri_command_find(const char *name);

/* Runs what was asked for, in the table's order. *advises: of the command that ran last. */
fr_status fri_commands_run(fri_run *r, bool *advises);

#endif
