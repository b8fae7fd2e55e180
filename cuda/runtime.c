/* runtime.c - see runtime.h. */
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "context.h"

static const fri_cudart linked = {
#define FRI_CUDART_LINKED(name) .name = cuda##name,
    FRI_CUDART_MAP(FRI_CUDART_LINKED)
#undef FRI_CUDART_LINKED
};

const fri_cudart *fri_cudart_table = &linked;

void fri_cuda_use(const fri_cudart *table) {
    fri_cudart_table = table != NULL ? table : &linked;
    fri_cuda_forget();
}

/* ---- opened libraries ----------------------------------------------------------------------------- */

static void *open_library(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void *find_symbol(void *library, const char *name) {
    return dlsym(library, name);
}

static const fri_cuda_opener system_opener = {open_library, find_symbol};
const fri_cuda_opener *fri_cuda_opener_table = &system_opener;

enum { PATH_BYTES = 1024 };

static void *open_in(const char *folder, size_t length, const char *soname) {
    char path[PATH_BYTES];
    if (length == 0 || (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, soname) >= sizeof path)
        return NULL;
    return fri_cuda_opener_table->open(path);
}

void *fri_cuda_open(const char *variable, const char *named, const char *soname, char *reason, size_t reason_bytes) {
    const fri_cuda_opener *o = fri_cuda_opener_table;
    void *library = NULL;
    if (named != NULL && named[0] != '\0') {
        library = o->open(named);
        if (library == NULL) library = open_in(named, strlen(named), soname);
        if (library == NULL) snprintf(reason, reason_bytes, "%s=%s is not %s", variable, named, soname);
        return library;
    }
    library = o->open(soname);
    for (const char *at = FRI_CUDA_LIBRARY_DIRS; library == NULL && *at != '\0';) {
        size_t length = strcspn(at, ":");
        library = open_in(at, length, soname);
        at += length + (at[length] == ':');
    }
    if (library == NULL)
        snprintf(reason, reason_bytes, "%s cannot be loaded (set %s to its file or folder)", soname, variable);
    return library;
}

bool fri_cuda_symbol(void *library, const char *soname, const char *symbol, void *slot, char *reason,
                     size_t reason_bytes) {
    void *found = fri_cuda_opener_table->symbol(library, symbol);
    memcpy(slot, &found, sizeof found);
    if (found == NULL) snprintf(reason, reason_bytes, "%s lacks %s", soname, symbol);
    return found != NULL;
}
