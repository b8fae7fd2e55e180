/* claims.h - round claims of guides about memory, beside frugal's numbers. */
#ifndef BENCHMARKS_CLAIMS_H
#define BENCHMARKS_CLAIMS_H

/* Prints a table: claim, our figure, the command with details, and the reason of the difference. */
void claims_print(void);

#endif
