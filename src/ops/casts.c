/* casts.c - see casts.h. */
#include "ops/casts.h"

#include "autograd/node.h"
#include "autograd/state.h"
#include "backend/backend.h"
#include "base/status.h"
#include "tensor/tensor.h"

#include <frugal/ops.h>

#include <stdlib.h>

typedef struct fri_casts_weight {
    fr_tensor *x;
    fr_dtype to;
    fr_tensor *y;     /* the copy; NULL: none, or taken */
    uint64_t version; /* of x when the copy was made */
} fri_casts_weight;

static bool is_weight(const fr_tensor *x) {
    return x->dtype == FR_F32 && x->requires_grad && fri_node_of(x) == NULL && fri_numel(x) > 0;
}

static fri_casts_weight *find(const fri_casts *c, const fr_tensor *x, fr_dtype to) {
    for (int i = 0; i < c->n; i++)
        if (c->weight[i].x == x && c->weight[i].to == to) return &c->weight[i];
    return NULL;
}

static fr_status append(fri_casts *c, fr_tensor *x, fr_dtype to) {
    if (c->n == c->room) {
        const int room = c->room > 0 ? 2 * c->room : 64;
        fri_casts_weight *more = realloc(c->weight, (size_t)room * sizeof *more);
        if (more == NULL) return fr_fail(FR_ENOMEM, "autocast: no host memory for a list of %d weights", room);
        c->weight = more;
        c->room = room;
    }
    c->weight[c->n++] = (fri_casts_weight){.x = fr_tensor_retain(x), .to = to};
    return FR_OK;
}

/* Copies of the weights of a type and of the first such weight's device. */
static fr_status make(fri_casts *c, fr_dtype to, fri_cast_item *item) {
    const fr_tensor *first = NULL;
    int count = 0;
    for (int i = 0; i < c->n; i++) {
        fri_casts_weight *w = &c->weight[i];
        if (first == NULL && w->to == to) first = w->x;
        if (w->to != to || fri_device_of(w->x) != fri_device_of(first)) continue;
        FRI_TRY(fri_tensor_new(&w->x->shape, to, fri_device_of(w->x), FR_MEM_TEMPORARY, &w->y));
        w->version = fri_tensor_version(w->x);
        item[count++] = (fri_cast_item){fri_numel(w->x), fri_data(w->x), fri_data(w->y)};
    }
    if (count == 0) return FR_OK;
    return FRI_KERNEL(fri_backend_of(first), FR_F32, cast_list, (FRI_EXEC, FR_F32, to, count, item));
}

fr_status fri_casts_begin(fri_casts *c) {
    const fr_autocast_state cast = fri_autocast_get();
    if (!cast.enabled || !fri_switches()->cache_casts || !fr_grad_enabled()) return FR_OK;
    fri_autograd()->casts = c;
    if (c->n == 0) return FR_OK;
    FRI_OWNED(fri_free) fri_cast_item *item = malloc((size_t)c->n * sizeof *item);
    if (item == NULL) return fr_fail(FR_ENOMEM, "autocast: no host memory for a list of %d weights", c->n);
    return make(c, cast.dtype, item);
}

void fri_casts_end(fri_casts *c) {
    fri_autograd()->casts = NULL;
    for (int i = 0; i < c->n; i++) fr_tensor_release(&c->weight[i].y);
}

void fri_casts_release(fri_casts *c) {
    for (int i = 0; i < c->n; i++) fr_tensor_release(&c->weight[i].x);
    free(c->weight);
    *c = (fri_casts){0};
}

fr_status fri_casts_take(fr_tensor *x, fr_dtype to, fr_tensor **y) {
    fri_casts *c = fri_autograd()->casts;
    if (c == NULL || !is_weight(x)) return fr_cast(x, to, y);
    fri_casts_weight *w = find(c, x, to);
    if (w == NULL) FRI_TRY(append(c, x, to));
    if (w == NULL || w->y == NULL || w->version != fri_tensor_version(x)) return fr_cast(x, to, y);
    FRI_OWNED(fr_tensor_release) fr_tensor *copy = w->y;
    w->y = NULL;
    return fri_cast_given(x, copy, y);
}
