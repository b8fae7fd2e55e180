/* twin.c - see twin.h. */
#include "cuda/twin.h"

#include "cuda/emulator/races.h"

#include <math.h>

#include "base/half.h"

enum { GUARD = 64, WORKSPACE = 1 << 21 };

const fri_kernels *twin_kernels;
bool on_gpu;
const fr_dtype floats[3] = {FR_F32, FR_F16, FR_BF16};
static int side; /* of the running call: 0 the CPU's, 1 the device's */
static buf scratch;

static const fri_backend *gpu(void) {
    return fri_backend_get(FR_CUDA);
}

static void *take(size_t bytes) {
    void *p = NULL;
    if (!on_gpu) return calloc(1, bytes);
    must(gpu()->segment_alloc(bytes, &p));
    return p;
}

void copy_in(buf *b) {
    size_t all = b->offset + b->bytes + GUARD;
    if (on_gpu)
        must(gpu()->copy(&(fri_exec){0}, FRI_COPY_HOST_TO_DEVICE, b->whole[0], b->whole[1], all));
    else
        memcpy(b->whole[1], b->whole[0], all);
}

static buf filled(fr_dtype t, int64_t n, int64_t offset, int byte) {
    buf b = {.t = t, .n = n, .bytes = (size_t)n * fr_dtype_size(t), .offset = (size_t)offset * fr_dtype_size(t)};
    size_t all = (b.offset + b.bytes + GUARD + 511) / 512 * 512;
    b.whole[0] = aligned_alloc(512, all);
    memset(b.whole[0], byte, all);
    memset(b.whole[0] + b.offset + b.bytes, 0x5a, GUARD);
    if (on_gpu) {
        b.whole[1] = take(all);
    } else {
        b.whole[1] = aligned_alloc(512, all);
    }
    b.data[0] = b.whole[0] + b.offset;
    b.data[1] = b.whole[1] + b.offset;
    copy_in(&b);
    return b;
}

buf zeros(fr_dtype t, int64_t n, int64_t offset) {
    return filled(t, n, offset, 0);
}

buf blank(fr_dtype t, int64_t n, int64_t offset) {
    return filled(t, n, offset, 0xff);
}

double value_at(fr_dtype t, const void *p, int64_t i) {
    switch (t) {
    case FR_F32: return ((const float *)p)[i];
    case FR_F16: return fri_f32_from_f16(((const fri_f16 *)p)[i]);
    case FR_BF16: return fri_f32_from_bf16(((const fri_bf16 *)p)[i]);
    case FR_F64: return ((const double *)p)[i];
    case FR_I64: return (double)((const int64_t *)p)[i];
    case FR_I32: return ((const int32_t *)p)[i];
    case FR_I16: return ((const int16_t *)p)[i];
    case FR_I8: return ((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static uint32_t noise_state = 1;

static double noise(void) { /* in [-1, 1), coarse enough for ties */
    noise_state = noise_state * 1664525u + 1013904223u;
    return (double)(int32_t)(noise_state >> 8 & 0xffff) / 32768.0 - 1;
}

void set(buf *b, int64_t i, double v) {
    must(fri_backend_get(FR_CPU)->kernels.fill(&(fri_exec){0}, b->t, 1, v,
                                               b->data[0] + (size_t)i * fr_dtype_size(b->t)));
}

/* Numbers in [low, high); `special` puts NaN, infinities, zeros of both signs and a subnormal among them. */
buf numbers_between(fr_dtype t, int64_t n, int64_t offset, double low, double high, bool special) {
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, -1e-7, 65504};
    buf b = zeros(t, n, offset);
    for (int64_t i = 0; i < n; i++) set(&b, i, low + (high - low) * (noise() + 1) / 2);
    for (int64_t i = 0; special && i < 8 && n > 16; i++) set(&b, i * (n / 8), odd[i]);
    copy_in(&b);
    return b;
}

buf numbers(fr_dtype t, int64_t n, int64_t offset) {
    return numbers_between(t, n, offset, -2, 2, false);
}

void drop(buf *b) {
    free(b->whole[0]);
    if (on_gpu)
        gpu()->segment_free(b->whole[1], b->bytes);
    else
        free(b->whole[1]);
    *b = (buf){0};
}

void *p(const buf *b) {
    return b->whole[0] != NULL ? b->data[side] : NULL;
}

const fri_exec *ex(void) {
    static fri_exec e[2];
    if (!on_gpu) memset(scratch.data[side], 0xff, WORKSPACE); /* NaN: unwritten elements are not to be read */
    e[side] = (fri_exec){.workspace = scratch.data[side], .workspace_bytes = WORKSPACE};
    return &e[side];
}

void twin_side(int of) {
    side = of;
    twin_kernels = of == 0 ? &fri_backend_get(FR_CPU)->kernels : on_gpu ? &gpu()->kernels : &fri_emulated_kernels;
}

void expect_no_race(const char *call) {
    const char *found = fri_race_found();
    cr_expect(found[0] == '\0', "%s: %s", call, found);
}

void expect_same(const char *what, const buf *b, double tolerance) {
    size_t all = b->offset + b->bytes + GUARD;
    char *got = malloc(all);
    double largest = 0;
    if (on_gpu)
        must(gpu()->copy(&(fri_exec){0}, FRI_COPY_DEVICE_TO_HOST, b->whole[1], got, all));
    else
        memcpy(got, b->whole[1], all);
    for (size_t i = 0; i < GUARD; i++)
        if (got[b->offset + b->bytes + i] != 0x5a) {
            cr_expect(false, "%s %s: wrote behind the end (n %lld)", what, fr_dtype_name(b->t), (long long)b->n);
            break;
        }
    for (int64_t i = 0; i < b->n; i++) {
        double v = fabs(value_at(b->t, b->data[0], i));
        if (isfinite(v) && v > largest) largest = v;
    }
    for (int64_t i = 0; i < b->n; i++) {
        double x = value_at(b->t, got + b->offset, i), y = value_at(b->t, b->data[0], i);
        if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * largest) continue;
        cr_expect(false, "%s %s: element %lld of %lld is %.9g, the twin's %.9g", what, fr_dtype_name(b->t),
                  (long long)i, (long long)b->n, x, y);
        break;
    }
    free(got);
}

double rounding(fr_dtype t) {
    return t == FR_F32 ? 1e-6 : t == FR_F16 ? 1.0 / 1024 : 1.0 / 128;
}

void twin_begin(void) {
    on_gpu = test_device() == FR_CUDA;
    scratch = zeros(FR_U8, WORKSPACE, 0);
}
