/* kernels_run.h - counts the kernels that this thread's ops call. */
#ifndef TESTS_SUPPORT_KERNELS_RUN_H
#define TESTS_SUPPORT_KERNELS_RUN_H

/* Starts counting at 0. Skips the test on a device that watches kernels itself. */
void kernels_watch(void);
void kernels_unwatch(void);
/* Calls of a kernel (FRI_KERNEL_MAP) between watch and unwatch. */
int kernels_run(const char *name);

#endif
