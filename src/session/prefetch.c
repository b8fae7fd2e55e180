/* prefetch.c - --device-prefetch copies the next batch to the device while a step runs.
 *
 * A step needs the memory of its batch to its end, so without a prefetch the transfer of the next batch waits for that.
 * The prefetch has memory for one more batch: the next one is copied there while a step runs, and from there, on the
 * device, to where its step expects it. A prefetch moves the loader on by a batch, so it follows the save of the state
 * between two steps. */
#include "base/status.h"
#include "session/session.h"

fr_status fri_prefetch_prepare(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    int64_t n = fri_batch_size(r->config, FR_SPLIT_TRAIN), size = o->image_size;
    fr_tensor **memory = r->prefetch.memory;
    fr_status s = FR_OK;
    if (!o->device_prefetch || !o->pin_memory || !fri_device_is_asynchronous(o->device)) return FR_OK;
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){n, size, size, 3}, FR_F32, o->device, &memory[0]));
    FR_TRY(s, fr_tensor_empty(r->config->program->pixel_target != NULL ? 3 : 1, (int64_t[]){n, size, size}, FR_I64,
                              o->device, &memory[1]));
    fri_relabel(memory[0], FR_MEM_INPUT);
    fri_relabel(memory[1], FR_MEM_INPUT);
done:
    return s;
}

void fri_prefetch_release(fri_session *r) {
    fr_tensor_release(&r->prefetch.memory[0]);
    fr_tensor_release(&r->prefetch.memory[1]);
    r->prefetch = (fri_prefetch){0};
}

/* Begins the transfer of images and targets into the prefetch's memory. */
static fr_status device_copy(fri_session *r, const fr_tensor *const t[2]) {
    const fri_backend *b = fri_backend_get(r->config->opts.device);
    fri_prefetch *next = &r->prefetch;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        fri_input_place *p = &r->input[i][r->input_turn];
        next->dtype[i] = t[i]->dtype;
        next->shape[i] = t[i]->shape;
        if (fri_nbytes(t[i]) > fri_nbytes(next->memory[i]))
            return fri_fail(FR_EINTERNAL, "trainer: a batch of %zu bytes, more than the %zu of a full one",
                            fri_nbytes(t[i]), fri_nbytes(next->memory[i]));
        FR_TRY(s, fri_input_room(b->streams, p, fri_nbytes(t[i])));
        if (p->memory == NULL) /* without page-locked memory in the compute stream's order */
            FR_TRY(s, b->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, fri_data(t[i]), fri_data(next->memory[i]),
                              fri_nbytes(t[i])));
        else
            FR_TRY(s, fri_input_transfer(b->streams, p, t[i], next->taken, fri_data(next->memory[i])));
        next->arrived[i] = p->left;
    }
    r->input_turn = 1 - r->input_turn;
    next->full = true;
done:
    return s;
}

fr_status fri_prefetch_fetch(fri_session *r) {
    fr_tensor *t[2] = {NULL, NULL};
    fr_status s = FR_OK;
    if (r->prefetch.memory[0] == NULL || r->prefetch.full) return FR_OK;
    s = fri_batch_on_host(r, r->loader, &t[0], &t[1]);
    if (s == FR_OK) s = device_copy(r, (const fr_tensor *const[2]){t[0], t[1]});
    fr_tensor_release(&t[0]);
    fr_tensor_release(&t[1]);
    return s == FR_END ? FR_OK : s;
}

/* Queues the copy of a prefetched batch to where its step expects it. */
static fr_status take(fri_session *r, int which, void *to, size_t bytes) {
    const fri_streams *streams = fri_backend_get(r->config->opts.device)->streams;
    const fri_prefetch *next = &r->prefetch;
    fr_status s = FR_OK;
    FR_TRY(s, streams->follow(FRI_STREAM_COMPUTE, next->arrived[which]));
    FR_TRY(s, streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_DEVICE, fri_data(next->memory[which]), to, bytes));
done:
    return s;
}

/* Marks the prefetch's memory as free once those copies are done. */
static fr_status taken(fri_session *r) {
    r->prefetch.full = false;
    return fri_backend_get(r->config->opts.device)->streams->mark(FRI_STREAM_COMPUTE, &r->prefetch.taken);
}

fr_status fri_prefetch_next(fri_session *r, fr_tensor **images, fr_tensor **targets) {
    fr_tensor **out[2] = {images, targets}, *t = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        FR_TRY(s, fri_tensor_new(&r->prefetch.shape[i], r->prefetch.dtype[i], r->config->opts.device, FR_MEM_TEMPORARY,
                                 &t));
        fri_relabel(t, FR_MEM_INPUT);
        FR_TRY(s, take(r, i, fri_data(t), fri_nbytes(t)));
        fri_tensor_put(&t, out[i]);
    }
    s = taken(r);
done:
    fr_tensor_release(&t);
    return s;
}

fr_status fri_prefetch_into(fri_session *r, const fri_batch_place *place, int64_t *count) {
    const fri_prefetch *next = &r->prefetch;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)fri_shape_numel(&next->shape[i]) * fr_dtype_size(next->dtype[i]);
        FR_TRY(s, fri_batch_fits(bytes, place->bytes[i]));
        FR_TRY(s, take(r, i, place->data[i], bytes));
    }
    *count = fri_shape_numel(&next->shape[1]);
    s = taken(r);
done:
    return s;
}
