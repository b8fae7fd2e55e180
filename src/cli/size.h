/* size.h - numbers as people write them. */
#ifndef FRI_CLI_SIZE_H
#define FRI_CLI_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "1073741824", "512MiB", "1.5 GiB", "2GB": digits, at most one point, and B, KiB, MiB, GiB, TiB (powers of 1024) or
 * kB, MB, GB, TB (of 1000). False: not of this form, more than SIZE_MAX, or not a whole number of bytes. */
bool fri_parse_size(const char *text, size_t *out);

/* A decimal integer or real number and nothing else; false also when it does not fit. No nan, inf or hexadecimal. */
bool fri_parse_int(const char *text, int64_t *out);
bool fri_parse_real(const char *text, double *out);

#endif
