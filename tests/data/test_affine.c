/* test_affine.c - random rotation, zoom and shear: the map is measured from the image.
 *
 * Three blobs, one per channel, in the middle, right of the middle and below: the centroids' positions give the
 * matrix. */
#include "files.h"

#include "data/transform.h"

#include <math.h>

enum { SIDE = 65, MIDDLE = 32, ARM = 14, DRAWS = 400 };

static uint8_t blobs[SIDE * SIDE * 3];

static void draw(void) {
    static const int at[3][2] = {{MIDDLE, MIDDLE}, {MIDDLE, MIDDLE + ARM}, {MIDDLE + ARM, MIDDLE}};
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                double dy = y - at[c][0], dx = x - at[c][1];
                blobs[(y * SIDE + x) * 3 + c] = (uint8_t)(250 * exp(-(dx * dx + dy * dy) / 18.0) + 0.5);
            }
}

static void centroid(const uint8_t *image, int c, double at[2]) {
    double sum = 0;
    at[0] = at[1] = 0;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double v = image[(y * SIDE + x) * 3 + c];
            sum += v;
            at[0] += v * (x - MIDDLE);
            at[1] += v * (y - MIDDLE);
        }
    at[0] /= sum;
    at[1] /= sum;
}

typedef struct map {
    double degrees, scale, shear;
} map;

/* Map of an image: the first column is scale * (cos, sin), the second adds tan(shear) times the first. */
static map measure(const fri_transform *t, int64_t epoch, int64_t index) {
    fri_transform_scratch scratch = {0};
    fri_pixels image = {.u8 = blobs, .height = SIDE, .width = SIDE, .channels = 3};
    double m[4], middle[2], right[2], below[2];
    cr_assert(fri_affine_map(t, epoch, index, m));
    MUST(fri_affine(&image, m, &scratch));
    centroid(image.u8, 0, middle);
    centroid(image.u8, 1, right);
    centroid(image.u8, 2, below);
    fri_transform_scratch_free(&scratch);
    cr_assert(fabs(middle[0]) < 0.1 && fabs(middle[1]) < 0.1, "the middle moved to %g, %g", middle[0], middle[1]);
    double scale = hypot(right[0], right[1]);
    double along = (below[0] * right[0] + below[1] * right[1]) / scale;
    return (map){.degrees = atan2(right[1], right[0]) * 180 / M_PI,
                 .scale = scale / ARM,
                 .shear = atan(along / scale) * 180 / M_PI};
}

/* Draws lie within [-limit, limit], up to the error of 8 bits, about a quarter in each quarter of the range. */
static void expect_uniform(const char *name, const double *x, double limit) {
    int quarter[4] = {0};
    for (int i = 0; i < DRAWS; i++) {
        cr_expect(fabs(x[i]) < 1.03 * limit, "%s: %g of %g", name, x[i], limit);
        int q = (int)floor((x[i] / limit + 1) * 2);
        quarter[q < 0 ? 0 : q > 3 ? 3 : q]++;
    }
    for (int q = 0; q < 4; q++) /* 100 +- 5 sigma */
        cr_expect(quarter[q] > 57 && quarter[q] < 143, "%s, quarter %d: %d", name, q, quarter[q]);
}

Test(affine, maps_are_within_their_limits_and_spread) {
    fri_transform t =
        {.resize_height = SIDE, .resize_width = SIDE, .degrees = 20, .zoom = 0.25, .shear = 15, .seed = 3};
    double degrees[DRAWS], zoom[DRAWS], shear[DRAWS];
    draw();
    for (int i = 0; i < DRAWS; i++) {
        map m = measure(&t, i / 100, i % 100);
        degrees[i] = m.degrees;
        zoom[i] = log(m.scale);
        shear[i] = m.shear;
    }
    expect_uniform("degrees", degrees, 20);
    expect_uniform("zoom", zoom, log(1.25));
    expect_uniform("shear", shear, 15);
    double together = 0;
    for (int i = 0; i < DRAWS; i++) together += degrees[i] / 20 * shear[i] / 15;
    cr_expect(fabs(together / DRAWS) < 5.0 / 3 / sqrt(DRAWS), "degrees and shear are drawn apart: %g", together);
}

Test(affine, one_at_a_time) {
    draw();
    for (int64_t i = 0; i < 20; i++) {
        map m = measure(&(fri_transform){.resize_height = SIDE, .resize_width = SIDE, .degrees = 30}, 0, i);
        cr_expect(fabs(m.scale - 1) < 0.01 && fabs(m.shear) < 0.5, "rotation only: %g, %g", m.scale, m.shear);
        m = measure(&(fri_transform){.resize_height = SIDE, .resize_width = SIDE, .zoom = 0.2}, 0, i);
        cr_expect(fabs(m.degrees) < 0.5 && fabs(m.shear) < 0.5, "zoom only: %g, %g", m.degrees, m.shear);
        m = measure(&(fri_transform){.resize_height = SIDE, .resize_width = SIDE, .shear = 20}, 0, i);
        cr_expect(fabs(m.degrees) < 0.5 && fabs(m.scale - 1) < 0.01, "shear only: %g, %g", m.degrees, m.scale);
    }
}

Test(affine, same_numbers_for_the_same_image_and_epoch_and_none_without_options) {
    fri_transform t = {.resize_height = SIDE, .resize_width = SIDE, .degrees = 20, .seed = 3};
    double m[4];
    draw();
    double first = measure(&t, 1, 5).degrees;
    cr_expect_eq(measure(&t, 1, 5).degrees, first);
    cr_expect_neq(measure(&t, 2, 5).degrees, first);
    cr_expect_neq(measure(&t, 1, 6).degrees, first);
    cr_expect_not(fri_affine_map(&(fri_transform){.seed = 3}, 0, 0, m), "no option, no work");
}
