/* threads.h - how many threads the process may start, and the team that loops run on. */
#ifndef FRI_BASE_THREADS_H
#define FRI_BASE_THREADS_H

/* Starts up to n threads that live at the same time and do nothing, and returns how many that were; all have ended by
 * then. OpenMP's run time ends the process when a thread of its team cannot be started, so whoever is about to use a
 * team asks first. */
int fri_threads_startable(int n);

/* Gives this thread its default number of threads, if neither this call nor fr_threads_set did: FRUGAL_THREADS, else
 * OMP_NUM_THREADS, else the processors that the process may use (its affinity, and the quota of its container). */
void fri_threads_choose(void);

enum { FRI_THREADS_MOST = 4096 };

#endif
