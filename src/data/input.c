/* input.c - see input.h. */
#include "data/input.h"

#include "backend/backend.h"
#include "base/status.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* Page-locked memory of a leaving batch. */
typedef struct pinned {
    void *memory;
    size_t bytes;
    fri_fence left; /* passed: the memory may be written again */
} pinned;

/* Images are 0, targets 1. */
struct fri_input {
    fri_input_opts opts;
    const fri_backend *backend;
    const fri_streams *streams; /* NULL: no batch leaves through page-locked memory */
    pinned place[2][2];         /* used in turn */
    int turn;

    /* The early batch. */
    fr_tensor *memory[2]; /* NULL: off */
    fr_dtype dtype[2];
    fr_shape shape[2];
    int64_t early_count, count;
    const fr_loader *loader; /* loader of the batch in `memory`, or on the way there; NULL: none */
    fri_fence arrived[2], taken;
};

fr_status fri_input_create(const fri_input_opts *opts, fri_input **out) {
    fri_input *in = calloc(1, sizeof *in);
    if (in == NULL) return fr_fail(FR_ENOMEM, "input: out of host memory");
    in->opts = *opts;
    in->backend = fri_backend_get(opts->device);
    in->streams = in->backend != NULL && opts->pinned ? in->backend->streams : NULL;
    fri_input_release(out);
    *out = in;
    return FR_OK;
}

void fri_input_release(fri_input **p) {
    fri_input *in = *p;
    *p = NULL;
    if (in == NULL) return;
    for (int i = 0; i < 2; i++) {
        /* A stream unknown to the allocator may still copy a batch into the memory. */
        if (in->streams != NULL) (void)in->streams->wait(in->arrived[i]);
        fr_tensor_release(&in->memory[i]);
        for (int turn = 0; turn < 2; turn++)
            if (in->place[i][turn].memory != NULL)
                in->streams->host_free(in->place[i][turn].memory, in->place[i][turn].bytes);
    }
    free(in);
}

/* ---- from the host ------------------------------------------------------------------------------------------- */

/* The place of the leaving batch: waits until the place is free and large enough. The pointer stays NULL without
 * page-locked memory. */
static fr_status pinned_buffer(fri_input *in, int which, size_t bytes, pinned **out) {
    pinned *p = *out = &in->place[which][in->turn];
    fr_status s = in->streams->wait(p->left);
    if (s < 0 || bytes <= p->bytes) return s;
    if (p->memory != NULL) in->streams->host_free(p->memory, p->bytes);
    *p = (pinned){0};
    if (in->streams->host_alloc(bytes, &p->memory) == FR_OK) p->bytes = bytes;
    return FR_OK;
}

/* Copies t to the device behind the fence `behind`, whatever the device does meanwhile; *arrived stands behind the
 * copy. Without page-locked memory the copy runs in the compute stream's order. */
static fr_status copy_through_pinned(fri_input *in, int which, const fr_tensor *t, fri_fence behind, void *to,
                                     fri_fence *arrived) {
    size_t bytes = fri_nbytes(t);
    pinned *p;
    FRI_TRY(pinned_buffer(in, which, bytes, &p));
    if (p->memory == NULL) {
        FRI_TRY(in->backend->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, fri_data(t), to, bytes));
    } else {
        memcpy(p->memory, fri_data(t), bytes);
        FRI_TRY(in->streams->follow(FRI_STREAM_INPUT, behind));
        FRI_TRY(in->streams->copy(FRI_STREAM_INPUT, FRI_COPY_HOST_TO_DEVICE, p->memory, to, bytes));
        FRI_TRY(in->streams->mark(FRI_STREAM_INPUT, &p->left));
    }
    *arrived = p->left;
    return FR_OK;
}

/* Queues the copy after earlier work, and before later work. */
static fr_status queue_copy(fri_input *in, int which, const fr_tensor *t, void *to) {
    fri_fence before, arrived;
    if (in->streams == NULL)
        return in->backend->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, fri_data(t), to, fri_nbytes(t));
    FRI_TRY(in->streams->mark(FRI_STREAM_COMPUTE, &before));
    FRI_TRY(copy_through_pinned(in, which, t, before, to, &arrived));
    return in->streams->follow(FRI_STREAM_COMPUTE, arrived);
}

/* A vector is a single target. On meta no target is ignored. */
static int64_t count_targets(const fr_tensor *targets) {
    const int64_t *class = targets->dtype == FR_I64 ? fr_tensor_data((fr_tensor *)targets) : NULL;
    int64_t n = 0, all = targets->dtype == FR_I64 ? fri_numel(targets) : targets->shape.dim[0];
    for (int64_t i = 0; class != NULL && i < all; i++) n += class[i] >= 0;
    return class != NULL ? n : all;
}

