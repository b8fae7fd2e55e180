/* launcher.h - what the program that started this one as a rank says in the environment. */
#ifndef FRI_RANKS_LAUNCHER_H
#define FRI_RANKS_LAUNCHER_H

#include <frugal/base.h>
#include <stdbool.h>

typedef struct fri_launcher {
    const char *name;   /* "mpirun (Open MPI)"; NULL: nobody started several ranks */
    const char *plugin; /* the last part of its engine's name: "openmpi", "mpich" */
    int rank, size, local_rank, local_size;
} fri_launcher;

/* FR_EUSAGE: a launcher whose ranks cannot find each other; the sentence says which one can. */
fr_status fri_launcher_find(fri_launcher *out);

#endif
