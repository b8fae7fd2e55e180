/* peak_write.h - results as Markdown, CSV and a picture. */
#ifndef BENCHMARKS_PEAK_WRITE_H
#define BENCHMARKS_PEAK_WRITE_H

#include "peak_cuts.h"

#include <stdio.h>

enum { PEAK_CASES = 24 };

typedef struct peak_table {
    peak_setting at;
    int n; /* the first case is the baseline */
    peak_case c[PEAK_CASES];
    peak_result r[PEAK_CASES];
    peak_cuts cuts; /* of the case PEAK_PLAN */
} peak_table;

/* One table, a column per network: peak (share of step memory, of bytes saved for backward, of time). */
void peak_write_markdown(FILE *f, const peak_table *t, int tables);
void peak_write_csv(FILE *f, const peak_table *t, bool header);
/* Bars of every table, each on the scale of its baseline; the whole picture. */
void peak_write_svg(FILE *f, const peak_table *t, int tables);

#endif
