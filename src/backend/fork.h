/* fork.h - what a child of fork may still do.
 *
 * A child has one thread: locks that other threads of its parent held stay locked in it, and the workers of loops are
 * gone (threads.c forgets its own). If the parent had allocated, a child can neither allocate (FR_EUSAGE) nor free. A
 * child whose parent had not used the library has no limits. */
#ifndef FRI_BACKEND_FORK_H
#define FRI_BACKEND_FORK_H

#include <frugal/base.h>

/* Starts to distinguish child processes from the parent. */
void fri_fork_watch(void);
/* True in a child of a parent that called fri_fork_watch. */
bool fri_forked(void);
fr_status fri_fork_refuses(void); /* FR_EUSAGE in such a child */

#endif
