/* backward.c - walks the graph from the newest node to the oldest.
 *
 * All consumers of a node are newer than the node. Decreasing creation numbers therefore visit each node after all
 * its consumers, and sum the contributions to a gradient in a fixed order, whatever the switches. */
#include "autograd/node.h"

#include "autograd/anomaly.h"
#include "autograd/state.h"
#include "base/status.h"
#include "memory/allocator.h"
#include "memory/event.h"

#include <stdlib.h>

/* ---- a heap of nodes, newest on top -------------------------------------------------------------------------- */

typedef struct queue {
    fr_node **items;
    size_t count;
} queue;

static fr_status queue_push(queue *q, fr_node *n) {
    FRI_TRY(FRI_ROOM(q->items, q->count, "backward"));
    size_t i = q->count++;
    while (i > 0 && q->items[(i - 1) / 2]->sequence < n->sequence) {
        q->items[i] = q->items[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->items[i] = fri_node_retain(n);
    n->queued = true;
    return FR_OK;
}

static fr_node *queue_pop(queue *q) {
    fr_node *top = q->items[0], *last = q->items[--q->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < q->count; i = child) {
        if (child + 1 < q->count && q->items[child + 1]->sequence > q->items[child]->sequence) child++;
        if (q->items[child]->sequence <= last->sequence) break;
        q->items[i] = q->items[child];
    }
    if (q->count > 0) q->items[i] = last;
    top->queued = false;
    return top;
}

/* One call of fr_backward, on its stack. Ops find the call through fri_autograd_state.pass of their thread. */
typedef struct fri_backward_run {
    queue todo;
    /* Leaves whose gradient is complete and whose hook has not run. Hooks may write to the leaf, and the running node
     * may still read the leaf (dx is computed from w after dw is handed over), so hooks run after the node. The hook
     * of a leaf without a saved slot (a bias) runs at once, so that a bias's gradient does not live beside the
     * weight's. */
    fri_leaf *ready;
    /* early release is off: gradients reach their tensors after the node's backward, as in PyTorch */
    bool holding;
    const fr_node *running;
    fr_device device; /* device of the starting gradient */
    size_t max;       /* largest number of bytes alive seen by note_live */
    int n_held;
    struct {
        int input;
        fr_tensor *dx;
    } * held;
} fri_backward_run;

/* ---- counting the contributions to each leaf ----------------------------------------------------------------- */

static fr_status count_contributions(fr_node *root) {
    queue stack = {0}; /* used as a plain stack */
    fr_status s = FR_OK;
    uint64_t mark = ++fri_autograd()->visits;
    root->visit = mark;
    FR_TRY(s, queue_push(&stack, root));
    while (stack.count > 0) {
        fr_node *n = queue_pop(&stack);
        for (int i = 0; i < n->n_inputs && s == FR_OK; i++) {
            fri_leaf *l = n->edges[i].leaf;
            fr_node *up = n->edges[i].node;
            if (l != NULL) {
                if (l->visit != mark) {
                    l->awaited = 0;
                    l->earlier = l->grad != NULL;
                }
                fr_tensor_release(&l->sum); /* left by a failed backward */
                l->visit = mark;
                l->awaited++;
            } else if (up != NULL) {
                if (up->visit != mark) up->awaited = 0; /* left by a failed backward */
                up->awaited++;
                if (up->visit != mark) s = queue_push(&stack, up);
                up->visit = mark;
            }
        }
        fri_node_release(&n);
        FR_TRY(s, s);
    }
done:
    while (stack.count > 0) {
        fr_node *n = queue_pop(&stack);
        fri_node_release(&n);
    }
    free(stack.items);
    return s;
}

/* ---- adding contributions ---------------------------------------------------------------------------------- */

/* *sum += *dx, taking *dx. A shared *sum becomes a new tensor of the category. */
static fr_status add_contribution(fr_tensor **sum, fr_tensor **dx, fr_category category) {
    fr_status s = FR_OK;
    if (*sum == NULL)
        FRI_MOVE(sum, *dx);
    else
        s = fri_tensor_add_to(sum, *dx, category);
    fr_tensor_release(dx);
    return s;
}

static void make_ready(fri_backward_run *p, fri_leaf *l) {
    fri_leaf **end = &p->ready;
    while (*end != NULL) end = &(*end)->next_ready;
    *end = fri_leaf_retain(l);
}

static fr_status run_hooks(fri_backward_run *p, fr_status s) {
    while (p->ready != NULL) {
        fri_leaf *l = p->ready;
        FRI_MOVE(&p->ready, l->next_ready);
        if (s == FR_OK && l->tensor != NULL && l->hook != NULL) s = l->hook(l->hook_ctx, l->tensor);
        fri_leaf_release(&l);
    }
    return s;
}

static fr_status complete_leaf(fri_backward_run *p, fri_leaf *l) {
    if (l->hook == NULL) return FR_OK;
    if (l->tensor->storage->savers == NULL) return l->hook(l->hook_ctx, l->tensor);
    make_ready(p, l);
    return FR_OK;
}

/* True if a contribution in autocast's compute type may be the leaf's gradient until another one comes. */
static bool keeps_half(const fri_leaf *l, const fr_tensor *dx) {
    return fri_switches()->half_gradients && l->grad == NULL && (l->hook == NULL || l->hook_reads_half) &&
           l->tensor->dtype == FR_F32 && fr_dtype_size(dx->dtype) == 2 && fri_tensor_sole(dx);
}

/* Adds one contribution to a leaf and, on success, takes *dx. As in PyTorch, the contributions of one backward are
 * summed before the sum is added to the existing gradient. The result therefore does not depend on the rank that runs
 * the backward. */
static fr_status give_to_leaf(fri_backward_run *p, fri_leaf *l, fr_tensor **dx) {
    fr_tensor **to = l->grad != NULL && l->earlier && (l->sum != NULL || l->awaited > 1) ? &l->sum : &l->grad;
    if (l->tensor == NULL) { /* the leaf died, so its gradient is not needed */
        fr_tensor_release(dx);
        return FR_OK;
    }
    FRI_TRY(fri_leaf_widen(l->tensor));
    if (!keeps_half(l, *dx) && ((*dx)->dtype != l->tensor->dtype || (*to == NULL && !fri_tensor_sole(*dx))))
        FRI_TRY(fri_tensor_clone_as(*dx, l->tensor->dtype, FR_MEM_GRADIENT, dx));
    if (*to == NULL) fr_tensor_category_set(*dx, FR_MEM_GRADIENT);
    FRI_TRY(add_contribution(to, dx, FR_MEM_GRADIENT));
    l->awaited--;
    if (l->awaited == 0 && l->sum != NULL) FRI_TRY(add_contribution(&l->grad, &l->sum, FR_MEM_GRADIENT));
    return l->awaited == 0 ? complete_leaf(p, l) : FR_OK;
}

static fr_status check_gradient(const fr_node *node, int input, const fr_tensor *dx) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    const fr_node *up = node->edges[input].node;
    const fri_leaf *l = node->edges[input].leaf;
    const fr_shape *shape = up != NULL ? &up->shape : l->tensor != NULL ? &l->tensor->shape : &dx->shape;
    const fr_dtype dtype = up != NULL ? up->dtype : dx->dtype;
    if (!fri_shape_equal(shape, &dx->shape) || dtype != dx->dtype)
        return fr_fail(FR_EINTERNAL, "%s: its backward gave input %d a gradient of %s %s, but the input is %s %s",
                       node->op->name, input, fr_dtype_name(dx->dtype), fri_shape_text(&dx->shape, a),
                       fr_dtype_name(dtype), fri_shape_text(shape, b));
    return FR_OK;
}

static fr_status hold_gradient(fri_backward_run *p, int input, fr_tensor **dx) {
    FRI_TRY(FRI_ROOM(p->held, p->n_held, "backward"));
    p->held[p->n_held].input = input;
    p->held[p->n_held++].dx = *dx;
    *dx = NULL;
    return FR_OK;
}

/* True if the next contribution to n's gradient is the last, and the pass that masks by the bits of slot 0 adds it. */
static bool mask_adds_next(fr_node *n) {
    if (n->gradient == NULL || n->awaited != 1 || n->n_saves == 0 || !fri_switches()->early_release) return false;
    const fri_slot *slot = fri_slot_found(n, 0);
    return slot->kind == FRI_SLOT_BITS && slot->flags == FR_SAVE_MASK;
}

static fr_status give_gradient(fri_backward_run *p, fr_node *node, int input, fr_tensor **dx) {
    fr_node *up = node->edges[input].node;
    FRI_TRY(check_gradient(node, input, *dx));
    if (up == NULL) return give_to_leaf(p, node->edges[input].leaf, dx);
    if (up->executed)
        return fr_fail(FR_EUSAGE, "backward: the graph before op %s was already used; run forward again", up->op->name);
    const bool adds = mask_adds_next(up);
    up->awaited--;
    FRI_TRY(add_contribution(adds ? &up->last : &up->gradient, dx, FR_MEM_TEMPORARY));
    return up->queued ? FR_OK : queue_push(&p->todo, up);
}

static fr_status give_held(fri_backward_run *p, fr_node *n, fr_status s) {
    p->holding = false;
    for (int i = 0; i < p->n_held; i++) {
        if (s == FR_OK) s = give_gradient(p, n, p->held[i].input, &p->held[i].dx);
        fr_tensor_release(&p->held[i].dx);
    }
    p->n_held = 0;
    return s;
}

fr_status fr_node_grad(fr_node *node, int input, fr_tensor **dx) {
    FRI_NOT_NULL(node, dx);
    if (*dx == NULL) return FR_OK;
    if (!fr_node_wants(node, input)) {
        fr_tensor_release(dx);
        return FR_OK;
    }
    node->handed++;
    fri_backward_run *p = fri_autograd()->pass;
    fr_status s = fri_anomaly_look(node->op->name, true, *dx);
    if (s == FR_OK) s = p->holding ? hold_gradient(p, input, dx) : give_gradient(p, node, input, dx);
    fr_tensor_release(dx);
    return s;
}

fr_tensor *fri_gradient_sum(const fr_node *n, int input) {
    fr_node *up = n->edges[input].node;
    if (up == NULL || up->gradient == NULL || !fri_tensor_sole(up->gradient)) return NULL;
    for (int i = 0; i < input; i++)
        if (n->edges[i].node == up) return NULL; /* a second kernel adds */
    return up->executed || fri_autograd()->pass->holding || fri_results_examined() ? NULL : up->gradient;
}

void fri_gradient_added(fr_node *n, int input) {
    n->handed++;
    n->edges[input].node->awaited--;
}

/* An op that withholds a wanted gradient would leave leaves incomplete without an error. */
static fr_status check_handed(const fr_node *n) {
    int wanted = 0;
    for (int i = 0; i < n->n_inputs; i++) wanted += fr_node_wants(n, i);
    if (n->last != NULL)
        return fr_fail(FR_EUSAGE, "%s: backward did not call fr_node_mask, although its node saved a mask",
                       n->op->name);
    if (n->handed == wanted) return FR_OK;
    return fr_fail(FR_EUSAGE, "%s: backward passed on %d gradients, but %d inputs need one", n->op->name, n->handed,
                   wanted);
}

/* ---- the walk ---------------------------------------------------------------------------------------------- */

/* Prefetches offloaded tensors of the node after n while n runs. */
static fr_status fetch_next(const fri_backward_run *p, const fr_node *n) {
    fr_node *next = p->todo.count > 0 ? p->todo.items[0] : NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < n->n_inputs; i++) {
        fr_node *up = n->edges[i].node;
        if (up != NULL && !up->executed && (next == NULL || up->sequence > next->sequence)) next = up;
    }
    for (int i = 0; next != NULL && i < next->n_saves && s == FR_OK; i++) s = fri_slot_fetch(&next->slots[i]);
    return s;
}

