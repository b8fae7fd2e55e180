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

typedef struct peak_case {
    const char *label;
    fr_switches switches;
    int how, segments; /* fr_segmentation, or PEAK_PLAIN */
    bool amp, fused, adam;
    bool abn;                 /* the network with fr_nn_inplace_abn: other mathematics than the baseline */
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
void peak_measure(const peak_setting *at, const peak_case *c, peak_result *out);
/* The first layers of at most `most` of the network's units: each layer of a short network, else as it is cut into
 * segments. Returns how many there are. */
int peak_units(const peak_setting *at, int *first, int most);
/* Median over `rounds` of the step's time under c over that under base, the two taken in turn. */
double peak_time_ratio(const peak_setting *at, const peak_case *base, const peak_case *c, int rounds);

/* Trains for `steps` steps, a line each. The status of the step that failed. */
fr_status peak_train(const peak_setting *at, const peak_case *c, int steps);

/* A log-log line through n points: y = a x^exponent. */
double peak_exponent(const double *x, const double *y, int n);

#endif
