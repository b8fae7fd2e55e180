/* say.c - the sentences of a run. No other file of the session prints. */
#include "session/fit.h"
#include "session/flags.h"

#include "base/number.h"

#include <inttypes.h>
#include <stdarg.h>

void fri_said_print(FILE *out, const char *program, fri_saying how, const char *text) {
    if (how == FRI_SAY_WARNING)
        fprintf(out, "%s: %s\n", program, text);
    else
        fprintf(out, how == FRI_SAY_NOTE ? "note: %s\n" : "%s\n", text);
}

void fri_say(const fri_config *c, fri_saying how, const char *format, ...) {
    enum { SAID_BYTES = FRI_UNITS_TEXT + 1024 };
    char text[SAID_BYTES];
    va_list args;
    if (c->opts.quiet && how != FRI_SAY_WARNING && (how != FRI_SAY_NOTE || c->model == NULL)) return;
    va_start(args, format);
    fri_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (how == FRI_SAY_NOTE) { /* as a sentence, whose unprintable bytes are escaped */
        const fr_status s = fr_fail(FR_EUSAGE, "%s", text);
        if (c->model != NULL) (void)fri_speak_of_fields(s);
    }
    c->listener.said(c->listener.ctx, how, how == FRI_SAY_NOTE ? fr_last_error() : text);
}

void fri_say_goes_on(const fri_run *r) {
    fri_say(r->config, FRI_SAY_WARNING, "step %" PRId64 ": %s; the training goes on", r->at.step, fr_last_error());
}
