/* loader_tensor.c - the loader's public face: batch buffers are tensors.
 *
 * Each slot owns one tensor for images and one for targets, of category input. The caller gets views. A slot whose
 * tensors have another holder (the caller, a view, a node of the graph) releases the tensors and takes new tensors.
 * Tensors are made and released on the training thread, inside create, next and release. */
#include "data/loader.h"

#include "base/status.h"
#include "base/tag.h"
#include "meta/meta.h"
#include "tensor/tensor.h"

#include <stdlib.h>

struct fr_loader {
    fri_loader *core;
    fri_loader_shape shape;
    fr_device device;
    fr_tensor **images, **targets; /* per slot */
};

/* *Makes t an unshared tensor of the shape: the old tensor or a new tensor. */
static fr_status own_tensor(fr_tensor **t, const fr_shape *shape, fr_dtype dtype, fr_device device) {
    if (*t != NULL && fri_tensor_sole(*t)) return FR_OK;
    fr_tensor_release(t);
    return fri_tensor_new(shape, dtype, device, FR_MEM_INPUT, t);
}

static fr_status provide_buffers(void *ctx, int slot, void **images, void **targets) {
    fr_loader *l = ctx;
    const fri_loader_shape *d = &l->shape;
    fr_shape image_shape = FRI_SHAPE(d->capacity, d->height, d->width, d->channels);
    fr_shape target_shape = d->target == FR_TARGET_CLASS    ? FRI_SHAPE(d->capacity)
                            : d->target == FR_TARGET_VECTOR ? FRI_SHAPE(d->capacity, d->numbers)
                                                            : FRI_SHAPE(d->capacity, d->height, d->width);
    fr_dtype target_type = d->target == FR_TARGET_VECTOR ? FR_F32 : FR_I64;
    const char *was = fri_scope_op_push("loader");
    fr_status s = FR_OK;
    FR_TRY(s, own_tensor(&l->images[slot], &image_shape, d->dtype, l->device));
    FR_TRY(s, own_tensor(&l->targets[slot], &target_shape, target_type, l->device));
    *images = fr_tensor_data(l->images[slot]);
    *targets = fr_tensor_data(l->targets[slot]);
done:
    fri_scope_op_pop(was);
    return s;
}

fr_status fr_loader_create(fr_dataset *dataset, const fr_loader_opts *opts, fr_loader **out) {
    FRI_NOT_NULL(dataset, out);
    fr_loader_opts o = opts != NULL ? *opts : fr_loader_opts_default();
    if (o.device != FR_CPU && o.device != FR_META)
        return fr_fail(FR_EUNSUPPORTED, "loader: makes batches on cpu and meta, not on %s", fr_device_name(o.device));
    /* Meta decodes no images. A dry run still allocates the target's buffers. */
    if (o.device == FR_META && fri_meta_target() == NULL) o.workers = 0;
    FRI_OWNED(fr_loader_release) fr_loader *l = calloc(1, sizeof *l);
    if (l == NULL) return fr_fail(FR_ENOMEM, "loader: no memory");
    l->device = o.device;
    FRI_TRY(fri_loader_create(dataset, &o, &l->core));
    l->shape = fri_loader_shape_get(l->core);
    l->images = calloc((size_t)l->shape.slots, sizeof(fr_tensor *));
    l->targets = calloc((size_t)l->shape.slots, sizeof(fr_tensor *));
    if (l->images == NULL || l->targets == NULL)
        return fr_fail(FR_ENOMEM, "loader: no memory for %d slots", l->shape.slots);
    FRI_TRY(fri_loader_start(l->core, provide_buffers, l, o.device != FR_META));
    FRI_MOVE(out, l);
    return FR_OK;
}

void fr_loader_release(fr_loader **loader) {
    fr_loader *l = loader != NULL ? *loader : NULL;
    if (l == NULL) return;
    *loader = NULL;
    fri_loader_release(&l->core); /* workers first, because workers write into the tensors */
    for (int i = 0; i < l->shape.slots; i++) {
        if (l->images != NULL) fr_tensor_release(&l->images[i]);
        if (l->targets != NULL) fr_tensor_release(&l->targets[i]);
    }
    free(l->images);
    free(l->targets);
    free(l);
}

fr_status fr_loader_next(fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    FRI_NOT_NULL(loader, images, targets);
    int slot = 0;
    int64_t length = 0;
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL, *x = NULL;
    fr_status s = fri_loader_fetch(loader->core, &slot, &length);
    if (s != FR_OK) return s; /* FR_END too */
    FRI_TRY(fr_tensor_narrow0(loader->images[slot], 0, length, &x));
    FRI_TRY(fr_tensor_narrow0(loader->targets[slot], 0, length, &t));
    /* First releases the last batch of the caller's slots, so the buffer can be reused. */
    fri_tensor_put(&x, images);
    fri_tensor_put(&t, targets);
    fri_loader_advance(loader->core);
    return FR_OK;
}

int fri_tensor_loader_workers(const fr_loader *l) {
    return l != NULL ? fri_loader_workers(l->core) : 0;
}

int64_t fr_loader_batches(const fr_loader *l) {
    return l != NULL ? fri_loader_batches(l->core) : 0;
}

fr_status fr_loader_position_get(const fr_loader *loader, int64_t *epoch, int64_t *batch) {
    FRI_NOT_NULL(loader, epoch, batch);
    fri_loader_position_get(loader->core, epoch, batch);
    return FR_OK;
}

fr_status fr_loader_position_set(fr_loader *loader, int64_t epoch, int64_t batch) {
    FRI_NOT_NULL(loader);
    return fri_loader_position_set(loader->core, epoch, batch);
}
