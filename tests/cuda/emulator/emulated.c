/* emulated.c - the emulated kernels' table, and what they call of the backend. */
#include "cuda/emulator/emulated.h"

#include <string.h>

/* Every kernel that is a .cu file. */
/* clang-format off */
#define EMULATED_MAP(X)                                                                                          \
    X(fill) X(copy_rows) X(cast) X(add) X(add_relu) X(mul) X(scale) X(broadcast) X(sum) X(sum_workspace)         \
    X(relu_forward) X(relu_backward) X(relu_encode) X(relu_backward_bits)                                        \
    X(leaky_relu_forward) X(leaky_relu_backward)                                                                 \
    X(uniform) X(normal) X(dropout) X(dropout_mask) X(dropout_apply_mask)                                        \
    X(bias_workspace) X(batchnorm2d_workspace) X(batchnorm2d_stats) X(batchnorm2d_invstd) X(batchnorm2d_apply)   \
    X(batchnorm2d_backward) X(batchnorm2d_finalize) X(batchnorm2d_fold)                                          \
    X(maxpool2d_forward) X(maxpool2d_backward) X(maxpool2d_mask) X(avgpool2d_forward) X(avgpool2d_backward)      \
    X(adaptive_avgpool2d_forward) X(adaptive_avgpool2d_backward) X(upsample_forward) X(upsample_backward)        \
    X(embedding_forward) X(embedding_backward)                                                                   \
    X(cross_entropy_workspace) X(cross_entropy_forward) X(cross_entropy_backward) X(count_correct)               \
    X(mse_forward) X(mse_backward) X(unscale) X(norm_squared) X(norm_squared_workspace) X(count_up)              \
    X(clip_factor) X(loss_scale_update)                                                                          \
    X(sgd) X(adam) X(adam8)
/* clang-format on */

#define DECLARE(name) fri_##name##_fn fri_emulated_##name;
EMULATED_MAP(DECLARE)

#define SLOT(name) .name = fri_emulated_##name,
const fri_kernels fri_emulated_kernels = {EMULATED_MAP(SLOT)};

fr_status fri_emulated_launched(const char *kernel);
fr_status fri_emulated_no_type(const char *kernel, fr_dtype t);
fr_status fri_emulated_workspace_short(const char *kernel, size_t need, size_t got);
fr_status fri_emulated_set_bytes(const fri_exec *e, const char *kernel, void *p, int value, size_t bytes);
void *fri_emulated_stream(void);

fr_status fri_emulated_launched(const char *kernel) {
    (void)kernel;
    return FR_OK;
}

fr_status fri_emulated_no_type(const char *kernel, fr_dtype t) {
    return fri_fail(FR_EUNSUPPORTED, "%s: no instance for %s", kernel, fr_dtype_name(t));
}

fr_status fri_emulated_workspace_short(const char *kernel, size_t need, size_t got) {
    return fri_fail(FR_EINTERNAL, "%s: needs %zu bytes of workspace, got %zu", kernel, need, got);
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
