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

/* Idle threads of OpenMP sleep at once, or wait for work in a loop, which is faster on processors that no other program
 * uses. fri_threads_choose switches by the load. */
void fri_threads_sleep(bool on);
/* Whether others use the processors, by the times that the system took them away from this process within so many
 * seconds of processor time: more than 50 per second; once crowded, more than 20. */
bool fri_threads_crowded(bool crowded, double seconds, long preempted);

enum { FRI_THREADS_MOST = 4096 };

#endif
