/* maxpool2d - maximum over windows.
 *   forward    y = max of x over the window; the first maximum wins, NaN wins over everything
 *   backward   dx[argmax] += dy, in order of the windows; 0 elsewhere
 *   saves      the argmax: one byte per output (position in the window; i32 above 255 positions); with encode off
 *              PyTorch's set: an index of type switches.pool_index, and x itself
 *   in-place   no
 *   rebuild    from x, where that is made again too, for those that saved y: behind a batch norm and relu one map stays
 *              for all three
 *   masks      takes over the mask of a relu before it: where y <= 0 the code says "none", and the relu keeps nothing
 *   order      deterministic */
#include "ops/pool.h"

#include "base/status.h"

typedef struct params {
    fri_pool2d_desc desc;
    fr_dtype index;
} params;

enum { SAVED_INDEX, SAVED_X };

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *index = NULL;
    fr_shape shape = FRI_SHAPE(p->desc.n, p->desc.h, p->desc.w, p->desc.c);
    FRI_TRY(fr_node_saved(node, SAVED_INDEX, &index));
    FRI_TRY(fri_tensor_new(&shape, p->desc.dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), p->desc.dtype, maxpool2d_backward,
                       (FRI_EXEC, &p->desc, p->index, fri_data(index), fri_data(*dy), fri_data(dx))));
    fr_tensor_release(&index);
    fr_node_release_saved(node, SAVED_INDEX);
    fr_node_release_saved(node, SAVED_X);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status absorb_mask(fr_node *node, fr_tensor *y) {
    const params *p = fr_node_params(node);
    fri_slot *slot = &node->slots[SAVED_INDEX];
    if (slot->kind != FRI_SLOT_TENSOR) return FR_EUNSUPPORTED;
    return FRI_KERNEL(fri_backend_of(y), p->desc.dtype, maxpool2d_mask,
                      (FRI_EXEC, &p->desc, fri_data(y), p->index, fri_storage_data(slot->storage)));
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_tensor_new(&node->shape, node->dtype, node->device, FR_MEM_TEMPORARY, &out));
    FRI_TRY(FRI_KERNEL(fri_backend_of(in[0]), p->desc.dtype, maxpool2d_forward,
                       (FRI_EXEC, &p->desc, fri_data(in[0]), fri_data(out), p->index, NULL)));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static const fr_op maxpool2d = {.name = "maxpool2d",
                                .backward = backward,
                                .rebuild = rebuild,
                                .rebuild_inputs = 1,
                                .rebuild_alone = true,
                                .absorb_mask = absorb_mask};

static fr_dtype index_type(const fri_pool2d_desc *d) {
    const fr_switches *switches = fri_switches();
    fr_dtype wanted = switches->encode ? FR_U8 : switches->pool_index;
    /* Code 255 means "none", so a byte can address 255 positions. */
    return wanted == FR_U8 && d->kernel_h * d->kernel_w > 255 ? FR_I32 : wanted;
}

fr_status fr_maxpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *index = NULL, *out = NULL;
    params p;
    FRI_TRY(fri_call_begin(&c, &maxpool2d, 1, &x, 1));
    FRI_TRY(fri_pool2d_describe(&maxpool2d, x, kernel, opts != NULL ? opts : FR_POOL2D_OPTS(), &p.desc));
    fr_shape shape = FRI_SHAPE(p.desc.n, p.desc.p, p.desc.q, p.desc.c);
    const fri_backend *be = fri_backend_of(x);
    p.index = index_type(&p.desc);
    FRI_TRY(fri_tensor_new(&shape, x->dtype, be->device, FR_MEM_TEMPORARY, &out));
    if (fr_grad_enabled() && x->requires_grad)
        FRI_TRY(fri_tensor_new(&shape, p.index, be->device, FR_MEM_TEMPORARY, &index));
    FRI_TRY(
        FRI_KERNEL(be, x->dtype, maxpool2d_forward,
                   (FRI_EXEC, &p.desc, fri_data(x), fri_data(out), p.index, index != NULL ? fri_data(index) : NULL)));
    fr_save saves[] = {{index, FR_SAVE_VALUE}, {fri_switches()->encode ? NULL : x, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(&maxpool2d, &p, sizeof p, &x, 1, saves, 2, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
