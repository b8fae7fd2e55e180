/* isa.c - see isa.h. */
#include "cpu/isa.h"

#include "base/env.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#if defined(__x86_64__)
    [FRI_ISA_BASELINE] = "sse2",
    [FRI_ISA_AVX2] = "avx2",
    [FRI_ISA_AVX512] = "avx512",
    [FRI_ISA_AVX512_BF16] = "avx512_bf16",
#else
    [FRI_ISA_BASELINE] = "neon",
#endif
};
enum { LEVELS = sizeof names / sizeof *names };

static fri_isa chosen;
static bool unknown, refused; /* FRUGAL_ISA */

#if defined(__x86_64__)

static fri_isa of_processor(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return FRI_ISA_BASELINE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return FRI_ISA_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? FRI_ISA_AVX512_BF16 : FRI_ISA_AVX512;
}

#else

static fri_isa of_processor(void) {
    return FRI_ISA_BASELINE;
}

#endif

static void choose(void) {
    const char *limit = fri_env_get()->isa;
    chosen = of_processor();
    if (limit == NULL || limit[0] == '\0') return;
    int level = 0;
    while (level < LEVELS && strcmp(limit, names[level]) != 0) level++;
    unknown = level == LEVELS;
    refused = !unknown && level > (int)chosen;
    if (!unknown && !refused) chosen = (fri_isa)level;
}

fri_isa fri_cpu_isa(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

bool fri_cpu_isa_fuses(void) {
#if defined(__x86_64__)
    return fri_cpu_isa() >= FRI_ISA_AVX2;
#else
    return true;
#endif
}

const char *fri_cpu_isa_name(void) {
    return names[fri_cpu_isa()];
}

void fri_cpu_isa_fault(char *buf, size_t n) {
    fri_cpu_isa();
    buf[0] = '\0';
    if (unknown || refused) snprintf(buf, n, "; FRUGAL_ISA=%.16s is ", fri_env_get()->isa);
    if (refused) snprintf(buf + strlen(buf), n - strlen(buf), "more than this processor has");
    for (int i = 0; unknown && i < LEVELS; i++)
        snprintf(buf + strlen(buf), n - strlen(buf), "%s%s", i == 0 ? "none of " : ", ", names[i]);
}

fri_lanes_width fri_cpu_lanes(void) {
    const fri_isa isa = fri_cpu_isa();
    return isa >= FRI_ISA_AVX512 ? FRI_LANES_AVX512 : isa == FRI_ISA_AVX2 ? FRI_LANES_AVX2 : FRI_LANES_BASELINE;
}
