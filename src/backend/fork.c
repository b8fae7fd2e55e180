/* fork.c - see fork.h. */
#include "backend/fork.h"

#include "base/tag.h"
#include "base/thread.h"

#include <pthread.h>

static bool forked; /* written before the child has a second thread */

static void in_child(void) {
    fri_intern_unlock();
    forked = true;
    fri_here.threads = 1;
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
