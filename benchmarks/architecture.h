/* architecture.h - bytes of choices of architecture. */
#ifndef BENCHMARKS_ARCHITECTURE_H
#define BENCHMARKS_ARCHITECTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prints the tables for the batch; returns the exit status. */
int architecture_run(int64_t batch);
/* Requested bytes at the peak of a step with global pooling, with max pooling or with strides instead. */
size_t architecture_peak(int64_t batch, bool stride);

#endif
