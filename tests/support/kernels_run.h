/* kernels_run.h - which kernels this thread's ops call, counted. */
#ifndef TESTS_SUPPORT_KERNELS_RUN_H
#define TESTS_SUPPORT_KERNELS_RUN_H

/* Counts from 0. Skips the test on a device that watches kernels itself. */
void kernels_watch(void);
void kernels_unwatch(void);
/* Calls of the kernel of that name (FRI_KERNEL_MAP) between the two. */
int kernels_run(const char *name);

#endif
