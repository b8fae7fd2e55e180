/* settings.c - settings of convolutions, for the whole process (frugal/base.h documents each). */
#include "base/process.h"
#include <frugal/base.h>

static _Atomic bool nondeterministic, benchmark, exact_convolutions;

bool fri_cudnn_deterministic_get(void) {
    return !nondeterministic;
}

void fr_cudnn_deterministic_set(bool on) {
    nondeterministic = !on;
}

bool fri_cudnn_benchmark_get(void) {
    return benchmark;
}

void fr_cudnn_benchmark_set(bool on) {
    benchmark = on;
}

bool fri_exact_convolutions_get(void) {
    return exact_convolutions;
}

void fr_exact_convolutions_set(bool on) {
    exact_convolutions = on;
}
