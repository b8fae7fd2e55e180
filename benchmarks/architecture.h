/* architecture.h - what choices of architecture cost in bytes. */
#ifndef BENCHMARKS_ARCHITECTURE_H
#define BENCHMARKS_ARCHITECTURE_H

#include <stdint.h>

/* Prints the tables for this batch; the exit status. */
int architecture_run(int64_t batch);

#endif
