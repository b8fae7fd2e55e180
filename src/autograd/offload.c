/* offload.c - the file for offloaded activations.
 *
 * The caching allocator of device memory manages the file's space, over segments that are mapped pieces of the file.
 * The file is unlinked when opened, so the end of the process removes the file in any case.
 *
 * Note [A store in memory]
 * For an asynchronous device the store is page-locked host memory, unless the program named a file. Copies in both
 * directions then use a separate stream, and the host does not wait. A copy out starts after the queued computation,
 * and the device block is not reused before the copy ends (memory/uses.h). A copy back starts while the previous node
 * runs (backward.c), and the compute stream waits. All copies share a stream, so space in the store can be reused at
 * once. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkostemp */
#endif
#include "autograd/offload.h"

#include "autograd/run.h"
#include "autograd/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Offload file of the thread. Another thread that receives a graph reads and frees blocks from here. */
static _Thread_local struct {
    int fd;
    off_t size;
    fri_allocator *allocator;
    bool named;                 /* the program named a file */
    const fri_streams *streams; /* Note [A store in memory]; NULL: a file */
} store = {.fd = -1};

enum { NAME_BYTES = 4096 };
static _Thread_local char warning[512]; /* warning about the file for the user */

/* ---- the file ---------------------------------------------------------------------------------------------- */

static fr_status map_segment(size_t bytes, void **out) {
    off_t at = store.size;
    if (ftruncate(store.fd, at + (off_t)bytes) != 0) return FR_ENOMEM;
    /* Reserves disk blocks now, because a full disk would otherwise raise SIGBUS at the first write. */
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

/* True for a file system in memory, where offloading frees no memory. */
static bool is_in_memory(int fd) {
    enum { TMPFS = 0x01021994, RAMFS = 0x858458f6 };
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && ((unsigned)fs.f_type == (unsigned)TMPFS || (unsigned)fs.f_type == (unsigned)RAMFS);
}

static int open_in(const char *folder, char name[NAME_BYTES]) {
    int n = snprintf(name, NAME_BYTES, "%s/frugal-offload-XXXXXX", folder);
    int fd = n > 0 && n < NAME_BYTES ? mkostemp(name, O_CLOEXEC) : -1;
    if (fd >= 0) unlink(name);
    return fd;
}

/* Opens a file in the first folder on disk, else in the first writable folder. */
static fr_status open_temporary(void) {
    const char *wanted = getenv("TMPDIR");
    if (wanted != NULL && wanted[0] == '\0') wanted = NULL;
    const char *folders[] = {wanted != NULL ? wanted : "/var/tmp", "/var/tmp", "/tmp"}, *in_memory = NULL;
    char name[NAME_BYTES];
    int why = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int fd = open_in(folders[i], name);
        if (fd < 0) {
            if (i == 0) why = errno;
            if (i == 0 && wanted != NULL) break; /* a wrong TMPDIR is an error */
        } else if (!is_in_memory(fd)) {
            if (store.fd >= 0) close(store.fd);
            store.fd = fd;
            if (in_memory != NULL && in_memory == wanted)
                snprintf(warning, sizeof warning, "TMPDIR %s is in memory, so the file is in %s", wanted, folders[i]);
            return FR_OK;
        } else if (store.fd < 0) {
            store.fd = fd;
            in_memory = folders[i];
        } else {
            close(fd);
        }
    }
    if (store.fd < 0) return fr_fail(FR_EIO, "offload: cannot create a file in %s: %s", folders[0], strerror(why));
    snprintf(warning, sizeof warning, "its file in %s is in memory (tmpfs), so what is offloaded frees none",
             in_memory);
    return FR_OK;
}

static fr_status open_file(const char *path) {
    warning[0] = '\0';
    if (path == NULL) return open_temporary();
    store.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (store.fd < 0) return fr_fail(FR_EIO, "offload: cannot create %s: %s", path, strerror(errno));
    unlink(path);
    if (is_in_memory(store.fd))
        snprintf(warning, sizeof warning, "%.300s is in memory (tmpfs), so what is offloaded there frees none", path);
    return FR_OK;
}

const char *fri_offload_warning(void) {
    return warning;
}

/* Creates the allocator of blocks in the file, or in page-locked memory of the device with these streams. */
static fr_status create_allocator(const fri_streams *streams) {
    fri_segment_source source = {map_segment, unmap_segment};
    if (streams != NULL) source = (fri_segment_source){streams->host_alloc, streams->host_free};
    FRI_TRY(fri_allocator_create(FR_CPU, source, &store.allocator));
    fri_allocator_silence(store.allocator);
    store.streams = streams;
    return FR_OK;
}

fr_status fr_offload_open(const char *path) {
    if (store.allocator != NULL) return fr_fail(FR_EUSAGE, "offload: a file is open already; call fr_offload_close");
    FRI_TRY(open_file(path));
    fr_status s = create_allocator(NULL);
    if (s < 0) {
        close(store.fd);
        store.fd = -1;
        return s;
    }
    store.named = path != NULL;
    return FR_OK;
}

