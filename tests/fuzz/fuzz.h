/* fuzz.h - what the fuzz targets share. A target gets any bytes and must come back; the sanitizers see the rest. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry point. Returns 0; -1 keeps the input out of the corpus. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A broken promise is a finding. */
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : __builtin_trap())

#endif
