/* steer.cu - single numbers that steer a training: counters, the clipping factor, the loss scale. One thread does it;
 * what that saves is a host that waits for the device.
 *   count_up            size bytes of the counter twice, 4 bytes
 *   clip_factor         12 bytes
 *   loss_scale_update   48 bytes of the state, 8 bytes of the flag */
#include "common.cuh"

enum { WARP = 32 };

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T> __global__ void count_up(const float *found, T *counter) {
    if (threadIdx.x == 0 && (found == NULL || *found == 0)) *counter += 1;
}

__global__ void clip_factor(double max_norm, const double *square, float *factor) {
    if (threadIdx.x == 0) *factor = (float)fri_clip_factor(max_norm, *square);
}

__global__ void loss_scale_update(fri_loss_scale_desc d, fri_loss_scale *state, float *found) {
    if (threadIdx.x != 0) return;
    *state = fri_loss_scale_next(&d, *state, *found != 0);
    *found = 0;
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_count_up(const fri_exec *e, fr_dtype dtype, const float *found, void *counter) {
    if (dtype == FR_I64)
        count_up<int64_t><<<1, WARP, 0, fri_stream(e)>>>(found, (int64_t *)counter);
    else if (dtype == FR_F32)
        count_up<float><<<1, WARP, 0, fri_stream(e)>>>(found, (float *)counter);
    else
        return fri_cuda_no_type("count_up", dtype);
    return fri_cuda_launched("count_up");
}

extern "C" fr_status fri_cuda_clip_factor(const fri_exec *e, double max_norm, const double *square, float *factor) {
    clip_factor<<<1, WARP, 0, fri_stream(e)>>>(max_norm, square, factor);
    return fri_cuda_launched("clip_factor");
}

extern "C" fr_status fri_cuda_loss_scale_update(const fri_exec *e, const fri_loss_scale_desc *d, fri_loss_scale *state,
                                                float *found) {
    loss_scale_update<<<1, WARP, 0, fri_stream(e)>>>(*d, state, found);
    return fri_cuda_launched("loss_scale_update");
}
