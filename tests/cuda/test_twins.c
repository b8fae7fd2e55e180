/* test_twins.c - every own CUDA kernel against its CPU twin: all float types, lengths that leave tails, pointers that
 * are not aligned, guard bytes behind every output. Here: vectors and rows of channels. */
#include <math.h>
#include <string.h>

#include "cuda/twin.h"

TestSuite(twins, .init = twin_begin, .timeout = 300);

static const int64_t lengths[] = {1, 3, 8, 31, 257, 4099};

/* Every float type, length and alignment; body sees t, n and offset. */
#define EACH_VECTOR(...)                                      \
    for (int ti_ = 0; ti_ < 3; ti_++)                         \
        for (size_t ni_ = 0; ni_ < sizeof lengths / 8; ni_++) \
            for (int64_t offset = 0; offset < 2; offset++) {  \
                const fr_dtype t = floats[ti_];               \
                const int64_t n = lengths[ni_];               \
                __VA_ARGS__                                   \
            }

/* ---- pointwise ------------------------------------------------------------------------------------------------- */

#define UNARY(name, type, need)             \
    BOTH(k->name(ex(), t, n, p(&a), p(&y))) \
    expect_same(#name, &y, 0);
#define BINARY(name, type, need)                   \
    BOTH(k->name(ex(), t, n, p(&a), p(&b), p(&y))) \
    expect_same(#name, &y, 0);
#define SCALED(name, type, need)                  \
    BOTH(k->name(ex(), t, n, 0.37, p(&a), p(&y))) \
    expect_same(#name, &y, 0);

/* The elementwise kernels of the map (backend/kernel_map.h), and kernels with their own type. */
Test(twins, pointwise){EACH_VECTOR({
    buf a = numbers_between(t, n, offset, -2, 2, true);
    buf b = numbers(t, n, offset);
    buf y = blank(t, n, offset);
    FRI_UNARY_KERNELS(UNARY)
    FRI_BINARY_KERNELS(BINARY)
    FRI_SCALED_KERNELS(SCALED)
    BOTH(k->broadcast(ex(), t, n, 0.37, p(&b), p(&y)));
    expect_same("broadcast", &y, 0);
    BOTH(k->leaky_relu_backward(ex(), t, n, 0.1, p(&a), p(&b), p(&y)));
    expect_same("leaky_relu_backward", &y, 0);
    for (double beta = -1; beta <= 1; beta++) {
        BOTH(k->mse_backward(ex(), t, n, beta, -1, p(&a), p(&b), p(&b), p(&y)));
        expect_same("mse_backward", &y, 0);
    }
    BOTH(k->clamp_forward(ex(), t, n, -0.5, 1, p(&a), p(&y)));
    expect_same("clamp_forward", &y, 0);
    BOTH(k->clamp_backward(ex(), t, n, -0.5, 1, p(&a), p(&b), p(&y)));
    expect_same("clamp_backward", &y, 0);
    BOTH(k->add(ex(), t, n, p(&a), p(&b), p(&a))); /* in place */
    expect_same("add in place", &a, 0);
    drop(&a);
    drop(&b);
    drop(&y);
})}

Test(twins, relu_bits){EACH_VECTOR({
    buf y = numbers_between(t, n, offset, -2, 8, true);
    buf dy = numbers(t, n, offset);
    buf bits = blank(FR_U8, (n + 7) / 8, 0);
    for (int rule = 0; rule < FRI_MASK_RULES; rule++) {
        BOTH(k->relu_encode(ex(), t, n, rule, p(&y), p(&bits)));
        expect_same("relu_encode", &bits, 0);
    }
    BOTH(k->add_mask(ex(), t, n, p(&bits), p(&y), p(&dy), p(&y)));
    expect_same("add_mask", &y, 0);
    BOTH(k->relu_backward_bits(ex(), t, n, 0.25, p(&bits), p(&dy), p(&dy)));
    expect_same("relu_backward_bits", &dy, 0);
    drop(&y);
    drop(&dy);
    drop(&bits);
})}

Test(twins, binary_image) {
    static const fri_binary_desc shapes[] = {{.n = 2, .hw = 9, .c = 8},    {.n = 3, .hw = 301, .c = 7},
                                             {.n = 1, .hw = 5, .c = 1100}, {.n = 4, .hw = 64, .c = 16},
                                             {.n = 1030, .hw = 2, .c = 1}, {.n = 2, .hw = 700, .c = 1}};
    for (int ti = 0; ti < 3; ti++)
        for (int i = 0; i < 6; i++)
            for (int64_t offset = 0; offset < 2; offset++) {
                fri_binary_desc d = shapes[i];
                d.dtype = floats[ti];
                buf a = numbers(d.dtype, d.n * d.hw * d.c, offset), dy = numbers(d.dtype, a.n, offset);
                buf b = numbers_between(d.dtype, d.n * d.c, offset, 1, 2, false), y = blank(d.dtype, a.n, offset);
                buf none = {0};
                for (d.op = FRI_BINARY_ADD; d.op <= FRI_BINARY_DIV; d.op++) {
                    BOTH(k->binary_image(ex(), &d, p(&a), p(&b), p(&y)));
                    expect_same("binary_image", &y, 0);
                }
                BOTH(k->binary_image_sum(ex(), &d, p(&a), p(&dy), p(&b)));
                expect_same("binary_image_sum", &b, rounding(d.dtype));
                BOTH(k->binary_image_sum(ex(), &d, p(&none), p(&dy), p(&b)));
                expect_same("binary_image_sum of dy", &b, 0);
                drop(&a);
                drop(&b);
                drop(&y);
                drop(&dy);
            }
}

/* A permutation, a window with a step, a window of bytes that go in pairs, a single element. */
Test(twins, copy_strided) {
    static const fri_strided_desc shapes[] =
        {{.rank = 3, .extent = {3, 7, 40}, .x_stride = {280, 1, 7}, .y_stride = {280, 40, 1}},
         {.rank = 2, .extent = {9, 31}, .x_stride = {65, 2}, .y_stride = {40, 1}},
         {.rank = 2, .extent = {11, 24}, .x_stride = {32, 1}, .y_stride = {48, 1}},
         {.rank = 0}};
    static const fr_dtype types[] = {FR_U8, FR_F16, FR_F32, FR_F64};
    for (int i = 0; i < 4; i++)
        for (int ti = 0; ti < 4; ti++)
            for (int64_t offset = 0; offset < 2; offset++) {
                fri_strided_desc d = shapes[i];
                d.size = fr_dtype_size(types[ti]);
                buf x = zeros(types[ti], 1000, offset), y = zeros(types[ti], 1000, offset);
                for (int64_t k = 0; k < 1000; k++) set(&x, k, (double)(k * 37 % 251));
                copy_in(&x);
                BOTH(k->copy_strided(ex(), &d, p(&x), p(&y)));
                expect_same("copy_strided", &y, 0);
                drop(&x);
                drop(&y);
            }
}

Test(twins, sums){EACH_VECTOR({
    buf x = numbers(t, n, offset);
    buf u = numbers(t, n, offset);
    buf y = blank(t, 1, 0);
    BOTH(k->sum(ex(), t, n, 0.5, p(&x), p(&y)));
    expect_same("sum", &y, 0);
    for (double beta = -1; beta <= 1; beta++) {
        BOTH(k->mse_forward(ex(), t, n, beta, p(&x), p(&u), p(&y)));
        expect_same("mse_forward", &y, rounding(t));
    }
    drop(&x);
    drop(&u);
    drop(&y);
})}

/* More arrays than fit in a launch, empty arrays among them, some not aligned; a second call adds to the first's
 * sum. */
Test(twins, norm_squared) {
    enum { ARRAYS = 400 };
    static buf x[ARRAYS];
    static fri_array arrays[ARRAYS];
    for (int ti = 0; ti < 3; ti++)
        for (int count = 0; count <= ARRAYS; count += count == 0 ? 1 : ARRAYS - 1) {
            buf norm = blank(FR_F64, 1, 0);
            for (int i = 0; i < count; i++) x[i] = numbers(floats[ti], i % 3 == 2 ? 0 : lengths[i % 6], i % 2);
            for (int twice = 0; twice < 2; twice++)
                for (int side = 0; side < 2; side++) {
                    twin_side(side);
                    for (int i = 0; i < count; i++) arrays[i] = (fri_array){x[i].n, p(&x[i])};
                    cr_expect_leq(twin_kernels->norm_squared_workspace(floats[ti], count, arrays), (size_t)8 << 20);
                    must(twin_kernels->norm_squared(ex(), floats[ti], count, arrays, p(&norm)));
                }
            expect_same("norm_squared", &norm, 1e-12);
            for (int i = 0; i < count; i++) drop(&x[i]);
            drop(&norm);
        }
}

/* More arrays than fit in a launch, empty arrays among them, some not aligned; an element of the last array, or none,
 * is inf or NaN: the first, the last, one between. */
Test(twins, unscale) {
    enum { ARRAYS = 400, LAST = 4099 };
    static const struct {
        double value;
        int64_t at;
    } odd[] = {{0, -1}, {INFINITY, 0}, {-INFINITY, 2050}, {NAN, LAST - 1}};
    static buf x[ARRAYS];
    static fri_array arrays[ARRAYS];
    for (int ti = 0; ti < 3; ti++)
        for (int count = 0; count <= ARRAYS; count += count == 0 ? 1 : ARRAYS - 1)
            for (int special = 0; special < 4; special++)
                for (int scaled = 0; scaled < 2; scaled++) {
                    buf found = zeros(FR_F32, 1, 0);
                    buf factor = scaled ? numbers_between(FR_F32, 1, 0, 0.1, 0.9, false) : (buf){0};
                    for (int i = 0; i < count; i++)
                        x[i] = numbers(floats[ti], i + 1 == count ? LAST : i % 3 == 2 ? 0 : lengths[i % 6], i % 2);
                    if (special > 0 && count > 0) {
                        set(&x[count - 1], odd[special].at, odd[special].value);
                        copy_in(&x[count - 1]);
                    }
                    for (int side = 0; side < 2; side++) {
                        twin_side(side);
                        for (int i = 0; i < count; i++) arrays[i] = (fri_array){x[i].n, p(&x[i])};
                        must(twin_kernels->unscale(ex(), floats[ti], count, arrays, p(&factor), p(&found)));
                    }
                    for (int i = 0; i < count; i++) expect_same("unscale", &x[i], 0);
                    expect_same("unscale's found", &found, 0);
                    cr_expect_eq(value_at(FR_F32, found.data[0], 0), special > 0 && count > 0, "%g at %lld of %d",
                                 odd[special].value, (long long)odd[special].at, count);
                    for (int i = 0; i < count; i++) drop(&x[i]);
                    drop(&found);
                    if (scaled) drop(&factor);
                }
}

/* Counters, the clipping factor and the loss scale: single numbers. */
Test(twins, steering) {
    static const double squares[] = {0, 1e-30, 0.3, 4, 1e30, INFINITY, NAN};
    fri_loss_scale_desc rule = {.growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 3, .dynamic = true};
    buf counter = zeros(FR_F32, 1, 0), found = zeros(FR_F32, 1, 0);
    for (int i = 0; i < 6; i++) {
        set(&found, 0, i % 3 == 2);
        copy_in(&found);
        BOTH(k->count_up(ex(), p(&found), 1, &(fri_array){1, p(&counter)}));
    }
    expect_same("count_up", &counter, 0);
    cr_expect_eq(value_at(FR_F32, counter.data[0], 0), 4.0);
    for (int i = 0; i < 7; i++) {
        buf square = blank(FR_F64, 1, 0), factor = blank(FR_F32, 1, 0);
        set(&square, 0, squares[i]);
        copy_in(&square);
        BOTH(k->clip_factor(ex(), 0.5, p(&square), p(&factor)));
        expect_same("clip_factor", &factor, 0);
        drop(&square);
        drop(&factor);
    }
    buf state = zeros(FR_U8, sizeof(fri_loss_scale), 0);
    *(fri_loss_scale *)state.data[0] = (fri_loss_scale){.inverse = 1.0f / 1024, .scale = 1024};
    copy_in(&state);
    for (int i = 0; i < 12; i++) {
        set(&found, 0, i == 4 || i > 9);
        copy_in(&found);
        BOTH(k->loss_scale_update(ex(), &rule, p(&state), p(&found)));
        expect_same("loss_scale_update", &state, 0);
        expect_same("loss_scale_update's found", &found, 0);
    }
    fri_loss_scale end = *(fri_loss_scale *)state.data[0];
    /* grows after 3; an overflow; grows after 3 more; the rest is two clean ones and two overflows */
    cr_expect_eq(end.scale, 1024.0f * 2 / 2 * 2 / 2 / 2);
    cr_expect_eq(end.inverse, 1 / end.scale);
    cr_expect_eq(end.skipped, 3);
    cr_expect_eq(end.tracker, 0);
    drop(&state);
    drop(&counter);
    drop(&found);
}

static const fr_dtype every[] = {FR_F32, FR_F16, FR_BF16, FR_F64, FR_I64, FR_I32, FR_I16, FR_I8, FR_U8, FR_BOOL};

Test(twins, cast_and_fill) {
    for (int from = 0; from < 10; from++)
        for (int to = 0; to < 10; to++)
            for (int64_t offset = 0; offset < 3; offset++) { /* of x, of y */
                const int64_t n = 259, own = offset & 1;
                buf x = fr_dtype_is_float(every[from]) ? numbers_between(every[from], n, own, -300, 300, true)
                                                       : numbers_between(every[from], n, own, -120, 250, false);
                buf y = blank(every[to], n, offset >> 1);
                BOTH(k->cast(ex(), every[from], every[to], n, p(&x), p(&y)));
                expect_same(fr_dtype_name(every[from]), &y, 0);
                drop(&x);
                drop(&y);
            }
    for (int to = 0; to < 10; to++)
        for (int64_t offset = 0; offset < 2; offset++) {
            buf y = blank(every[to], 1001, offset);
            BOTH(k->fill(ex(), every[to], 1001, 1.0009765, p(&y)));
            expect_same("fill", &y, 0);
            drop(&y);
        }
}

/* More arrays than a launch holds, of lengths around a block's 4,096 elements; x and y on and off a pack's place. */
Test(twins, casts_of_a_list) {
    enum { ARRAYS = 300 };
    static const int64_t of_item[] = {0, 1, 5, 64, 1027, 4095, 4096, 4099, 9000};
    static const fr_dtype types[][2] = {{FR_F32, FR_F16}, {FR_F32, FR_BF16}, {FR_F16, FR_F32}};
    static buf x[ARRAYS], y[ARRAYS];
    static fri_cast_item items[ARRAYS];
    for (size_t ti = 0; ti < sizeof types / sizeof *types; ti++)
        for (int count = 0; count <= ARRAYS; count += ARRAYS / 2) {
            for (int i = 0; i < count; i++) {
                const int64_t n = of_item[i % (int)(sizeof of_item / sizeof *of_item)];
                x[i] = numbers_between(types[ti][0], n, i % 2, -300, 300, true);
                y[i] = blank(types[ti][1], n, i / 2 % 2);
            }
            for (int side = 0; side < 2; side++) {
                twin_side(side);
                for (int i = 0; i < count; i++) items[i] = (fri_cast_item){x[i].n, p(&x[i]), p(&y[i])};
                must(twin_kernels->cast_list(ex(), types[ti][0], types[ti][1], count, items));
                expect_no_race("cast_list");
            }
            for (int i = 0; i < count; i++) {
                expect_same("cast_list", &y[i], 0);
                drop(&x[i]);
                drop(&y[i]);
            }
        }
}

Test(twins, copy_rows) {
    static const struct {
        int64_t rows, bytes, src_pitch, dst_pitch;
    } cases[] = {{1, 5000, 5000, 5000}, {37, 64, 64, 192}, {9, 6, 10, 14}, {300, 1, 3, 2}, {5, 4100, 5000, 4104}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t offset = 0; offset < 2; offset++) {
            const int64_t rows = cases[i].rows;
            buf x = numbers_between(FR_U8, rows * cases[i].src_pitch, offset, 0, 255, false);
            buf y = blank(FR_U8, rows * cases[i].dst_pitch, offset);
            BOTH(k->copy_rows(ex(), rows, (size_t)cases[i].bytes, p(&x), (size_t)cases[i].src_pitch, p(&y),
                              (size_t)cases[i].dst_pitch));
            expect_same("copy_rows", &y, 0);
            drop(&x);
            drop(&y);
        }
}

/* ---- random numbers -------------------------------------------------------------------------------------------- */

Test(twins, random_numbers){EACH_VECTOR({
    buf y = blank(t, n, offset);
    BOTH(k->uniform(ex(), t, n, 7, 3, -0.5, 1.5, p(&y)));
    expect_same("uniform", &y, 0);
    BOTH(k->normal(ex(), t, n, 7, 3, 0.5, 2, p(&y)));
    expect_same("normal", &y, on_gpu ? rounding(t) : 0);
    drop(&y);
})}

Test(twins, dropout) {
    static const int64_t channels[] = {1, 3, 8, 17, 64};
    for (int ti = 0; ti < 3; ti++)
        for (int ci = 0; ci < 5; ci++)
            for (int mode = 0; mode < 4; mode++) {
                const fr_dtype t = floats[ti];
                fri_dropout_desc d = {.dtype = t,
                                      .n = 3,
                                      .hw = 11,
                                      .c = channels[ci],
                                      .per_channel = mode & 1,
                                      .p = 0.4,
                                      .seed = 5,
                                      .stream = 9};
                const int64_t n = d.n * d.hw * d.c;
                buf x = numbers(t, n, mode >> 1);
                buf y = blank(t, n, mode >> 1);
                buf mask = blank(FR_U8, n, mode & 1);
                BOTH(k->dropout(ex(), &d, p(&x), p(&y)));
                expect_same("dropout", &y, 0);
                BOTH(k->dropout_mask(ex(), &d, p(&mask)));
                expect_same("dropout_mask", &mask, 0);
                BOTH(k->dropout_apply_mask(ex(), &d, p(&mask), p(&x), p(&x)));
                expect_same("dropout_apply_mask", &x, 0);
                drop(&x);
                drop(&y);
                drop(&mask);
            }
}

/* ---- rows of channels ------------------------------------------------------------------------------------------ */

/* Packs of 16 bytes, 4 and 2 elements, single ones. The last one has 282 chunks of rows, more than one turn of what
 * ends their sums. */
static const int64_t row_shapes[][2] = {{1, 1},   {7, 3},    {100, 8},  {1000, 17}, {333, 64},
                                        {50, 12}, {40, 520}, {5000, 2}, {9000, 33}};

#define EACH_MATRIX(...)                                                          \
    for (int ti_ = 0; ti_ < 3; ti_++)                                             \
        for (size_t ri_ = 0; ri_ < sizeof row_shapes / sizeof *row_shapes; ri_++) \
            for (int64_t offset = 0; offset < 2; offset++) {                      \
                const fr_dtype t = floats[ti_];                                   \
                const int64_t rows = row_shapes[ri_][0], c = row_shapes[ri_][1];  \
                __VA_ARGS__                                                       \
            }

/* Each matrix with no activation and with one of the four, in turn. */
Test(twins, batchnorm2d){EACH_MATRIX({
    static int matrices;
    const int turn = 1 + matrices++ % FRI_ACTIVATION_SILU;
    fri_batchnorm2d_desc d = {.dtype = t, .rows = rows, .c = c, .eps = 1e-5, .momentum = 0.1};
    buf x = numbers_between(t, rows * c, offset, 3, 5, false);
    buf dy = numbers(t, rows * c, offset);
    buf y = blank(t, rows * c, offset);
    buf mean = blank(FR_F32, c, 0);
    buf invstd = blank(FR_F32, c, 0);
    buf rm = numbers(FR_F32, c, 0);
    buf rv = numbers_between(FR_F32, c, 0, 0.5, 2, false);
    buf gamma = numbers(FR_F32, c, 0);
    buf beta = numbers(FR_F32, c, 0);
    buf none = {0};
    buf batches = numbers_between(FR_I64, 1, 0, 3, 9, false);
    const double before = value_at(FR_I64, batches.data[0], 0);
    BOTH((d.batches = p(&batches), k->batchnorm2d_stats(ex(), &d, p(&x), p(&mean), p(&invstd), p(&rm), p(&rv))));
    expect_same("batches", &batches, 0);
    cr_expect_eq(value_at(FR_I64, batches.data[0], 0), before + 1);
    drop(&batches);
    d.batches = NULL;
    expect_same("mean", &mean, 1e-6);
    if (rows > 1) expect_same("invstd", &invstd, 1e-5);
    expect_same("running mean", &rm, 1e-6);
    if (rows > 1) expect_same("running variance", &rv, 1e-5);
    BOTH(k->batchnorm2d_invstd(ex(), &d, p(&rv), p(&invstd)));
    copy_in(&mean); /* equal statistics on both sides in the rest */
    copy_in(&invstd);
    for (int act = FRI_ACTIVATION_NONE; act <= turn; act += turn) {
        BOTH(k->batchnorm2d_apply(ex(), &d, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), NULL, act, p(&y)));
        expect_same("apply", &y, 0);
        BOTH(k->batchnorm2d_apply(ex(), &d, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), p(&dy), act, p(&y)));
        expect_same("apply and add", &y, 0);
        BOTH(k->batchnorm2d_apply(ex(), &d, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), p(&y), act, p(&y)));
        expect_same("apply and add to y itself", &y, 0);
        BOTH(k->batchnorm2d_apply(ex(), &d, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), p(&x), act, p(&y)));
        expect_same("apply and add x", &y, 0);
    }
    BOTH(k->batchnorm2d_apply(ex(), &d, p(&x), p(&mean), p(&invstd), p(&none), p(&none), NULL, false, p(&y)));
    expect_same("apply without parameters", &y, 0);
    buf dgamma = blank(FR_F32, c, 0);
    buf dbeta = blank(FR_F32, c, 0);
    for (int act = FRI_ACTIVATION_NONE; act <= turn; act += turn) {
        buf dx = blank(t, rows * c, offset);
        BOTH(k->batchnorm2d_backward(ex(), &d, true, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), act, p(&dy),
                                     p(&dx), p(&dgamma), p(&dbeta)));
        expect_same("backward", &dx, 2 * rounding(t));
        expect_same("dgamma", &dgamma, 1e-5);
        expect_same("dbeta", &dbeta, 1e-5);
        BOTH(k->batchnorm2d_backward(ex(), &d, false, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), act, p(&dy),
                                     p(&dx), p(&none), p(&none)));
        expect_same("backward in eval mode", &dx, 0);
        BOTH(k->batchnorm2d_backward(ex(), &d, false, p(&x), p(&mean), p(&invstd), p(&gamma), p(&beta), act, p(&dy),
                                     p(&dx), p(&dgamma), p(&dbeta)));
        expect_same("backward in eval mode, with parameters", &dx, 0);
        drop(&dx);
    }
    BOTH(k->batchnorm2d_backward(ex(), &d, false, p(&x), p(&mean), p(&invstd), p(&none), p(&none), true, p(&dy), p(&dy),
                                 p(&none), p(&none)));
    expect_same("backward in eval mode, without parameters", &dy, 0);
    drop(&x), drop(&dy), drop(&y), drop(&mean), drop(&invstd), drop(&rm), drop(&rv), drop(&gamma), drop(&beta);
    drop(&dgamma), drop(&dbeta);
})}

