/* fake_faults.h - every function of cudart, cuDNN and cuBLASLt that answers with a status can be made to fail, once.
 *
 * What waits or gives back does so and then says that it failed, as after an error of earlier work; anything else is
 * left undone. */
#ifndef TESTS_CUDA_FAKE_FAULTS_H
#define TESTS_CUDA_FAKE_FAULTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wraps the functions that are in place now. Call after fake_begin and the like. */
void fake_faults_begin(void);

/* Functions, and of each its name and how often it was called since the last fake_faults_arm. */
int fake_faults_functions(void);
const char *fake_faults_name(int function);
int fake_faults_calls(int function);

/* The nth call from now fails; function -1: none. */
void fake_faults_arm(int function, int nth);
/* True if the fault has fired. */
bool fake_faults_fired(void);

#ifdef __cplusplus
}
#endif
#endif
