/* peak_run.h - a training step of a network under a set of switches, in bytes. */
#ifndef BENCHMARKS_PEAK_RUN_H
#define BENCHMARKS_PEAK_RUN_H

#include <frugal/frugal.h>

typedef struct peak_net {
    const char *name, *title;
    int64_t image_size, classes; /* default sizes */
    bool pixels;                 /* classifies each pixel */
    const char *part;            /* name of modules to be counted apart, or NULL */
    fr_status (*build)(const fr_model_opts *opts, fr_module **out);
} peak_net;

extern const peak_net peak_nets[];
extern const int peak_nets_count;

enum { PEAK_PLAIN = -1 };

/* Work of a step: training, or a forward pass in evaluation mode, with or without a graph. */
typedef enum peak_work { PEAK_TRAIN, PEAK_EVALUATE_GRAPH, PEAK_EVALUATE } peak_work;

typedef struct peak_case {
    peak_work work;
    fr_switches switches;
    int how;  /* fr_segmentation without a number, or PEAK_PLAIN */
    bool amp; /* f16 with a loss scale */
} peak_case;

typedef struct peak_setting {
    const peak_net *net;
    fr_device device;
    int64_t batch, image_size;
} peak_setting;

/* Requested bytes of the second step, because the first makes the optimizer's state. */
typedef struct peak_result {
    size_t peak, by[FR_CATEGORY_COUNT]; /* by category at the instant of the peak */
    size_t step_memory;                 /* peak - parameters - optimizer state */
    size_t saved;                       /* activations and the batch when backward begins */
    size_t saved_part;                  /* part of saved: activations of modules named `part` */
    size_t activations;                 /* maximum without parameters, gradients and optimizer state */
} peak_result;

void peak_must(fr_status s);
void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out);

/* Trains for `steps` steps, a line each. Returns the failed step's status. */
fr_status peak_train(const peak_setting *at, const peak_case *c, int steps);

/* A log-log line through n points: y = a x^exponent. */
double peak_exponent(const double *x, const double *y, int n);

#endif
