/* golden.h - golden files of tests/golden as tensors, and comparisons. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <frugal/autograd.h>

#include "io/safetensors.h"

typedef struct golden {
    fri_safetensors *file;
    const char *op;
    char name[64]; /* of the current case */
    const char *rest;
} golden;

/* while (golden_next(&g)) runs over the cases of tests/golden/<op>.safetensors; the file is closed at the end. */
golden golden_open(const char *op);
bool golden_next(golden *g);

const fri_safetensors_entry *golden_field(const golden *g, const char *field); /* NULL if absent */
int64_t golden_int(const golden *g, const char *field, int i);
double golden_real(const golden *g, const char *field);

/* The field as a tensor: float fields are converted to `dtype`, integer fields stay. NULL if the case has none. */
fr_tensor *golden_tensor(const golden *g, const char *field, fr_dtype dtype, fr_device device);

/* Every element of t within the dtype's tolerance of the field; NaN equals NaN. A failure prints op, case, field,
 * index, both values. */
void golden_expect(const golden *g, const char *field, const fr_tensor *t, fr_dtype computed_in);

/* Tolerance of a convolution by Winograd's minimal filtering, as a share of the largest value. */
extern const double winograd_tolerance;

/* True within the dtype's tolerance; NaN equals NaN. */
bool close_enough(fr_dtype computed_in, double got, double expected);

/* All elements as f64 on the host; the caller frees them. */
double *values_of(const fr_tensor *t);
void expect_same_values(const fr_tensor *a, const fr_tensor *b, const char *what);
/* Random tensor from [-1, 1), f32, on the test's device. */
fr_tensor *uniform_tensor(int rank, const int64_t *shape);

/* Asserts FR_OK and prints the library's sentence otherwise. */
void must(fr_status s);
/* RELEASE_ALL(&x, &y): releases the tensors in these slots. */
#define RELEASE_ALL(...) release_tensors((fr_tensor **[]){__VA_ARGS__, NULL})
void release_tensors(fr_tensor **const *slots);
/* No byte and no node is left. */
void expect_nothing_left(void);
/* The status, both words in the sentence, and an untouched slot. */
void expect_refused(fr_status got, fr_status wanted, const char *word1, const char *word2, fr_tensor *slot);

/* Expects that an op refuses an index or target out of range. The CPU refuses at once, with both words in the
 * sentence. An asynchronous device finds the value later: the op succeeds, its result is released, and a later check
 * refuses with the second word. */
void expect_bad_index(fr_status got, const char *word1, const char *word2, fr_tensor **slot);

/* Device of this run: FRUGAL_TEST_DEVICE, by default cpu. Skips the test if the device is not available. "stand-in":
 * see stand_in.h. */
fr_device test_device(void);

/* Skips a test that only the CPU can run, with the reason. */
void cpu_only(const char *reason);

/* The elements where the host can read them: on the CPU the tensor's memory, else a copy, kept to the process's end. */
const void *host_of(fr_tensor *t);
/* Writes all elements from the host. */
void host_to(fr_tensor *t, const void *data);

#endif
