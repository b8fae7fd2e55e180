/* node.h - the graph: nodes, edges, saved slots, leaves.
 *
 *      tensor --(grad_state)--> fri_grad_state --> fr_node --edges--> older nodes, leaves
 *                                                    |
 *                                                    +--slots--> storages (or their codes)
 *
 * A node is owned by the tensor it made and by the nodes after it. A slot owns its storage's bytes, not a tensor. */
#ifndef FRI_AUTOGRAD_NODE_H
#define FRI_AUTOGRAD_NODE_H

#include "autograd/offload.h"
#include "autograd/state.h"
#include "tensor/tensor.h"

#include <frugal/extend.h>

/* Gradient state of a leaf, shared by the tensor and the edges that lead to the leaf. A graph must not hold tensor
 * handles, because a handle keeps its storage from settling. */
typedef struct fri_leaf {
    int references;
    fr_tensor *tensor; /* not owned; NULL once the tensor is released */
    fr_tensor *grad;
    fr_tensor *sum; /* sum of this backward beside an earlier gradient; or NULL */
    fr_grad_hook_fn *hook;
    void *hook_ctx;
    bool hook_reads_half;        /* the hook takes a gradient in autocast's compute type */
    int awaited;                 /* contributions still to come in the current backward */
    bool earlier;                /* `grad` was set before the current backward */
    uint64_t visit;              /* number of the backward that counted the contributions */
    struct fri_leaf *next_ready; /* next leaf whose hook waits for the running node (backward.c) */
} fri_leaf;

/* fr_tensor.grad_state: either member is set. */
typedef struct fri_grad_state {
    fri_leaf *leaf;
    fr_node *node;
} fri_grad_state;

typedef enum fri_slot_kind {
    FRI_SLOT_EMPTY,   /* nothing saved, or already released */
    FRI_SLOT_TENSOR,  /* `storage` holds the value */
    FRI_SLOT_BITS,    /* `storage` holds a bit per element: !(value <= 0) */
    FRI_SLOT_PASS,    /* the incoming gradient is already masked */
    FRI_SLOT_REBUILD, /* node `source` recomputes the value */
    FRI_SLOT_AWAY,    /* the value is in the offload file */
    FRI_SLOT_INDEX,   /* the checkpoint segment recomputes the value */
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
    uint64_t version;    /* version of the storage when saved */
    fri_offloaded *away; /* FRI_SLOT_AWAY */
    fr_tensor *ahead;    /* bytes on the way back from the file, complete after `arrived`; or NULL */
    fri_fence arrived;
    fr_node *source;                  /* FRI_SLOT_REBUILD; retained unless equal to owner */
    struct fri_slot *previous, *next; /* list of the storage's slots */
} fri_slot;

typedef struct fri_edge {
    fr_node *node;  /* producer of the input, or */
    fri_leaf *leaf; /* leaf; both NULL: no gradient wanted */
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
    /* output */
    fr_shape shape;
    fr_dtype dtype;
    fr_device device;
    size_t bytes;        /* of the output, rounded as the allocator rounds */
    fri_storage *output; /* not owned; NULL once the storage is freed or overwritten in place */
    size_t output_offset;
    uint64_t output_version;
    bool view; /* output shares the content of the previous node; `output` is NULL */
    /* consumers */
    int consumers;
    fr_node *consumer; /* most recent consumer, not owned */
    struct {
        int users;       /* slots elsewhere that rebuild from this node */
        int links;       /* nodes with users whose rebuild reads this node's output */
        int depth;       /* > 0: the output can be rebuilt by a chain of this many ops */
        fr_tensor *kept; /* rebuilt output, kept until no slot rebuilds from this node; or NULL */
    } rebuild;
    /* backward */
    fr_tensor *gradient; /* sum of the contributions so far */
    fr_tensor *last;     /* last contribution, which the pass of the mask adds; or NULL */
    bool queued, executed;
    int handed;     /* gradients handed over by the node's backward */
    int awaited;    /* contributions to `gradient` still to come */
    uint64_t visit; /* number of the counting pass */
    /* checkpoint */
    struct fri_segment_record *segment; /* retained; or NULL */
    int segment_index;
    fr_node *shadow; /* recomputed node that now holds the slots; or NULL */
    bool is_shadow;
    fr_node *original;      /* shadow: the original, not owned; NULL once the original has run or has a new shadow */
    int original_consumers; /* shadow: consumers of the original; INT_MAX while the program holds its output */
};

fr_node *fri_node_retain(fr_node *n);
void fri_node_release(fr_node **n);
void fri_node_finish(fr_node *n); /* releases saved slots, edges and shadow after backward */
void fri_node_shed_shadow(fr_node *n);

