/* uses.c - see uses.h. The list is short: unfinished copies of the offload stream. */
#include "memory/uses.h"

#include "base/status.h"

#include <stdlib.h>

static bool use_overlaps(const fri_use *u, const char *begin, const char *end) {
    return u->begin < end && begin < u->end;
}

static void drop_use(fri_uses *u, size_t i) {
    u->items[i] = u->items[--u->count];
}

fr_status fri_uses_add(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes, fri_fence fence) {
    for (size_t i = 0; i < u->count;)
        if (streams->passed(u->items[i].fence))
            drop_use(u, i);
        else
            i++;
    FRI_TRY(FRI_ROOM(u->items, u->count, "allocator"));
    u->items[u->count++] = (fri_use){data, (const char *)data + bytes, fence};
    return FR_OK;
}

fr_status fri_uses_follow(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes) {
    for (size_t i = 0; i < u->count;) {
        if (!use_overlaps(&u->items[i], data, (const char *)data + bytes)) {
            i++;
            continue;
        }
        FRI_TRY(streams->follow(FRI_STREAM_COMPUTE, u->items[i].fence));
        drop_use(u, i); /* from here on the compute stream's order covers all bytes */
    }
    return FR_OK;
}

void fri_uses_wait(fri_uses *u, const fri_streams *streams, const void *data, size_t bytes) {
    for (size_t i = 0; i < u->count;) {
        if (!use_overlaps(&u->items[i], data, (const char *)data + bytes)) {
            i++;
            continue;
        }
        (void)streams->wait(u->items[i].fence);
        drop_use(u, i);
    }
}
