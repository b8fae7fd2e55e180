/* isa.h - the instructions of our own loops. */
#ifndef FRI_CPU_ISA_H
#define FRI_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>

/* Levels in ascending order. The baseline is SSE2, or NEON on Arm, which has no other. */
typedef enum fri_isa {
    FRI_ISA_BASELINE,
    FRI_ISA_AVX2, /* with fused multiply-adds */
    FRI_ISA_AVX512,
    FRI_ISA_AVX512_BF16,
} fri_isa;

/* The highest level that the processor has and FRUGAL_ISA allows, chosen at the first call. All loops that exist for
 * several levels ask here, except for FRI_CLONES (cpu.h), whose bits do not depend on the level. */
fri_isa fri_cpu_isa(void);

/* True if products use fused multiply-adds, which decides bits. */
bool fri_cpu_isa_fuses(void);

/* "avx2" */
const char *fri_cpu_isa_name(void);

/* "; FRUGAL_ISA=x ..." if its value is unknown or above the processor's level, else "". */
void fri_cpu_isa_fault(char *buf, size_t n);

typedef enum fri_lanes_width { FRI_LANES_BASELINE, FRI_LANES_AVX2, FRI_LANES_AVX512 } fri_lanes_width;

/* The width of vectors at this level. */
fri_lanes_width fri_cpu_lanes(void);

#endif
