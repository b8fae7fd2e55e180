/* host_faults.h - every request of this program for host memory can be made to fail, and what lives is counted.
 *
 * The program is linked with -Wl,--wrap (host_fault_args in tests/meson.build), so calls of malloc, calloc, realloc,
 * strdup and strndup in the library and in the test come here; the library itself is built as ever. Shared libraries
 * (oneDNN, libjpeg, libpng, zlib) keep the system's functions; cJSON is given these by host_faults_begin. Only the
 * thread that arms is counted and can fail. */
#ifndef TESTS_SUPPORT_HOST_FAULTS_H
#define TESTS_SUPPORT_HOST_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

void host_faults_begin(void);
/* Makes request number `at` (from 1) fail from now on, and `more` after it; 0: none, only counting. */
void host_faults_arm(uint64_t at, uint64_t more);
/* Ends it; true if a request has failed. */
bool host_faults_disarm(void);
/* Requests of this thread since it was armed. */
uint64_t host_faults_seen(void);
/* Blocks that are alive, of all threads. */
int64_t host_faults_live(void);

#endif
