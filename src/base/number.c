/* number.c - see number.h. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static locale_t plain;
static pthread_once_t plain_made = PTHREAD_ONCE_INIT;

static void plain_make(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The calling thread's locale becomes "C"; returns the old locale. */
static locale_t plain_begin(void) {
    pthread_once(&plain_made, plain_make);
    return uselocale(plain); /* uselocale(0), without memory, changes nothing */
}

double fr_strtod(const char *text, char **end) {
    const locale_t was = plain_begin();
    const double value = strtod(text, end);
    uselocale(was);
    return value;
}

int fri_vsnprintf(char *text, size_t bytes, const char *format, va_list args) {
    const locale_t was = plain_begin();
    const int n = vsnprintf(text, bytes, format, args);
    uselocale(was);
    return n;
}

int fr_snprintf(char *text, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = fri_vsnprintf(text, bytes, format, args);
    va_end(args);
    return n;
}

int fr_fprintf(FILE *file, const char *format, ...) {
    const locale_t was = plain_begin();
    va_list args;
    va_start(args, format);
    const int n = vfprintf(file, format, args);
    va_end(args);
    uselocale(was);
    return n;
}

const char *fri_number_text(double value, char text[FRI_NUMBER_BYTES]) {
    if (isnan(value)) return "nan";
    if (isinf(value)) return value > 0 ? "inf" : "-inf";
    fr_snprintf(text, FRI_NUMBER_BYTES, "%.15g", value);
    if (fr_strtod(text, NULL) != value) fr_snprintf(text, FRI_NUMBER_BYTES, "%.17g", value);
    return text;
}
