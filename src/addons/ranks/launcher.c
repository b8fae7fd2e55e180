/* launcher.c - see launcher.h. */
#include "addons/ranks/launcher.h"

#include "base/status.h"

#include <stdlib.h>

/* Launchers and their variables. A foreign MPI library says "rank 0 of 1" without a failure, so the variables give the
 * number of ranks, and the engine must agree. Under srun with mpirun inside, both sets of variables exist and mpirun's
 * count, so mpirun comes first. */
static const struct {
    const char *name, *plugin;
    const char *rank, *size, *local_rank, *local_size;
    const char *needs; /* a further variable, required by the engine */
} launchers[] = {
    {"mpirun of Open MPI", "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"srun with PMIx", "openmpi", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "PMIX_RANK"},
    {"mpiexec of MPICH", "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
};

/* The variable's number, or `none`. */
static int number_of(const char *variable, int none) {
    const char *text = variable != NULL ? getenv(variable) : NULL;
    char *end = NULL;
    if (text == NULL || text[0] == '\0') return none;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value >= 0 && value < 1 << 24 ? (int)value : none;
}

fr_status fri_launcher_find(fri_launcher *out) {
    *out = (fri_launcher){.size = 1, .local_size = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int size = number_of(launchers[i].size, 0), rank = number_of(launchers[i].rank, -1);
        if (size < 2 || rank < 0 || rank >= size) continue;
        if (launchers[i].needs != NULL && getenv(launchers[i].needs) == NULL) continue;
        *out = (fri_launcher){.name = launchers[i].name,
                              .plugin = launchers[i].plugin,
                              .rank = rank,
                              .size = size,
                              .local_rank = number_of(launchers[i].local_rank, 0),
                              .local_size = number_of(launchers[i].local_size, 1)};
        return FR_OK;
    }
    if (number_of("SLURM_STEP_NUM_TASKS", 0) > 1 && getenv("SLURM_PROCID") != NULL)
        return fr_fail(FR_EUSAGE,
                       "srun started %d ranks that cannot find each other: add --mpi=pmix (or --mpi=pmi2), or "
                       "--ranks off for independent runs",
                       number_of("SLURM_STEP_NUM_TASKS", 0));
    return FR_OK;
}
