/* process.h - settings of the process and questions about the build. */
#ifndef FRI_BASE_PROCESS_H
#define FRI_BASE_PROCESS_H

#include <frugal/base.h>

bool fri_device_built(fr_device d); /* true if the build has the device's backend */
/* Sends copies from the host to a device through page-locked memory, so the host does not wait. For the process; on
 * at the start; without effect on the CPU. */
void fri_pin_memory_set(bool on);

/* Settings of convolutions (frugal/base.h has the setters). */
bool fri_cudnn_benchmark_get(void);
bool fri_cudnn_deterministic_get(void);
bool fri_exact_convolutions_get(void);

/* The number of the device's arithmetic. A version with different result bits has a higher number. 0: the build lacks
 * the device. */
int fri_device_numerics(fr_device d);

#endif