Test(twins, softmax){EACH_MATRIX({
    fri_loss_desc d = {.dtype = t, .rows = rows, .classes = c};
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        if (rows * c > 25000) continue; /* larger matrices take the same paths */
        buf x = numbers(t, rows * c, offset);
        buf dy = numbers(t, rows * c, offset);
        buf y = blank(t, rows * c, offset);
        buf dx = blank(t, rows * c, offset);
        BOTH(k->softmax_forward(ex(), &d, logarithm, p(&x), p(&y)));
        expect_same("softmax", &y, 2 * rounding(t));
        copy_in(&y);
        BOTH(k->softmax_backward(ex(), &d, logarithm, p(&y), p(&dy), p(&dx)));
        expect_same("softmax backward", &dx, 2 * rounding(t));
        BOTH(k->softmax_backward(ex(), &d, logarithm, p(&y), p(&dy), p(&dy)));
        expect_same("softmax backward over dy", &dy, 2 * rounding(t));
        BOTH(k->softmax_forward(ex(), &d, logarithm, p(&x), p(&x)));
        expect_same("softmax over x", &x, 2 * rounding(t));
        drop(&x), drop(&dy), drop(&y), drop(&dx);
    }
})}

/* Group norm on images, then on rows; on the GPU the twin is the emulator's code itself. */
Test(twins, group_norm){EACH_MATRIX({
    for (int64_t groups = 1; groups <= 4; groups *= 2) {
        if (c % groups != 0 || rows * c > 25000) continue; /* larger matrices take the same paths */
        const bool rows_alone = groups == 1 && rows % 2 == 0;
        fri_group_norm_desc d = {.dtype = t,
                                 .n = rows_alone ? rows : 1,
                                 .hw = rows_alone ? 1 : rows,
                                 .c = c,
                                 .groups = groups,
                                 .eps = 1e-5};
        buf x = numbers_between(t, rows * c, offset, 3, 5, false);
        buf dy = numbers(t, rows * c, offset);
        buf y = blank(t, rows * c, offset);
        buf mean = blank(FR_F32, d.n * groups, 0);
        buf invstd = blank(FR_F32, d.n * groups, 0);
        buf gamma = numbers(FR_F32, c, 0);
        buf beta = numbers(FR_F32, c, 0);
        buf none = {0};
        BOTH(k->group_norm_forward(ex(), &d, p(&x), p(&gamma), p(&beta), p(&y), p(&mean), p(&invstd)));
        expect_same("mean", &mean, 1e-6);
        if (d.hw * c / groups > 1) expect_same("invstd", &invstd, 1e-4);
        copy_in(&mean); /* equal statistics on both sides in the rest */
        copy_in(&invstd);
        buf dx = blank(t, rows * c, offset);
        buf dgamma = blank(FR_F32, c, 0);
        buf dbeta = blank(FR_F32, c, 0);
        BOTH(k->group_norm_backward(ex(), &d, p(&x), p(&gamma), p(&mean), p(&invstd), p(&dy), p(&dx), p(&dgamma),
                                    p(&dbeta)));
        expect_same("backward", &dx, 2 * rounding(t));
        expect_same("dgamma", &dgamma, 1e-5);
        expect_same("dbeta", &dbeta, 1e-5);
        BOTH(k->group_norm_backward(ex(), &d, p(&x), p(&gamma), p(&mean), p(&invstd), p(&dy), p(&dy), p(&none),
                                    p(&none)));
        expect_same("backward over dy", &dy, 2 * rounding(t));
        drop(&x), drop(&dy), drop(&y), drop(&mean), drop(&invstd), drop(&gamma), drop(&beta);
        drop(&dx), drop(&dgamma), drop(&dbeta);
    }
})}

