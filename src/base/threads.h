/* threads.h - how many threads the process may start, and the team for loops. */
#ifndef FRI_BASE_THREADS_H
#define FRI_BASE_THREADS_H

#include <stdbool.h>

/* Starts up to n concurrent idle threads, ends all, and returns the number. OpenMP's run time ends the process if a
 * thread of a team cannot start, so users of a team must ask first. */
int fri_threads_startable(int n);

/* Gives this thread its default number of threads, if neither this call nor fr_threads_set did: FRUGAL_THREADS, else
 * OMP_NUM_THREADS, else the processors that the process may use (its affinity, and the quota of its container). */
void fri_threads_choose(void);

/* Idle threads of OpenMP sleep at once (on), or wait for work in a loop, faster on processors without other programs.
 * fri_threads_choose switches by the load. */
void fri_threads_sleep(bool on);
/* True if other programs use the processors: the system preempted the process more than 150 times per second of
 * processor time, or 80 times if the processors were crowded before. */
bool fri_threads_crowded(bool crowded, double seconds, long preempted);

enum { FRI_THREADS_MOST = 4096 };

#endif