/* Opens the store if necessary and, while the store is empty, adapts it to the device. */
static fr_status ready_for(const fri_backend *b) {
    fr_memory_stats t;
    if (store.allocator == NULL) {
        fr_status s = fr_offload_open(NULL);
        if (s < 0) return s;
    }
    fri_allocator_stats(store.allocator, &t);
    if (store.named || t.segment_allocs != t.segment_frees || store.streams == b->streams) return FR_OK;
    fri_allocator *was = store.allocator;
    fr_status s = create_allocator(b->streams);
    if (s == FR_OK) fri_allocator_destroy(&was);
    return s;
}

void fr_offload_close(void) {
    fr_memory_stats t;
    if (store.allocator == NULL) return;
    fri_allocator_stats(store.allocator, &t);
    if (t.allocs != t.frees) return; /* a graph still uses the file */
    fri_allocator_destroy(&store.allocator);
    close(store.fd);
    store.fd = -1;
    store.size = 0;
}

fr_status fri_offload_stats_get(fr_memory_stats *out) {
    FRI_NOT_NULL(out);
    if (store.allocator == NULL) return fr_fail(FR_EUSAGE, "offload: no file is open; call fr_offload_open");
    fri_allocator_stats(store.allocator, out);
    return FR_OK;
}

/* ---- moving bytes ------------------------------------------------------------------------------------------ */

/* Drops the pages of these bytes from the resident set. The file keeps the data, also of neighbours in shared
 * pages. */
static void forget_pages(const fri_offloaded *o) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)o->block->data;
    if (o->streams == NULL && o->bytes > 0)
        (void)madvise((void *)(data / page * page), o->bytes + data % page, MADV_DONTNEED);
}

static fr_status copy_out(const fri_storage *s, const fri_offloaded *o) {
    const fri_streams *streams = o->streams;
    fri_exec e = {0};
    fri_fence f = {0};
    if (streams == NULL || streams != s->backend->streams) {
        const fr_status status =
            s->backend->copy(&e, FRI_COPY_DEVICE_TO_HOST, s->block->data, o->block->data, o->bytes);
        forget_pages(o);
        return status;
    }
    FRI_TRY(streams->mark(FRI_STREAM_COMPUTE, &f));
    FRI_TRY(streams->follow(FRI_STREAM_OFFLOAD, f));
    FRI_TRY(streams->copy(FRI_STREAM_OFFLOAD, FRI_COPY_DEVICE_TO_HOST, s->block->data, o->block->data, o->bytes));
    FRI_TRY(streams->mark(FRI_STREAM_OFFLOAD, &f));
    return fri_block_used(s->block, f);
}

fri_offloaded *fri_offload_out(const fri_storage *s) {
    fri_exec e = {0};
    fri_offloaded *o = calloc(1, sizeof *o);
    if (o == NULL) return NULL;
    o->references = 1;
    o->bytes = s->block->requested;
    if (s->backend->device == FR_META) { /* no data to move, but decisions as on a device */
        (void)s->backend->copy(&e, FRI_COPY_HOST_TO_DEVICE, NULL, NULL, o->bytes); /* counts the time of a copy */
        return o;
    }
    if (ready_for(s->backend) < 0) {
        free(o);
        return NULL;
    }
    o->streams = store.streams;
    if (fri_block_alloc(store.allocator, o->bytes, &s->block->tag, &o->block) < 0 || copy_out(s, o) < 0) {
        fri_block_free(&o->block);
        free(o);
        return NULL;
    }
    return o;
}

fr_status fri_offload_in(const fri_offloaded *o, const fri_backend *b, void *dst, fri_fence *arrived) {
    const fri_streams *streams = o->streams;
    fri_exec e = {0};
    fri_fence f = {0};
    *arrived = f;
    if (o->block == NULL) return b->copy(&e, FRI_COPY_HOST_TO_DEVICE, NULL, dst, o->bytes); /* meta */
    if (streams == NULL || streams != b->streams) {
        fr_status s = b->copy(&e, FRI_COPY_HOST_TO_DEVICE, o->block->data, dst, o->bytes);
        forget_pages(o);
        return s;
    }
    FRI_TRY(streams->mark(FRI_STREAM_COMPUTE, &f)); /* the previous user of dst may still be running */
    FRI_TRY(streams->follow(FRI_STREAM_OFFLOAD, f));
    FRI_TRY(streams->copy(FRI_STREAM_OFFLOAD, FRI_COPY_HOST_TO_DEVICE, o->block->data, dst, o->bytes));
    return streams->mark(FRI_STREAM_OFFLOAD, arrived);
}

fr_status fri_offload_arrived(const fri_backend *b, fri_fence arrived) {
    return b->streams != NULL ? b->streams->follow(FRI_STREAM_COMPUTE, arrived) : FR_OK;
}

void fri_offload_release(fri_offloaded *o) {
    if (o == NULL || --o->references > 0) return;
    fri_block_free(&o->block);
    free(o);
}
