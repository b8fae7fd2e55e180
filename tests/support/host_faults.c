/* host_faults.c - see host_faults.h. Names with two underscores come from the linker's --wrap. */
#include "support/host_faults.h"

#include <cJSON.h>

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void __real_free(void *p);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
void __wrap_free(void *p);

static _Thread_local struct {
    bool armed, failed;
    uint64_t at, more, seen;
} plan;
static atomic_int_fast64_t live;

static bool fails(void) {
    if (!plan.armed) return false;
    plan.seen++;
    bool hit = plan.at > 0 && plan.seen >= plan.at && plan.seen - plan.at <= plan.more;
    plan.failed |= hit;
    return hit;
}

static void *given(void *p) {
    if (p != NULL) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : given(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fails() ? NULL : given(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *p, size_t bytes) {
    if (fails()) return NULL;
    return p == NULL ? given(__real_realloc(p, bytes)) : __real_realloc(p, bytes);
}

char *__wrap_strdup(const char *text) {
    return fails() ? NULL : given(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t n) {
    return fails() ? NULL : given(__real_strndup(text, n));
}

/* Device memory of the CPU: counted, because free releases it; allocator tests cover its failures. */
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes) {
    int error = __real_posix_memalign(out, alignment, bytes);
    if (error == 0) (void)given(*out);
    return error;
}

void __wrap_free(void *p) {
    if (p != NULL) atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    __real_free(p);
}

void host_faults_begin(void) {
    cJSON_InitHooks(&(cJSON_Hooks){__wrap_malloc, __wrap_free});
}

void host_faults_arm(uint64_t at, uint64_t more) {
    plan.armed = true;
    plan.failed = false;
    plan.at = at;
    plan.more = more;
    plan.seen = 0;
}

bool host_faults_disarm(void) {
    plan.armed = false;
    return plan.failed;
}

int64_t host_faults_live(void) {
    return atomic_load_explicit(&live, memory_order_relaxed);
}
