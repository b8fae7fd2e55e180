/* transpose.h - transposes f32 matrices, four rows and columns at a time. */
#ifndef FRI_CPU_TRANSPOSE_H
#define FRI_CPU_TRANSPOSE_H

#include "cpu/cpu.h"

typedef float fri_four __attribute__((vector_size(16), aligned(4), may_alias));

/* y [4, 4] = x^T; rows are x_row and y_row elements apart. */
static inline void fri_transpose_4x4(const float *x, int64_t x_row, float *y, int64_t y_row) {
    fri_four a = *(const fri_four *)x, b = *(const fri_four *)(x + x_row);
    fri_four c = *(const fri_four *)(x + 2 * x_row), d = *(const fri_four *)(x + 3 * x_row);
    fri_four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    fri_four ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(fri_four *)y = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(fri_four *)(y + y_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(fri_four *)(y + 2 * y_row) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    *(fri_four *)(y + 3 * y_row) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
}

/* y [columns, rows] = x^T, x [rows, columns]. */
static inline void fri_transpose(int64_t rows, int64_t columns, const float *x, int64_t x_row, float *y,
                                 int64_t y_row) {
    for (int64_t i = 0; i < rows; i += 4) {
        for (int64_t j = 0; j < columns; j += 4) {
            if (rows - i >= 4 && columns - j >= 4) {
                fri_transpose_4x4(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
                continue;
            }
            for (int64_t k = i; k < fri_min_i64(i + 4, rows); k++)
                for (int64_t l = j; l < fri_min_i64(j + 4, columns); l++) y[l * y_row + k] = x[k * x_row + l];
        }
    }
}

#endif
