/* activation.c - smooth activations, their hard forms, and clamp: y from x, dx from the saved value. */
#include "cpu/cpu.h"

#define ACTIVATION(name, saves, ...)                                                                             \
    FRI_CLONES static void name##_row(const void *args, int64_t n, const real *x, const real *unused, real *y) { \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = fri_##name(x[i]);                            \
    }                                                                                                            \
    fr_status fri_cpu_##name##_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {   \
        return fri_cpu_map(#name, dtype, n, name##_row, NULL, x, NULL, y);                                       \
    }                                                                                                            \
    FRI_CLONES static void name##_gradient_row(const void *args, int64_t n, const real *saved, const real *dy,   \
                                               real *dx) {                                                       \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = fri_##name##_gradient(saved[i], dy[i]);     \
    }                                                                                                            \
    fr_status fri_cpu_##name##_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *saved,         \
                                        const void *dy, void *dx) {                                              \
        return fri_cpu_map(#name, dtype, n, name##_gradient_row, NULL, saved, dy, dx);                           \
    }
FRI_ACTIVATIONS(ACTIVATION)

FRI_CLONES static void clamp_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
    const real low = ((const real *)args)[0], high = ((const real *)args)[1];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_clamp(x[i], low, high);
}

fr_status fri_cpu_clamp_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high, const void *x,
                                void *y) {
    return fri_cpu_map("clamp", dtype, n, clamp_row, (const real[]){(real)low, (real)high}, x, NULL, y);
}

FRI_CLONES static void clamp_gradient_row(const void *args, int64_t n, const real *x, const real *dy, real *dx) {
    const real low = ((const real *)args)[0], high = ((const real *)args)[1];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = fri_clamp_gradient(x[i], dy[i], low, high);
}

fr_status fri_cpu_clamp_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high, const void *x,
                                 const void *dy, void *dx) {
    return fri_cpu_map("clamp", dtype, n, clamp_gradient_row, (const real[]){(real)low, (real)high}, x, dy, dx);
}
