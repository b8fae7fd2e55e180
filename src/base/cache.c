/* cache.c - see cache.h. */
#include "base/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024 };

uint64_t fri_hash(uint64_t from, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) from = (from ^ b[i]) * UINT64_C(1099511628211);
    return from;
}

bool fri_cache_path(const char *stem, const char *what, char *path, size_t bytes) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    uint64_t hash = fri_hash(FRI_HASH, what, strlen(what));
    int n = -1;
    if (cache != NULL && cache[0] == '/')
        n = snprintf(path, bytes, "%s/frugal/%s-%016" PRIx64 ".txt", cache, stem, hash);
    else if (home != NULL && home[0] == '/')
        n = snprintf(path, bytes, "%s/.cache/frugal/%s-%016" PRIx64 ".txt", home, stem, hash);
    if (n > 0 && (size_t)n < bytes) return true;
    path[0] = '\0';
    return false;
}

void fri_cache_make_folders(const char *path) {
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s", path);
    if (n <= 0 || (size_t)n >= sizeof folder) return;
    for (char *p = strchr(folder + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(folder, 0700);
        *p = '/';
    }
}
