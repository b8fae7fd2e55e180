/* host_faults.h - makes requests for host memory fail, and counts live blocks.
 *
 * The program is linked with -Wl,--wrap (host_fault_args in tests/meson.build), so calls of malloc, calloc, realloc,
 * strdup and strndup in library and test arrive here; the library itself is unchanged. Shared libraries (libjpeg,
 * libpng, zlib) use the system's functions; host_faults_begin gives wrapped functions to cJSON. Only the
 * arming thread is counted and can fail. */
#ifndef TESTS_SUPPORT_HOST_FAULTS_H
#define TESTS_SUPPORT_HOST_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

void host_faults_begin(void);
/* Request number `at` (from 1, the next) and `more` later requests fail; 0: only counts. */
void host_faults_arm(uint64_t at, uint64_t more);
/* Ends it; true if a request has failed. */
bool host_faults_disarm(void);
/* Blocks that are alive, of all threads. */
int64_t host_faults_live(void);

#endif
