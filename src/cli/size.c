/* size.c - see size.h. */
#include "cli/size.h"

#include <frugal/number.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1024},
    {"MiB", 1 << 20},
    {"GiB", 1 << 30},
    {"TiB", 1ULL << 40},
    {"kB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000 * 1000 * 1000},
    {"TB", 1000000000000ULL},
};

static uint64_t unit_bytes(const char *name) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(name, units[i].name) == 0) return units[i].bytes;
    return 0;
}

/* Computes whole.fraction * unit in integers, rounded down: each digit of the fraction, last first, adds its multiple
 * of the unit before a division by 10. A fraction of a byte is no size. */
bool fri_parse_size(const char *text, size_t *out) {
    const char *at = text;
    uint64_t whole = 0, part = 0;
    if (!isdigit((unsigned char)*at)) return false;
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, *at - '0', &whole)) return false;
    const char *point = at;
    if (*at == '.' && !isdigit((unsigned char)*++at)) return false;
    while (isdigit((unsigned char)*at)) at++;
    const char *end = at;
    while (*at == ' ') at++;
    uint64_t unit = unit_bytes(at), bytes = 0;
    if (unit == 0 || (unit == 1 && end > point) || __builtin_mul_overflow(whole, unit, &bytes)) return false;
    while (--end > point) part = (part + (uint64_t)(*end - '0') * unit) / 10;
    if (__builtin_add_overflow(bytes, part, &bytes) || bytes > SIZE_MAX) return false;
    *out = (size_t)bytes;
    return true;
}

bool fri_parse_int(const char *text, int64_t *out) {
    char *end = NULL;
    if (text[strspn(text, "+-0123456789")] != '\0') return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) return false;
    *out = value;
    return true;
}

bool fri_parse_real(const char *text, double *out) {
    char *end = NULL;
    if (text[strspn(text, "+-.0123456789eE")] != '\0') return false;
    errno = 0;
    double value = fr_strtod(text, &end);
    if (end == text || *end != '\0') return false;
    if (errno == ERANGE && (value > 1 || value < -1)) return false; /* underflow to 0 is accepted */
    *out = value;
    return true;
}
