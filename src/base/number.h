/* number.h - doubles as text, for files; frugal/number.h for all other text. */
#ifndef FRI_BASE_NUMBER_H
#define FRI_BASE_NUMBER_H

#include <frugal/number.h>
#include <stdarg.h>

enum { FRI_NUMBER_BYTES = 40 };

/* 15 digits if sufficient for the value, else 17; "nan", "inf" and "-inf". Returns text or a constant. */
const char *fri_number_text(double value, char text[FRI_NUMBER_BYTES]);

__attribute__((format(printf, 3, 0))) int fri_vsnprintf(char *text, size_t bytes, const char *format, va_list args);

#endif
