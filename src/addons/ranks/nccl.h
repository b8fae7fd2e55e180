/* nccl.h - NCCL as what carries bytes between GPUs (links.h): grouped sends and receives. It adds nothing.
 *
 * Opened at the first use, by FRUGAL_NCCL or its soname; FRUGAL_NCCL=off does without. Its header is no part of a small
 * toolkit, so the few entry points are declared here, as in nccl.h of NCCL 2.18 to 2.30. */
#ifndef FRI_RANKS_NCCL_H
#define FRI_RANKS_NCCL_H

#include "addons/ranks/links.h"
#include "cuda/context.h"

typedef struct fri_nccl_id {
    char bytes[FRI_LINKS_ID];
} fri_nccl_id;

/* ncclConfig_t of 2.18; newer libraries read size and version and treat the rest as unset. */
typedef struct fri_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class; /* read by NCCL 2.26.2 to 2.26.6 in spite of the version */
} fri_nccl_config;

enum {
    FRI_NCCL_SUCCESS = 0,
    FRI_NCCL_REMOTE_ERROR = 6,
    FRI_NCCL_IN_PROGRESS = 7,
    FRI_NCCL_UINT8 = 1,
    FRI_NCCL_CONFIG_VERSION = 21800,
};
#define FRI_NCCL_CONFIG_MAGIC 0xcafebeefu
#define FRI_NCCL_UNSET        INT_MIN

/* clang-format off */
#define FRI_NCCL_MAP(X)                                                                                               \
    X(get_version, "ncclGetVersion", (int *version))                                                                  \
    X(get_unique_id, "ncclGetUniqueId", (fri_nccl_id *out))                                                           \
    X(init, "ncclCommInitRankConfig", (void **comm, int ranks, fri_nccl_id id, int rank, fri_nccl_config *config))    \
    X(finalize, "ncclCommFinalize", (void *comm))                                                                     \
    X(destroy, "ncclCommDestroy", (void *comm))                                                                       \
    X(abort, "ncclCommAbort", (void *comm))                                                                           \
    X(async_error, "ncclCommGetAsyncError", (void *comm, int *error))                                                 \
    X(group_start, "ncclGroupStart", (void))                                                                          \
    X(group_end, "ncclGroupEnd", (void))                                                                              \
    X(send, "ncclSend", (const void *data, size_t count, int type, int peer, void *comm, cudaStream_t stream))        \
    X(recv, "ncclRecv", (void *data, size_t count, int type, int peer, void *comm, cudaStream_t stream))
/* clang-format on */

typedef struct fri_nccl {
#define FRI_NCCL_SLOT(slot, name, parameters) int(*slot) parameters;
    FRI_NCCL_MAP(FRI_NCCL_SLOT)
#undef FRI_NCCL_SLOT
    const char *(*last_error)(void *comm);
} fri_nccl;

#endif
