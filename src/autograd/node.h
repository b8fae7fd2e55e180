/* node.h - the graph: nodes, edges, saved slots, leaves.
 *
 *      tensor --(grad_state)--> fri_grad_state --> fr_node --edges--> older nodes, leaves
 *                                                    |
 *                                                    +--slots--> storages (or what became of them)
 *
 * A node is owned by the tensor it made and by the nodes after it. A slot owns its storage's bytes, not a tensor. */
#ifndef FRI_AUTOGRAD_NODE_H
#define FRI_AUTOGRAD_NODE_H

#include "autograd/offload.h"
#include "autograd/state.h"
#include "tensor/tensor.h"

#include <frugal/extend.h>

/* Gradient state of a leaf. Shared by the tensor and the edges that lead to it, so that a graph holds no tensor handle:
 * a handle would keep its storage from settling. */
typedef struct fri_leaf {
    int references;
    fr_tensor *tensor; /* not owned; NULL after the tensor died */
    fr_tensor *grad;
    fr_tensor *sum; /* of this backward so far, where more comes and there is a gradient already; or NULL */
    fr_grad_hook_fn *hook;
    void *hook_ctx;
    int awaited;                 /* contributions this backward will still bring */
    bool earlier;                /* there was a gradient before it */
    uint64_t visit;              /* backward that counted them */
    struct fri_leaf *next_ready; /* its hook waits for the running node to be over (backward.c) */
} fri_leaf;

/* fr_tensor.grad_state: one of the two is set. */
typedef struct fri_grad_state {
    fri_leaf *leaf;
    fr_node *node;
} fri_grad_state;

typedef enum fri_slot_kind {
    FRI_SLOT_EMPTY,   /* nothing saved, or given up */
    FRI_SLOT_TENSOR,  /* storage holds the value */
    FRI_SLOT_BITS,    /* storage holds 1 bit per element: !(value <= 0) */
    FRI_SLOT_PASS,    /* the consumer's gradient is already masked */
    FRI_SLOT_REBUILD, /* `source` makes the value again */
    FRI_SLOT_AWAY,    /* the value lies in the offload file */
    FRI_SLOT_INDEX,   /* the node's checkpoint segment makes it again */
} fri_slot_kind;

typedef struct fri_slot {
    fri_slot_kind kind;
    unsigned flags; /* FR_SAVE_... */
    fr_node *owner;
    fri_storage *storage;
    size_t offset;
    fr_shape shape;
    fr_dtype dtype;
    fr_device device;
    uint64_t version;    /* of the storage when saved */
    fri_offloaded *away; /* FRI_SLOT_AWAY */
    fr_tensor *ahead;    /* its bytes, if they are on their way back, behind `arrived`; else NULL */
    fri_fence arrived;
    fr_node *source;                  /* FRI_SLOT_REBUILD; retained unless it is the owner */
    struct fri_slot *previous, *next; /* the storage's list of savers */
} fri_slot;

/* y = a + b where the bit is 1, else 0, which is the gradient of the node's output, and of its backward what reads y
 * from memory first. *done false: nothing was done. */
typedef fr_status fri_begin_fn(fr_node *node, const uint8_t *bits, const fr_tensor *a, const fr_tensor *b, fr_tensor *y,
                               bool *done);

typedef struct fri_edge {
    fr_node *node;  /* the producer of the input, or */
    fri_leaf *leaf; /* the leaf it is, or neither: no gradient wanted */
} fri_edge;

struct fr_node {
    int references;
    const fr_op *op;
    void *params;
    uint64_t sequence;
    const char *module;
    int n_inputs, n_saves;
    fri_edge *edges;
    fri_slot *slots; /* n_saves of the op, then n_inputs kept for rebuilding */
    /* the output */
    fr_shape shape;
    fr_dtype dtype;
    fr_device device;
    fri_storage *output; /* not owned; NULL once the storage died or was overwritten in place */
    size_t output_offset;
    uint64_t output_version;
    bool reads_as_made;  /* a relu: its input was what the node before made, and nobody had written to it */
    fr_node *reader;     /* a relu: who gets its gradient, and no other, through a sum; the edges keep it; or NULL */
    fri_begin_fn *begin; /* of the reader's backward */
    bool view;           /* shows the content that the node before it made; `output` is NULL */
    /* who reads it */
    int consumers;
    fr_node *consumer; /* the last one, not owned */
    int rebuild_users; /* slots elsewhere that rebuild from this node */
    int rebuild_links; /* nodes with users that need this node's output to rebuild theirs */
    int rebuild_depth; /* > 0: the output can be rebuilt, by this many ops in a row */
    fr_tensor *again;  /* the output, made again and kept until no slot rebuilds from this node; or NULL */
    /* backward */
    fr_tensor *gradient; /* collected so far */
    bool queued, executed;
    int handed;     /* gradients that its backward has handed over */
    int awaited;    /* contributions to `gradient` that this backward will still bring */
    uint64_t visit; /* mark of the counting pass */
    /* checkpoint */
    struct fri_segment_record *segment; /* retained, or NULL */
    int segment_index;
    fr_node *shadow; /* the recomputed twin that holds the slots now, or NULL */
    bool is_shadow;
    fr_node *twin;      /* shadow: the original, not owned; NULL once that has another shadow or ran */
    int twin_consumers; /* shadow: consumers of the original; INT_MAX while the program still holds its output */
};

fr_node *fri_node_retain(fr_node *n);
void fri_node_release(fr_node **n);
void fri_node_finish(fr_node *n); /* backward is over: saved slots, edges and shadow go */
void fri_node_shed_shadow(fr_node *n);

