/* ranks.h - one training by several processes, on one machine or many: the ranks of a run.
 *
 * A step is M micro-batches of B images. Parameters, optimizer state, running statistics, random numbers and training
 * states are what one process with M batches per step makes, bit for bit, on any number of ranks. Each rank has all
 * parameters, but gradients and optimizer state of its share only (ZeRO-2): P + (G + O) / N bytes. */
#ifndef FRUGAL_RANKS_H
#define FRUGAL_RANKS_H

#include <frugal/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* The ranks that a launcher (mpirun, mpiexec, srun) started, and the engine between them (below). NULL stands for
 * one process on its own: rank 0 of 1. Calls on it are made by one thread. */
typedef struct fr_comm fr_comm;

/* Communicator of the launcher whose variables are in the environment: opens its engine and meets all other ranks.
 * Without a launcher *out is NULL. A rank that is not heard from for `seconds` ends the run: FR_EPEER, as every later
 * call. FR_ELIBRARY: there is no engine for this launcher; FR_EUSAGE: its ranks cannot find each other. The program
 * must not have opened one before. */
FR_API fr_status fr_comm_open(double seconds, fr_comm **out);
/* Seconds that calls from now on wait for a rank: work that takes some ranks longer than others (files, the first step)
 * needs more patience than a step. */
FR_API fr_status fr_comm_patience(fr_comm *c, double seconds);
/* Rank `rank` of `size`, for plans: nothing is sent, and what others would say is what this rank says. */
FR_API fr_status fr_comm_dry(int rank, int size, fr_comm **out);
/* Waits for all ranks; after a failure for nobody. */
FR_API void fr_comm_release(fr_comm **c);
FR_API int fr_comm_rank(const fr_comm *c);
FR_API int fr_comm_size(const fr_comm *c);
FR_API const char *fr_comm_engine(const fr_comm *c);         /* "Open MPI 4.1.4". Borrowed */
FR_API const char *fr_comm_host(const fr_comm *c, int rank); /* NULL: no such rank. Borrowed */

/* all[i] becomes what rank i gives as `mine`, `bytes` each, the same number on all ranks. */
FR_API fr_status fr_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all);
/* Rank that ends: calls of the other ranks fail with this sentence. *first (or NULL) is what rank 0 says, "" if it says
 * nothing for two seconds; borrowed. Of c only release may be called then. */
FR_API void fr_comm_goodbye(fr_comm *c, const char *why, const char **first);

/* NCCL, where all ranks have it, carries what their devices send each other from now on, and the engine's name says
 * so; else the bytes go through host memory. *bytes: of the device's memory that it took, or 0. Not of fr_comm_dry. */
FR_API fr_status fr_comm_connect(fr_comm *c, fr_device device, size_t *bytes);

/* Rank and size as the launcher says; nothing is opened. Without a launcher: rank 0 of 1. FR_EUSAGE: as of open. */
FR_API fr_status fr_comm_launched(int *rank, int *size);
/* Threads of this rank, its share of `threads`, at least 1: all of them if the launcher has bound it to some cores of
 * the machine. */
FR_API int fr_comm_threads(int threads);

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

typedef struct fr_share fr_share;

typedef struct fr_share_opts {
    int64_t micro_batches FR_DEFAULT(0);       /* of a step, M; 0: one per rank */
    uint64_t streams FR_DEFAULT(0);            /* of random numbers that a micro-batch draws (fr_rng) */
    size_t bucket_bytes FR_DEFAULT(25 << 20);  /* of gradients that are sent together, at least */
    size_t landing_bytes FR_DEFAULT(16 << 20); /* of what arrives at a time, at most */
    int window FR_DEFAULT(1);                  /* buckets on their way while backward goes on */
    bool sync_batch_norm FR_DEFAULT(false);    /* see fr_share_create */
} fr_share_opts;
#define FR_SHARE_DEFAULTS  .bucket_bytes = 25 << 20, .landing_bytes = 16 << 20, .window = 1
#define FR_SHARE_OPTS(...) FR_OPTS(fr_share_opts, FR_SHARE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_share_opts, FR_SHARE_OPTS())

/* Sharing: o updates this rank's part of each parameter of m that trains, and has state for it; m's batch norms move
 * their running values by the samples of all micro-batches, in order. All are retained or borrowed until release, c
 * too. Before o's first step; every parameter that trains must get a gradient in each micro-batch. On FR_META, or of
 * fr_comm_dry, nothing is sent. A fused optimizer (fr_optimizer_fuse, before or after) updates as soon as the
 * ranks' sum is complete, in the last round. FR_EUSAGE: o has made steps.
 *
 * sync_batch_norm: batch norms in train mode, in-place ones too, normalize by the mean and variance of the
 * micro-batches that all ranks have at the time, and backward sums over them (torch.nn.SyncBatchNorm): N ranks compute
 * what one batch of N B images would, up to rounding. Then results depend on N; FR_EINVAL: the micro-batches are not
 * one per rank. */
