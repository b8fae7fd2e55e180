/* description.h - the GPU of plans, as JSON: also without a GPU, or in a build without CUDA. */
#ifndef FRI_BACKEND_DESCRIPTION_H
#define FRI_BACKEND_DESCRIPTION_H

#include <frugal/base.h>

/* Text of the file that FRUGAL_CUDA_DEVICE names, else of the stored description, an H200's. Free the text. */
fr_status fri_description_read(char **text, size_t *length);

/* Bytes free for a run on the described GPU: the total less what context and libraries take; 0: no total is named. */
fr_status fri_description_room(size_t *bytes);

#endif
