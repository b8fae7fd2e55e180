/* number.h - strtod, fprintf and snprintf with a decimal point, whatever locale the program has set.
 *
 * The library reads and prints every real number with these calls (.ci/check-format).
 * The calling thread has the locale "C" during the call, and its own afterwards. Arguments and results are those of the
 * C functions. */
#ifndef FRUGAL_NUMBER_H
#define FRUGAL_NUMBER_H

#include <frugal/base.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

FR_API double fr_strtod(const char *text, char **end);
__attribute__((format(printf, 2, 3))) FR_API int fr_fprintf(FILE *file, const char *format, ...);
__attribute__((format(printf, 3, 4))) FR_API int fr_snprintf(char *text, size_t bytes, const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
