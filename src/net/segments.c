/* segments.c - cuts a chain of units: N parts, sqrt(n) parts, each unit, or recursive halves.
 *
 * Cuts depend on unit counts and weights only, so a plan is equal on every device. The last part is never a range:
 * its saved tensors are needed at once, and recomputing would save nothing.
 *
 * Halves ("log"): the first half of a range becomes a checkpoint, the second half is cut again at the same level. A
 * level holds the inputs of parts of n/2, n/4, ... 1 units to the right, all of which are released before the first
 * half is recomputed. At most log2(n) + 1 inputs are alive, and a unit runs again at most log2(n) times, log2(n) / 2
 * on average (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4.3). */
#include "net/list.h"

#include "base/status.h"
#include "net/units.h"

#include <frugal/memory.h>
#include <math.h>
#include <stdlib.h>

static size_t weight_of(const size_t *weight, int unit) {
    return weight != NULL ? weight[unit] : 1;
}

/* Number of parts if none may weigh more than `max` (at least the heaviest unit). Fills first[] unless NULL. */
static int cut_by_weight(int units, const size_t *weight, size_t max, int parts, int *first) {
    int n = 0;
    for (int i = 0; i < units;) {
        size_t sum = 0;
        if (first != NULL) first[n] = i;
        n++;
        for (; i < units && sum + weight_of(weight, i) <= max; i++) {
            if (first != NULL && first[n - 1] < i && units - i <= parts - n) break; /* a unit for each later part */
            sum += weight_of(weight, i);
        }
    }
    return n;
}

/* Cuts into `parts` parts with the smallest possible maximum weight. */
static void balance_parts(int units, const size_t *weight, int parts, int *first) {
    size_t min = 0, max = 0;
    for (int i = 0; i < units; i++) {
        size_t w = weight_of(weight, i);
        min = w > min ? w : min;
        max += w;
    }
    while (min < max) {
        size_t middle = min + (max - min) / 2;
        if (cut_by_weight(units, weight, middle, parts, NULL) <= parts)
            max = middle;
        else
            min = middle + 1;
    }
    cut_by_weight(units, weight, min, parts, first);
}

/* Cuts units first .. end - 1 into halves of equal weight; the left half becomes a range. */
static int halve_range(int first, int end, const size_t *weight, fr_unit_range *range) {
    int n = 0;
    while (end - first > 1) {
        size_t total = 0, left = 0;
        for (int i = first; i < end; i++) total += weight_of(weight, i);
        int middle = first;
        do left += weight_of(weight, middle++);
        while (middle < end - 1 && left + weight_of(weight, middle) / 2 < total - total / 2);
        range[n++] = (fr_unit_range){first, middle};
        n += halve_range(first, middle, weight, range + n);
        first = middle;
    }
    return n;
}

static fr_status by_parts(int parts, int units, const size_t *weight, bool balanced, fr_unit_range *range) {
    int *first = malloc((size_t)parts * sizeof *first);
    if (first == NULL) return fr_fail(FR_ENOMEM, "segments: out of host memory");
    if (balanced)
        balance_parts(units, weight, parts, first);
    else
        for (int i = 0; i < parts; i++) first[i] = i * (units / parts);
    for (int i = 0; i + 1 < parts; i++) range[i] = (fr_unit_range){first[i], first[i + 1]};
    free(first);
    return FR_OK;
}

fr_status fri_unit_segments(fr_segmentation how, int segments, int units, const size_t *weight, fr_unit_range *range,
                            int *ranges) {
    FRI_NOT_NULL(range, ranges);
    if (units < 1) return fr_fail(FR_EINVAL, "segments: a chain of %d units; at least 1 is needed", units);
    size_t total = 0;
    for (int i = 0; i < units; i++) {
        size_t w = weight_of(weight, i);
        if (w > SIZE_MAX / 2 - total)
            return fr_fail(FR_EINVAL, "segments: the weights of %d units add up to more than %zu", units, SIZE_MAX / 2);
        total += w;
    }
    switch (how) {
    case FR_SEGMENTS_COUNT:
        if (segments < 1 || segments > units)
            return fr_fail(FR_EINVAL, "checkpoint: %d segments; the module has %d units, so 1..%d are possible",
                           segments, units, units);
        FRI_TRY(by_parts(segments, units, weight, weight != NULL, range));
        *ranges = segments - 1;
        break;
    case FR_SEGMENTS_SQRT:
        segments = (int)lround(sqrt((double)units));
        FRI_TRY(by_parts(segments, units, weight, true, range));
        *ranges = segments - 1;
        break;
    case FR_SEGMENTS_EACH:
        for (int i = 0; i + 1 < units; i++) range[i] = (fr_unit_range){i, i + 1};
        *ranges = units - 1;
        break;
    case FR_SEGMENTS_LOG: *ranges = halve_range(0, units, weight, range); break;
    default: return fr_fail(FR_EINVAL, "segments: %d is not a way to cut a chain", (int)how);
    }
    return FR_OK;
}

/* ---- weights --------------------------------------------------------------------------------------------------- */

typedef struct weighing {
    fr_device device;
    size_t before, *weight;
} weighing;

static void weigh_unit(void *ctx, int unit, bool done, const fri_net_pass *p, int at) {
    weighing *w = ctx;
    fr_memory_stats m;
    (void)p;
    (void)at;
    if (fr_memory_stats_get(w->device, &m) < 0) return;
    const size_t now = m.requested_by[FR_MEM_ACTIVATION];
    if (!done)
        w->before = now;
    else
        w->weight[unit] = now > w->before ? now - w->before : 0; /* an in-place unit may free more than it saves */
}

fr_status fri_unit_saved_bytes(fr_module *m, fr_tensor *x, size_t *weight) {
    FRI_NOT_NULL(m, x, weight);
    weighing w = {.device = fri_device_of(x), .weight = weight};
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL;
    const fri_unit_watch was = fri_unit_watch_set((fri_unit_watch){weigh_unit, &w});
    fr_status s = fr_checkpoint_plan(m, &(fr_unit_plan){.units = fr_module_units(m, NULL, 0)}, x, &y);
    (void)fri_unit_watch_set(was);
    return s;
}

fr_status fr_checkpoint_segments(fr_module *m, fr_segmentation how, int segments, const size_t *weight, fr_tensor *x,
                                 fr_tensor **y) {
    FRI_NOT_NULL(m, x, y);
    fr_unit_plan plan = {.units = fr_module_units(m, NULL, 0)};
    FRI_OWNED(fri_free) fr_unit_range *range = malloc(((size_t)plan.units + 1) * sizeof *range);
    if (range == NULL) return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    FRI_TRY(fri_unit_segments(how, segments, plan.units, weight, range, &plan.ranges));
    plan.range = range;
    return fr_checkpoint_plan(m, &plan, x, y);
}
