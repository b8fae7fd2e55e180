/* state.h - the files of a run: states and weights. */
#ifndef FRI_SESSION_STATE_H
#define FRI_SESSION_STATE_H

#include "io/session_files.h"
#include "session/session.h"

/* state.c: --save, --resume, --weights, --export. Before training, fri_saving_check tests that all paths can be
 * written and fri_resume_find looks for a state. fri_resume needs the loader and sets r->step. fri_resume_dry
 * allocates on meta as resuming does. */
fr_status fri_saving_check(fri_run *r);
fr_status fri_resume_find(fri_config *c); /* sets c->resume.path */
fr_status fri_resume(fri_run *r);
fr_status fri_resume_dry(fri_run *r);
/* A save that fails for lack of disk space or memory is only reported, except after the last step. */
bool fri_save_is_due(const fri_run *r, bool last);
fr_status fri_save(fri_run *r, bool last);
/* head.c. fri_weights_begin loads --weights, on meta only compares; tells: notes a last layer that starts fresh, as
 * fri_weights_check does before a plan or a run.
 * fri_weights_can_be_written reports what would stop fri_weights_write after the training. */
void fri_head_rows_find(const fri_run *r, fri_head_rows *out); /* rows of the file's last layer, by names of classes */
fr_status fri_weights_begin(fri_run *r, bool tells);
fr_status fri_weights_check(const fri_run *r);
fr_status fri_weights_can_be_written(fri_run *r);
fr_status fri_weights_end(fri_run *r);
fr_status fri_weights_write(fri_run *r, const char *path); /* writes the current model */

#endif
