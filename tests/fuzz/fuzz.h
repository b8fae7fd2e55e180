/* fuzz.h - what the fuzz targets share. A target gets any bytes and must come back; the sanitizers see the rest. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <frugal/addon.h>
#include <stddef.h>
#include <stdint.h>

/* The table of add-ons is empty: targets call add-ons directly. */
const fr_addon *const *fr_addons(void) {
    static const fr_addon *const none[] = {NULL};
    return none;
}

/* libFuzzer's entry point. Returns 0; -1 keeps the input out of the corpus. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A broken promise is a finding. */
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : __builtin_trap())

#endif
