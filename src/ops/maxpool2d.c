/* maxpool2d - maximum over windows.
 *   forward    y = max of x over the window; the first maximum wins, NaN wins over everything
 *   backward   dx[argmax] += dy, in order of the windows; 0 elsewhere
 *   saves      the argmax: one byte per output (position in the window; i32 above 255 positions); with encode off
 *              PyTorch's set: an index of type switches.pool_index, and x itself
 *   rebuild    from x, where that is made again too, for those that saved y: behind a batch norm and relu one map stays
 *              for all three
 *   masks      takes over the mask of a relu before it: where y <= 0 the code says "none", and the relu keeps nothing
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

typedef struct options {
    fri_pool2d_desc desc;
    fr_dtype index;
} options;

FRI_OP_KERNEL(maxpool2d_forward, options, (e, &d->desc, T(0), T(1), d->index, T(2)), .fri_more = &fri_pool2d_more)
FRI_OP_KERNEL(maxpool2d_backward, options, (e, &d->desc, d->index, T(0), T(1), T(2)), .fri_more = &fri_pool2d_more)
FRI_OP_KERNEL(maxpool2d_mask, options, (e, &d->desc, T(0), d->index, T(1)), .flops = 1)

enum { INPUT, INDEX = 2, SAVED_INDEX = 1 };

static fr_status absorb_mask(fr_node *node, fr_tensor *y) {
    const options *o = fri_frame_options(node);
    const fri_slot *slot = &node->slots[SAVED_INDEX];
    FRI_OWNED(fr_tensor_release) fr_tensor *index = NULL;
    if (slot->kind != FRI_SLOT_TENSOR) return FR_EUNSUPPORTED;
    FRI_TRY(fri_tensor_on_storage(slot->storage, slot->offset, &slot->shape, slot->dtype, &index));
    return fri_kernel_run(&maxpool2d_mask_kernel, o, sizeof *o, y->dtype, (fr_tensor *[]){y, index}, 2);
}

fr_described fri_op_maxpool2d = {.op = {.name = "maxpool2d", .rebuild_alone = true, .absorb_mask = absorb_mask},
                                 .operands = "x[n,h,w,c] > y[n,p,q,c] index:any[n,p,q,c]?",
                                 .forward = {{"x > y index", &maxpool2d_forward_kernel}},
                                 .backward = {{"index dy > dx", &maxpool2d_backward_kernel}},
                                 .rebuilds = true,
                                 .keeps = "x"};

static fr_dtype index_type(const fri_pool2d_desc *d) {
    const fr_switches *switches = fri_switches();
    fr_dtype wanted = switches->encode ? FR_U8 : switches->pool_index;
    /* Code 255 means "none", so a byte can address 255 positions. */
    return wanted == FR_U8 && d->kernel_h * d->kernel_w > 255 ? FR_I32 : wanted;
}

fr_status fr_maxpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    options o;
    FRI_TRY(fri_frame_begin(&f, &fri_op_maxpool2d, &x, y));
    FRI_TRY(fri_pool2d_describe(&f, kernel, opts != NULL ? opts : FR_POOL2D_OPTS(), &o.desc));
    f.code = o.index = index_type(&o.desc);
    f.kept = fri_switches()->encode ? 0 : 1 << INPUT;
    return fri_frame_run(&f, &o, sizeof o, y);
}