static fr_status on_host(const fri_input *in, fr_loader *loader, fr_tensor **images, fr_tensor **targets,
                         int64_t *count) {
    fr_status s = fr_loader_next(loader, images, targets);
    if (s == FR_OK && in->opts.edit != NULL) s = in->opts.edit(in->opts.ctx, *images, targets);
    if (s == FR_OK) *count = count_targets(*targets);
    return s;
}

int64_t fri_input_count(const fri_input *in) {
    return in->count;
}

/* ---- the early batch ------------------------------------------------------------------------------ */

fr_status fri_input_prefetch(fri_input *in, const fr_shape *images, fr_dtype of_images, const fr_shape *targets,
                             fr_dtype of_targets) {
    FRI_TRY(fri_tensor_new(images, of_images, in->opts.device, FR_MEM_INPUT, &in->memory[0]));
    FRI_TRY(fri_tensor_new(targets, of_targets, in->opts.device, FR_MEM_INPUT, &in->memory[1]));
    if (in->streams == NULL) return FR_OK;
    return in->streams->mark(FRI_STREAM_COMPUTE, &in->taken); /* the earlier user of the memory */
}

static fr_status begin_early(fri_input *in, fr_loader *loader, const fr_tensor *const t[2]) {
    for (int i = 0; i < 2; i++) {
        in->dtype[i] = t[i]->dtype;
        in->shape[i] = t[i]->shape;
        if (fri_nbytes(t[i]) > fri_nbytes(in->memory[i]))
            return fr_fail(FR_EINTERNAL, "input: a batch of %zu bytes, more than the %zu of a full one",
                           fri_nbytes(t[i]), fri_nbytes(in->memory[i]));
        FRI_TRY(copy_through_pinned(in, i, t[i], in->taken, fri_data(in->memory[i]), &in->arrived[i]));
    }
    in->turn = 1 - in->turn;
    in->loader = loader;
    return FR_OK;
}

fr_status fri_input_fetch(fri_input *in, fr_loader *loader) {
    fr_tensor *t[2] = {NULL, NULL};
    fr_status s = FR_OK;
    if (in->memory[0] == NULL || in->loader != NULL) return FR_OK;
    s = on_host(in, loader, &t[0], &t[1], &in->early_count);
    if (s == FR_OK) s = begin_early(in, loader, (const fr_tensor *const[2]){t[0], t[1]});
    fr_tensor_release(&t[0]);
    fr_tensor_release(&t[1]);
    return s == FR_END ? FR_OK : s;
}

static size_t early_bytes(const fri_input *in, int which) {
    return (size_t)fri_shape_numel(&in->shape[which]) * fr_dtype_size(in->dtype[which]);
}

/* Queues the copy to the step's tensors. */
static fr_status copy_early_batch(fri_input *in, int which, void *to) {
    FRI_TRY(in->streams->follow(FRI_STREAM_COMPUTE, in->arrived[which]));
    return in->streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_DEVICE, fri_data(in->memory[which]), to,
                             early_bytes(in, which));
}

/* Memory of the host's batch is free once the copies are done. */
static fr_status mark_taken(fri_input *in) {
    in->loader = NULL;
    return in->streams->mark(FRI_STREAM_COMPUTE, &in->taken);
}

/* ---- the next batch ------------------------------------------------------------------------------------------ */

/* An early batch, or the host's batch, as a tensor on the device. */
static fr_status to_tensor(fri_input *in, int which, bool early, fr_tensor **t) {
    fr_device device = in->opts.device;
    FRI_OWNED(fr_tensor_release) fr_tensor *moved = NULL;
    if (!early && fr_tensor_device(*t) == device) return FR_OK;
    const fr_shape shape = early ? in->shape[which] : (*t)->shape;
    FRI_TRY(fri_tensor_new(&shape, early ? in->dtype[which] : (*t)->dtype, device, FR_MEM_TEMPORARY, &moved));
    fr_tensor_category_set(moved, FR_MEM_INPUT);
    FRI_TRY(early ? copy_early_batch(in, which, fri_data(moved)) : queue_copy(in, which, *t, fri_data(moved)));
    fri_bump_version(moved);
    fri_tensor_put(&moved, t);
    return FR_OK;
}

fr_status fri_input_next(fri_input *in, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    bool early = in->loader != NULL && in->loader == loader;
    fr_status s = early ? FR_OK : on_host(in, loader, images, targets, &in->count);
    if (s != FR_OK) return s;
    if (early) in->count = in->early_count;
    FRI_TRY(to_tensor(in, 0, early, images));
    FRI_TRY(to_tensor(in, 1, early, targets));
    if (early) return mark_taken(in);
    in->turn = 1 - in->turn;
    return FR_OK;
}
