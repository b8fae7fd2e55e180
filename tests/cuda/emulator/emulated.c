/* emulated.c - the emulated kernels' table, and backend functions for the kernels. */
#include "cuda/emulator/emulated.h"

#include <string.h>

#define DECLARE(name, type, need) type fri_emulated_##name;
FRI_MEMORY_KERNELS(DECLARE)
FRI_LOOP_KERNELS(DECLARE)

fri_conv2d_forward_fn fri_emulated_conv2d_depthwise_forward;
fri_conv2d_backward_input_fn fri_emulated_conv2d_depthwise_input;
fri_conv2d_backward_weight_fn fri_emulated_conv2d_depthwise_weight;

#define SLOT(name_, type, need) .name_ = fri_emulated_##name_,
const fri_kernels fri_emulated_kernels = {
    FRI_MEMORY_KERNELS(SLOT) FRI_LOOP_KERNELS(SLOT).conv2d_forward = fri_emulated_conv2d_depthwise_forward,
    .conv2d_backward_input = fri_emulated_conv2d_depthwise_input,
    .conv2d_backward_weight = fri_emulated_conv2d_depthwise_weight,
};

fr_status fri_emulated_launched(const char *kernel);
fr_status fri_emulated_no_type(const char *kernel, fr_dtype t);
fr_status fri_emulated_workspace(const fri_exec *e, const char *kernel, size_t need);
fr_status fri_emulated_set_bytes(const fri_exec *e, const char *kernel, void *p, int value, size_t bytes);
void *fri_emulated_stream(void);
int fri_emulated_processors(void);

fr_status fri_emulated_launched(const char *kernel) {
    (void)kernel;
    return FR_OK;
}

fr_status fri_emulated_no_type(const char *kernel, fr_dtype t) {
    return fr_fail(FR_EUNSUPPORTED, "%s: no instance for %s", kernel, fr_dtype_name(t));
}

fr_status fri_emulated_workspace(const fri_exec *e, const char *kernel, size_t need) {
    const size_t got = e->workspace != NULL ? e->workspace_bytes : 0;
    if (got >= need) return FR_OK;
    return fr_fail(FR_EINTERNAL, "%s: needs %zu bytes of workspace, got %zu", kernel, need, got);
}

fr_status fri_emulated_set_bytes(const fri_exec *e, const char *kernel, void *p, int value, size_t bytes) {
    (void)e;
    (void)kernel;
    memset(p, value, bytes);
    return FR_OK;
}

void *fri_emulated_stream(void) {
    return NULL;
}

/* Few, so that blocks walk several chunks. */
int fri_emulated_processors(void) {
    return 3;
}
