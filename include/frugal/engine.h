/* engine.h - what carries bytes between the ranks of a run: the interface of a plugin.
 *
 * An engine moves bytes and adds nothing. Sums are frugal's own, in the order of micro-batches, so no result depends on
 * the engine, on the number of ranks or on the order in which bytes arrive. src/mpi/mpi.c is one, built once for each
 * MPI that is installed; a program opens the file that fits its launcher (dist.h). */
#ifndef FRUGAL_ENGINE_H
#define FRUGAL_ENGINE_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FR_ENGINE_VERSION = 3, FR_ENGINE_NAME = 64, FR_ENGINE_HOST = 64, FR_ENGINE_TEXT = 1024 };

/* Host memory. Borrowed until the call that got it returns. */
typedef struct fr_piece {
    void *data;
    size_t bytes;
} fr_piece;

/* For or from rank i: piece[first[i]] up to piece[first[i + 1] - 1]. */
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
