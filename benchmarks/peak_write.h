/* peak_write.h - results as text, Markdown, CSV and a picture. */
#ifndef BENCHMARKS_PEAK_WRITE_H
#define BENCHMARKS_PEAK_WRITE_H

#include "peak_run.h"

#include <stdio.h>

enum { PEAK_CASES = 24 };

typedef struct peak_table {
    peak_setting at;
    int n; /* the first case is the baseline */
    peak_case c[PEAK_CASES];
    peak_result r[PEAK_CASES];
} peak_table;

/* The rows of a network for a person, with a heading and an explanation of the columns. */
void peak_write_text(FILE *f, const peak_table *t);
/* The Markdown table of README.md: the rows with a call, the peaks of two networks and the changes in percent. */
void peak_write_readme(FILE *f, const peak_table *t, int tables);
void peak_write_csv(FILE *f, const peak_table *t, bool header);
/* A bar per row, divided by category; the whole picture. */
void peak_write_svg(FILE *f, const peak_table *t);

#endif
