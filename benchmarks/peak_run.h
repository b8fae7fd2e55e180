/* peak_run.h - a training step of a network under a set of switches, in bytes. */
#ifndef BENCHMARKS_PEAK_RUN_H
#define BENCHMARKS_PEAK_RUN_H

#include <frugal/frugal.h>

typedef struct peak_net {
    const char *name, *title;
    int64_t image_size, classes; /* default sizes */
    bool pixels;                 /* classifies each pixel */
    bool norms;                  /* has batch norm */
    const char *part;            /* modules of this name are counted on their own, or NULL */
    fr_status (*build)(const fr_model_opts *opts, fr_module **out);
} peak_net;

extern const peak_net peak_nets[];
extern const int peak_nets_count;

enum { PEAK_PLAIN = -1, PEAK_PLAN = -2 };

/* Work of a step: training, or a forward pass in evaluation mode, with or without a graph. */
typedef enum peak_work { PEAK_TRAIN, PEAK_EVALUATE_GRAPH, PEAK_EVALUATE } peak_work;

typedef struct peak_case {
    const char *label;
    const char *flag, *call; /* of the trainers and of the library; NULL: the README's table leaves the row out */
    peak_work work;
    fr_switches switches;
    int how, segments; /* fr_segmentation, or PEAK_PLAIN */
    int parts;         /* number of parts of the batch, with added gradients; 0: no parts */
    bool whole;        /* the parts are views of a whole batch in memory */
    bool amp, fused, adam;
    bool abn;                 /* the network with fr_net_inplace_abn, with results different from the baseline's */
    const fr_unit_plan *plan; /* PEAK_PLAN */
} peak_case;

typedef struct peak_setting {
    const peak_net *net;
    fr_device device;
    int64_t batch, image_size;
    fr_dtype low; /* type of mixed precision */
} peak_setting;

/* Requested bytes of the second step, because the first makes the optimizer's state. */
typedef struct peak_result {
    bool possible;                      /* false: the network has too few units */
    size_t peak, by[FR_CATEGORY_COUNT]; /* by category at the instant of the peak */
    size_t step_memory;                 /* peak - parameters - optimizer state */
    size_t saved;                       /* activations and the batch when backward begins, without casts of weights */
    size_t saved_part;                  /* part of saved: activations of modules named `part` */
    size_t floor;                       /* parameters + optimizer state + the largest working set of an op */
    size_t update;                      /* maximum of parameters + gradients + optimizer state */
    size_t activations;                 /* maximum of all further bytes */
    size_t largest_parameter;
    size_t casts;         /* maximum of low-precision copies of parameters */
    size_t largest_cast;  /* of a layer: weight and bias */
    uint64_t fingerprint; /* of all parameters and statistics after the second step; 0 on meta */
    double time_ratio;    /* step time over the baseline's, median of pairs; 0: not measured */
} peak_result;

void peak_must(fr_status s);
/* Two steps of c, as in peak_measure. */
fr_status peak_two_steps(const peak_setting *at, const peak_case *c);
void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out);
/* Median over `rounds` of the ratio of step times under c and base, taken in turn. */
double peak_time_ratio(const peak_setting *at, const peak_case *base, const peak_case *c, int rounds);

/* Trains for `steps` steps, a line each. The status of the step that failed. */
fr_status peak_train(const peak_setting *at, const peak_case *c, int steps);

/* A log-log line through n points: y = a x^exponent. */
double peak_exponent(const double *x, const double *y, int n);

#endif
