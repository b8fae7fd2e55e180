/* progress.h - the terminal's view of a run. */
#ifndef FRI_CLI_PROGRESS_H
#define FRI_CLI_PROGRESS_H

#include "session/views.h"

extern const fri_view fri_progress_view;

/* Prints the lines about the arena. */
void fri_progress_arena(const fri_session *r);
/* "2 min 13 s", "4.2 s", "1 h 5 min". Returns buf. */
enum { FRI_DURATION_TEXT = 40 };
const char *fri_duration_text(double seconds, char buf[FRI_DURATION_TEXT]);

#endif
