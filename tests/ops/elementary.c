/* elementary.c - the functions of backend/elementary.h: errors against the C library's double, and hashes of results.
 *
 *     elementary STEP [--hashes] [NAME]   floats whose bits are multiples of STEP; 1: all
 *
 * Prints a line per function: name, hash of all results, and the largest error in units of the last place (of sine and
 * cosine in units of 2^-23) where the exact result is normal; exit 1 where one is above its bound. --hashes: names and
 * hashes alone, which are equal for all compilers, instruction sets and C libraries (elementary.sh). */
#include "backend/elementary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 };

#define ROW(name, expression)                                     \
    static void name##_row(int n, const float *from, float *to) { \
        for (int i = 0; i < n; i++) {                             \
            const float x = from[i];                              \
            to[i] = (expression);                                 \
        }                                                         \
    }
#define POWER(name, exponent)            \
    ROW(name, fri_power(x, exponent))    \
    static double name##_of(double x) {  \
        return pow(x, (double)exponent); \
    }

static float sine_of(float x) {
    float s, c;
    fri_sin_cos(x, &s, &c);
    return s;
}

static float cosine_of(float x) {
    float s, c;
    fri_sin_cos(x, &s, &c);
    return c;
}

static double normal_of(double x) {
    return 0.5 * erfc(x * -0.70710678118654752440);
}

static double sigmoid_of(double x) {
    return 1 / (1 + exp(-x));
}

ROW(exp, fri_exp(x))
ROW(sigmoid, fri_silu_sigmoid(x))
ROW(ln, fri_ln(x))
ROW(log1p, fri_log1p(x))
ROW(expm1, fri_expm1(x))
ROW(tanh, fri_tanh(x))
ROW(normal, fri_normal_below(x))
ROW(sine, sine_of(x))
ROW(cosine, cosine_of(x))
POWER(root, 0.5f)
POWER(inverse_root, -0.5f)
POWER(first, 1.0f)
POWER(square, 2.0f)
POWER(fourth, 4.0f)
POWER(fifth, 5.0f)
POWER(odd, 1.7f)

typedef struct function {
    const char *name;
    void (*row)(int n, const float *from, float *to);
    double (*exact)(double x);
    float low, high; /* floats that are looked at */
    double bound;
    bool absolute;
} function;

static const function functions[] = {
    {"exp", exp_row, exp, -INFINITY, INFINITY, 1.5, false},
    {"sigmoid", sigmoid_row, sigmoid_of, -20, 3e38f, 4, false},
    {"ln", ln_row, log, -INFINITY, INFINITY, 2, false},
    {"log1p", log1p_row, log1p, -INFINITY, INFINITY, 2, false},
    {"expm1", expm1_row, expm1, -INFINITY, INFINITY, 2, false},
    {"tanh", tanh_row, tanh, -INFINITY, INFINITY, 2, false},
    {"normal", normal_row, normal_of, -0.75f, INFINITY, 2, false},
    {"normal's tail", normal_row, normal_of, -12.9f, -0.75f, 4, false},
    {"sine", sine_row, sin, 0, 6.2832f, 1, true},
    {"cosine", cosine_row, cos, 0, 6.2832f, 1, true},
    {"power 0.5", root_row, root_of, 0, 1, 4, false},
    {"power -0.5", inverse_root_row, inverse_root_of, 0, 1, 4, false},
    {"power 1", first_row, first_of, 0, 1, 4, false},
    {"power 2", square_row, square_of, 0, 1, 4, false},
    {"power 4", fourth_row, fourth_of, 0, 1, 4, false},
    {"power 5", fifth_row, fifth_of, 0, 1, 4, false},
    {"power 1.7", odd_row, odd_of, 0, 1, 4, false},
};

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Distance of y from the exact value in units; infinities and NaN must be equal. Subnormal values are no fault. */
static double error_of(const function *f, float x, float y) {
    const double want = f->exact((double)x);
    const float near = (float)want;
    if (want != want || y != y) return want != want && y != y ? 0 : INFINITY;
    if (fabsf(near) == INFINITY || fabsf(y) == INFINITY || want == 0) return y == near ? 0 : INFINITY;
    if (f->absolute) return fabs((double)y - want) * 0x1p23;
    if (fabs(want) < 0x1p-126) return fabs((double)y - want) <= 0x1p-126 ? 0 : INFINITY;
    int exponent;
    frexp((double)near, &exponent);
    return fabs((double)y - want) / ldexp(1, exponent - 24);
}

/* Zeros, ones, the largest and smallest numbers of each kind, infinities, NaN. */
static const uint32_t ends[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                0x3f800000, 0xbf800000, 0xbf7fffff, 0xbf800001, 0x7f7fffff, 0xff7fffff,
                                0x7f800000, 0xff800000, 0x7fc00000, 0x42b17217, 0x42b17218};
enum { ENDS = sizeof ends / sizeof *ends };

