/* places.c - the files and folders that a command names: two of its outputs in one file destroy each other, and an
 * output over an input destroys what cannot be made again. */
#include "base/atomic_file.h"
#include "base/status.h"
#include "cli/commands.h"

#include <string.h>
#include <sys/stat.h>

typedef struct place {
    const char *flag, *path; /* path NULL: not asked for */
} place;

/* The same file or folder, now or once it is written. Devices may be shared: nothing is lost in them. */
static bool same(const char *a, const char *b) {
    char target[2][FRI_TARGET_BYTES];
    struct stat st[2];
    if (stat(a, &st[0]) == 0 && stat(b, &st[1]) == 0)
        return st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino && !S_ISCHR(st[0].st_mode);
    return fri_file_target(a, target[0]) && fri_file_target(b, target[1]) && strcmp(target[0], target[1]) == 0;
}

fr_status fri_places_check(const fri_session *r) {
    const fr_train_opts *o = &r->config->opts;
    const bool offload = o->offload != NULL && o->offload[0] != '\0',
               latest = o->resume != NULL && strcmp(o->resume, "latest") == 0;
    const place output[] = {{"export", o->export_weights},
                            {"report", o->report},
                            {"track", o->track},
                            {"trace", o->trace},
                            {"memory-plot", o->memory_plot},
                            {"log", o->log},
                            {"csv", o->csv},
                            {"offload", offload ? o->offload : NULL}};
    const place input[] = {{"weights", o->weights}, {"resume", latest ? NULL : o->resume}, {"data", o->data}};
    enum { OUTPUTS = sizeof output / sizeof *output, INPUTS = sizeof input / sizeof *input };
    for (int i = 0; i < OUTPUTS; i++) {
        const place *p = &output[i];
        for (int k = i + 1; p->path != NULL && k < OUTPUTS; k++)
            if (output[k].path != NULL && same(p->path, output[k].path))
                return fri_fail(FR_EINVAL, "--%s %s and --%s %s are one file; each needs its own", p->flag, p->path,
                                output[k].flag, output[k].path);
        for (int k = 0; p->path != NULL && k < INPUTS; k++)
            if (input[k].path != NULL && same(p->path, input[k].path))
                return fri_fail(FR_EINVAL, "--%s %s would be written over --%s %s; name another file", p->flag, p->path,
                                input[k].flag, input[k].path);
        for (int64_t k = 0; p->path != NULL && k < o->n_predict; k++)
            if (same(p->path, o->predict[k]))
                return fri_fail(FR_EINVAL, "--%s %s would be written over --predict %s; name another file", p->flag,
                                p->path, o->predict[k]);
    }
    return FR_OK;
}
