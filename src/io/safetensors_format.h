/* safetensors_format.h - shared parts of reader and writer of safetensors files. */
#ifndef FRI_IO_SAFETENSORS_FORMAT_H
#define FRI_IO_SAFETENSORS_FORMAT_H

#include "io/safetensors.h"

#define FRI_SAFETENSORS_METADATA "__metadata__"

enum { FRI_SAFETENSORS_MAX_HEADER = 100000000 }; /* bytes; the reference implementation refuses more */

/* The format's name of each element type: "F32". */
extern const char *const fri_safetensors_dtype[FR_DTYPE_COUNT];

bool fri_safetensors_utf8(const char *text, size_t n);

/* `failure` and a sentence if a key appears twice. */
fr_status fri_safetensors_unique_keys(fr_status failure, const fri_safetensors_text *metadata, size_t n);

#endif
