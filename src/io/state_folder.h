/* state_folder.h - the folder of a run's training states: names, order and removal.
 *
 * "state-00000012-step-4000.safetensors": serial numbers grow with every save, so the newest state is the last written,
 * also after a return to an earlier step. */
#ifndef FRI_IO_STATE_FOLDER_H
#define FRI_IO_STATE_FOLDER_H

#include <frugal/io.h>

#define FRI_STATE_SERIAL_MAX INT64_C(999999999999999999) /* 18 digits */

typedef struct fri_state_file {
    char *name;
    int64_t serial;
    bool temporary; /* of an unfinished save: never a state */
} fri_state_file;

typedef struct fri_state_files {
    fri_state_file *file; /* the newest first */
    size_t n;
} fri_state_files;

/* The states and temporary files in dir. FR_EIO. */
fr_status fri_folder_list(const char *dir, fri_state_files *out);
void fri_folder_free(fri_state_files *files);

/* <dir>/<name> in path (FR_STATE_PATH_BYTES). */
fr_status fri_folder_path(const char *dir, const char *name, char *path);

/* Removes all states but the `keep` newest (0: none), and temporary files of ended processes. run > 0: ignores states
 * of other trainings and unreadable states. */
fr_status fri_folder_clean(const char *dir, int64_t keep, uint64_t run);

#endif
