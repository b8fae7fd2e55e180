/* connect.c - the public calls on a communicator (comm.h), and connections between devices. */
#include "addons/ranks/comm.h"

#include "addons/ranks/launcher.h"
#include "addons/ranks/share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fr_status fr_comm_open(double seconds, fr_comm **out) {
    FRI_NOT_NULL(out);
    if (!(seconds > 0)) return fr_fail(FR_EINVAL, "ranks: a wait of %g s; it must be above 0", seconds);
    return fri_comm_open(seconds, out);
}

void fr_comm_release(fr_comm **c) {
    if (c != NULL) fri_comm_release(c);
}

int fr_comm_rank(const fr_comm *c) {
    return fri_comm_rank(c);
}

int fr_comm_size(const fr_comm *c) {
    return fri_comm_size(c);
}

const char *fr_comm_engine(const fr_comm *c) {
    return c != NULL ? fri_comm_name(c) : NULL;
}

fr_status fr_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all) {
    FRI_NOT_NULL(c, mine, all);
    return fri_comm_agree(c, mine, bytes, all);
}

/* ---- between devices --------------------------------------------------------------------------------------------- */

typedef struct connection {
    const fri_backend *backend;
    const fri_links *links;
    const char *name;
    size_t bytes;
} connection;

static fr_status link_state(void *ctx) {
    return ((const fri_links *)ctx)->state();
}

static size_t bytes_taken(const fri_backend *b) {
    size_t left = 0, total = 0;
    b->memory_info(&left, &total);
    return total - left;
}

/* A first exchange makes connections and takes their memory: rank i's byte for rank k goes from place k here to place i
 * there. */
static fr_status first_exchange(const connection *n, fr_comm *c, char *memory) {
    const int size = fri_comm_size(c);
    FRI_OWNED(fri_free) fr_piece *piece = malloc(2 * (size_t)size * sizeof *piece);
    FRI_OWNED(fri_free) int *first = malloc((size_t)(size + 1) * sizeof *first);
    fri_fence sent;
    FRI_TRY(piece != NULL && first != NULL ? FR_OK : fr_fail(FR_ENOMEM, "ranks: out of host memory"));
    for (int i = 0, at = 0; i <= size; i++) {
        first[i] = at;
        if (i == size || i == fri_comm_rank(c)) continue;
        piece[at] = (fr_piece){memory + i, 1};
        piece[size + at++] = (fr_piece){memory + size + i, 1};
    }
    FRI_TRY(n->links->exchange(size, (fr_pieces){piece, first}, (fr_pieces){piece + size, first}));
    FRI_TRY(fri_comm_until(c, link_state, (void *)(uintptr_t)n->links));
    FRI_TRY(n->backend->streams->mark(FRI_STREAM_RANKS, &sent));
    return fri_comm_passed(c, n->backend, sent);
}

/* A job. The memory is the driver's: the allocator's is the plan's. */
static fr_status make_links(void *ctx, fr_comm *c) {
    connection *n = ctx;
    const fri_links *links = n->links;
    const size_t size = (size_t)fri_comm_size(c), before = bytes_taken(n->backend);
    char id[FRI_LINKS_ID] = "", *ids = malloc(size * sizeof id);
    void *memory = NULL;
    fr_status s = ids != NULL ? FR_OK : fr_fail(FR_ENOMEM, "ranks: out of host memory");
    if (s < 0) goto done;
    fri_comm_links_set(c, links, n->name);
    if (fri_comm_rank(c) == 0) FR_TRY(s, links->id(id));
    FR_TRY(s, fri_comm_agree_here(c, id, sizeof id, ids));
    FR_TRY(s, links->open(ids, fri_comm_rank(c), (int)size));
    FR_TRY(s, fri_comm_until(c, link_state, (void *)(uintptr_t)links));
    if (n->backend->segment_alloc(2 * size, &memory) < 0) {
        s = fr_fail(FR_ENOMEM, "ranks: the device has no memory for the first exchange");
        goto done;
    }
    FR_TRY(s, first_exchange(n, c, memory));
done:
    if (s == FR_OK) n->backend->segment_free(memory, 2 * size);
    const size_t after = bytes_taken(n->backend);
    n->bytes = after > before ? after - before : 0; /* further ranks of the machine may have freed memory */
    free(ids);
    return s;
}

fr_status fri_comm_connect(fr_comm *c, fr_device device, size_t *bytes) {
    const fri_links *links = fri_links_of(device);
    connection n = {.backend = fri_backend_get(device), .links = links};
    const char *reason = "";
    uint64_t ticket = 0;
    bool all = true;
    *bytes = 0;
    if (n.backend == NULL || links == NULL || fri_comm_is_dry(c)) return FR_OK;
    n.name = links->name(&reason);
    const bool mine = n.name != NULL;
    FRI_OWNED(fri_free) bool *has = malloc((size_t)fri_comm_size(c) * sizeof *has);
    if (has == NULL) return fr_fail(FR_ENOMEM, "ranks: out of host memory");
    FRI_TRY(fri_comm_agree(c, &mine, sizeof mine, has));
    for (int i = 0; i < fri_comm_size(c); i++) all = all && has[i];
    if (!all) return FR_OK;
    FRI_TRY(fri_comm_queue(c, make_links, &n, &ticket));
    FRI_TRY(fri_comm_wait(c, ticket));
    *bytes = n.bytes;
    return FR_OK;
}

fr_status fri_comm_launched(int *rank, int *size) {
    fri_launcher l;
    fr_status s = fri_launcher_find(&l);
    *rank = l.rank;
    *size = l.size;
    return s;
}

int fri_comm_threads(int threads) {
    fri_launcher l;
    if (fri_launcher_find(&l) < 0 || threads < sysconf(_SC_NPROCESSORS_ONLN)) return threads;
    return threads > l.local_size ? threads / l.local_size : 1;
}
