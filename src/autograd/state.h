/* state.h - what the thread is doing: grad mode, autocast, switches, and the checkpoint it is inside of. */
#ifndef FRI_AUTOGRAD_STATE_H
#define FRI_AUTOGRAD_STATE_H

#include <frugal/autograd.h>

struct fri_segment_record;
struct fri_recompute;

typedef struct fri_autograd_state {
    bool grad_disabled; /* zero-initialized state means: grad mode on */
    fr_autocast_state autocast;
    bool switches_set;
    fr_switches switches;
    struct fri_segment_record *recording; /* checkpoint whose forward runs now, or NULL */
    struct fri_recompute *recompute;      /* recomputation that runs now, or NULL */
    uint64_t next_sequence;               /* creation number of the next node */
    uint64_t steps;                       /* begun so far */
    fr_graph_stats stats;
    uint64_t nodes_at_step_end;
    bool statistics_frozen;
    bool relu_follows;
} fri_autograd_state;

fri_autograd_state *fri_autograd(void);
const fr_switches *fri_switches(void); /* the thread's switches, borrowed */
uint64_t fri_step_number(void);        /* training steps that this thread has begun */

/* Note [Relu in the kernel before it]
 * A module that hands the result of an op to a relu, and to nobody else, may say so before it calls the op. Batch norm
 * and add then rectify in the pass that writes their result anyway and mark the storage; the relu that finds the mark
 * has nothing left to compute. Its node, what is saved, what is allocated and every bit of every result are those of
 * the two passes: relu of a rectified tensor is that tensor, also where the relu runs out of place or twice. Only under
 * the in-place switch, whose permission it is to write over what nobody reads; not where each op's result is looked at
 * (FRUGAL_CHECK_NAN, fr_detect_anomaly), because minus infinity would pass for 0. Library kernels are no part of this:
 * their relu does not pass NaN. */
void fri_relu_follows(bool follows);
/* What was said, once: for the op that may make use of it. */
bool fri_relu_follows_take(void);

/* True while a checkpoint's function runs for the second time. */
bool fri_recomputing(void);
/* False while that is so, or by fr_statistics_freeze: may running statistics and counters be touched? */
bool fri_statistics_move(void);

#endif
