/* peak_run.h - one training step of a network under a set of switches, and its bytes. */
#ifndef BENCHMARKS_PEAK_RUN_H
#define BENCHMARKS_PEAK_RUN_H

#include <frugal/frugal.h>

typedef struct peak_net {
    const char *name, *title;
    int64_t image_size, classes; /* what it is made for */
    bool pixels;                 /* classifies each pixel */
    bool norms;                  /* has batch norm */
    const char *part;            /* modules of this name are counted on their own, or NULL */
    fr_status (*build)(const fr_model_opts *opts, fr_module **out);
} peak_net;

extern const peak_net peak_nets[];
extern const int peak_nets_count;

enum { PEAK_PLAIN = -1, PEAK_PLAN = -2 };

/* Work of one step: training, or a forward pass in evaluation mode that records a graph or does not. */
typedef enum peak_work { PEAK_TRAIN, PEAK_EVALUATE_GRAPH, PEAK_EVALUATE } peak_work;

typedef struct peak_case {
    const char *label;
    const char *flag, *call; /* of the trainers and of the library; NULL: the README's table leaves the row out */
    peak_work work;
    fr_switches switches;
    int how, segments; /* fr_segmentation, or PEAK_PLAIN */
    int parts;         /* the batch runs in so many parts, whose gradients are added; 0: in one */
    bool whole;        /* the parts are views of a batch that is in memory as a whole */
    bool amp, fused, adam;
    bool abn;                 /* the network with fr_net_inplace_abn, whose results differ from the baseline's */
    const fr_unit_plan *plan; /* PEAK_PLAN */
} peak_case;

typedef struct peak_setting {
    const peak_net *net;
    fr_device device;
    int64_t batch, image_size;
    fr_dtype low; /* type of mixed precision */
} peak_setting;

/* Requested bytes of the second step: the first one makes the optimizer's state. */
typedef struct peak_result {
    bool possible;                      /* false: the network is no chain of that many units */
    size_t peak, by[FR_CATEGORY_COUNT]; /* by category at the instant of the peak */
    size_t step_memory;                 /* peak - parameters - optimizer state */
    size_t saved;                       /* activations and the batch when backward begins, without casts of weights */
    size_t saved_part;                  /* of it, activations made in modules named `part` */
    size_t floor;                       /* parameters + optimizer state + the most that one op holds of its own */
    size_t update;                      /* most of parameters + gradients + optimizer state at one time */
    size_t activations;                 /* most of everything else at one time */
    size_t largest_parameter;
    size_t casts;         /* most bytes of low-precision copies of parameters at one time */
    size_t largest_cast;  /* of one layer: weight and bias */
    uint64_t fingerprint; /* of all parameters and statistics after the second step; 0 on meta */
    double time_ratio;    /* step time over that of the baseline, median of pairs; 0: not measured */
} peak_result;

void peak_must(fr_status s);
/* Two steps of c, the second of which peak_measure looks at. */
fr_status peak_two_steps(const peak_setting *at, const peak_case *c);
void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out);
/* Median over `rounds` of the step's time under c over that under base, the two taken in turn. */
double peak_time_ratio(const peak_setting *at, const peak_case *base, const peak_case *c, int rounds);

/* Trains for `steps` steps, a line each. The status of the step that failed. */
fr_status peak_train(const peak_setting *at, const peak_case *c, int steps);

/* A log-log line through n points: y = a x^exponent. */
double peak_exponent(const double *x, const double *y, int n);

#endif
