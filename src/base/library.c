/* library.c - libraries loaded at the first use (addon.h). */
#include "base/status.h"

#include <frugal/addon.h>

#include <dlfcn.h>
#include <pthread.h>

static fr_status load_library(const char *file, const char *package, const char *const *name, void **function, int n) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fr_fail(FR_EUNSUPPORTED, "%s: install the package %s (%s)", file, package, dlerror());
    for (int i = n; i-- > 0;) { /* function[0] is set last: if set, all are */
        function[i] = dlsym(library, name[i]);
        if (function[i] == NULL)
            return fr_fail(FR_EUNSUPPORTED, "%s of the package %s has no function %s", file, package, name[i]);
    }
    return FR_OK;
}

fr_status fr_library_load(const char *file, const char *package, const char *const *name, void **function, int n) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    FRI_NOT_NULL(file, package, name, function);
    pthread_mutex_lock(&lock);
    const fr_status s = n < 1 || function[0] != NULL ? FR_OK : load_library(file, package, name, function, n);
    pthread_mutex_unlock(&lock);
    return s;
}
