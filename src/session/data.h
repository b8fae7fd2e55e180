/* data.h - the data of a run: data sets, loaders, batches, and what ranks exchange. */
#ifndef FRI_SESSION_DATA_H
#define FRI_SESSION_DATA_H

#include "session/session.h"

/* data.c: opens both splits and determines counts, classes and normalization. */
fr_status fri_data_open(fri_config *c, fr_dataset **train, fr_dataset **test);
void fri_data_loader_opts(const fri_config *c, int split, fr_loader_opts *l);
fr_status fri_data_loader(const fri_config *c, int split, fr_dataset *data, fr_loader **out);

/* batch.c: creates r->input for the batches of this run. */
fr_status fri_session_input(fri_run *r);

/* ranks.c. Numbers of a batch, which ranks exchange in the order of the batches. */
typedef struct fri_batch_numbers {
    double loss, correct, targets, images;
    double metric[FR_METRICS_MAX]; /* the program's own metrics, in an evaluation */
} fri_batch_numbers;
/* Gathers the numbers of all ranks' batches. mine: n batches of this rank (0 <= n <= most). *all: malloced [most *
 * ranks]; batch b is number b / ranks of rank b % ranks, and missing batches have 0 targets. */
fr_status fri_ranks_numbers(const fri_run *r, const fri_batch_numbers *mine, int64_t n, int64_t most,
                            fri_batch_numbers **all);
/* Sets the timeout for other ranks: FRUGAL_PEER_TIMEOUT during a step, else FRI_LONG_TIMEOUT times as long. */
enum { FRI_LONG_TIMEOUT = 5 };
fr_status fri_ranks_timeout(const fri_run *r, bool step);
/* Checks that all ranks are at `step`, and spreads a signal that one rank received. */
fr_status fri_ranks_check_step(fri_run *r, int64_t step);
/* FR_EPEER: another rank has different flags or data, or an environment with different results. */
fr_status fri_ranks_compare(const fri_run *r);
/* *n becomes the smallest n of all ranks. */
fr_status fri_ranks_least(const fri_config *c, size_t *n);
/* Fills in r->rank. */
fr_status fri_ranks_report(fri_run *r);
/* Copies rank 0's data, of `bytes`, to all ranks. */
fr_status fri_ranks_from_first(const fri_config *c, void *data, size_t bytes);

#endif
