/* leaf.c - gradient state of tensors: a leaf with its gradient and hook, or the node that made the tensor. */
#include "autograd/node.h"

#include <stdlib.h>

fri_leaf *fri_leaf_retain(fri_leaf *l) {
    if (l != NULL) l->references++;
    return l;
}

void fri_leaf_release(fri_leaf **p) {
    fri_leaf *l = *p;
    *p = NULL;
    if (l == NULL || --l->references > 0) return;
    fr_tensor_release(&l->grad);
    fr_tensor_release(&l->sum);
    free(l);
}

fri_leaf *fri_leaf_of(const fr_tensor *t) {
    fri_grad_state *g = t->grad_state;
    return g != NULL && t->requires_grad ? g->leaf : NULL;
}

fr_node *fri_node_of(const fr_tensor *t) {
    fri_grad_state *g = t->grad_state;
    return g != NULL ? g->node : NULL;
}

static void state_free(fr_tensor *t) {
    fri_grad_state *g = t->grad_state;
    t->grad_state = NULL;
    if (g->leaf != NULL) {
        g->leaf->tensor = NULL;
        fr_tensor_release(&g->leaf->grad); /* the gradient is unreachable now */
        fr_tensor_release(&g->leaf->sum);
        fri_leaf_release(&g->leaf);
    }
    fri_node_release(&g->node);
    free(g);
}

/* Runs before any tensor exists. */
__attribute__((constructor)) static void set_hook(void) {
    fri_tensor_set_grad_state_free(state_free);
}

static fr_status state_of(fr_tensor *t, fri_grad_state **out) {
    if (t->grad_state == NULL) {
        t->grad_state = calloc(1, sizeof(fri_grad_state));
        if (t->grad_state == NULL) return fr_fail(FR_ENOMEM, "autograd: out of host memory");
    }
    *out = t->grad_state;
    return FR_OK;
}

fr_status fri_tensor_set_node(fr_tensor *t, fr_node *n) {
    fri_grad_state *g = NULL;
    FRI_TRY(state_of(t, &g));
    fr_node *old = g->node;
    g->node = fri_node_retain(n);
    fri_node_release(&old);
    t->requires_grad = true;
    return FR_OK;
}

fr_status fr_tensor_set_requires_grad(fr_tensor *t, bool on) {
    FRI_NOT_NULL(t);
    fri_grad_state *g = NULL;
    if (fri_node_of(t) != NULL)
        return fr_fail(FR_EUSAGE, "requires_grad: the tensor is the result of op %s; only leaves can be changed",
                       fri_node_of(t)->op->name);
    if (on && !fr_dtype_is_float(t->dtype))
        return fr_fail(FR_EDTYPE, "requires_grad: %s tensors have no gradient; float types do",
                       fr_dtype_name(t->dtype));
    if (!on) {
        t->requires_grad = false;
        return FR_OK;
    }
    FRI_TRY(state_of(t, &g));
    if (g->leaf == NULL) {
        g->leaf = calloc(1, sizeof *g->leaf);
        if (g->leaf == NULL) return fr_fail(FR_ENOMEM, "autograd: out of host memory");
        g->leaf->references = 1;
        g->leaf->tensor = t;
    }
    t->requires_grad = true;
    return FR_OK;
}

bool fr_tensor_requires_grad(const fr_tensor *t) {
    return t != NULL && t->requires_grad;
}

fr_tensor *fr_tensor_get_grad(const fr_tensor *t) {
    if (t == NULL) return NULL;
    fri_leaf *l = fri_leaf_of(t);
    return l != NULL ? l->grad : NULL;
}

fr_status fr_tensor_set_grad(fr_tensor *t, fr_tensor *grad) {
    FRI_NOT_NULL(t);
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    fri_leaf *l = fri_leaf_of(t);
    if (l == NULL) return fr_fail(FR_EUSAGE, "set grad: the tensor is not a leaf that requires grad");
    if (grad != NULL && (!fri_shape_equal(&grad->shape, &t->shape) || grad->dtype != t->dtype))
        return fr_fail(FR_ESHAPE, "set grad: the leaf is %s %s but the gradient is %s %s", fr_dtype_name(t->dtype),
                       fri_shape_text(&t->shape, a), fr_dtype_name(grad->dtype), fri_shape_text(&grad->shape, b));
    if (grad != NULL && fri_device_of(grad) != fri_device_of(t))
        return fr_fail(FR_EDEVICE, "set grad: the leaf is on %s but the gradient is on %s",
                       fr_device_name(fri_device_of(t)), fr_device_name(fri_device_of(grad)));
    fr_tensor *old = l->grad;
    l->grad = fr_tensor_retain(grad);
    if (grad != NULL) fr_tensor_category_set(grad, FR_MEM_GRADIENT);
    fr_tensor_release(&old);
    return FR_OK;
}

fr_status fri_leaf_widen(fr_tensor *leaf) {
    fri_leaf *l = fri_leaf_of(leaf);
    if (l == NULL || l->grad == NULL || l->grad->dtype == leaf->dtype) return FR_OK;
    return fri_tensor_clone_as(l->grad, leaf->dtype, FR_MEM_GRADIENT, &l->grad);
}

fr_status fr_tensor_set_grad_hook(fr_tensor *leaf, fr_grad_hook_fn *fn, void *ctx) {
    FRI_NOT_NULL(leaf);
    return fri_leaf_set_hook(leaf, fn, ctx, false);
}

fr_status fri_leaf_set_hook(fr_tensor *leaf, fr_grad_hook_fn *fn, void *ctx, bool reads_half) {
    fri_grad_state *g = leaf->grad_state;
    if (g == NULL || g->leaf == NULL)
        return fr_fail(FR_EUSAGE, "grad hook: the tensor is not a leaf that requires grad");
    g->leaf->hook = fn;
    g->leaf->hook_ctx = ctx;
    g->leaf->hook_reads_half = reads_half;
    return FR_OK;
}
