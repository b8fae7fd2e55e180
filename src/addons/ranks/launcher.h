/* launcher.h - the launcher's environment variables. */
#ifndef FRI_RANKS_LAUNCHER_H
#define FRI_RANKS_LAUNCHER_H

#include <frugal/base.h>
#include <stdbool.h>

typedef struct fri_launcher {
    const char *name;   /* "mpirun (Open MPI)"; NULL: no launcher */
    const char *plugin; /* last part of the engine's name: "openmpi", "mpich" */
    int rank, size, local_rank, local_size;
} fri_launcher;

/* FR_EUSAGE: the launcher's ranks cannot find each other; the sentence names a working launcher. */
fr_status fri_launcher_find(fri_launcher *out);

#endif
