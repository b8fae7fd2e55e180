/* fake_faults.h - every function of cudart, cuDNN and cuBLASLt that answers with a status can be made to fail, once.
 *
 * Functions that wait or give back do so and then report a failure, as after an error of earlier work; all else is
 * left undone. */
#ifndef TESTS_CUDA_FAKE_FAULTS_H
#define TESTS_CUDA_FAKE_FAULTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wraps the functions now in place. Call after fake_begin and the like. */
void fake_faults_begin(void);

/* Number of functions; name of each, and its calls since the last fake_faults_arm. */
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
