/* run.h - thread state that a session sets for a run: offload, scratch memory, frozen statistics. */
#ifndef FRI_AUTOGRAD_RUN_H
#define FRI_AUTOGRAD_RUN_H

#include <frugal/autograd.h>
#include <frugal/memory.h>

/* Limits of scratch memory per convolution; see fri_scratch_create. */
typedef struct fri_scratch_limits fri_scratch_limits;

/* A sentence if the file lies in memory, and so saves no memory, or if $TMPDIR was avoided as such a folder; else
 * "". */
const char *fri_offload_warning(void);
/* Bytes in the file, now and at most. FR_EUSAGE if none is open. */
fr_status fri_offload_stats_get(fr_memory_stats *out);
/* Scratch for convolutions that raises no peak. During a first pass, real or on meta, each convolution under these
 * switches notes the bytes requested on the device at each call. After fri_scratch_settle a convolution may take
 * `peak` minus the largest noted number, in whole MiB, and at least workspace_limit. Forward and both gradients have
 * separate numbers; all calls of one shape share a number, so a recomputation runs the kernel of the forward. A
 * second settle sets a new peak. Belongs to a thread. Release clears the thread's switches. FR_ENOMEM. */
fr_status fri_scratch_create(fri_scratch_limits **out);
void fri_scratch_release(fri_scratch_limits **scratch);
void fri_scratch_settle(fri_scratch_limits *scratch, size_t peak);
/* While frozen, a training forward leaves batch norm's running statistics and counters alone: for a second forward of
 * a batch. Returns the old setting. */
bool fri_statistics_freeze(bool frozen);
/* Ends a phase whose begin returned *was: for FRI_OWNED. */
static inline void fri_phase_over(const fr_phase *was) {
    fr_phase_end(*was);
}
/* The thread's autocast state. */
fr_autocast_state fri_autocast_get(void);

fr_anomaly fri_anomaly_get(void);

/* The on-off switches, which keep all bits. */
typedef enum fri_switch_cost {
    FRI_SWITCH_FREE,    /* costs no time; on by default */
    FRI_SWITCH_COMPUTE, /* costs passes over memory in backward; on by default */
    FRI_SWITCH_MOVE,    /* moves bytes to a file and back; off by default */
} fri_switch_cost;
typedef struct fri_switch {
    const char *name; /* "early-release", as the trainers' flag */
    size_t offset;    /* of the bool in fr_switches */
    bool saves;       /* the value that needs less memory; PyTorch behaves as the opposite */
    fri_switch_cost cost;
} fri_switch;
const fri_switch *fri_switch_at(int i); /* from 0, by cost; NULL after the last */
static inline bool *fri_switch_field(const fri_switch *w, fr_switches *s) {
    return (bool *)((char *)s + w->offset);
}

#endif