/* The loop over floats, first the ends; true if no error is above the bound. */
static bool look(const function *f, uint64_t step, bool hashes) {
    float from[BLOCK], to[BLOCK], worst_at = 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    double worst = 0;
    uint64_t seen = 0;
    for (uint64_t at = 0; (at < ENDS ? 0 : (at - ENDS) * step) <= UINT32_MAX;) {
        int n = 0;
        for (; n < BLOCK && (at < ENDS ? 0 : (at - ENDS) * step) <= UINT32_MAX; at++) {
            const float x = float_of(at < ENDS ? ends[at] : (uint32_t)((at - ENDS) * step));
            if ((x >= f->low && x <= f->high) || (x != x && f->high == INFINITY)) from[n++] = x;
        }
        f->row(n, from, to);
        for (int i = 0; i < n; i++) {
            uint32_t result;
            memcpy(&result, &to[i], sizeof result);
            hash = (hash ^ (to[i] != to[i] ? 0x7fc00000u : result)) * UINT64_C(0x100000001b3); /* one NaN */
            const double error = hashes ? 0 : error_of(f, from[i], to[i]);
            if (error > worst) worst = error, worst_at = from[i];
        }
        seen += (uint64_t)n;
    }
    printf("%-14s %016llx", f->name, (unsigned long long)hash);
    if (!hashes)
        printf(" %10llu floats, error %.3f at %.9g, bound %g", (unsigned long long)seen, worst, (double)worst_at,
               f->bound);
    printf("%s\n", worst <= f->bound ? "" : ": above its bound");
    fflush(stdout);
    return worst <= f->bound && seen > 0;
}

static double sine64(double x) {
    double s, c;
    fri_sin_cos64(x, &s, &c);
    return s;
}

static double cosine64(double x) {
    double s, c;
    fri_sin_cos64(x, &s, &c);
    return c;
}

static double power64(double x) {
    return fri_power64(x, 1.5);
}

static double power_of(double x) {
    return pow(x, 1.5);
}

static double whole64(double x) {
    return fri_power64(x, -3);
}

static double whole_of(double x) {
    return pow(x, -3);
}

/* Functions of double at a million numbers from low to high; errors in units of 2^-52 of the value, of 1 for sine and
 * cosine. */
static bool look_at_doubles(bool hashes) {
    static const struct {
        const char *name;
        double (*own)(double), (*exact)(double), low, high, bound;
        bool absolute;
    } doubles[] = {
        {"exp64", fri_exp64, exp, -708, 709.7, 2, false},      {"ln64", fri_ln64, log, 1e-310, 40, 1, false},
        {"ln64, large", fri_ln64, log, 40, 1e300, 1, false},   {"sine64", sine64, sin, -1e3, 1e3, 1, true},
        {"cosine64", cosine64, cos, -1e3, 1e3, 1, true},       {"power64", power64, power_of, 0, 100, 16, false},
        {"power64, -3", whole64, whole_of, 1e-9, 9, 4, false},
    };
    bool all = true;
    for (size_t k = 0; k < sizeof doubles / sizeof *doubles; k++) {
        uint64_t hash = 0;
        double worst = 0;
        for (int i = 1; i < 1000000; i++) {
            fri_double_bits y;
            const double x = doubles[k].low + (doubles[k].high - doubles[k].low) * (i * 1e-6);
            y.value = doubles[k].own(x);
            hash = (hash ^ y.bits) * UINT64_C(0x100000001b3);
            if (hashes) continue;
            const double want = doubles[k].exact(x), size = doubles[k].absolute ? 1 : fabs(want);
            worst = fmax(worst, fabs(y.value - want) / (size * 0x1p-52));
        }
        printf("%-14s %016llx", doubles[k].name, (unsigned long long)hash);
        if (!hashes) printf(" error %.3f, bound %g", worst, doubles[k].bound);
        printf("%s\n", worst <= doubles[k].bound ? "" : ": above its bound");
        all &= worst <= doubles[k].bound;
    }
    return all && fri_ln64(0) == -INFINITY && fri_exp64(-800) == 0 && fri_exp64(710) == INFINITY &&
           isnan(fri_ln64(-1)) && fri_ln64(INFINITY) == INFINITY && isnan(fri_exp64(NAN)) && fri_power64(0, 0) == 1 &&
           fabs(fri_ln64(0x1p-1070) + 741.66748319914151) < 1e-12;
}

int main(int argc, char **argv) {
    const uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const bool hashes = argc > 2 && strcmp(argv[2], "--hashes") == 0;
    const char *only = argc > 2 + hashes ? argv[2 + hashes] : NULL;
    bool all = step > 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && step > 0; i++)
        if (only == NULL || strcmp(only, functions[i].name) == 0) all &= look(&functions[i], step, hashes);
    if (step > 0 && only == NULL) all &= look_at_doubles(hashes);
    if (step == 0) fprintf(stderr, "usage: elementary STEP [--hashes] [NAME]\n");
    return all ? 0 : 1;
}
