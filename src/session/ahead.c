/* ahead.c - --device-prefetch: the next batch goes to the device while a step runs.
 *
 * A batch's memory is needed to the end of its step, so its transfer begins when the step before is over. With memory
 * for one batch more the next one is copied there while a step runs, and from there, on the device, to where its step
 * expects it. The loader is a batch ahead then, so a batch is fetched only when the state between two steps has been
 * saved. */
#include "base/status.h"
#include "session/session.h"

fr_status fri_ahead_prepare(fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    int64_t n = fri_batch_size(r->config, FR_SPLIT_TRAIN), size = o->image_size;
    fr_tensor **memory = r->ahead.memory;
    fr_status s = FR_OK;
    if (!o->device_prefetch || !o->pin_memory || !fri_device_runs_ahead(o->device)) return FR_OK;
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){n, size, size, 3}, FR_F32, o->device, &memory[0]));
    FR_TRY(s, fr_tensor_empty(r->config->program->pixel_target != NULL ? 3 : 1, (int64_t[]){n, size, size}, FR_I64,
                              o->device, &memory[1]));
    fri_relabel(memory[0], FR_MEM_INPUT);
    fri_relabel(memory[1], FR_MEM_INPUT);
done:
    return s;
}

void fri_ahead_release(fri_session *r) {
    fr_tensor_release(&r->ahead.memory[0]);
    fr_tensor_release(&r->ahead.memory[1]);
    r->ahead = (fri_ahead){0};
}

static fr_status copy_there(fri_session *r, const fr_tensor *const t[2]) {
    const fri_backend *b = fri_backend_get(r->config->opts.device);
    fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        fri_input_place *p = &r->input[i][r->input_turn];
        a->dtype[i] = t[i]->dtype;
        a->shape[i] = t[i]->shape;
        if (fri_nbytes(t[i]) > fri_nbytes(a->memory[i]))
            return fri_fail(FR_EINTERNAL, "trainer: a batch of %zu bytes, more than the %zu of a full one",
                            fri_nbytes(t[i]), fri_nbytes(a->memory[i]));
        FR_TRY(s, fri_input_room(b->streams, p, fri_nbytes(t[i])));
        if (p->memory == NULL) /* without page-locked memory in the compute stream's order */
            FR_TRY(s, b->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, fri_data(t[i]), fri_data(a->memory[i]),
                              fri_nbytes(t[i])));
        else
            FR_TRY(s, fri_input_transfer(b->streams, p, t[i], a->taken, fri_data(a->memory[i])));
        a->arrived[i] = p->left;
    }
    r->input_turn = 1 - r->input_turn;
    a->full = true;
done:
    return s;
}

fr_status fri_ahead_fetch(fri_session *r) {
    fr_tensor *t[2] = {NULL, NULL};
    fr_status s = FR_OK;
    if (r->ahead.memory[0] == NULL || r->ahead.full) return FR_OK;
    s = fri_batch_on_host(r, r->loader, &t[0], &t[1]);
    if (s == FR_OK) s = copy_there(r, (const fr_tensor *const[2]){t[0], t[1]});
    fr_tensor_release(&t[0]);
    fr_tensor_release(&t[1]);
    return s == FR_END ? FR_OK : s;
}

static fr_status take(fri_session *r, int which, void *to, size_t bytes) {
    const fri_streams *streams = fri_backend_get(r->config->opts.device)->streams;
    const fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    FR_TRY(s, streams->follow(FRI_STREAM_COMPUTE, a->arrived[which]));
    FR_TRY(s, streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_DEVICE, fri_data(a->memory[which]), to, bytes));
done:
    return s;
}

static fr_status taken(fri_session *r) {
    r->ahead.full = false;
    return fri_backend_get(r->config->opts.device)->streams->mark(FRI_STREAM_COMPUTE, &r->ahead.taken);
}

fr_status fri_ahead_next(fri_session *r, fr_tensor **images, fr_tensor **targets) {
    fr_tensor **out[2] = {images, targets}, *t = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        FR_TRY(s, fri_tensor_new(&r->ahead.shape[i], r->ahead.dtype[i], r->config->opts.device, FR_MEM_TEMPORARY, &t));
        fri_relabel(t, FR_MEM_INPUT);
        FR_TRY(s, take(r, i, fri_data(t), fri_nbytes(t)));
        fri_tensor_put(&t, out[i]);
    }
    s = taken(r);
done:
    fr_tensor_release(&t);
    return s;
}

fr_status fri_ahead_into(fri_session *r, const fri_batch_place *place, int64_t *count) {
    const fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)fri_shape_numel(&a->shape[i]) * fr_dtype_size(a->dtype[i]);
        FR_TRY(s, fri_batch_fits(bytes, place->bytes[i]));
        FR_TRY(s, take(r, i, place->data[i], bytes));
    }
    *count = fri_shape_numel(&a->shape[1]);
    s = taken(r);
done:
    return s;
}
