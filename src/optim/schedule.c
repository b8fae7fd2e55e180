/* schedule.c - learning rates as pure functions of the step. */
#include <frugal/optim.h>

#include "backend/elementary.h"

double fr_schedule_lr(const fr_schedule *s, int64_t step) {
    if (s == NULL) return 0;
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    double sine, cosine;
    int64_t after = step - s->warmup, total = s->total - s->warmup;
    switch (s->kind) {
    case FR_SCHEDULE_CONSTANT: return s->lr;
    case FR_SCHEDULE_STEP:
        return s->step_size > 0 ? s->lr * fri_power64(s->gamma, (double)(step / s->step_size)) : s->lr;
    case FR_SCHEDULE_COSINE:
        if (total <= 0 || after >= total) return 0;
        fri_sin_cos64(3.14159265358979323846 * (double)after / (double)total, &sine, &cosine);
        return s->lr * 0.5 * (1 + cosine);
    }
    return s->lr;
}
