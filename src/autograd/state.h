/* state.h - what the thread is doing: grad mode, autocast, switches, and the checkpoint it is inside of. */
#ifndef FRI_AUTOGRAD_STATE_H
#define FRI_AUTOGRAD_STATE_H

#include <frugal/autograd.h>

struct fri_segment_record;
struct fri_recompute;

/* What a module said about the result of the op that it calls next (the two Notes below). */
typedef struct fri_follows {
    fr_tensor *addend; /* borrowed; or NULL */
    bool over;         /* the add goes over the addend, not over what is added to it */
    bool relu;
} fri_follows;

typedef struct fri_autograd_state {
    bool grad_disabled; /* zero-initialized state means: grad mode on */
    fr_autocast_state autocast;
    bool switches_set;
    fr_switches switches;
    struct fri_segment_record *recording; /* checkpoint whose forward runs now, or NULL */
    struct fri_recompute *recompute;      /* recomputation that runs now, or NULL */
    uint64_t steps;                       /* begun so far */
    int open_steps;                       /* begun and not ended */
    fr_graph_stats stats;
    uint64_t nodes_at_step_end;
    bool statistics_frozen;
    fri_follows follows;
    bool batchnorm_follows;
} fri_autograd_state;

fri_autograd_state *fri_autograd(void);
const fr_switches *fri_switches(void); /* the thread's switches, borrowed */
uint64_t fri_step_number(void);        /* training steps that this thread has begun */
bool fri_step_is_open(void);           /* between fr_step_begin and fr_step_end */

/* Note [Relu in the kernel before it]
 * A module that hands the result of an op to a relu, and to nobody else, may say so before it calls the op. Batch norm
 * and add then rectify in the pass that writes their result anyway and mark the storage; the relu that finds the mark
 * has nothing left to compute. Its node, what is saved, what is allocated and every bit of every result are those of
 * the two passes: relu of a rectified tensor is that tensor, also where the relu runs out of place or twice. Only under
 * the in-place switch, whose permission it is to write over what nobody reads; not where each op's result is looked at
 * (FRUGAL_CHECK_NAN, fr_detect_anomaly), because minus infinity would pass for 0. Library kernels are no part of this:
 * their relu does not pass NaN. */
void fri_relu_follows(bool follows);

/* Note [Add in the kernel before it]
 * Likewise a module that hands batch norm's result to an add with a tensor that is there already, and to nobody else,
 * says so before it calls batch norm: which of the two the add goes over, and whether a relu follows it. Batch norm's
 * last pass then reads the addend too and writes the sum (rectified) at once to where the add would have written it;
 * the add, and the relu behind it, find marks on the storages and have nothing left to compute. In half types the
 * normalized value is rounded to its type before the addend joins it, in a register, so every bit is that of the
 * separate passes. Only where types and shapes are the same, and where a relu could be taken over, too. Rebuilding
 * makes batch norm's own result from what batch norm saved and the sum from that: no node knows of all this. Between
 * batch norm and add a marked storage does not hold what its node says: any other op refuses it (fri_call_begin). */
void fri_add_follows(fr_tensor *addend, bool over, bool relu);

/* What was said, once, if it is permitted: for the op that may make use of it. */
fri_follows fri_follows_take(void);
/* Says something else and answers what had been said: for modules that run others. */
fri_follows fri_follows_exchange(fri_follows now);

/* Note [Statistics in the kernel before it]
 * A module that hands the result of a convolution to a batch norm in training mode may say so before it calls the
 * convolution. Under fr_cudnn_fuse_statistics_set, where the backend has a kernel for it (f16 on CUDA), the convolution
 * then makes the sums over its result and the sums of squares, too. They travel with the result's storage; the batch
 * norm takes them if nobody has written to it since and it reads all of it, and turns them into mean and variance
 * instead of reading the result. Others may read the result, which is written as ever. Whether sums are made follows
 * from the shape and what was said alone, never from who is computing: so a checkpoint's recomputation runs the same
 * kernel as the forward, and its batch norm takes the statistics of the first run as it always does. */
void fri_batchnorm_follows(bool follows);
/* What was said, once, if the setting is on: for the convolution. */
bool fri_batchnorm_follows_take(void);

/* True while a checkpoint's function runs for the second time. */
bool fri_recomputing(void);
/* False while that is so, or by fr_statistics_freeze: may running statistics and counters be touched? */
bool fri_statistics_move(void);

#endif
