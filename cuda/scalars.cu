/* scalars.cu - single numbers that steer a training: counters, the clipping factor, the loss scale.
 * A single thread, or a thread per number, so the host need not wait for the device.
 *   count_up            n * 8 bytes of n counters, 4 bytes
 *   clip_factor         12 bytes
 *   loss_scale_update   48 bytes of the state, 8 bytes of the flag */
#include "multi.cuh"

enum { WARP = 32 };

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_array, FRI_UNSCALE_ARRAYS> list;
static_assert(sizeof(list) + sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

__global__ void count_up(const __grid_constant__ list all, const float *found) {
    if (found != NULL && *found != 0) return;
    const fri_chunk at = fri_chunk_of(all, WARP);
    const int64_t i = at.begin + threadIdx.x;
    if (i < at.end) ((float *)all.item[at.item].data)[i] += 1;
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

extern "C" fr_status fri_cuda_count_up(const fri_exec *e, const float *found, int count, const fri_array *arrays) {
    list all;
    for (int at = 0; at < count;) {
        const unsigned blocks = fri_list_fill(&all, count, arrays, WARP, &at);
        if (blocks > 0) count_up<<<blocks, WARP, 0, fri_stream(e)>>>(all, found);
    }
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
