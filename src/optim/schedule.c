/* schedule.c - learning rates as pure functions of the step. */
#include <frugal/optim.h>

#include <math.h>

double fr_schedule_lr(const fr_schedule *s, int64_t step) {
    if (s == NULL) return 0;
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    int64_t after = step - s->warmup, total = s->total - s->warmup;
    switch (s->kind) {
    case FR_SCHEDULE_CONSTANT: return s->lr;
    case FR_SCHEDULE_STEP: return s->step_size > 0 ? s->lr * pow(s->gamma, (double)(step / s->step_size)) : s->lr;
    case FR_SCHEDULE_COSINE:
        if (total <= 0 || after >= total) return 0;
        return s->lr * 0.5 * (1 + cos(3.14159265358979323846 * (double)after / (double)total));
    }
    return s->lr;
}
