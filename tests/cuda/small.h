/* small.h - a trainer of a few thousand parameters, run inside the test program: convolutions, batch norm, pooling,
 * dropout and a linear layer, on the CPU or on the device that a test put in CUDA's place. */
#ifndef TESTS_CUDA_SMALL_H
#define TESTS_CUDA_SMALL_H

#include <stdbool.h>
#include <stddef.h>

/* Images of 32 pixels in 10 classes, the sizes of '--dataset digits', synthetic. */
enum { SMALL_IMAGES = 22, SMALL_TEST_IMAGES = 8 };

/* Number of the forward pass on the device, from 1, that asks for memory outside every plan; 0: none. */
extern int small_odd_forward;

/* A folder for the files of trainings; small_end removes the folder. */
void small_begin(void);
void small_end(void);

/* Trains with the flags (separated by blanks; batches of 4 unless the flags set a size), leaves weights and report in
 * the folder under `name`. The exit status must be 0. */
void small_train(const char *device, const char *flags, const char *name);
/* Likewise, and returns the exit status. */
int small_try(const char *device, const char *flags, const char *name);

/* The report's text behind "key":, up to the end of the line. */
void small_report(const char *name, const char *key, char text[64]);
/* True if the report contains the text. */
bool small_says(const char *name, const char *text);
/* True if both files hold equal weights, bit for bit. */
bool small_same(const char *a, const char *b);
/* Weights, losses, accuracy and skipped steps of two trainings are equal, bit for bit. */
void small_expect_same(const char *a, const char *b, const char *what);

#endif