/* The CPU's fully connected layer has the sum of rows; the addition is checked against a plain loop. */
Test(twins, bias) {
    if (on_gpu) cr_skip_test("the op tests of conv2d and linear cover it on the GPU");
    EACH_MATRIX({
        for (int wide = 0; wide < 2; wide++) {
            fri_linear_desc d = {.dtype = t, .bias_dtype = wide ? FR_F32 : t, .n = rows, .in = 1, .out = c};
            buf dy = numbers(t, rows * c, offset);
            buf db = blank(d.bias_dtype, c, 0);
            twin_side(0);
            must(fri_backend_get(FR_CPU)->kernels.linear_backward_bias(ex(), &d, p(&dy), p(&db)));
            twin_side(1);
            must(fri_emulated_column_sum(ex(), "bias", t, rows, c, p(&dy), d.bias_dtype, p(&db)));
            expect_same("column_sum", &db, 0);
            buf y = numbers(t, rows * c, offset);
            for (int64_t i = 0; i < rows * c; i++)
                set(&y, i, (double)((float)value_at(t, y.data[0], i) + (float)value_at(db.t, db.data[0], i % c)));
            copy_in(&db);
            must(fri_emulated_bias_add(ex(), t, d.bias_dtype, rows, c, p(&db), p(&y)));
            expect_same("bias_add", &y, 0);
            drop(&dy), drop(&db), drop(&y);
        }
    })
}

