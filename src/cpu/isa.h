/* isa.h - the width of vectors in our own loops. */
#ifndef FRI_CPU_ISA_H
#define FRI_CPU_ISA_H

typedef enum fri_lanes_width { FRI_LANES_BASELINE, FRI_LANES_AVX2, FRI_LANES_AVX512 } fri_lanes_width;

/* The widest vectors that the processor has and that ONEDNN_MAX_CPU_ISA (or DNNL_MAX_CPU_ISA) allows, as oneDNN reads
 * the variable. */
fri_lanes_width fri_cpu_lanes(void);

#endif
