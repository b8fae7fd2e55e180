/* checks.h - checks shared by the tests of several network families. */
#ifndef FRI_TESTS_MODELS_CHECKS_H
#define FRI_TESTS_MODELS_CHECKS_H

#include <frugal/models.h>

typedef fr_status model_fn(int depth, const fr_model_opts *opts, fr_module **m);

/* Expects tensors of these names in this order. */
void expect_names(model_fn *make, int depth, const fr_model_opts *o, const char *const *names, int count);
/* Channels at width 2 are twice those at width 1: the even numbers among the first and the last of a
 * kernel's four dimensions, [out, height, width, in]; images have 3 channels, classes are 7, depthwise is 1. */
void expect_doubled(const char *name);

struct wanted {
    const char *path;
    double std; /* 0: every value is `mean` */
    double mean;
    bool seen;
};

/* Moments of initial values are as in the rows. */
void expect_initial(model_fn *make, int depth, const fr_model_opts *o, struct wanted *rows, int n);
/* The side of a layer's result, of an image of `size` pixels. */
int64_t side_at(fr_module *m, const char *layer, int64_t size);

/* True if names, classes, parameters and eps of all layers are equal. */
bool same_tree(fr_module *a, fr_module *b);

/* train_golden.c: three SGD steps against PyTorch in f64, with tolerances `exact` and, with Winograd's convolutions,
 * `usual`. frozen: names of layers, or NULL where the norms train, too. */
void golden_run(const char *net, model_fn *make, int depth, bool batch_norm, const char *const *frozen, double exact,
                double usual);

#endif
