/* session_files.h - files of a session: folders of states, fingerprints, formats of networks, the step log. */
#ifndef FRI_IO_SESSION_FILES_H
#define FRI_IO_SESSION_FILES_H

#include <frugal/io.h>

/* Text of a dataset for comparisons: "1347 images of 8 x 8 x 1, 10 classes, labels 1a2b3c4d, first image 5e6f7a8b".
 * Reads an image, with the errors of fr_dataset_label. */
enum { FRI_FINGERPRINT_BYTES = 200 };
fr_status fri_dataset_fingerprint(const fr_dataset *d, char text[FRI_FINGERPRINT_BYTES]);
/* True if files of weights have both names in equal letters: bytes that are no UTF-8 are written as '?'. */
bool fri_weights_names_equal(const char *a, const char *b);
/* fr_weights_info_read; FR_END without a sentence: the file has no description. */
fr_status fri_weights_info_find(const char *path, fr_weights_info *out);
/* FR_EINVAL: the path has the ending of a file of torch.save. */
fr_status fri_weights_ending(const char *path);
/* Rows of a last layer that are another's. */
enum { FRI_HEAD_ROWS = 4096 };
typedef struct fri_head_rows {
    int64_t classes;            /* rows of the other layer; 0: none is known */
    int64_t row[FRI_HEAD_ROWS]; /* for each row of the layer; -1: it stays */
    bool moved, kept;           /* a row has another place, or none; rows were copied */
} fri_head_rows;
/* fr_weights_load without the layer `head`, which gets the rows of the file's if the shapes agree (rows->kept). On meta
 * both calls compare alone. */
fr_status fri_weights_load_head(fr_module *m, const char *path, const char *head, fri_head_rows *rows);
typedef struct fri_state_folder {
    size_t states;
    char newest_model[80]; /* name of the model in the newest state; "": unreadable */
    int64_t newest_step;
} fri_state_folder;

/* Lists the states in dir. Reads file names and a single header. FR_EIO. */
fr_status fri_state_folder_get(const char *dir, fri_state_folder *out);
/* Makes dir, unless dir exists, durably. FR_EIO. */
fr_status fri_state_folder_make(const char *dir);
/* A number for fr_state.run from the model's name and the must_match settings, never 0. Different settings give
 * different numbers, equal settings the same number, so repeated trainings write equal bytes. */
uint64_t fri_state_run_of(const fr_state *state);
/* Reads the saved value of a setting (fr_state.settings); "" if the state lacks the name, or the value is longer than
 * `bytes`. Reads the header only. FR_EIO, FR_EFORMAT. */
fr_status fri_state_setting_read(const char *path, const char *name, char *value, size_t bytes);

/* Reads the step and n numbers (fr_state.numbers) of a state; numbers missing in the state stay unchanged. Reads
 * the header only. FR_EIO, FR_EFORMAT. */
fr_status fri_state_numbers_read(const char *path, int64_t *step, const fr_state_number *numbers, size_t n);

typedef struct fri_log fri_log;

/* Opens the step log, a JSON object per line. path NULL: no file. resume: the step of the state that a run resumes
 * from; later lines are cut off the file, with the lines of an evaluation at the step unless `evaluated`. -1: a
 * new file. FR_EIO names the file. */
fr_status fri_log_open(const char *path, int64_t resume, bool evaluated, fri_log **out);
void fri_log_close(fri_log **log);
/* A line, complete when the call returns. After FR_EIO (disk full) the file ends with the last complete
 * line, and later calls may succeed. */
fr_status fri_log_write(fri_log *log, const fr_log_step *step);
/* A further number, for JSONL: "test/accuracy". */
fr_status fri_log_scalar(fri_log *log, const char *tag, int64_t step, double value);

#endif
