/* dnnl_isa.c - oneDNN's version and the instruction set that it uses. */
#include "cpu/dnnl_module.h"

#include <oneapi/dnnl/dnnl.h>

#include <stdio.h>

bool fri_dnnl_isa_has_tiles(void) {
    const int isa = dnnl_cpu_isa_avx512_core_amx;
    return ((int)dnnl_get_effective_cpu_isa() & isa) == isa;
}

static const char *isa_name(void) {
    switch ((int)dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
#if DNNL_VERSION_MAJOR >= 3
    case dnnl_cpu_isa_avx2_vnni_2: return "avx2_vnni_2";
    case dnnl_cpu_isa_avx512_core_fp16: return "avx512_core_fp16";
    case dnnl_cpu_isa_avx512_core_amx_fp16: return "avx512_core_amx_fp16";
#endif
    default: return "other isa";
    }
}

void fri_dnnl_isa_version(char *buf, size_t n) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, n, "oneDNN %d.%d.%d, %s", v->major, v->minor, v->patch, isa_name());
}