static size_t live_on(fr_device device) {
    const fri_allocator *a = fri_allocator_there(device);
    return a != NULL ? fri_allocator_requested(a) : 0;
}

static void note_peak(fri_backward_run *p) {
    const size_t live = live_on(p->device);
    if (live > p->max) p->max = live;
}

static fr_status run_node(fri_backward_run *p, fr_node *n) {
    const fri_scope scope = fri_scope_begin(n->op->name, n->module);
    fri_event_mark(FR_EVENT_OP_BEGIN);
    if (fri_switches()->rebuild) note_peak(p);
    p->running = n;
    fr_tensor *dy = n->gradient;
    n->gradient = NULL;
    bool early = fri_switches()->early_release;
    fr_tensor *kept = early ? NULL : fr_tensor_retain(dy);
    p->holding = !early;
    fr_status s = fetch_next(p, n);
    if (s == FR_OK) s = fri_segments_ready(n);
    if (s == FR_OK) s = n->op->backward(n, &dy);
    fr_tensor_release(&dy);
    if (s == FR_OK) s = check_handed(n);
    if (!early) s = give_held(p, n, s);
    fr_tensor_release(&kept);
    fri_node_finish(n);
    s = run_hooks(p, s);
    fri_event_mark(FR_EVENT_OP_END);
    fri_scope_end(scope);
    return s;
}

