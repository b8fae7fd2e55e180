/* library.c - libraries and modules loaded at the first use (addon.h, library.h). */
#include "base/library.h"

#include "base/status.h"

#include <frugal/addon.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* ---- modules --------------------------------------------------------------------------------------------------- */

enum { OWN_PATH = FRI_MODULE_PATH - 100 };

/* Absolute path of the library's file, a shared library or the program; "" if unknown. */
static void own_path(char path[OWN_PATH]) {
    char line[FRI_MODULE_PATH];
    const uintptr_t here = (uintptr_t)own_path;
    FILE *maps = fopen("/proc/self/maps", "r");
    path[0] = '\0';
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long from = 0, to = 0;
        const char *name = strchr(line, '/');
        if (sscanf(line, "%llx-%llx", &from, &to) != 2 || here < from || here >= to || name == NULL) continue;
        snprintf(path, OWN_PATH, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    if (maps != NULL) fclose(maps);
}

/* Opens a file of the library's owner or of root. Strangers may write to folders around a program. */
static void *open_trusted(const char *path, uid_t owner, int flags) {
    struct stat file;
    const bool trusted = stat(path, &file) == 0 && (file.st_uid == owner || file.st_uid == 0);
    return trusted ? dlopen(path, flags) : NULL;
}

void *fri_module_open(const char *name, const char *built, const char *given, int flags, char path[FRI_MODULE_PATH]) {
    static const char *const places[] = {"frugal", "../lib/frugal", "..", "../..", "../../.."};
    char folder[OWN_PATH];
    struct stat own = {0};
    void *module = NULL;
    if (given != NULL && given[0] != '\0') {
        snprintf(path, FRI_MODULE_PATH, "%s", given);
        return dlopen(path, flags);
    }
    own_path(folder);
    const bool known = stat(folder, &own) == 0;
    if (known) *strrchr(folder, '/') = '\0';
    for (size_t i = 0; known && module == NULL && i < sizeof places / sizeof *places; i++) {
        snprintf(path, FRI_MODULE_PATH, "%s/%s/%s/libfrugal-%s.so", folder, places[i], i < 2 ? "" : built, name);
        module = open_trusted(path, own.st_uid, flags);
    }
    if (module != NULL) return module;
    snprintf(path, FRI_MODULE_PATH, FRI_MODULES "/libfrugal-%s.so", name);
    module = open_trusted(path, own.st_uid, flags);
    if (module != NULL) return module;
    snprintf(path, FRI_MODULE_PATH, "libfrugal-%s.so", name);
    return dlopen(path, flags);
}
