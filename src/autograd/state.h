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
} fri_autograd_state;

fri_autograd_state *fri_autograd(void);
const fr_switches *fri_switches(void); /* the thread's switches, borrowed */
uint64_t fri_step_number(void);        /* training steps that this thread has begun */

/* True while a checkpoint's function runs for the second time. */
bool fri_recomputing(void);
/* False while that is so, or by fr_statistics_freeze: may running statistics and counters be touched? */
bool fri_statistics_move(void);

#endif