static fr_status check_start(const fr_tensor *t, const fr_tensor *grad) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    if (!t->requires_grad) return fr_fail(FR_EUSAGE, "backward: the tensor does not require grad and has no graph");
    if (fri_autograd()->pass != NULL) return fr_fail(FR_EUSAGE, "backward: called from inside a backward pass");
    if (grad == NULL && fri_numel(t) != 1)
        return fr_fail(FR_ESHAPE, "backward: the tensor has shape %s; without a gradient it must have one element",
                       fri_shape_text(&t->shape, a));
    if (grad != NULL && (!fri_shape_equal(&t->shape, &grad->shape) || t->dtype != grad->dtype))
        return fr_fail(FR_ESHAPE, "backward: the tensor is %s %s but its gradient is %s %s", fr_dtype_name(t->dtype),
                       fri_shape_text(&t->shape, a), fr_dtype_name(grad->dtype), fri_shape_text(&grad->shape, b));
    if (grad != NULL && fri_device_of(grad) != fri_device_of(t))
        return fr_fail(FR_EDEVICE, "backward: the tensor is on %s but its gradient is on %s",
                       fr_device_name(fri_device_of(t)), fr_device_name(fri_device_of(grad)));
    const fr_node *n = fri_node_of(t);
    if (n != NULL && n->executed)
        return fr_fail(FR_EUSAGE,
                       "backward: the graph of this tensor (last op: %s) was already used by an earlier backward pass "
                       "and has been freed",
                       n->op->name);
    return FR_OK;
}

