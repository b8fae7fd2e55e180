/* places.c - the paths of a command: two outputs need two files, and an output must not overwrite an input. */
#include "trainer/command.h"
#include "session/flags.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* True if both names lead to one file or folder, now or after writing. Devices may be shared: writes are not
 * stored. */
static bool same_file(const char *a, const char *b) {
    char target[2][FRI_TARGET_BYTES];
    struct stat st[2];
    if (stat(a, &st[0]) == 0 && stat(b, &st[1]) == 0)
        return st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino && !S_ISCHR(st[0].st_mode);
    return fri_file_target(a, target[0]) && fri_file_target(b, target[1]) && strcmp(target[0], target[1]) == 0;
}

/* Path in flag f if f->file is `file`, else NULL; also NULL for --resume latest and empty values. */
static const char *path_of(const fr_flag *f, fr_flag_file file, const fr_train_opts *o) {
    const char *path = f->file == file ? *(const char *const *)fri_flag_field(f, o) : NULL;
    bool latest = f->offset == offsetof(fr_train_opts, files.resume) && path != NULL && strcmp(path, "latest") == 0;
    return latest || (path != NULL && path[0] == '\0') ? NULL : path;
}

static fr_status check_output(const fr_train_program *p, const fr_flag *f, const char *path, const fr_train_opts *o) {
    bool behind = false;
    for (const fr_flag *g = fr_flag_next(p, NULL); g != NULL; g = fr_flag_next(p, g)) {
        const char *other = behind ? path_of(g, FR_FILE_WRITTEN, o) : NULL, *read = path_of(g, FR_FILE_READ, o);
        behind |= g == f;
        if (other != NULL && same_file(path, other))
            return fr_fail(FR_EINVAL, "--%s %s and --%s %s are one file; each needs its own", f->name, path, g->name,
                           other);
        if (read != NULL && same_file(path, read))
            return fr_fail(FR_EINVAL, "--%s %s would be written over --%s %s; name another file", f->name, path,
                           g->name, read);
    }
    for (int64_t k = 0; k < o->files.n_predict; k++)
        if (same_file(path, o->files.predict[k]))
            return fr_fail(FR_EINVAL, "--%s %s would be written over --predict %s; name another file", f->name, path,
                           o->files.predict[k]);
    return FR_OK;
}

bool fri_mask_path(const fr_train_opts *o, int64_t i, char path[FRI_TARGET_BYTES]) {
    const char *slash = strrchr(o->files.predict[i], '/'), *name = slash != NULL ? slash + 1 : o->files.predict[i];
    const char *dot = strrchr(name, '.');
    const int stem = (int)(dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name));
    const int n = snprintf(path, FRI_TARGET_BYTES, "%s/%.*s.png", o->files.masks, stem, name);
    return n > 0 && n < FRI_TARGET_BYTES;
}

/* Refuses two images with one file for their masks, and a mask in the place of an input. */
static fr_status check_masks(const fr_train_program *p, const fr_flag *f, const fr_train_opts *o) {
    char mask[FRI_TARGET_BYTES], other[FRI_TARGET_BYTES];
    struct stat st;
    for (int64_t i = 0; i < o->files.n_predict; i++) {
        if (!fri_mask_path(o, i, mask))
            return fr_fail(FR_EINVAL, "--masks %s: the path of the mask of %s is too long", o->files.masks,
                           o->files.predict[i]);
        for (int64_t k = 0; k < i; k++)
            if (fri_mask_path(o, k, other) && strcmp(mask, other) == 0)
                return fr_fail(FR_EINVAL, "--masks: %s and %s would both give %s; rename one, or run twice",
                               o->files.predict[k], o->files.predict[i], mask);
        if (stat(mask, &st) == 0) FRI_TRY(check_output(p, f, mask, o));
    }
    return FR_OK;
}

fr_status fri_places_check(const fr_train_program *p, const fr_train_opts *o) {
    fr_status s = FR_OK;
    for (const fr_flag *f = fr_flag_next(p, NULL); f != NULL && s == FR_OK; f = fr_flag_next(p, f)) {
        const char *path = path_of(f, FR_FILE_WRITTEN, o);
        if (path != NULL) s = check_output(p, f, path, o);
        if (path != NULL && s == FR_OK && path == o->files.masks) s = check_masks(p, f, o);
    }
    return s;
}
