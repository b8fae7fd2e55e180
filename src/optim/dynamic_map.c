/* dynamic_map.c - the 256 values of an 8-bit moment: the dynamic data type of Dettmers 2015 (arXiv 1511.04561) as used
 * by 8-bit optimizers (Dettmers et al. 2021, arXiv 2110.02861; bitsandbytes' create_dynamic_map).
 *
 * Seven decades below 1. The decade from 10^(e-7) to 10^(e-6), e = 0 .. 6, is cut into 2^e (unsigned: 2^(e+1)) equal
 * parts with the middles as values, with both signs if signed. With 0 and 1 the map has 256 values. */
#include "optim/optimizer.h"

#include <stdlib.h>

enum { DECADES = 7 };

static int compare_values(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void fri_dynamic_map(bool is_signed, float map[FRI_MAP_VALUES]) {
    static const double decade[DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int n = 0;
    for (int e = 0; e < DECADES; e++) {
        int parts = is_signed ? 1 << e : 2 << e;
        for (int i = 0; i < parts; i++) {
            double middle = decade[e] * (0.1 + 0.9 * (i + 0.5) / parts);
            map[n++] = (float)middle;
            if (is_signed) map[n++] = (float)-middle;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    qsort(map, FRI_MAP_VALUES, sizeof *map, compare_values);
}
