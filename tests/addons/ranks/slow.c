/* slow.c - preloaded into a rank: the function named by FRUGAL_TEST_SLOW takes six seconds ("fsync") or never returns
 * ("MPI_Finalize"). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_slow(const char *name) {
    const char *wanted = getenv("FRUGAL_TEST_SLOW");
    return wanted != NULL && strcmp(wanted, name) == 0;
}

__attribute__((visibility("default"))) int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (is_slow("fsync")) sleep(6);
    return real(fd);
}

__attribute__((visibility("default"))) int MPI_Finalize(void);
int MPI_Finalize(void) {
    if (is_slow("MPI_Finalize")) sleep(600);
    int (*real)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPI_Finalize");
    return real != NULL ? real() : 0;
}
