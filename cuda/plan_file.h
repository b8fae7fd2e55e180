/* plan_file.h - convolution plans, kept between processes.
 *
 * Loading cuDNN's engines and asking its heuristics takes a tenth of a second and more; what they answered for a
 * version, a device description and a setting of TF32 does not change, and timing all plans takes longer still. A file
 * per such environment holds it, in the folder of base/cache.h; FRUGAL_PLAN_CACHE=0 does without. Of several plans with
 * one key the last counts. A file that is damaged or of another environment is not believed and written anew. */
#ifndef FRI_CUDA_PLAN_FILE_H
#define FRI_CUDA_PLAN_FILE_H

#include "conv2d_plan.h"

enum { FRI_CUDA_PLAN_KEY = 19 };

/* The kept plan; p owns its text. False: there is none. */
bool fri_cuda_plan_file_find(const int64_t key[FRI_CUDA_PLAN_KEY], fri_cuda_conv2d_plan *p);
/* Keeps it, as far as that is possible: without a place to write, the next process plans again. */
void fri_cuda_plan_file_add(const int64_t key[FRI_CUDA_PLAN_KEY], const fri_cuda_conv2d_plan *p);

/* The plans found and kept so far, as text (malloced), for other processes; choose: these go before the file's. */
fr_status fri_cuda_plan_file_choices(char **text, size_t *bytes);
fr_status fri_cuda_plan_file_choose(const char *text, size_t bytes);

/* For tests: forgets what was read; the next find reads the file again. Returns how many plans were found in it. */
int64_t fri_cuda_plan_file_forget(void);

#endif
