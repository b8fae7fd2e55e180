/* init.c - torch.nn.init with the thread's random generator. */
#include "net/module.h"

#include <math.h>

fr_status fr_init_normal(fr_tensor *t, double mean, double std) {
    FRI_NOT_NULL(t);
    return fri_tensor_randomize(t, true, mean, std);
}

fr_status fr_init_uniform(fr_tensor *t, double low, double high) {
    FRI_NOT_NULL(t);
    return fri_tensor_randomize(t, false, low, high);
}

/* Convolution [K, R, S, C/g]: fan_in = R S C/g, fan_out = R S K (torchvision's nets have groups 1); linear [out,
 * in]. */
fr_status fri_init_kaiming_normal(fr_tensor *weight, bool fan_out) {
    FRI_NOT_NULL(weight);
    int64_t window = 1;
    if (weight->shape.rank < 2)
        return fr_fail(FR_ESHAPE, "kaiming_normal: a weight has at least 2 dimensions, this one has %d",
                       weight->shape.rank);
    for (int i = 1; i + 1 < weight->shape.rank; i++) window *= weight->shape.dim[i];
    int64_t fan = window * (fan_out ? weight->shape.dim[0] : weight->shape.dim[weight->shape.rank - 1]);
    return fr_init_normal(weight, 0, sqrt(2.0 / (double)fan));
}

fr_status fri_parameter_new(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out) {
    fr_shape dims = fri_shape_of(rank, shape);
    return fri_tensor_new(&dims, dtype, device, FR_MEM_PARAMETER, out);
}
