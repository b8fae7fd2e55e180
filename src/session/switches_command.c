/* switches_command.c - --plan=switches: prints the table of memory switches, and draws its picture. */
#include "session/plan_switches.h"

#include <frugal/number.h>

#include <inttypes.h>
#include <string.h>

static const char legend[] =
    "Requested bytes at the peak of a training step; step memory is without parameters and\n"
    "optimizer state. The flags stand in place of the command's memory flags. A switch alone can\n"
    "add bytes: in place, batch norm, sum and relu are one op, and its backward holds the maps of\n"
    "all three until early release, a default, lets them go.\n";

/* "1,234,567" */
static const char *grouped(size_t n, char text[32]) {
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%zu", n);
    int k = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[k++] = ',';
        text[k++] = digits[i];
    }
    text[k] = '\0';
    return text;
}

fr_status fri_switches_command(const fri_config *c) {
    fr_plan_switch_row rows[FR_PLAN_SWITCH_ROWS];
    char peak[32], step[32];
    int64_t n = 0;
    fri_config silent = *c;
    silent.out = fopen("/dev/null", "w");
    if (silent.out == NULL) return fr_fail(FR_EIO, "--plan=switches: /dev/null cannot be opened");
    fr_status s = fri_plan_switches(&silent, &(fr_plan_switches_opts){0}, rows, FR_PLAN_SWITCH_ROWS, &n);
    fclose(silent.out);
    if (s < 0) return s;
    fprintf(c->out, "%-30s %15s %15s %6s  %s\n", "switch", "planned peak", "step memory", "ratio", "flags");
    for (int64_t i = 0; i < n; i++) {
        const fr_plan_switch_row *r = &rows[i];
        if (r->planned == 0)
            fprintf(c->out, "%-30s cannot be: %s\n", r->name, r->reason);
        else
            fr_fprintf(c->out, "%-30s %15s %15s %6.3f  %s\n", r->name, grouped(r->planned, peak),
                       grouped(r->step_memory, step), r->ratio, r->flag[0] != '\0' ? r->flag : "(none)");
    }
    if (!c->opts.quiet) fputs(legend, c->out);
    return fri_switches_plot(c, rows, n);
}
