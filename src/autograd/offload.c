/* offload.c - the file that saved activations go to.
 *
 * Its space is handed out by the same caching allocator as device memory, over segments that are mapped pieces of the
 * file. The file has no name from the moment it is open: it is gone when the process ends, however that happens. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkostemp */
#endif
#include "autograd/offload.h"

#include "autograd/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    int fd;
    off_t size;
    fri_allocator *allocator;
} store = {.fd = -1};

/* ---- the file ---------------------------------------------------------------------------------------------- */

static fr_status map_segment(size_t bytes, void **out) {
    off_t at = store.size;
    if (ftruncate(store.fd, at + (off_t)bytes) != 0) return FR_ENOMEM;
    /* Blocks are reserved now: a full disk must be a refusal here, not a SIGBUS at the first write. */
    if (posix_fallocate(store.fd, at, (off_t)bytes) != 0) return FR_ENOMEM;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store.fd, at);
    if (p == MAP_FAILED) return FR_ENOMEM;
    store.size = at + (off_t)bytes;
    *out = p;
    return FR_OK;
}

static void unmap_segment(void *segment, size_t bytes) {
    munmap(segment, bytes);
}

static fr_status open_file(const char *path) {
    char name[4096];
    if (path != NULL) {
        snprintf(name, sizeof name, "%s", path);
        store.fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } else {
        const char *folder = getenv("TMPDIR");
        snprintf(name, sizeof name, "%s/frugal-offload-XXXXXX", folder != NULL && folder[0] ? folder : "/tmp");
        store.fd = mkostemp(name, O_CLOEXEC);
    }
    if (store.fd < 0) return fri_fail(FR_EIO, "offload: cannot create %s: %s", name, strerror(errno));
    unlink(name);
    return FR_OK;
}

fr_status fr_offload_open(const char *path) {
    if (store.allocator != NULL) return fri_fail(FR_EUSAGE, "offload: a file is open already");
    fr_status s = open_file(path);
    if (s < 0) return s;
    s = fri_allocator_create(FR_CPU, (fri_segment_source){map_segment, unmap_segment}, &store.allocator);
    if (s < 0) {
        close(store.fd);
        store.fd = -1;
        return s;
    }
    fri_allocator_silence(store.allocator);
    return FR_OK;
}

void fr_offload_close(void) {
    fr_memory_stats t;
    if (store.allocator == NULL) return;
    fri_allocator_stats(store.allocator, &t);
    if (t.allocs != t.frees) return; /* a graph still needs it */
    fri_allocator_destroy(&store.allocator);
    close(store.fd);
    store.fd = -1;
    store.size = 0;
}

fr_status fr_offload_stats_get(fr_memory_stats *out) {
    if (store.allocator == NULL) return fri_fail(FR_EUSAGE, "offload: no file is open");
    fri_allocator_stats(store.allocator, out);
    return FR_OK;
}

/* ---- moving bytes ------------------------------------------------------------------------------------------ */

fri_offloaded *fri_offload_out(const fri_storage *s) {
    fri_exec e = {0};
    fri_offloaded *o = calloc(1, sizeof *o);
    if (o == NULL) return NULL;
    o->references = 1;
    o->bytes = s->block->requested;
    if (s->backend->device == FR_META) { /* no data to move, and the same decisions as on a device */
        (void)s->backend->copy(&e, FRI_COPY_HOST_TO_DEVICE, NULL, NULL, o->bytes); /* the time counts */
        return o;
    }
    if (store.allocator == NULL && fr_offload_open(NULL) < 0) {
        free(o);
        return NULL;
    }
    if (fri_block_alloc(store.allocator, o->bytes, &s->block->tag, &o->block) < 0 ||
        s->backend->copy(&e, FRI_COPY_DEVICE_TO_HOST, s->block->data, o->block->data, o->bytes) < 0) {
        fri_block_free(&o->block);
        free(o);
        return NULL;
    }
    return o;
}

fr_status fri_offload_in(const fri_offloaded *o, const fri_backend *b, void *dst) {
    fri_exec e = {0};
    if (o->block == NULL) return b->copy(&e, FRI_COPY_HOST_TO_DEVICE, NULL, dst, o->bytes); /* meta */
    return b->copy(&e, FRI_COPY_HOST_TO_DEVICE, o->block->data, dst, o->bytes);
}

void fri_offload_release(fri_offloaded *o) {
    if (o == NULL || --o->references > 0) return;
    fri_block_free(&o->block);
    free(o);
}
