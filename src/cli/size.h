/* size.h - parses numbers and sizes. */
#ifndef FRI_CLI_SIZE_H
#define FRI_CLI_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses "1073741824", "512MiB", "1.5 GiB", "2GB": digits with at most one point, then B, KiB, MiB, GiB, TiB (powers
 * of 1024) or kB, MB, GB, TB (of 1000). False: another form, above SIZE_MAX, or not a whole number of bytes. */
bool fri_parse_size(const char *text, size_t *out);

/* Parse a decimal integer or real number without trailing text. False on overflow, nan, inf and hexadecimal. */
bool fri_parse_int(const char *text, int64_t *out);
bool fri_parse_real(const char *text, double *out);

#endif