fri_leaf *fri_leaf_retain(fri_leaf *l);
void fri_leaf_release(fri_leaf **l);
fri_leaf *fri_leaf_of(const fr_tensor *t); /* NULL if t is not a leaf that requires grad */
/* fr_tensor_set_grad_hook. reads_half: the hook takes a gradient in autocast's compute type. */
fr_status fri_leaf_set_hook(fr_tensor *leaf, fr_grad_hook_fn *fn, void *ctx, bool reads_half);
/* Converts a gradient that half_gradients has kept in the compute type to the leaf's type. */
fr_status fri_leaf_widen(fr_tensor *leaf);
fr_node *fri_node_of(const fr_tensor *t); /* NULL if t is not the result of a recorded op */
/* Makes t the result of n (retained). */
fr_status fri_tensor_set_node(fr_tensor *t, fr_node *n);

/* ---- slots (slot.c) ---------------------------------------------------------------------------------------- */

void fri_slot_hold(fri_slot *slot, fr_node *owner, const fr_tensor *t, unsigned flags); /* kind becomes TENSOR */
void fri_slot_drop(fri_slot *slot);                                                     /* kind becomes EMPTY */
/* Slot's value as a tensor outside of the graph. */
fr_status fri_slot_value(fri_slot *slot, fr_tensor **out);
/* Starts to fetch an offloaded slot on an asynchronous device. Without memory the slot stays in the offload file. */
fr_status fri_slot_fetch(fri_slot *slot);
/* True if x, the value of slot `index`, may be overwritten. Releases the slot if nothing else needs the bytes. */
bool fri_slot_yields(fr_node *n, int index, const fr_tensor *x);
/* Slot behind an INDEX slot if the segment has been recomputed, else the INDEX slot. In n's backward it has been. */
fri_slot *fri_slot_found(fr_node *n, int index);

/* Note [The mask of a relu]
 * A max pool that follows a relu can zero its own gradient, and takes over the mask through its op's absorb_mask: the
 * relu then stores no bits. If several gradients meet at a relu's output, the pass that applies the mask of slot 0 adds
 * the last gradient (mask_adds_next in backward.c). */

/* ---- settling and rebuilding ---------------------------------------------------------------------------------- */

void fri_settle(fri_storage *s);
/* Called after an early release of a slot of a settled storage: bits replace the storage if only signs are needed. */
void fri_settle_signs(fri_storage *s);
/* Called after n's output y was recomputed for another reader. Takes the sign mask for n's own backward. */
void fri_settle_own_signs(fr_node *n, const fr_tensor *y);
enum { FRI_REBUILD_INPUTS = 64 }; /* the most inputs of a node that is rebuilt */
/* True if n's output can be rebuilt while newly holding at most `freed` bytes. */
bool fri_rebuildable(fr_node *n, size_t freed);
/* Holds the inputs that no slot keeps. level: number of ops between n and the requested node. */
fr_status fri_rebuild_hold(fr_node *n, int level);
/* Recomputes the node's output. If `users` later slots will need the value, backward keeps the value and the
 * intermediate values that fit (Note [Kept in backward]). */
fr_status fri_rebuild_value(fr_node *n, int users, fr_tensor **out);
void fri_rebuild_use(fr_node *source);     /* adds a user */
void fri_rebuild_release(fr_node *source); /* removes a user */
/* Node whose output n's rebuild reads as input i and no slot keeps; or NULL. */
fr_node *fri_rebuild_input(fr_node *n, int i);
/* True if a saved slot elsewhere depends on the slots of this node. */
static inline bool fri_rebuild_wanted(const fr_node *n) {
    return n->rebuild.users > 0 || n->rebuild.links > 0;
}
/* Node that would rebuild the value of slot `index` of n, if no other slot needs the value; or NULL. */
fr_node *fri_rebuild_source(fr_node *n, int index);

/* Bytes that the running backward may keep without a higher peak: alive earlier in the backward and free now. */
size_t fri_backward_room(fr_device device);
void fri_backward_note(void);             /* records the bytes alive now */
bool fri_backward_runs(const fr_node *n); /* true while backward runs n */
/* Sum of the gradients of n's input so far, to which n's backward may add in place, followed by fri_gradient_added;
 * NULL: fr_node_grad takes n's gradient. */
fr_tensor *fri_gradient_sum(const fr_node *n, int input);
void fri_gradient_added(fr_node *n, int input);

/* ---- checkpoint --------------------------------------------------------------------------------------------- */

/* Called by fr_op_record for every new node, to add n to a segment in recording or recomputation. FRI_STOP: the
 * recomputation is complete. */
fr_status fri_segment_enter(fr_node *n);
/* True if t was made inside the segment being recorded, so slots must not hold t. */
bool fri_segment_owns(const fr_tensor *t);
/* Recomputes the segments that hold n's saved tensors, before n's backward. */
fr_status fri_segments_ready(fr_node *n);
void fri_segment_forget(fr_node *n); /* the node is freed */
/* True in a recomputation if the next node, of an op on `in`, is the last needed. An op that does not save its output
 * may then skip computing the output. */
bool fri_recompute_ends(fr_tensor *const *in, int n_in);
/* Forward node that corresponds to the next node recorded in a recomputation, or NULL. */
fr_node *fri_recompute_original(void);

#endif
