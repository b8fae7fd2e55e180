/* cuda_bf16.h - see cuda_fp16.h, which has both half types. */
#include "cuda_fp16.h"
