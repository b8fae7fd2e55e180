/* table.c - the add-on's table: flags, calls, and the rank's number on the machine. */
#include "addons/ranks/launcher.h"
#include "addons/ranks/comm.h"
#include "addons/ranks/share.h"

#include <frugal/addon.h>
#include <frugal/extend.h>
#include <frugal/ranks.h>
#include <frugal/train.h>

static fr_status share_optimizer(fr_module *m, fr_optimizer *o, fr_comm *c, int64_t micro_batches, uint64_t streams,
                                 bool sync_batch_norm, fr_share **out) {
    return fr_share_create(m, o, c,
                           FR_SHARE_OPTS(.micro_batches = micro_batches, .streams = streams,
                                         .sync_batch_norm = sync_batch_norm),
                           out);
}

static int local_rank(void) {
    fri_launcher l;
    (void)fri_launcher_find(&l);
    return l.local_rank;
}

static const fr_rank_calls calls = {
    .launched = fri_comm_launched,
    .open = fr_comm_open,
    .dry = fri_comm_dry,
    .release = fr_comm_release,
    .connect = fri_comm_connect,
    .timeout = fri_comm_timeout_set,
    .agree = fr_comm_agree,
    .shutdown = fri_comm_shutdown,
    .rank = fr_comm_rank,
    .size = fr_comm_size,
    .engine = fr_comm_engine,
    .host = fri_comm_host,
    .threads = fri_comm_threads,
    .share = share_optimizer,
    .unshare = fr_share_release,
    .rounds = fr_share_rounds,
    .micro_batch = fr_share_micro_batch,
    .round_begin = fr_share_round_begin,
    .round_end = fr_share_round_end,
    .clip_grad_norm = fr_share_clip_grad_norm,
    .step_end = fr_share_step_end,
    .ema_swap = fri_share_ema_swap,
    .check = fri_share_check,
    .serve = fri_share_serve,
    .served = fri_share_served,
    .bytes = fri_share_bytes,
    .exchanged = fri_share_exchanged,
    .waited = fri_share_waited,
};

static const fr_flag_choice alone[] = {{"off", 1}, {NULL, 0}};

#define ROW(kind, group, field) FR_FLAG_##kind, FR_GROUP_##group, offsetof(fr_train_opts, field)
#define RANGE(a, b)             .least = a, .most = b

static const fr_flag flags[] = {
    {"ranks", ROW(INT, DEVICE, ranks), "N",
     "Processes that train together, as many as mpirun, mpiexec or srun started; the result does not depend on their "
     "number. With --plan: the memory of the first of N. 'off': each for itself.",
     .unset = "those that a launcher started, else 1", RANGE(1, 1 << 16), .choices = alone},
    {"sync-batch-norm", ROW(SET, TRAINING, sync_batch_norm), NULL,
     "On several ranks: batch norms use the statistics of the batches of all ranks, as torch.nn.SyncBatchNorm. The "
     "result then depends on the number of ranks.",
     .per_run = true, .if_missing = "off"},
    {0},
};

extern const fr_addon fr_addon_ranks;
const fr_addon fr_addon_ranks = {.name = "ranks", .flags = flags, .ranks = &calls, .local_rank = local_rank};