FR_API fr_status fr_share_create(fr_module *m, fr_optimizer *o, fr_comm *c, const fr_share_opts *opts, fr_share **out);
/* The optimizer keeps its part of the state and makes no step any more. */
FR_API void fr_share_release(fr_share **p);

/* Rounds of a step: in each a rank has at most one micro-batch, and in all but the last one it has. */
FR_API int64_t fr_share_rounds(const fr_share *p);
/* The micro-batch that this rank has in the round, from 0 in the step; -1: none. */
FR_API int64_t fr_share_micro_batch(const fr_share *p, int64_t round);
/* Around each round's forward and backward, of which there is none where the rank has no micro-batch. begin sets the
 * random numbers; backward hands gradients over bucket by bucket; end waits until all are where they belong. */
FR_API fr_status fr_share_round_begin(fr_share *p, int64_t round);
FR_API fr_status fr_share_round_end(fr_share *p, int64_t round);
/* fr_clip_grad_norm of shared gradients, after the last round, before fr_optimizer_step or fr_grad_scaler_step;
 * *norm is 0 on FR_META. */
FR_API fr_status fr_share_clip_grad_norm(fr_share *p, double max_norm, double *norm);
/* Parameters and running values go to every rank, after the optimizer's step. */
FR_API fr_status fr_share_step_end(fr_share *p);

/* fr_optimizer_ema_swap, by all ranks: each exchanges its part, and every rank gets all of it. */
FR_API fr_status fr_share_ema_swap(fr_share *p);

/* Do all ranks hold the same parameters and buffers? FR_EPEER names one that does not: a byte turned on its way, or in
 * its memory. Reads all of them. */
FR_API fr_status fr_share_check(fr_share *p);

/* While rank 0 reads the optimizer's state (fr_optimizer_state_to_host), all others call serve; it returns when rank 0
 * calls served, with the status given there. */
FR_API fr_status fr_share_serve(fr_share *p);
FR_API fr_status fr_share_served(fr_share *p, fr_status outcome);

/* Bytes that a step sends from this rank; how long all steps so far exchanged, and how long the program waited for
 * that, in seconds. */
FR_API uint64_t fr_share_bytes(const fr_share *p);
FR_API double fr_share_exchanged(const fr_share *p);
FR_API double fr_share_waited(const fr_share *p);

/* ---- engines ----------------------------------------------------------------------------------------------------- */

/* An engine carries bytes between the ranks of a run, and adds nothing: it is a plugin. Sums are frugal's own, in the
 * order of micro-batches, so no result depends on the engine, on the number of ranks or on the order in which bytes
 * arrive. src/addons/ranks/mpi.c is one, built once for each MPI that is installed; fr_comm_open opens the file that
 * fits the launcher. */
enum { FR_ENGINE_VERSION = 3, FR_ENGINE_NAME = 64, FR_ENGINE_HOST = 64, FR_ENGINE_TEXT = 1024 };

/* Host memory. Borrowed until the call that got it returns. */
typedef struct fr_piece {
    void *data;
    size_t bytes;
} fr_piece;

/* Pieces for or from rank i: piece[first[i]] up to piece[first[i + 1] - 1]. */
typedef struct fr_pieces {
    const fr_piece *piece;
    const int *first; /* [size + 1] */
} fr_pieces;

/* How long a call may wait, and for whom it did. */
typedef struct fr_wait {
    double seconds;
    bool (*cancelled)(void *ctx); /* asked again and again: true ends the wait; or NULL */
    void *ctx;
    bool *late; /* [size], all false before the call: those whose bytes had not come after `seconds` */
} fr_wait;

/* Called from one thread at a time, in the same order on all ranks. A failure is a status and error()'s sentence. */
typedef struct fr_engine {
    char name[FR_ENGINE_NAME]; /* "Open MPI 4.1.4" */
    int rank, size;
    /* Sends out's pieces and receives in's, from each rank as many, of the same sizes in the same order, as that rank
     * has for this one; nothing from and to itself. FR_EPEER: ranks are late, or one said goodbye. FR_ELIBRARY: the
     * library below failed. */
    fr_status (*exchange)(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *wait);
    /* Tells all others why this rank ends, so that what they wait for fails with it, and waits for theirs, two seconds
     * at most. text[i] is rank i's, "" if none came: [size][FR_ENGINE_TEXT], valid until close. Once. */
    const char *(*goodbye)(void *ctx, const char *why);
    const char *(*error)(const void *ctx);
    /* Has a rank said goodbye? Then error() is its sentence. Asked again and again where ranks wait beside it. */
    bool (*heard)(void *ctx);
    /* May wait for all ranks, as MPI_Finalize; if the run is broken, for nobody. */
    void (*close)(void *ctx, bool broken);
    void *ctx;
} fr_engine;

/* The plugin's one symbol, "fr_engine_open". `version` is the caller's FR_ENGINE_VERSION. On failure `reason` holds a
 * sentence without a full stop. */
typedef fr_status fr_engine_open_fn(int version, fr_engine *out, char *reason, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
