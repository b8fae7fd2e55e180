/* summary.h - the sums under a summary's table. */
#ifndef FRI_PLAN_SUMMARY_H
#define FRI_PLAN_SUMMARY_H

#include <frugal/plan.h>

typedef struct fri_summary_totals {
    int64_t parameters, trained; /* elements; those that are not frozen */
    size_t parameter_bytes, buffer_bytes;
    size_t parameters_requested; /* parameters and buffers, each rounded up to 512 */
    size_t saved;                /* of all layers: the device's activations when backward began */
    size_t input;                /* the batch: images that the first layer reads again, targets */
    double flops, flops_backward;
    double multiply_adds; /* of the forward convolutions and linear layers */
    double moved, written, seconds, seconds_backward;
} fri_summary_totals;

const fri_summary_totals *fri_summary_totals_of(const fr_summary *s);

#endif
