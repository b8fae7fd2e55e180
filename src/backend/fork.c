/* fork.c - see fork.h. */
#include "backend/fork.h"

#include "base/status.h"
#include "base/tag.h"

#include <pthread.h>

static bool forked; /* written before the child has a second thread */

static void in_child(void) {
    fri_intern_unlock();
    forked = true;
}

static void register_handlers(void) {
    pthread_atfork(fri_intern_lock, fri_intern_unlock, in_child);
}

void fri_fork_watch(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
}

bool fri_forked(void) {
    return forked;
}

fr_status fri_fork_refuses(void) {
    if (!forked) return FR_OK;
    return fr_fail(FR_EUSAGE, "this process was forked from a frugal process; call exec before using frugal");
}
