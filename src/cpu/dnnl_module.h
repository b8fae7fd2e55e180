/* dnnl_module.h - the boundary between the library and its module libfrugal-onednn.so, which alone is linked with
 * oneDNN. Neither finds symbols in the other: the module gets the library's functions, and returns its own. */
#ifndef FRI_CPU_DNNL_MODULE_H
#define FRI_CPU_DNNL_MODULE_H

#include "cpu/dnnl.h"

/* The library's functions. */
typedef struct fri_dnnl_host {
    fr_status (*fail)(fr_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));
    int (*threads)(void);
    int (*startable)(int n);
} fri_dnnl_host;

/* A library and a module with other numbers do not understand each other. Changes of the functions raise the first
 * term; the sizes of what they pass are checked by themselves. */
enum { FRI_DNNL_ABI = 2 << 24 | sizeof(fri_dnnl_calls) << 16 | sizeof(fri_conv2d_desc) << 8 | sizeof(fri_matmul_desc) };
_Static_assert(sizeof(fri_dnnl_calls) < 256 && sizeof(fri_conv2d_desc) < 256 && sizeof(fri_matmul_desc) < 256, "");

/* The module's only symbol, "fri_dnnl_open". Returns NULL if abi is not the module's FRI_DNNL_ABI. */
typedef const fri_dnnl_calls *fri_dnnl_open_fn(int abi, const fri_dnnl_host *host);
FR_API fri_dnnl_open_fn fri_dnnl_open;

extern fri_dnnl_host fri_dnnl_here; /* in the module */
/* Threads for a call of oneDNN: those of the library, or 1 if OpenMP cannot start so many. */
int fri_dnnl_threads(void);
bool fri_dnnl_isa_has_tiles(void);
void fri_dnnl_isa_version(char *buf, size_t n);

#endif
