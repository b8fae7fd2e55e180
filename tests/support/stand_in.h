/* stand_in.h - the CPU as a device called CUDA, for tests with the device as a parameter.
 *
 * FRUGAL_TEST_DEVICE=stand-in runs such tests without a GPU. Device memory is accessible only while a kernel or copy
 * runs, so a test that reads it as host memory ends with a signal; like the CUDA backend, the device has no f64
 * arithmetic. The stand-in proves that every tensor of a test is on the device, and that no test reads device memory
 * directly. */
#ifndef TESTS_SUPPORT_STAND_IN_H
#define TESTS_SUPPORT_STAND_IN_H

/* Replaces CUDA for the rest of the process; later calls have no effect. */
void stand_in_begin(void);

#endif
