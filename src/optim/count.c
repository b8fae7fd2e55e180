/* count.c - how many steps an optimizer made, and how many each of its parameters took part in.
 *
 * Adam's bias correction goes by the parameter's own count, as in PyTorch: a parameter whose first gradient comes late
 * starts at 1. o->counts is f32 on the device, [1 + parameters]: first the optimizer's count, then the parameters'.
 * Kernels read the counts and a kernel increments them, so steps skipped by the device do not count. SGD and RMSprop
 * need no correction: their tensor holds only the first number, and only if the device decides about steps. */
#include "optim/optimizer.h"

#include "autograd/state.h"

#include <stdlib.h>

static int64_t count_length(const fr_optimizer *o) {
    return o->kind == FRI_ADAM ? 1 + (int64_t)o->n : 1;
}

/* Copies the host's counts to the device. */
static fr_status upload_counts(fr_optimizer *o) {
    FRI_OWNED(fri_free) float *host = malloc((size_t)count_length(o) * sizeof *host);
    if (host == NULL) return fr_fail(FR_ENOMEM, "optimizer: out of host memory");
    host[0] = (float)o->steps;
    for (int64_t i = 1; i < count_length(o); i++) host[i] = (float)o->parameters[i - 1].steps;
    return fri_backend_of(o->counts)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, host, fri_data(o->counts),
                                           fri_nbytes(o->counts));
}

fr_status fri_optimizer_make_counts(fr_optimizer *o, fr_device device, bool device_counts) {
    fr_shape shape = FRI_SHAPE(count_length(o));
    if (o->counts != NULL || (o->kind != FRI_ADAM && !device_counts)) return FR_OK;
    FRI_TRY(fri_tensor_new(&shape, FR_F32, device, FR_MEM_OPTIMIZER, &o->counts));
    const fr_status s = upload_counts(o);
    if (s < 0) fr_tensor_release(&o->counts);
    return s;
}

fr_status fri_optimizer_learn_steps(fr_optimizer *o) {
    FRI_OWNED(fri_free) float *host = NULL;
    if (!o->device_counts || fri_device_of(o->counts) == FR_META) return FR_OK;
    FRI_TRY(fri_optimizer_read_counts(o, &host));
    o->steps = (int64_t)host[0];
    o->device_counts = false;
    return FR_OK;
}

fr_status fri_optimizer_read_counts(const fr_optimizer *o, float **host) {
    *host = malloc((size_t)count_length(o) * sizeof **host);
    if (*host == NULL) return fr_fail(FR_ENOMEM, "optimizer: out of host memory");
    return fr_tensor_to_host(o->counts, *host);
}

fr_status fri_optimizer_learn_counts(fr_optimizer *o, int64_t **of_parameter) {
    FRI_OWNED(fri_free) float *host = NULL;
    *of_parameter = calloc((size_t)o->n, sizeof **of_parameter);
    if (*of_parameter == NULL) return fr_fail(FR_ENOMEM, "optimizer: out of host memory");
    FRI_TRY(fri_optimizer_learn_steps(o));
    for (int i = 0; i < o->n; i++) (*of_parameter)[i] = o->parameters[i].steps;
    if (o->kind != FRI_ADAM || o->counts == NULL || fri_device_of(o->counts) == FR_META) return FR_OK;
    FRI_TRY(fri_optimizer_read_counts(o, &host));
    for (int i = 0; i < o->n; i++) (*of_parameter)[i] = (int64_t)host[1 + i];
    return FR_OK;
}

fr_status fri_optimizer_set_counts(fr_optimizer *o, int64_t steps, const int64_t *of_parameter) {
    o->steps = steps;
    o->device_counts = false;
    for (int i = 0; i < o->n; i++) o->parameters[i].steps = of_parameter[i];
    return o->counts != NULL ? upload_counts(o) : FR_OK;
}

const float *fri_optimizer_count_of(const fr_optimizer *o, const fri_parameter *p) {
    return o->kind == FRI_ADAM ? (const float *)fri_data(o->counts) + 1 + (p - o->parameters) : NULL;
}

/* ---- counting ---------------------------------------------------------------------------------------------- */

/* The host counts certain steps; otherwise the device's count is newer. */
static fr_status count_on_host(fr_optimizer *o, const fr_tensor *found) {
    if (found == NULL) {
        FRI_TRY(fri_optimizer_learn_steps(o));
        o->steps++;
    } else {
        o->device_counts = true;
    }
    return FR_OK;
}

/* Numbers first .. first + n - 1 join the list; neighbours merge into an array. */
static void add_numbers(const fr_optimizer *o, int64_t first, fri_array *arrays, int *count) {
    float *at = (float *)fri_data(o->counts) + first;
    fri_array *last = *count > 0 ? &arrays[*count - 1] : NULL;
    if (last != NULL && (float *)last->data + last->n == at)
        last->n++;
    else
        arrays[(*count)++] = (fri_array){1, at};
}

fr_status fri_optimizer_count(fr_optimizer *o, bool new_step, int n, const fri_parameter *parameters,
                              const fr_tensor *found) {
    fri_array *arrays = o->room.arrays;
    const int of_parameters = o->kind == FRI_ADAM ? n : 0;
    int count = 0;
    if (new_step) FRI_TRY(count_on_host(o, found));
    if (o->counts == NULL) return FR_OK;
    if (new_step) add_numbers(o, 0, arrays, &count);
    for (int i = 0; i < of_parameters; i++) {
        const fri_parameter *p = &parameters[i];
        if (fri_parameter_moves(o, p)) add_numbers(o, 1 + (p - o->parameters), arrays, &count);
    }
    if (count == 0) return FR_OK;
    return FRI_KERNEL(fri_backend_of(o->counts), FR_F32, count_up, (FRI_EXEC, fri_data_of(found), count, arrays));
}