/* The three losses of classes: classes with and without weights, and shares of classes. */
typedef struct loss_kernels {
    const char *name;
    bool shares, weighted;
    fri_loss_desc d;
} loss_kernels;

static const loss_kernels losses[] = {
    {"cross_entropy", false, false, {.label_smoothing = 0}},
    {"cross_entropy", false, false, {.label_smoothing = 0.1}},
    {"cross_entropy", false, true, {.label_smoothing = 0.1}},
    {"cross_entropy", true, true, {.label_smoothing = 0.1}},
    {"cross_entropy", true, false, {.label_smoothing = 0}},
    {"bce", false, true, {.alpha = -1}},
    {"bce", true, false, {.alpha = 0.25, .gamma = 2}},
    {"bce", false, false, {.alpha = -1, .gamma = 1.5}},
    {"dice", false, false, {.smooth = 1}},
};

#define BOTH_WAYS(loss_)                                                                                    \
    if (strcmp(l->name, #loss_) == 0) {                                                                     \
        BOTH(k->loss_##_forward(ex(), &d, p(&x), p(&target), w, p(&loss), p(&lse), p(&factors), p(&bad)));  \
        BOTH(k->loss_##_backward(ex(), &d, p(&x), p(&target), w, p(&lse), p(&factors), p(&dloss), p(&dx))); \
    }
#define w (l->weighted ? p(&weight) : NULL)

static void loss_twins(const loss_kernels *l, fr_dtype t, int64_t rows, int64_t classes, bool with_inf) {
    fri_loss_desc d = l->d;
    d.dtype = t;
    d.rows = rows;
    d.classes = classes;
    d.ignore_index = -100;
    d.shares = l->shares;
    buf x = numbers_between(t, rows * classes, 0, -3, 3, with_inf), weight = numbers(FR_F32, classes, 0);
    for (int64_t i = 1; i <= rows && classes > 1100; i++) set(&x, i * classes - 1, 100); /* behind what lanes keep */
    copy_in(&x);
    buf target = l->shares ? numbers_between(FR_F32, rows * classes, 0, 0, 1, false) : blank(FR_I64, rows, 0);
    for (int64_t i = 0; i < rows && !l->shares; i++)
        set(&target, i, i % 7 == 6 ? -100 : i == 40 ? (double)classes : (double)(i * 5 % classes));
    copy_in(&target);
    buf loss = blank(FR_F32, 1, 0), lse = blank(FR_F32, rows, 0), factors = zeros(FR_F32, 2 * classes, 0);
    buf bad = blank(FR_I64, 1, 0), dloss = numbers(FR_F32, 1, 0), correct = blank(FR_I64, 1, 0);
    buf dx = blank(t, rows * classes, 0);
    BOTH_WAYS(cross_entropy)
    BOTH_WAYS(bce)
    BOTH_WAYS(dice)
    expect_same(l->name, &loss, 1e-5);
    expect_same("lse", &lse, 1e-6);
    expect_same("factors", &factors, strcmp(l->name, "dice") == 0 || l->weighted ? 1e-6 : 0);
    expect_same("bad", &bad, 0);
    expect_same("dx", &dx, 2 * rounding(t));
    if (!l->shares) BOTH(k->count_correct(ex(), &d, p(&x), p(&target), p(&correct)));
    expect_same("count_correct", &correct, 0);
    drop(&x), drop(&target), drop(&weight), drop(&loss), drop(&lse), drop(&factors), drop(&bad), drop(&dloss);
    drop(&dx), drop(&correct);
}
#undef w

Test(twins, losses_of_classes) {
    static const int64_t shapes[][2] = {{1, 1},   {5, 3},   {100, 10}, {33, 1000}, {9000, 2},
                                        {77, 32}, {60, 21}, {45, 52},  {10, 1288}, {11, 1027}};
    for (int ti = 0; ti < 3; ti++)
        for (size_t si = 0; si < sizeof shapes / sizeof *shapes; si++)
            for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
                loss_twins(&losses[i], floats[ti], shapes[si][0], shapes[si][1], i == 1 && si == 3);
}
