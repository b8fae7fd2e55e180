/* test_tensor.c - views of rows; meta tensors, which have an address and no values; random numbers of tensors. */
#include <criterion/criterion.h>
#include <frugal/tensor.h>
#include <math.h>
#include <string.h>

#include "backend/arith.h"
#include "base/half.h"
#include "support/golden.h"
#include "tensor/tensor.h"

/* A copy from the host to a device and back: equal bytes in separate memory, outside of any graph. */
Test(tensor, to_device_moves_the_bytes) {
    fr_tensor *x = NULL, *y = NULL, *z = NULL;
    float there[6];
    must(fr_tensor_from_host((const float[]){0, 1, 2, 3, 4, -0.0f}, 2, (int64_t[]){3, 2}, FR_F32, FR_CPU, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_to_device(x, test_device(), &y));
    must(fr_tensor_to_device(y, FR_CPU, &z));
    must(fr_tensor_to_host(z, there));
    cr_expect_eq(fr_tensor_device(y), test_device());
    cr_expect(fr_tensor_rank(z) == 2 && fr_tensor_dim(z, 0) == 3 && fr_tensor_dtype(z) == FR_F32);
    cr_expect_eq(memcmp(there, fr_tensor_data(x), sizeof there), 0);
    cr_expect(fr_tensor_data(z) != fr_tensor_data(x) && !fr_tensor_requires_grad(y) && !fr_tensor_requires_grad(z));
    must(fr_tensor_to_device(x, FR_META, &y));
    expect_refused(fr_tensor_to_device(y, FR_CPU, &z), FR_EUNSUPPORTED, "copy", "holds no data", NULL);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    expect_nothing_left();
}

/* narrow0 accepts existing rows only. */
Test(tensor, narrow0_stays_inside) {
    static const int64_t wrong[][2] = {{0, 4}, {1, 3}, {3, 1}, {-1, 1}, {1, -1}, {4, 0}, {1, INT64_MAX}};
    fr_tensor *x = NULL, *y = NULL;
    float row[2];
    must(fr_tensor_from_host((const float[]){0, 1, 2, 3, 4, 5}, 2, (int64_t[]){3, 2}, FR_F32, test_device(), &x));
    must(fr_tensor_narrow0(x, 2, 1, &y));
    must(fr_tensor_to_host(y, row));
    cr_expect(row[0] == 4 && row[1] == 5, "row 2 is %g, %g", row[0], row[1]);
    must(fr_tensor_narrow0(x, 3, 0, &y));
    cr_expect_eq(fr_tensor_numel(y), 0);
    fr_tensor_release(&y);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refused(fr_tensor_narrow0(x, wrong[i][0], wrong[i][1], &y), FR_ESHAPE, "narrow0", "3 rows", y);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(tensor, meta_has_no_values_to_copy) {
    fr_tensor *x = NULL;
    double value = 7;
    float data = 7;
    must(fr_tensor_full(0, NULL, 1, FR_F32, FR_META, &x));
    cr_expect_null(fr_tensor_data(x));
    expect_refused(fr_tensor_item(x, &value), FR_EUNSUPPORTED, "4 bytes", "no data", NULL);
    expect_refused(fr_tensor_to_host(x, &data), FR_EUNSUPPORTED, "4 bytes", "no data", NULL);
    cr_expect(value == 7 && data == 7);
    fr_tensor_release(&x);
}

/* Addresses on meta are unique per tensor, as on a device: the allocator and its plans rely on unique addresses. */
Test(tensor, meta_addresses_are_of_one_tensor_each) {
    enum { COUNT = 6 };
    const int64_t bytes = (int64_t)24 << 20;
    fr_tensor *x[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) must(fr_tensor_empty(1, &bytes, FR_U8, FR_META, &x[i]));
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++) {
            const char *a = fri_data(x[i]), *b = fri_data(x[k]);
            cr_expect(a + bytes <= b || b + bytes <= a, "tensors %d and %d overlap", k, i);
        }
    for (int i = 0; i < COUNT; i++) fr_tensor_release(&x[i]);
}

/* Known answers of Random123 for counter and key of zeros, and of ones. */
Test(random, philox_has_the_published_numbers) {
    const uint32_t want[2][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}};
    for (int i = 0; i < 2; i++) {
        const uint64_t all = i == 0 ? 0 : UINT64_MAX;
        const fri_philox4 r = fri_philox(all, all, all);
        for (int k = 0; k < 4; k++) cr_expect_eq(r.v[k], want[i][k], "number %d is %08x", k, r.v[k]);
    }
}

/* A radius of sqrt(-2 log(1 - 1/2)) at a quarter turn: cosine 0, sine 1. */
Test(random, a_normal_pair_is_two_numbers) {
    fri_real even = 7, odd = 7;
    fri_normal_pair(1u << 31, 1u << 30, &even, &odd);
    cr_expect(fabs((double)even) < 1e-6, "even is %g", (double)even);
    cr_expect(fabs((double)odd - sqrt(2 * log(2))) < 1e-6, "odd is %g", (double)odd);
}

/* Halves round to nearest, ties to even; kernels use these functions on processors without conversions. */
Test(half, rounds_to_nearest_and_ties_to_even) {
    static const struct {
        uint32_t f32;
        uint16_t bf16, f16;
    } cases[] = {
        {0x3f800000, 0x3f80, 0x3c00}, /* 1 */
        {0x3f808000, 0x3f80, 0x3c04}, /* bf16: a tie, down to even */
        {0x3f818000, 0x3f82, 0x3c0c}, /* bf16: a tie, up to even */
        {0x3f808001, 0x3f81, 0x3c04}, /* bf16: just above a tie */
        {0x3f801000, 0x3f80, 0x3c00}, /* f16: a tie, down to even */
        {0x3f803000, 0x3f80, 0x3c02}, /* f16: a tie, up to even */
        {0x3f801001, 0x3f80, 0x3c01}, /* f16: just above a tie */
        {0x477fefff, 0x4780, 0x7bff}, /* f16: rounds down to its largest number */
        {0x477ff000, 0x4780, 0x7c00}, /* f16: 65520 is infinite */
        {0x33800000, 0x3380, 0x0001}, /* smallest f16: 2^-24 */
        {0x33000000, 0x3300, 0x0000}, /* f16: half of 2^-24, a tie, to even */
        {0x33000001, 0x3300, 0x0001}, /* f16: just above */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float f = fri_f32_from_bits(cases[i].f32);
        cr_expect_eq(fri_bf16_from_f32(f), cases[i].bf16, "%08x: bf16 %04x", cases[i].f32, fri_bf16_from_f32(f));
        cr_expect_eq(fri_f16_from_f32(f), cases[i].f16, "%08x: f16 %04x", cases[i].f32, fri_f16_from_f32(f));
        cr_expect_eq(fri_f16_from_f32(-f), cases[i].f16 | 0x8000u);
    }
}
