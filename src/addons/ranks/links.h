/* links.h - a library that carries bytes between the devices of several ranks, without the host's memory.
 *
 * Each process has one connection to all others. All calls are made by one thread, in the same order on all ranks.
 * Nothing waits: what open and exchange begin is over when `state` says so, on the device when a fence behind it has
 * passed. */
#ifndef FRI_RANKS_LINKS_H
#define FRI_RANKS_LINKS_H

#include <frugal/ranks.h>

enum { FRI_LINKS_ID = 128 };

typedef struct fri_links {
    /* Name of the library, "NCCL 2.28.9", in static storage; NULL: unusable, for *reason. */
    const char *(*name)(const char **reason);
    /* Made by a single rank, sent to all. */
    fr_status (*id)(char id[FRI_LINKS_ID]);
    fr_status (*open)(const char id[FRI_LINKS_ID], int rank, int size);
    /* Exchange of an engine, of device memory; queued on FRI_STREAM_RANKS. */
    fr_status (*exchange)(int size, fr_pieces out, fr_pieces in);
    /* FR_OK; FR_END: still running; else a failure since. */
    fr_status (*state)(void);
    /* abort: ranks may be gone; ends waits on the device. */
    void (*close)(bool abort);
} fri_links;

/* The library between devices of the kind; NULL: none. */
const fri_links *fri_links_of(fr_device d);

#endif
