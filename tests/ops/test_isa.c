/* test_isa.c - FRUGAL_ISA, and what is said about instructions. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "cpu/isa.h"

/* Runs fn in a child of fork, before any choice, with FRUGAL_ISA set, and returns the result. */
static int in_child(const char *level, int (*fn)(void)) {
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        unsetenv("FRUGAL_ISA");
        if (level != NULL) setenv("FRUGAL_ISA", level, 1);
        _exit(fn());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int chosen(void) {
    return (int)fri_cpu_isa();
}

static int width(void) {
    return (int)fri_cpu_lanes();
}

static int says(const char *words) {
    char text[256];
    return strstr(fri_device_describe(FR_CPU, text, sizeof text), words) != NULL;
}

static int says_unknown(void) {
    return says("; FRUGAL_ISA=x86-64-v5 is none of ");
}

static int says_refused(void) {
    return says("; FRUGAL_ISA=") && says(" is more than this processor has");
}

static int says_name(void) {
    return says(fri_cpu_isa_name()) && !says("FRUGAL_ISA");
}

static int fuses(void) {
    char text[256];
    return strncmp(fri_device_describe_bits(FR_CPU, FR_F32, text, sizeof text), "fused multiply-adds, ", 21) == 0;
}

static int hash_of_bits(void) {
    char text[256];
    int h = 7;
    (void)fri_device_describe_bits(FR_CPU, FR_F32, text, sizeof text);
    for (const char *p = text; *p != '\0'; p++) h = (h * 31 + *p) & 0xff;
    return h;
}

Test(isa, a_level_is_at_most_the_processors_and_a_fault_is_said) {
#if defined(__x86_64__)
    static const char *const levels[] = {"sse2", "avx2", "avx512", "avx512_bf16"};
#else
    static const char *const levels[] = {"neon"};
#endif
    enum { LEVELS = sizeof levels / sizeof *levels };
    const int most = in_child(NULL, chosen);
    for (int i = 0; i < LEVELS; i++) {
        cr_expect_eq(in_child(levels[i], chosen), i < most ? i : most, "%s", levels[i]);
        cr_expect_eq(in_child(levels[i], width), i >= 2 && most >= 2 ? 2 : i < most ? i : most, "%s", levels[i]);
        cr_expect_eq(in_child(levels[i], says_name), i <= most, "%s", levels[i]);
        cr_expect_eq(in_child(levels[i], says_refused), i > most, "%s", levels[i]);
    }
    cr_expect_eq(in_child("x86-64-v5", chosen), most);
    cr_expect_eq(in_child("x86-64-v5", says_unknown), 1);
    cr_expect_eq(in_child("", chosen), most);
    cr_expect_eq(in_child("", says_name), 1);
#if defined(__x86_64__)
    cr_expect_eq(most >= FRI_ISA_AVX2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    cr_expect_eq(most >= FRI_ISA_AVX512, __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
#endif
}

Test(isa, levels_with_fused_multiply_adds_have_equal_bits) {
#if defined(__x86_64__)
    if (in_child(NULL, chosen) < FRI_ISA_AVX512) cr_skip_test("the processor has no AVX-512");
    cr_expect_eq(in_child("avx2", fuses), 1);
    cr_expect_eq(in_child("sse2", fuses), 0);
    const int bits = in_child("avx512", hash_of_bits);
    cr_expect_eq(in_child("avx2", hash_of_bits), bits);
    cr_expect_neq(in_child("sse2", hash_of_bits), bits);
#else
    cr_expect_eq(in_child(NULL, fuses), 1);
#endif
}
