/* plan_switches.h - the table of memory switches (fr_plan_switches in session.h), for trainers. */
#ifndef FRI_SESSION_PLAN_SWITCHES_H
#define FRI_SESSION_PLAN_SWITCHES_H

#include "session/session.h"

#include <frugal/session.h>

/* Fills the rows of fr_plan_switches. c: the config of the command, before its run is prepared. */
fr_status fri_plan_switches(const fri_config *c, const fr_plan_switches_opts *opts, fr_plan_switch_row *rows,
                            int64_t room, int64_t *n);

/* session.c: checks a session's options; fills *program and the config, which borrow all that they get. */
fr_status fri_session_check(const fr_session_opts *o);
fr_status fri_session_configure(const fr_session_opts *o, fr_dataset *train, fr_dataset *test,
                                fr_train_program *program, fri_config *out);

#endif
