/* status.c - the thread's last error sentence. */
#include "base/status.h"

#include "base/number.h"
#include "base/text.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = sizeof fri_here.message };

#define TEXT_OF(x)      #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
const char *fr_version(void) {
    return DOTTED(FR_VERSION_MAJOR, FR_VERSION_MINOR, FR_VERSION_PATCH);
}

const char *fr_status_name(fr_status s) {
    switch (s) {
#define FR_STATUS_CASE(name, value, text) \
    case name: return #name;
        FR_STATUS_MAP(FR_STATUS_CASE)
#undef FR_STATUS_CASE
    }
    return "unknown status";
}

const char *fr_last_error(void) {
    return fri_here.message;
}

/* Formats the whole sentence, however long; in `brief` without memory. Released by the caller, except brief. */
static char *compose(char brief[MESSAGE_BYTES], const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = fri_vsnprintf(brief, MESSAGE_BYTES, format, args);
    char *all = n >= MESSAGE_BYTES ? malloc((size_t)n + 1) : NULL;
    if (all != NULL) fri_vsnprintf(all, (size_t)n + 1, format, again);
    va_end(again);
    return all != NULL ? all : brief;
}

/* Arguments may point into the old message, so the new message is complete before the replacement. */
fr_status fr_fail(fr_status s, const char *format, ...) {
    FRI_NOT_NULL(format);
    char brief[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    char *text = compose(brief, format, args);
    va_end(args);
    fr_text_printable(text, false, fri_here.message, MESSAGE_BYTES);
    if (text != brief) free(text);
    return s;
}

fr_status fri_fail_report(fr_status s, const char *text) {
    fr_text_printable(text, true, fri_here.message, MESSAGE_BYTES);
    return s;
}

/* The old message is printable already and may have lines. */
fr_status fr_fail_prefix(fr_status s, const char *format, ...) {
    FRI_NOT_NULL(format);
    enum { PREFIX_BYTES = 512 };
    char prefix[PREFIX_BYTES], brief[MESSAGE_BYTES], both[PREFIX_BYTES + MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    char *text = compose(brief, format, args);
    va_end(args);
    snprintf(both, sizeof both, "%s%s", fr_text_printable(text, false, prefix, sizeof prefix), fri_here.message);
    if (text != brief) free(text);
    fr_text_printable(both, true, fri_here.message, MESSAGE_BYTES);
    return s;
}
