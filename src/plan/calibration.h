/* calibration.h - kernel times of a run, and the clock of a dry run (calibrate.c, clock.c). */
#ifndef FRI_PLAN_CALIBRATION_H
#define FRI_PLAN_CALIBRATION_H

#include <frugal/fit.h>

/* Predicts the seconds of a dry run's slowest step on `target`: begin before the dry run, end after. */
typedef struct fri_fit_clock fri_fit_clock;
fr_status fri_fit_clock_begin(fr_device target, fri_fit_clock **out);
void fri_fit_clock_end(fri_fit_clock **clock, double *seconds);

/* Kernel times, measured in a run's second step, for the clock and for fr_fit_find (--calibrate). A dry run names the
 * kernels of a step, with dimensions; the run calls equal kernels in equal order. Each pair of calls encloses a run,
 * on the calling thread; the host waits for asynchronous devices after every kernel. */
typedef struct fri_calibration fri_calibration;
fr_status fri_calibration_create(fri_calibration **out);
fr_status fri_calibration_dry_begin(fri_calibration *c);
void fri_calibration_dry_end(fri_calibration *c);
fr_status fri_calibration_run_begin(fri_calibration *c);
void fri_calibration_run_end(fri_calibration *c);

typedef struct fri_calibration_result {
    size_t measured, known; /* kernels of the run; times in the file */
    char path[1024];        /* of the file, "" where there is no cache folder */
} fri_calibration_result;
/* Adds the run's times to the file of `device`. FR_EUSAGE if dry run and run called different kernels. */
fr_status fri_calibration_save(const fri_calibration *c, fr_device device, fri_calibration_result *out);
void fri_calibration_release(fri_calibration **c);

#endif