fri_leaf *fri_leaf_retain(fri_leaf *l);
void fri_leaf_release(fri_leaf **l);
fri_leaf *fri_leaf_of(const fr_tensor *t); /* NULL if t is no leaf that requires grad */
fr_node *fri_node_of(const fr_tensor *t);  /* NULL if t is no result of a recorded op */
/* Is t the result that its node made, with nothing written to it since? */
bool fri_as_node_made(const fr_tensor *t);
/* t becomes the result of n (retained). */
fr_status fri_tensor_set_node(fr_tensor *t, fr_node *n);

/* ---- slots (slot.c) ---------------------------------------------------------------------------------------- */

void fri_slot_hold(fri_slot *slot, fr_node *owner, const fr_tensor *t, unsigned flags); /* kind becomes TENSOR */
void fri_slot_drop(fri_slot *slot);                                                     /* any kind becomes EMPTY */
/* The slot's value as a tensor outside the graph. */
fr_status fri_slot_value(fri_slot *slot, fr_tensor **out);
/* Begins to fetch an offloaded slot on an asynchronous device. Without memory the slot stays in the offload file. */
fr_status fri_slot_fetch(fri_slot *slot);
/* May x, the value of that slot, be written over? The slot is given up where it is the last to hold the bytes. */
bool fri_slot_yields(fr_node *n, int index, const fr_tensor *x);
/* The slot behind an INDEX slot where the segment has been recomputed, else that slot. */
fri_slot *fri_slot_found(fr_node *n, int index);
/* The slot behind an INDEX slot, recomputing the segment if need be. */
fr_status fri_slot_resolve(fr_node **node, fri_slot **slot);

/* Is the mask that fr_node_mask would apply to dy at hand, and would it be written over dy? The segment is recomputed
 * for the answer where fr_node_mask would. */
fr_status fri_node_mask_ready(fr_node *node, int index, const fr_tensor *dy, bool *ready);

/* Note [The mask of a relu]
 * Which elements of the gradient a relu lets through may follow from what a neighbour's backward reads anyway: a max
 * pool behind it sets its own gradient to 0 there, a batch norm before it makes its result again in registers. Either
 * takes the mask over through its op's absorb_mask, and where it does so before the relu's output is gone, no bits are
 * made. Two gradients that meet at a relu's output are masked by the pass that adds them; where a batch norm behind a
 * sum gets what comes out (`reader`), that pass makes its sums, too.
 *
 * Has the node before `relu` taken the mask over? Not while anybody examines gradients. */
bool fri_mask_left(fr_node *relu);
/* *sum += *dx, the last contribution to the gradient of n's output, and 0 where a mask of n at hand says so: then n
 * masks no more and *done is true. */
fr_status fri_mask_sum(fr_node *n, fr_tensor **sum, const fr_tensor *dx, bool *done);

/* ---- settling and rebuilding ---------------------------------------------------------------------------------- */

void fri_settle(fri_storage *s);
/* A slot of a settled storage was given up early: where the others need signs only, bits take the storage's place. */
void fri_settle_signs(fri_storage *s);
/* n's output y was made again for somebody else: signs that n itself will want are taken from it. */
void fri_settle_own_signs(fr_node *n, const fr_tensor *y);
/* Can n's output be made again, holding at most `freed` bytes more than are held anyway? */
bool fri_rebuildable(fr_node *n, size_t freed);
fr_status fri_rebuild_hold(fr_node *n); /* takes slots on inputs that only live elsewhere */
/* The node's output, made again. `users` other slots will ask later: where there is room for it, backward keeps it for
 * them, and so values that are made on the way (Note [Kept in backward]). */
fr_status fri_rebuild_value(fr_node *n, int users, fr_tensor **out);
void fri_rebuild_use(fr_node *source);     /* one user more */
void fri_rebuild_release(fr_node *source); /* one user less */
/* The node whose output n's rebuild reads as input i, where nothing is kept of it; or NULL. */
fr_node *fri_rebuild_input(fr_node *n, int i);
/* Does a saved slot elsewhere depend on what this node keeps? */
static inline bool fri_rebuild_wanted(const fr_node *n) {
    return n->rebuild_users > 0 || n->rebuild_links > 0;
}
/* True where a norm and `next` make the slot's value, or a norm alone (NULL), and no other slot will ask for it. */
bool fri_slot_reads_norm(const fri_slot *slot, fr_node **norm, const fr_op **next);
/* False where n needs the values of its output for its own mask: the node before n cannot apply the mask. */
bool fri_settle_leaves_signs(fr_node *n);

/* Bytes that the running backward may keep: as many as were alive earlier in it and are free now. */
size_t fri_backward_room(fr_device device);
void fri_backward_note(void);             /* records how many bytes are alive now */
bool fri_backward_runs(const fr_node *n); /* true while backward runs n */

/* ---- checkpoint --------------------------------------------------------------------------------------------- */

/* Called by fr_op_record for every new node: enters it into the segment that is being recorded or recomputed. FRI_STOP
 * when the recomputation has all it needs. */
fr_status fri_segment_enter(fr_node *n);
/* Is t made inside the segment that is being recorded, so that a slot must not hold it? */
bool fri_segment_owns(const fr_tensor *t);
fr_status fri_segment_recompute(struct fri_segment_record *segment);
void fri_segment_forget(fr_node *n); /* the node dies */
/* True in a recomputation if the node of an op on `in`, called now, is the last one that is needed. Only its saved
 * tensors are wanted then, and an op that does not save its output need not compute the output. */
bool fri_recompute_ends(fr_tensor *const *in, int n_in);
/* Node that the next record call of a recomputation stands for, or NULL. */
fr_node *fri_recompute_twin(void);

#endif
