/* fake_order.h - order of accesses of the fake device's streams: a vector clock per stream, moved on by queued work
 * and handed over by events and the host's waits. Two accesses to overlapping memory, at least one a write, must be
 * ordered, however fast the streams run.
 *
 * Copies are known with their bytes, kernels by their operands' addresses. */
#ifndef TESTS_CUDA_FAKE_ORDER_H
#define TESTS_CUDA_FAKE_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_ORDER_STREAMS = 8 };

/* How far each stream was. */
typedef struct fake_clock {
    unsigned long long at[FAKE_ORDER_STREAMS];
} fake_clock;

void fake_order_reset(void);
/* Accesses of a queued item: begin, then each operand. */
void fake_order_begin(int stream);
void fake_order_access(const void *p, size_t bytes, bool writes);
fake_clock fake_order_mark(int stream);
void fake_order_follow(int stream, const fake_clock *event);
/* The host has waited: whatever is queued from now on comes after. */
void fake_order_host(const fake_clock *event);

/* Unordered accesses since the last reset, and the first as a sentence ("" without any). */
int fake_order_faults(void);
const char *fake_order_first(void);

#ifdef __cplusplus
}
#endif
#endif
