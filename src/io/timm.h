/* timm.h - files of weights with timm's names. */
#ifndef FRI_IO_TIMM_H
#define FRI_IO_TIMM_H

#include "io/safetensors.h"

#include <frugal/unstable/weights.h>

/* If the file's names are timm's and the module's are not, from[i] becomes the tensor of the file for entry i, and
 * *paired true; shapes may differ by dimensions of 1. FR_EINVAL: the file is of another network, or this one's batch
 * norms have another eps than timm's. */
fr_status fri_timm_pair(fr_module *m, const fri_safetensors *f, const fr_entries *e, const fri_safetensors_entry **from,
                        bool *paired);

#endif
