/* nccl.c - see nccl.h. */
#include "addons/ranks/nccl.h"

#include "base/env.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/context.h"
#include "cuda/streams.h"

#define SONAME "libnccl.so.2"

/* Each channel between two GPUs has separate buffers, and sends open 32 channels: 4 GiB on eight H100. Only the
 * environment variable limits channels; a user's value stays. The CTA limit keeps processors for concurrent kernels. */
enum { CTAS = 4, CLOSE_SECONDS = 10 };
#define CHANNELS_VARIABLE "NCCL_MAX_P2P_NCHANNELS"
#define CHANNELS          "4"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fri_nccl table;
static bool tried, usable;
static char title[32], why_not[256];
static void *comm;

/* ---- the library ------------------------------------------------------------------------------------------------- */

static bool load_nccl(void) {
    const char *named = fri_env_get()->nccl;
    int version = 0;
    bool all = true;
    if (named != NULL && strcmp(named, "off") == 0) {
        snprintf(why_not, sizeof why_not, "FRUGAL_NCCL=off");
        return false;
    }
    if (getenv(CHANNELS_VARIABLE) == NULL) (void)setenv(CHANNELS_VARIABLE, CHANNELS, 0);
    void *library = fri_cuda_open("FRUGAL_NCCL", named, SONAME, why_not, sizeof why_not);
    if (library == NULL) return false;
#define LOAD(slot, name, parameters) \
    all &= fri_cuda_symbol(library, SONAME, name, &table.slot, why_not, sizeof why_not);
    FRI_NCCL_MAP(LOAD)
    LOAD(last_error, "ncclGetLastError", ())
#undef LOAD
    if (!all) return false;
    if (table.get_version(&version) != FRI_NCCL_SUCCESS || version < FRI_NCCL_CONFIG_VERSION) {
        snprintf(why_not, sizeof why_not, SONAME " is of version %d, older than %d", version, FRI_NCCL_CONFIG_VERSION);
        return false;
    }
    snprintf(title, sizeof title, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return true;
}

static const char *nccl_name(const char **reason) {
    pthread_mutex_lock(&lock);
    if (!tried) usable = load_nccl();
    tried = true;
    pthread_mutex_unlock(&lock);
    *reason = usable ? "" : why_not;
    return usable ? title : NULL;
}

/* NCCL's in-progress status is no failure. */
static fr_status check(int code, const char *call) {
    if (code == FRI_NCCL_SUCCESS || code == FRI_NCCL_IN_PROGRESS) return FR_OK;
    const char *text = table.last_error(comm);
    return fr_fail(FR_ELIBRARY, "%s failed (NCCL error %d)%s%s", call, code,
                   text != NULL && text[0] != '\0' ? ": " : "", text != NULL ? text : "");
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

static fr_status make_id(char id[FRI_LINKS_ID]) {
    fri_nccl_id made;
    fr_status s = check(table.get_unique_id(&made), "ncclGetUniqueId");
    if (s == FR_OK) memcpy(id, made.bytes, sizeof made.bytes);
    return s;
}

static fr_status open_comm(const char id[FRI_LINKS_ID], int rank, int size) {
    fri_nccl_config config = {.size = sizeof config,
                              .magic = FRI_NCCL_CONFIG_MAGIC,
                              .version = FRI_NCCL_CONFIG_VERSION,
                              .blocking = 0,
                              .cga_cluster_size = FRI_NCCL_UNSET,
                              .min_ctas = FRI_NCCL_UNSET,
                              .max_ctas = CTAS,
                              .split_share = FRI_NCCL_UNSET,
                              .traffic_class = FRI_NCCL_UNSET};
    fri_nccl_id told;
    fr_status s = fri_cuda_context(NULL);
    memcpy(told.bytes, id, sizeof told.bytes);
    return s == FR_OK ? check(table.init(&comm, size, told, rank, &config), "ncclCommInitRankConfig") : s;
}

static fr_status async_state(void) {
    int error = FRI_NCCL_SUCCESS;
    fr_status s = check(table.async_error(comm, &error), "ncclCommGetAsyncError");
    if (s == FR_OK && error == FRI_NCCL_IN_PROGRESS) return FR_END;
    return s == FR_OK ? check(error, "NCCL") : s;
}

static void close_comm(bool abort) {
    const struct timespec nap = {0, 1000000};
    if (comm == NULL) return;
    abort = abort || check(table.finalize(comm), "ncclCommFinalize") < 0;
    for (int i = 0; !abort && async_state() == FR_END; i++) {
        nanosleep(&nap, NULL);
        abort = i == CLOSE_SECONDS * 1000;
    }
    (void)(abort ? table.abort(comm) : table.destroy(comm));
    comm = NULL;
}

/* ---- exchange ---------------------------------------------------------------------------------------------------- */

static fr_status move_pieces(int peer, fr_pieces out, fr_pieces in, cudaStream_t stream) {
    for (int i = out.first[peer]; i < out.first[peer + 1]; i++)
        FRI_TRY(
            check(table.send(out.piece[i].data, out.piece[i].bytes, FRI_NCCL_UINT8, peer, comm, stream), "ncclSend"));
    for (int i = in.first[peer]; i < in.first[peer + 1]; i++)
        FRI_TRY(check(table.recv(in.piece[i].data, in.piece[i].bytes, FRI_NCCL_UINT8, peer, comm, stream), "ncclRecv"));
    return FR_OK;
}

static fr_status nccl_exchange(int size, fr_pieces out, fr_pieces in) {
    fri_exec e;
    FRI_TRY(fri_cuda_streams.exec(FRI_STREAM_RANKS, &e));
    fr_status s = check(table.group_start(), "ncclGroupStart");
    if (s < 0) return s;
    for (int peer = 0; peer < size && s == FR_OK; peer++) s = move_pieces(peer, out, in, e.stream);
    fr_status ended = check(table.group_end(), "ncclGroupEnd");
    return s == FR_OK ? ended : s;
}

static const fri_links links = {
    .name = nccl_name,
    .id = make_id,
    .open = open_comm,
    .exchange = nccl_exchange,
    .state = async_state,
    .close = close_comm,
};

const fri_links *fri_links_of(fr_device d) {
    return d == FR_CUDA ? &links : NULL;
}
