/* backend.c - the CPU as a backend: its memory and its tables of kernels. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, MADV_HUGEPAGE */
#endif
#include "base/container.h"
#include "base/process.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum {
    HUGE_PAGE = 2 * 1024 * 1024,
    SMALL_ALIGNMENT = 512, /* the allocator's granularity; more than any kernel asks for */
};

static bool cpu_available(const char **reason) {
    *reason = "";
    return true;
}

/* True for segments of a huge page or more, which come from mmap: they start on a huge page and return to the system
 * when freed, which malloc does not promise. Smaller segments, and all under sanitizers, come from malloc. */
static bool is_mapped(size_t bytes) {
#ifdef FRI_SANITIZED
    return false;
#else
    return bytes >= HUGE_PAGE;
#endif
}

static fr_status cpu_segment_alloc(size_t bytes, void **out) {
    *out = NULL;
    if (!is_mapped(bytes)) {
        void *p = NULL;
        if (posix_memalign(&p, bytes >= HUGE_PAGE ? HUGE_PAGE : SMALL_ALIGNMENT, bytes > 0 ? bytes : 1) != 0)
            return FR_ENOMEM;
        *out = p;
        return FR_OK;
    }
    size_t span;
    if (__builtin_add_overflow(bytes, (size_t)HUGE_PAGE, &span)) return FR_ENOMEM;
    char *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return FR_ENOMEM;
    size_t page = 4096, head = (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
    size_t length = (bytes + page - 1) / page * page, tail = span - head - length;
    if (head > 0) munmap(base, head);
    if (tail > 0) munmap(base + head + length, tail);
    madvise(base + head, length, MADV_HUGEPAGE); /* a refusal only costs speed */
    *out = base + head;
    return FR_OK;
}

static void cpu_segment_free(void *segment, size_t bytes) {
    if (segment == NULL) return;
    if (is_mapped(bytes))
        munmap(segment, bytes);
    else
        free(segment);
}

static void cpu_memory_info(size_t *free_bytes, size_t *total_bytes) {
    struct sysinfo info;
    *free_bytes = *total_bytes = 0;
    if (sysinfo(&info) != 0) return;
    *free_bytes = (size_t)info.freeram * info.mem_unit;
    *total_bytes = (size_t)info.totalram * info.mem_unit;
    const size_t limit = fri_container_get()->memory;
    if (limit > 0 && limit < *total_bytes) *total_bytes = limit;
    if (*free_bytes > *total_bytes) *free_bytes = *total_bytes;
}

/* The resident set, in pages. */
static void cpu_memory_use(fr_memory_use *out) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    *out = (fr_memory_use){.source = "resident set"};
    if (f == NULL) return;
    if (fscanf(f, "%*u %llu", &pages) == 1) out->process = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
    fclose(f);
}

/* Host and device are the same memory. */
static fr_status cpu_copy(const fri_exec *e, fri_copy_kind kind, const void *src, void *dst, size_t bytes) {
    return fri_cpu_copy_rows(e, 1, bytes, src, bytes, dst, bytes);
}

static fr_status cpu_synchronize(const fri_exec *e) {
    return FR_OK; /* kernels are synchronous */
}

static void cpu_describe(char *buf, size_t bytes) {
    char fault[96];
    fri_cpu_isa_fault(fault, sizeof fault);
    snprintf(buf, bytes, "%d threads, %s%s%s", fr_threads_get(), fri_cpu_isa_name(),
             fri_exact_convolutions_get() ? "" : ", Winograd convolutions", fault);
}

/* Choices by shape alone (threads and widths of vectors change none) leave these facts: no function of the C library
 * has a part in f32 and f16. */
static void cpu_describe_bits(fr_dtype compute, char *buf, size_t bytes) {
    snprintf(buf, bytes, "%s%s%s", fri_cpu_isa_fuses() ? "fused multiply-adds" : "separate multiplications",
             compute != FR_BF16       ? ""
             : fri_igemm_reads_bf16() ? ", avx512_bf16"
                                      : ", bf16 in f32",
             fri_exact_convolutions_get() ? "" : ", Winograd convolutions");
}

static bool reads_parts(fr_dtype dtype, int64_t granule) {
    (void)granule;
    return fr_dtype_is_float(dtype);
}

extern const fri_backend fri_backend_cpu; /* only the registry reads the table, so no header declares it */

#define SLOT(name_, type, need)     FRI_IF_##need(.name_ = fri_cpu_##name_, )
#define SLOT_F64(name_, type, need) FRI_IF_##need(.name_ = fri_cpu_f64_##name_, )

const fri_backend fri_backend_cpu = {
    .name = "cpu",
    .device = FR_CPU,
    .available = cpu_available,
    .segment_alloc = cpu_segment_alloc,
    .segment_free = cpu_segment_free,
    .memory_info = cpu_memory_info,
    .memory_use = cpu_memory_use,
    .copy = cpu_copy,
    .describe = cpu_describe,
    .describe_bits = cpu_describe_bits,
    .numerics = 4,
    .synchronize = cpu_synchronize,
    .kernels = {FRI_KERNEL_MAP(SLOT).batchnorm2d_reads_parts = reads_parts,
                .conv2d_reads_norm = fri_cpu_conv2d_reads_norm, .conv2d_constant_plan = fri_cpu_conv2d_constant_plan,
                .conv2d_constant_forward = fri_cpu_conv2d_constant_forward},
    .kernels_f64 = {FRI_MEMORY_KERNELS(SLOT) FRI_LOOP_KERNELS(SLOT_F64) FRI_LIBRARY_KERNELS(SLOT_F64)
                        .batchnorm2d_reads_parts = reads_parts},
};
