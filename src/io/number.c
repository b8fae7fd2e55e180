/* number.c - see number.h. */
#include "io/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fri_number_text(double value, char text[FRI_NUMBER_BYTES]) {
    if (isnan(value)) return "nan";
    if (isinf(value)) return value > 0 ? "inf" : "-inf";
    snprintf(text, FRI_NUMBER_BYTES, "%.15g", value);
    if (strtod(text, NULL) != value) snprintf(text, FRI_NUMBER_BYTES, "%.17g", value);
    for (char *c = text; *c != '\0'; c++)
        if (strchr("0123456789+-e", *c) == NULL) *c = '.';
    return text;
}
