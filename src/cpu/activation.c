/* activation.c - smooth activations, their hard forms, and clamp: y from x, dx from the saved value. */
#include "cpu/cpu.h"

#define ACTIVATION(name, saves, ...)                                                                           \
    FRI_MAP_ROW(name##_row, fri_##name(a[i]))                                                                  \
    fr_status fri_cpu_##name##_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) { \
        return fri_cpu_map(#name, dtype, n, name##_row, NULL, x, NULL, y);                                     \
    }                                                                                                          \
    FRI_MAP_ROW(name##_gradient_row, fri_##name##_gradient(a[i], b[i]))                                        \
    fr_status fri_cpu_##name##_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *saved,       \
                                        const void *dy, void *dx) {                                            \
        return fri_cpu_map(#name, dtype, n, name##_gradient_row, NULL, saved, dy, dx);                         \
    }
FRI_ACTIVATIONS(ACTIVATION)

FRI_MAP_ROW(clamp_row, fri_clamp(a[i], p, q))

fr_status fri_cpu_clamp_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high, const void *x,
                                void *y) {
    return fri_cpu_map("clamp", dtype, n, clamp_row, (const real[]){(real)low, (real)high}, x, NULL, y);
}

FRI_MAP_ROW(clamp_gradient_row, fri_clamp_gradient(a[i], b[i], p, q))

fr_status fri_cpu_clamp_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double low, double high, const void *x,
                                 const void *dy, void *dx) {
    return fri_cpu_map("clamp", dtype, n, clamp_gradient_row, (const real[]){(real)low, (real)high}, x, dy, dx);
}
