/* stand_in.h - a device that is the CPU under CUDA's name, for tests that take the device as a parameter.
 *
 * FRUGAL_TEST_DEVICE=stand-in runs them on it without a GPU. Its memory can be touched only while a kernel or a copy
 * runs, so a test that reads a tensor's memory as if it were the host's ends with a signal; like the CUDA backend it
 * has no arithmetic in f64. What is shown: every tensor of a test is on the device, and no test looks into it. */
#ifndef TESTS_SUPPORT_STAND_IN_H
#define TESTS_SUPPORT_STAND_IN_H

/* Puts it in CUDA's place, for the rest of the process; again: nothing. */
void stand_in_begin(void);

#endif
