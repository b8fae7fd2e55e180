/* isa.c - see isa.h. */
#include "cpu/isa.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>

#if defined(__x86_64__)

static fri_lanes_width lanes;

static fri_lanes_width of_processor(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return FRI_LANES_BASELINE;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return wide ? FRI_LANES_AVX512 : FRI_LANES_AVX2;
}

/* Names without a limit for us (AVX512_CORE and wider, ALL, DEFAULT) are not in the table. */
static void choose(void) {
    static const struct {
        const char *name;
        fri_lanes_width most;
    } limits[] = {{"SSE41", FRI_LANES_BASELINE},
                  {"AVX", FRI_LANES_BASELINE},
                  {"AVX2", FRI_LANES_AVX2},
                  {"AVX2_VNNI", FRI_LANES_AVX2},
                  {"AVX2_VNNI_2", FRI_LANES_AVX2}};
    const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
    if (limit == NULL) limit = getenv("DNNL_MAX_CPU_ISA");
    lanes = of_processor();
    for (size_t i = 0; limit != NULL && i < sizeof limits / sizeof *limits; i++)
        if (strcasecmp(limit, limits[i].name) == 0 && limits[i].most < lanes) lanes = limits[i].most;
}

fri_lanes_width fri_cpu_lanes(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return lanes;
}

#else

fri_lanes_width fri_cpu_lanes(void) {
    return FRI_LANES_BASELINE;
}

#endif
