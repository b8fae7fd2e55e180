/* device.c - buckets on a device that works while the host goes on.
 *
 * The lane queues copies and kernels on a stream of its own, FRI_STREAM_RANKS: behind what the program had queued when
 * it handed the bucket over (`before`). It waits until all is done, so memory and failures are the program's as on a
 * CPU; what the program queues afterwards follows `after`. An engine that knows host memory only is handed copies in
 * page-locked memory. */
#include "addons/ranks/share.h"

#include <stdlib.h>

fr_status fri_share_device_begin(fr_share *p) {
    const fri_backend *be = fri_backend_get(p->device);
    const size_t bytes = fri_nbytes(p->landing);
    p->streams = be->streams;
    if (p->streams == NULL) return FR_OK;
    FRI_TRY(p->streams->exec(FRI_STREAM_RANKS, &p->exec));
    p->links = fri_comm_links(p->comm);
    if (p->links != NULL) return FR_OK;
    for (int i = 0; i < 2; i++)
        if (p->streams->host_alloc(bytes, &p->staging[i]) < 0)
            return fr_fail(FR_ENOMEM, "ranks: the system locks no %zu bytes of host memory for what they exchange",
                           bytes);
    return FR_OK;
}

void fri_share_device_end(fr_share *p) {
    for (int i = 0; i < 2 && p->streams != NULL; i++)
        p->streams->host_free(p->staging[i], p->landing != NULL ? fri_nbytes(p->landing) : 0);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

fr_status fri_share_queue(fri_bucket *b, fri_comm_job *job) {
    const fr_share *p = b->share;
    fr_status s = p->streams != NULL ? p->streams->mark(FRI_STREAM_COMPUTE, &b->before) : FR_OK;
    return s == FR_OK ? fri_comm_queue(p->comm, job, b, &b->ticket) : s;
}

fr_status fri_share_follow(const fri_bucket *b) {
    const fri_streams *streams = b->share->streams;
    return streams != NULL ? streams->follow(FRI_STREAM_COMPUTE, b->after) : FR_OK;
}

fr_status fri_share_job_begin(const fri_bucket *b) {
    const fri_streams *streams = b->share->streams;
    return streams != NULL ? streams->follow(FRI_STREAM_RANKS, b->before) : FR_OK;
}

static fr_status finish_transfer(const fr_share *p, fri_fence *f) {
    fr_status s = p->streams->mark(FRI_STREAM_RANKS, f);
    return s == FR_OK ? p->streams->wait(*f) : s;
}

typedef struct awaited {
    const fri_backend *backend;
    const fri_links *links;
    fri_fence fence;
} awaited;

static fr_status has_arrived(void *ctx) {
    const awaited *a = ctx;
    if (a->backend->streams->passed(a->fence)) return FR_OK;
    fr_status s = a->links->state();
    return s < 0 ? s : FR_END;
}

fr_status fri_comm_passed(fr_comm *c, const fri_backend *b, fri_fence f) {
    awaited a = {b, fri_comm_links(c), f};
    return fri_comm_until(c, has_arrived, &a);
}

/* Ranks confirm over the engine that all have queued the job: over the links a device would wait for an unknown late
 * rank. */
fr_status fri_share_job_end(fri_bucket *b, fr_comm *c) {
    const fr_share *p = b->share;
    char here = 1;
    if (p->streams == NULL) return FR_OK;
    if (p->links == NULL) return finish_transfer(p, &b->after);
    FRI_TRY(p->streams->mark(FRI_STREAM_RANKS, &b->after));
    FRI_TRY(fri_comm_agree_here(c, &here, sizeof here, p->gathered));
    return fri_comm_passed(c, fri_backend_get(p->device), b->after);
}

/* ---- through host memory ----------------------------------------------------------------------------------------- */

/* Places of n pieces on the host; pieces after the first `different` share places. */
static void lay_out(fr_share *p, int way, int n, int different) {
    char *at = p->staging[way];
    for (int i = 0; i < n; i++) {
        const size_t bytes = p->piece[way][i].bytes;
        p->staged[way][i] = (fr_piece){i < different ? at : p->staged[way][i - different].data, bytes};
        at += bytes;
    }
}

static fr_status copy_buckets(const fr_share *p, int way, int n) {
    fr_status s = FR_OK;
    for (int i = 0; i < n && s == FR_OK; i++) {
        void *on_device = p->piece[way][i].data, *on_host = p->staged[way][i].data;
        s = way == 0 ? p->streams->copy(FRI_STREAM_RANKS, FRI_COPY_DEVICE_TO_HOST, on_device, on_host,
                                        p->piece[way][i].bytes)
                     : p->streams->copy(FRI_STREAM_RANKS, FRI_COPY_HOST_TO_DEVICE, on_host, on_device,
                                        p->piece[way][i].bytes);
    }
    return s;
}

/* Waits for the outgoing data, and for the last exchange's data, because the place is written again. */
static fr_status carry_staged(fr_share *p, bool same, fr_comm *c) {
    const int out = p->first[0][p->size], in = p->first[1][p->size], different = same ? out / (p->size - 1) : out;
    fri_fence copied;
    lay_out(p, 0, out, different);
    lay_out(p, 1, in, in);
    FRI_TRY(copy_buckets(p, 0, different));
    FRI_TRY(finish_transfer(p, &copied));
    FRI_TRY(fri_comm_exchange(c, (fr_pieces){p->staged[0], p->first[0]}, (fr_pieces){p->staged[1], p->first[1]}));
    return copy_buckets(p, 1, in);
}

static fr_status queued_state(void *ctx) {
    return ((const fri_links *)ctx)->state();
}

fr_status fri_share_carry(fr_share *p, bool same, fr_comm *c) {
    if (p->links != NULL) {
        fr_status s =
            p->links->exchange(p->size, (fr_pieces){p->piece[0], p->first[0]}, (fr_pieces){p->piece[1], p->first[1]});
        return s == FR_OK ? fri_comm_until(c, queued_state, (void *)(uintptr_t)p->links) : s;
    }
    if (p->staging[0] != NULL) return carry_staged(p, same, c);
    return fri_comm_exchange(c, (fr_pieces){p->piece[0], p->first[0]}, (fr_pieces){p->piece[1], p->first[1]});
}
