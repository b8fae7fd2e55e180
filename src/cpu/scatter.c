/* scatter.c - writes elements to the positions of an index along a dimension. A task takes lines (fri_gather_desc).
 * Half types add in f32 and round after each addition. */
#include "cpu/cpu.h"

typedef struct scatter_loop {
    const fri_gather_desc *d;
    const int64_t *index;
    const void *src;
    bool add;
    void *x;
} scatter_loop;

static void scatter_one(const void *context, int64_t line, int thread) {
    const scatter_loop *s = context;
    const fri_gather_desc *d = s->d;
    int64_t i = 0, first = 0;
    real from_buf, to_buf;
    fri_gather_line(d, line, &i, &first);
    for (int64_t k = 0; k < d->n; k++, i += d->index_step) {
        int64_t at = first + s->index[i] * d->x_step;
        real value = s->src != NULL ? *fri_cpu_load(d->dtype, s->src, i, 1, &from_buf) : 0;
        if (s->add) value += *fri_cpu_load(d->dtype, s->x, at, 1, &to_buf);
        real *to = fri_cpu_target(d->dtype, s->x, at, &to_buf);
        *to = value;
        fri_cpu_store(d->dtype, s->x, at, 1, to);
    }
}

fr_status fri_cpu_scatter(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *src, bool add,
                          void *x, int64_t *bad) {
    FRI_TRY(fri_cpu_accepts("scatter", d->dtype));
    *bad = -1;
    for (int64_t i = 0; i < d->lines * d->n; i++)
        if (index[i] < 0 || index[i] >= d->extent) {
            *bad = i;
            return FR_OK;
        }
    fri_cpu_pieces(d->lines * d->n, d->lines, scatter_one, &(scatter_loop){d, index, src, add, x});
    return FR_OK;
}
