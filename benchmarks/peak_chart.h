/* peak_chart.h - bytes against a size, both on logarithmic axes. */
#ifndef BENCHMARKS_PEAK_CHART_H
#define BENCHMARKS_PEAK_CHART_H

#include <stdbool.h>

enum { PEAK_LINES = 4, PEAK_POINTS = 8 };

typedef struct peak_chart {
    const char *title;
    int points, lines;
    double x[PEAK_POINTS], y[PEAK_LINES][PEAK_POINTS];
    struct {
        const char *name;
        double exponent; /* fitted */
    } line[PEAK_LINES];  /* n, sqrt n, log n, n: each with the theoretical curve, dashed, through the last point */
} peak_chart;

/* False after a message on stderr. */
bool peak_chart_csv(const peak_chart *c, const char *path);
bool peak_chart_svg(const peak_chart *c, const char *path);

#endif
