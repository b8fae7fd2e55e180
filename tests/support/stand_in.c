/* stand_in.c - see stand_in.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "support/stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "backend/backend.h"

enum { SEGMENTS = 4096, PAGE = 4096 };

static struct {
    void *memory;
    size_t bytes;
} segments[SEGMENTS];
static int used, open_for; /* segments; running kernels and copies */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_backend table;

static void let(int protection) {
    for (int i = 0; i < used; i++)
        if (segments[i].memory != NULL) (void)mprotect(segments[i].memory, segments[i].bytes, protection);
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    if (open_for++ == 0) let(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

static void leave(void) {
    pthread_mutex_lock(&lock);
    if (--open_for == 0) let(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static void kernel_begins(void *ctx, const char *kernel) {
    (void)ctx;
    (void)kernel;
    enter();
}

static void kernel_ended(void *ctx, const char *kernel, const fri_backend *b) {
    (void)ctx;
    (void)kernel;
    (void)b;
    leave();
}

static bool available(const char **reason) {
    *reason = "";
    return true;
}

static fr_status segment_alloc(size_t bytes, void **out) {
    size_t all = (bytes + PAGE - 1) / PAGE * PAGE;
    int i = 0;
    *out = NULL;
    pthread_mutex_lock(&lock);
    while (i < used && segments[i].memory != NULL) i++;
    void *p = i < SEGMENTS ? mmap(NULL, all, open_for > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                           : MAP_FAILED;
    if (p != MAP_FAILED) {
        segments[i].memory = *out = p;
        segments[i].bytes = all;
        if (i == used) used++;
    }
    pthread_mutex_unlock(&lock);
    return *out != NULL ? FR_OK : FR_ENOMEM;
}

static void segment_free(void *segment, size_t bytes) {
    (void)bytes;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < used; i++)
        if (segment != NULL && segments[i].memory == segment) {
            munmap(segment, segments[i].bytes);
            segments[i].memory = NULL;
        }
    pthread_mutex_unlock(&lock);
}

static fr_status copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    enter();
    fr_status s = fri_backend_get(FR_CPU)->copy(e, kind, src, dst, bytes);
    leave();
    return s;
}

static void describe(char *buf, size_t bytes) {
    snprintf(buf, bytes, "stand-in");
}

void stand_in_begin(void) {
    static const fri_kernel_watch watch = {kernel_begins, kernel_ended, NULL};
    const fri_backend *cpu = fri_backend_get(FR_CPU);
    fri_here.kernel_watch = &watch;
    if (table.name != NULL) return;
    table = *cpu;
    table.name = "cuda";
    table.device = FR_CUDA;
    table.available = available;
    table.segment_alloc = segment_alloc;
    table.segment_free = segment_free;
    table.copy = copy;
    table.describe = describe;
#define SLOT(name_, type, need) .name_ = cpu->kernels_f64.name_,
    table.kernels_f64 = (fri_kernels){FRI_MEMORY_KERNELS(SLOT)};
    fri_backend_override(FR_CUDA, &table);
}
