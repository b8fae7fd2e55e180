/* state_folder.c - see state_folder.h. */
#include "io/state_folder.h"
#include "io/state.h"

#include "base/cache.h"
#include "base/status.h"
#include "io/session_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 18 }; /* of a serial, a step or a process number: fits into 63 bits */

/* Reads digits from *at; false without digits or with too many. */
static bool take_number(const char **at, int64_t *out) {
    int64_t value = 0;
    int n = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++, n++) {
        if (n == DIGITS) return false;
        value = 10 * value + (**at - '0');
    }
    *out = value;
    return n > 0;
}

static bool take_text(const char **at, const char *text) {
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

/* A state's name, or with *process > 0 the name of the process's temporary file. */
static bool parse_name(const char *name, int64_t *serial, int64_t *process) {
    int64_t number = 0;
    *process = 0;
    if (!take_text(&name, "state-") || !take_number(&name, serial) || !take_text(&name, "-step-") ||
        !take_number(&name, &number) || !take_text(&name, ".safetensors"))
        return false;
    if (*name == '\0') return true;
    return take_text(&name, ".") && take_number(&name, process) && take_text(&name, "-") &&
           take_number(&name, &number) && strcmp(name, ".tmp") == 0 && *process > 0;
}

static int newest_first(const void *a, const void *b) {
    const fri_state_file *x = a, *y = b;
    if (x->serial != y->serial) return x->serial > y->serial ? -1 : 1;
    return strcmp(y->name, x->name);
}

static fr_status append_file(fri_state_files *files, const char *name, int64_t serial, bool temporary) {
    FRI_TRY(FRI_ROOM(files->file, files->n, "names of states"));
    char *copy = strdup(name);
    if (copy == NULL) return fr_fail(FR_ENOMEM, "no host memory for a file name");
    files->file[files->n++] = (fri_state_file){copy, serial, temporary};
    return FR_OK;
}

fr_status fri_folder_list(const char *dir, fri_state_files *out) {
    fr_status s = FR_OK;
    int64_t serial = 0, process = 0;
    *out = (fri_state_files){0};
    DIR *d = opendir(dir);
    if (d == NULL) return fr_fail(FR_EIO, "the folder '%.300s' cannot be read: %s", dir, strerror(errno));
    errno = 0;
    for (struct dirent *e = readdir(d); e != NULL; errno = 0, e = readdir(d))
        if (parse_name(e->d_name, &serial, &process)) FR_TRY(s, append_file(out, e->d_name, serial, process > 0));
    if (errno != 0) s = fr_fail(FR_EIO, "the folder '%.300s' cannot be read: %s", dir, strerror(errno));
done:
    closedir(d);
    if (s < 0)
        fri_folder_free(out);
    else if (out->n > 0)
        qsort(out->file, out->n, sizeof *out->file, newest_first);
    return s;
}

void fri_folder_free(fri_state_files *files) {
    for (size_t i = 0; i < files->n; i++) free(files->file[i].name);
    free(files->file);
    *files = (fri_state_files){0};
}

fr_status fri_folder_path(const char *dir, const char *name, char *path) {
    int n = snprintf(path, FR_STATE_PATH_BYTES, "%s/%s", dir, name);
    if (n >= 0 && n < FR_STATE_PATH_BYTES) return FR_OK;
    return fr_fail(FR_EINVAL, "the path of the folder '%.60s...' has %zu bytes, too many for names in it", dir,
                   strlen(dir));
}

static void sync_parent(const char *dir) {
    char parent[FR_STATE_PATH_BYTES];
    if (fri_folder_path(dir, "..", parent) < 0) return;
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd); /* best effort: a crash can only lose the new, empty folder */
    close(fd);
}

fr_status fri_state_folder_make(const char *dir) {
    FRI_NOT_NULL(dir);
    struct stat st;
    if (mkdir(dir, 0777) == 0) {
        sync_parent(dir);
        return FR_OK;
    }
    int why = errno;
    if (why == EEXIST && stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) return FR_OK;
    if (why == EEXIST) return fr_fail(FR_EIO, "'%.300s' is a file, expected a folder", dir);
    return fr_fail(FR_EIO, "the folder '%.300s' cannot be made: %s", dir, strerror(why));
}

static bool alive(int64_t process) {
    return process > INT32_MAX || kill((pid_t)process, 0) == 0 || errno != ESRCH;
}

static bool is_of_run(const char *path, uint64_t run) {
    fri_state_summary of;
    return run == 0 || (fri_state_summary_read(path, &of) == FR_OK && of.run == run);
}

fr_status fri_folder_clean(const char *dir, int64_t keep, uint64_t run) {
    char path[FR_STATE_PATH_BYTES];
    FRI_OWNED(fri_folder_free) fri_state_files files = {0};
    int64_t kept = 0, serial = 0, process = 0;
    fr_status s = FR_OK;
    FRI_TRY(fri_folder_list(dir, &files));
    for (size_t i = 0; i < files.n; i++) {
        const fri_state_file *f = &files.file[i];
        FRI_TRY(fri_folder_path(dir, f->name, path));
        (void)parse_name(f->name, &serial, &process);
        if (f->temporary ? process != getpid() && alive(process) : keep == 0 || !is_of_run(path, run) || ++kept <= keep)
            continue;
        if (unlink(path) != 0 && errno != ENOENT && s == FR_OK)
            s = fr_fail(FR_EIO, "the new state is saved, but the old file '%.300s' cannot be removed: %s", path,
                        strerror(errno));
    }
    return s;
}

fr_status fri_state_folder_get(const char *dir, fri_state_folder *out) {
    FRI_NOT_NULL(dir, out);
    char path[FR_STATE_PATH_BYTES];
    FRI_OWNED(fri_folder_free) fri_state_files files = {0};
    fri_state_summary newest;
    *out = (fri_state_folder){0};
    FRI_TRY(fri_folder_list(dir, &files));
    for (size_t i = files.n; i-- > 0;) {
        if (files.file[i].temporary) continue;
        out->states++;
        FRI_TRY(fri_folder_path(dir, files.file[i].name, path));
    }
    if (out->states == 0 || fri_state_summary_read(path, &newest) < 0) return FR_OK;
    memcpy(out->newest_model, newest.model, sizeof newest.model);
    out->newest_step = newest.step;
    return FR_OK;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    return fri_hash(hash, text, strlen(text) + 1);
}

uint64_t fri_state_run_of(const fr_state *state) {
    if (state == NULL) return 0;
    uint64_t hash = hash_text(FRI_HASH, state->model_name != NULL ? state->model_name : "");
    for (size_t i = 0; i < state->n_settings; i++) /* further settings may change at a resume */
        if (state->settings[i].must_match)
            hash = hash_text(hash_text(hash, state->settings[i].name), state->settings[i].value);
    return hash | 1;
}
