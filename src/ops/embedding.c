/* embedding - rows of a table.
 *   forward    y[i] = w[index[i]]
 *   backward   dw[index[i]] += dy[i], in order of i; rows that no index names get 0
 *   order      deterministic, also for repeated indices */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(embedding_forward, fri_embedding_desc, (e, d, T(1), T(0), T(2), T(3)), .moves = 2, .unit = 2)
FRI_OP_KERNEL(embedding_backward, fri_embedding_desc, (e, d, T(0), T(1), T(2)), .flops = 1, .unit = 1)

fr_described fri_op_embedding = {.op = {.name = "embedding"},
                                 .operands = "w[v,d] index:i64[*] > y[*,d] bad:i64[]",
                                 .forward = {{"w index > y bad", &embedding_forward_kernel}},
                                 .backward = {{"index dy > dw", &embedding_backward_kernel}}};

fr_status fr_embedding(fr_tensor *index, fr_tensor *w, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_embedding, (fr_tensor *[]){w, index}, y));
    if (f.any.rank == FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "embedding: index has rank %d; %d is the most", f.any.rank, FR_MAX_RANK - 1);
    const fri_embedding_desc d = {f.dtype, fri_shape_numel(&f.any), FRI_SIZE(f, 'v'), FRI_SIZE(f, 'd')};
    return fri_frame_run(&f, &d, sizeof d, y);
}
