/* claims.h - what guides say about memory in round numbers, beside what it comes to here. */
#ifndef BENCHMARKS_CLAIMS_H
#define BENCHMARKS_CLAIMS_H

/* Prints a table: claim, our figure, the command that has the rest, and why the two differ. */
void claims_print(void);

#endif
