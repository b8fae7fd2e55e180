/* ranks.h - one training by several processes, on one machine or many: the ranks of a run.
 *
 * A step is M micro-batches of B images. Parameters, optimizer state, running statistics, random numbers and training
 * states equal a single process's with M batches per step, bit for bit, on any number of ranks. Each rank has all
 * parameters, but only a share of gradients and optimizer state (ZeRO-2): P + (G + O) / N bytes. */
#ifndef FRUGAL_RANKS_H
#define FRUGAL_RANKS_H

#include <frugal/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* The ranks of a launcher (mpirun, mpiexec, srun), and the engine (below). NULL is a single process: rank 0 of 1. A
 * single thread makes all calls. */
typedef struct fr_comm fr_comm;

/* Communicator of the environment's launcher: opens the engine and connects all ranks. Without a launcher *out is NULL.
 * A rank silent for `seconds` ends the run: FR_EPEER, also from every later call. FR_ELIBRARY: no engine for the
 * launcher; FR_EUSAGE: the ranks cannot find each other, or a second open. */
FR_API fr_status fr_comm_open(double seconds, fr_comm **out);
/* Waits for all ranks; returns at once after a failure. */
FR_API void fr_comm_release(fr_comm **c);
FR_API int fr_comm_rank(const fr_comm *c);
FR_API int fr_comm_size(const fr_comm *c);
FR_API const char *fr_comm_engine(const fr_comm *c); /* "Open MPI 4.1.4". Borrowed */

/* all[i] becomes rank i's `mine`, `bytes` each, an equal number on all ranks. */
FR_API fr_status fr_comm_agree(fr_comm *c, const void *mine, size_t bytes, void *all);

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

typedef struct fr_share fr_share;

typedef struct fr_share_opts {
    int64_t micro_batches FR_DEFAULT(0);       /* of a step, M; 0: the number of ranks */
    uint64_t streams FR_DEFAULT(0);            /* of a micro-batch's random numbers (fr_rng) */
    size_t bucket_bytes FR_DEFAULT(25 << 20);  /* of gradients sent together, at least */
    size_t landing_bytes FR_DEFAULT(16 << 20); /* of arriving data at a time, at most */
    int window FR_DEFAULT(1);                  /* concurrent buckets during backward */
    bool sync_batch_norm FR_DEFAULT(false);    /* see fr_share_create */
} fr_share_opts;
#define FR_SHARE_DEFAULTS  .bucket_bytes = 25 << 20, .landing_bytes = 16 << 20, .window = 1
#define FR_SHARE_OPTS(...) FR_OPTS(fr_share_opts, FR_SHARE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_share_opts, FR_SHARE_OPTS())

/* Sharing: o updates this rank's part of each parameter of m that trains, and has state for it; m's batch norms move
 * their running values by the samples of all micro-batches, in order. All are retained or borrowed until release, c
 * too. Before o's first step; every parameter that trains must get a gradient in each micro-batch. On FR_META, or of
 * fri_comm_dry, nothing is sent. A fused optimizer (fr_optimizer_fuse, before or after) updates as soon as the
 * ranks' sum is complete, in the last round. FR_EUSAGE: o has made steps.
 *
 * sync_batch_norm: batch norms in train mode, in-place ones too, normalize by the mean and variance of the
 * micro-batches that all ranks have at the time, and backward sums over them (torch.nn.SyncBatchNorm): N ranks compute
 * what one batch of N B images would, up to rounding. Then results depend on N; FR_EINVAL: the micro-batches are not
 * one per rank. */
FR_API fr_status fr_share_create(fr_module *m, fr_optimizer *o, fr_comm *c, const fr_share_opts *opts, fr_share **out);
/* The optimizer keeps a part of the state and makes no more steps. */
FR_API void fr_share_release(fr_share **p);

/* Rounds of a step: in each round a rank has at most a micro-batch; in all rounds but the last, exactly one. */
FR_API int64_t fr_share_rounds(const fr_share *p);
/* The rank's micro-batch in the round, from 0 in the step; -1: none. */
FR_API int64_t fr_share_micro_batch(const fr_share *p, int64_t round);
/* Around each round's forward and backward, also without a micro-batch. begin sets the random numbers; backward sends
 * gradients bucket by bucket; end waits for all transfers. */
FR_API fr_status fr_share_round_begin(fr_share *p, int64_t round);
FR_API fr_status fr_share_round_end(fr_share *p, int64_t round);
/* fr_clip_grad_norm of shared gradients, after the last round, before fr_optimizer_step or fr_grad_scaler_step;
 * *norm is 0 on FR_META. */
FR_API fr_status fr_share_clip_grad_norm(fr_share *p, double max_norm, double *norm);
/* Parameters and running values go to every rank, after the optimizer's step. */
FR_API fr_status fr_share_step_end(fr_share *p);

/* ---- engines ----------------------------------------------------------------------------------------------------- */

/* An engine, a plugin, transfers bytes between ranks, without sums. frugal adds in the order of micro-batches, so no
 * result depends on the engine, on the number of ranks or on the order of arrival. src/addons/ranks/mpi.c is an engine,
 * built once for each installed MPI; fr_comm_open opens the launcher's. */
enum { FR_ENGINE_VERSION = 3, FR_ENGINE_NAME = 64, FR_ENGINE_HOST = 64, FR_ENGINE_TEXT = 1024 };

/* Host memory. Borrowed until the call returns. */
typedef struct fr_piece {
    void *data;
    size_t bytes;
} fr_piece;

/* Pieces for or from rank i: piece[first[i]] up to piece[first[i + 1] - 1]. */
typedef struct fr_pieces {
    const fr_piece *piece;
    const int *first; /* [size + 1] */
} fr_pieces;

/* Limit of a call's wait, and late ranks. */
typedef struct fr_wait {
    double seconds;
    bool (*cancelled)(void *ctx); /* asked again and again: true ends the wait; or NULL */
    void *ctx;
    bool *late; /* [size], all false before the call: ranks without arrived bytes after `seconds` */
} fr_wait;

/* Called from a single thread at a time, in equal order on all ranks. A failure is a status and error()'s sentence. */
typedef struct fr_engine {
    char name[FR_ENGINE_NAME]; /* "Open MPI 4.1.4" */
    int rank, size;
    /* Sends out's pieces and receives in's. Pieces between two ranks agree in number, sizes and order; none from a rank
     * to itself. FR_EPEER: a rank is late, or has ended. FR_ELIBRARY: the MPI library failed. */
    fr_status (*exchange)(void *ctx, fr_pieces out, fr_pieces in, const fr_wait *wait);
    /* Sends `why` to all other ranks, whose pending exchanges then fail with this sentence, and waits for theirs, two
     * seconds at most. text[i] is rank i's, "" if none came: [size][FR_ENGINE_TEXT], valid until close. Once. */
    const char *(*shutdown)(void *ctx, const char *why);
    const char *(*error)(const void *ctx);
    /* True if a rank has ended; error() is the rank's sentence. Polled during waits. */
    bool (*peer_left)(void *ctx);
    /* May wait for all ranks, as MPI_Finalize; not in a broken run. */
    void (*close)(void *ctx, bool broken);
    void *ctx;
} fr_engine;

/* The plugin's only symbol, "fr_engine_open". `version` is the caller's FR_ENGINE_VERSION. On failure `reason` holds a
 * sentence without a full stop. */
typedef fr_status fr_engine_open_fn(int version, fr_engine *out, char *reason, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
