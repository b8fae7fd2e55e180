/* state.h - shared parts of saving and loading training states. */
#ifndef FRI_IO_STATE_H
#define FRI_IO_STATE_H

#include "io/state_record.h"
#include "io/safetensors.h"

#define FRI_STATE_MODEL     "model."     /* before a tensor's path */
#define FRI_STATE_OPTIMIZER "optimizer." /* before an optimizer state's name */

/* Summary of a state, read from the header alone: the rest may be damaged. */
typedef struct fri_state_summary {
    uint64_t run;
    int64_t step;
    char model[80];
} fri_state_summary;
fr_status fri_state_summary_read(const char *path, fri_state_summary *out);

/* fr_state_load from an open file. */
fr_status fri_state_restore(fri_safetensors *file, fr_state *state);

#endif
