/* text.c - see text.h. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { UNIT_BYTES = 12 }; /* of a printed character: two escapes, or four bytes of UTF-8 */

size_t fri_utf8_length(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    size_t more = s[0] < 0x80 ? 0 : s[0] >= 0xc2 && s[0] < 0xe0 ? 1 : (s[0] & 0xf0) == 0xe0 ? 2 : 3;
    if (more == 3 && !(s[0] >= 0xf0 && s[0] < 0xf5)) return 0;
    if (n <= more) return 0;
    for (size_t j = 1; j <= more; j++)
        if ((s[j] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates and values above U+10FFFF show in the second byte. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return more + 1;
}

/* Writes the next printed character to unit and advances *text. Returns the bytes in unit. */
static size_t next_unit(const char **text, const char *end, bool lines, char unit[UNIT_BYTES]) {
    const unsigned char *s = (const unsigned char *)*text;
    size_t n = fri_utf8_length(*text, (size_t)(end - *text)), at = 0;
    bool control = n == 1 ? s[0] < 0x20 || s[0] == 0x7f : n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
    if (n == 0)
        n = 1;
    else if (!control || (lines && s[0] == '\n')) {
        memcpy(unit, s, n);
        *text += n;
        return n;
    }
    for (size_t i = 0; i < n; i++) at += (size_t)snprintf(unit + at, UNIT_BYTES - at, "\\x%02x", s[i]);
    *text += n;
    return at;
}

const char *fr_text_printable(const char *text, bool lines, char *out, size_t bytes) {
    if (text == NULL || out == NULL) return NULL;
    static const char gap[] = "...";
    const char *end = text + strlen(text);
    char unit[UNIT_BYTES];
    size_t total = 0, at = 0, passed = 0;
    for (const char *p = text; p < end;) total += next_unit(&p, end, lines, unit);
    size_t half = (bytes - sizeof gap) / 2;
    bool fits = total < bytes, cut = false;
    for (const char *p = text; p < end;) {
        size_t n = next_unit(&p, end, lines, unit);
        bool head = !cut && at + n <= half, tail = total - passed <= half;
        passed += n;
        if (fits || head || tail) {
            memcpy(out + at, unit, n);
            at += n;
        } else if (!cut) {
            memcpy(out + at, gap, sizeof gap - 1);
            at += sizeof gap - 1;
            cut = true;
        }
    }
    out[at] = '\0';
    return out;
}

static int min_of_three(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

int fr_text_distance(const char *a, const char *b) {
    if (a == NULL || b == NULL) return 0;
    int row[FR_TEXT_LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > FR_TEXT_LONGEST || m > FR_TEXT_LONGEST) return FR_TEXT_LONGEST;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j];
            row[j] = min_of_three(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[m];
}

bool fri_path_is_below(const char *path, const char *prefix) {
    size_t n = strlen(prefix);
    if (n > 0 && prefix[n - 1] == '.') n--;
    return n == 0 || (strncmp(path, prefix, n) == 0 && (path[n] == '\0' || path[n] == '.'));
}
