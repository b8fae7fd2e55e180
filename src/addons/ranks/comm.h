/* comm.h - the ranks of a run: who they are, and the lane on which bytes travel between them.
 *
 * The lane is one thread with a queue. It runs jobs in the order in which they were queued, which is the same on all
 * ranks, while the program computes; only jobs call the engine (fr_engine in frugal/ranks.h). The first
 * failure stays: every later job and wait answers it. */
#ifndef FRI_RANKS_COMM_H
#define FRI_RANKS_COMM_H

#include "addons/ranks/links.h"

typedef struct fr_comm fr_comm;

/* Opens the engine of the program's launcher; *out stays NULL without a launcher. Waits fail with FR_EPEER after
 * `seconds`. */
fr_status fri_comm_open(double seconds, fr_comm **out);
/* Communicator on an open engine; closes the engine, on failure too. */
fr_status fri_comm_on(const fr_engine *engine, double seconds, fr_comm **out);
/* Limit of later waits, in seconds above 0: uneven work (files, the first step) needs a longer wait than a step. */
fr_status fri_comm_timeout_set(fr_comm *c, double seconds);
/* Rank `rank` of `size` without transfers: for plans. */
fr_status fri_comm_dry(int rank, int size, fr_comm **out);
void fri_comm_release(fr_comm **c);

int fri_comm_rank(const fr_comm *c); /* 0 of NULL */
int fri_comm_size(const fr_comm *c); /* 1 of NULL */
bool fri_comm_is_dry(const fr_comm *c);
const char *fri_comm_name(const fr_comm *c);           /* of the engine */
const char *fri_comm_host(const fr_comm *c, int rank); /* 0 <= rank < size; NULL of NULL */

/* Runs on the lane, which keeps a failure's sentence. */
typedef fr_status fri_comm_job(void *ctx, fr_comm *c);
/* *ticket is for wait. ctx is the job's until then. */
fr_status fri_comm_queue(fr_comm *c, fri_comm_job *job, void *ctx, uint64_t *ticket);
/* Waits for the job with the ticket and all earlier jobs. */
fr_status fri_comm_wait(fr_comm *c, uint64_t ticket);

/* Exchange of an fr_engine, in a job. */
fr_status fri_comm_exchange(fr_comm *c, fr_pieces out, fr_pieces in);
/* Wait for the links, in a job: asks until `over` does not answer FR_END, and returns the answer; FR_EPEER as of an
 * exchange. */
fr_status fri_comm_until(fr_comm *c, fr_status (*over)(void *ctx), void *ctx);
/* fri_comm_agree in a job. */
fr_status fri_comm_agree_here(fr_comm *c, const void *mine, size_t bytes, void *all);

/* Links, closed by the lane before the engine and after a failure; NULL: none. */
void fri_comm_links_set(fr_comm *c, const fri_links *links, const char *name);
const fri_links *fri_comm_links(const fr_comm *c);

/* Not in a job: all[i] becomes rank i's `mine`, of `bytes` each. Waits for earlier jobs. */
fr_status fri_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all);

/* Ends the run for all ranks with this sentence; jobs that wait fail. *first (or NULL) is rank 0's sentence, "" if it
 * has said none in time; borrowed from c. */
void fri_comm_shutdown(fr_comm *c, const char *why, const char **first);

/* Uses NCCL, if available on all ranks, for later transfers between devices, and adds NCCL to the engine's name; else
 * bytes go through host memory. *bytes: device memory of NCCL, or 0. Not for fri_comm_dry. */
fr_status fri_comm_connect(fr_comm *c, fr_device device, size_t *bytes);
/* The launcher's rank and size, without opening the engine. Without a launcher: rank 0 of 1. FR_EUSAGE: as open. */
fr_status fri_comm_launched(int *rank, int *size);
/* The rank's share of `threads`, at least 1: all if the launcher has bound the rank to cores. */
int fri_comm_threads(int threads);

#endif