size_t fri_backward_room(fr_device device) {
    const fri_backward_run *p = fri_autograd()->pass;
    const size_t live = live_on(device);
    return p != NULL && p->device == device && p->max > live ? p->max - live : 0;
}

void fri_backward_note(void) {
    if (fri_autograd()->pass != NULL) note_peak(fri_autograd()->pass);
}

bool fri_backward_runs(const fr_node *n) {
    return fri_autograd()->pass != NULL && fri_autograd()->pass->running == n;
}

fr_status fr_backward(fr_tensor *t, fr_tensor *grad) {
    FRI_NOT_NULL(t);
    fri_backward_run p = {0};
    fr_tensor *start = NULL;
    fr_node *n = NULL;
    fr_status s = check_start(t, grad);
    if (s < 0) return s;
    bool was_grad = fr_no_grad_begin();
    FRI_OWNED(fri_phase_over) fr_phase phase = fr_phase_begin(FR_PHASE_BACKWARD);
    p.device = fri_device_of(t);
    fri_autograd()->pass = &p;
    if (grad != NULL) {
        start = fr_tensor_retain(grad);
    } else {
        FR_TRY(s, fri_tensor_new(&t->shape, t->dtype, fri_device_of(t), FR_MEM_TEMPORARY, &start));
        FR_TRY(s, fri_tensor_fill(start, 1));
    }
    n = fri_node_retain(fri_node_of(t));
    if (n == NULL) { /* t is a leaf */
        fri_leaf_of(t)->awaited = 1;
        s = run_hooks(&p, give_to_leaf(&p, fri_leaf_of(t), &start));
        goto done;
    }
    FR_TRY(s, count_contributions(n));
    FRI_MOVE(&n->gradient, start);
    FR_TRY(s, queue_push(&p.todo, n));
    fri_node_release(&n);
    while (p.todo.count > 0) {
        n = queue_pop(&p.todo);
        FR_TRY(s, run_node(&p, n));
        fri_node_release(&n);
    }
done:
    fri_node_release(&n);
    while (p.todo.count > 0) {
        n = queue_pop(&p.todo);
        fr_tensor_release(&n->gradient);
        fr_tensor_release(&n->last);
        fri_node_finish(n); /* a failed backward frees the graph */
        fri_node_release(&n);
    }
    free(p.todo.items);
    free(p.held);
    fr_tensor_release(&start);
    fri_autograd()->pass = NULL;
    fr_no_grad_end(was_grad);
    return s;
}
