/* input.c - see input.h. */
#include "session/input.h"

#include "base/status.h"

#include <string.h>

fr_status fri_input_room(const fri_streams *streams, fri_input_place *p, size_t bytes) {
    fr_status s = streams->wait(p->left);
    if (s < 0 || bytes <= p->bytes) return s;
    streams->host_free(p->memory, p->bytes);
    *p = (fri_input_place){.streams = streams};
    if (streams->host_alloc(bytes, &p->memory) == FR_OK) p->bytes = bytes;
    return FR_OK;
}

void fri_input_free(fri_input_place *p) {
    if (p->memory != NULL) p->streams->host_free(p->memory, p->bytes);
    *p = (fri_input_place){0};
}

fr_status fri_input_transfer(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, fri_fence behind,
                             void *to) {
    size_t bytes = fri_nbytes(from);
    fr_status s = FR_OK;
    memcpy(p->memory, fri_data(from), bytes);
    FR_TRY(s, streams->follow(FRI_STREAM_INPUT, behind));
    FR_TRY(s, streams->copy(FRI_STREAM_INPUT, FRI_COPY_HOST_TO_DEVICE, p->memory, to, bytes));
    FR_TRY(s, streams->mark(FRI_STREAM_INPUT, &p->left));
done:
    return s;
}

fr_status fri_input_queue(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, void *to) {
    fri_fence before = {0};
    fr_status s = FR_OK;
    FR_TRY(s, streams->mark(FRI_STREAM_COMPUTE, &before));
    FR_TRY(s, fri_input_transfer(streams, p, from, before, to));
    FR_TRY(s, streams->follow(FRI_STREAM_COMPUTE, p->left));
done:
    return s;
}
