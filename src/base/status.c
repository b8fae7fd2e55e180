/* status.c - the thread's last error sentence. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096 }; /* an out-of-memory report with its table fits */

static _Thread_local char message[MESSAGE_BYTES];

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
    return message;
}

fr_status fri_fail(fr_status s, const char *format, ...) {
    /* Arguments may point into the old message, so the new one is written beside it first. */
    char fresh[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    memcpy(message, fresh, sizeof message);
    return s;
}

fr_status fri_fail_prefix(fr_status s, const char *format, ...) {
    char prefix[512];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return fri_fail(s, "%s%s", prefix, message);
}
