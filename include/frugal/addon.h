/* addon.h - an add-on fills tables of the library. The library and the programs know the tables, and no add-on by
 * name.
 *
 * An add-on NAME is the folder src/addons/NAME. The folder defines `const fr_addon fr_addon_NAME`, has the public
 * header <frugal/NAME.h> and the build option -DNAME, and includes public headers only. src/addons/meson.build lists
 * the add-ons, a line each: without the folder and the line the rest builds. */
#ifndef FRUGAL_ADDON_H
#define FRUGAL_ADDON_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fr_loader_opts;
struct fr_module;
struct fr_train_opts;

/* The tables of an add-on. Each ends with a row without a name, or as said, and is NULL where the add-on has none. */
typedef struct fr_addon {
    const char *name;                        /* name of the folder and of the build option */
    const struct fr_model_family *models;    /* networks that fr_model makes (models.h) */
    const struct fr_network_file *files;     /* formats of files with a network (io.h) */
    fr_status (*fold)(struct fr_module **m); /* makes an inference network faster (fold.h); NULL: cannot */
    const struct fr_flag *flags;             /* of the trainers, with fields in fr_train_opts (train.h) */
    const struct fr_train_source *sources;   /* of images, for --dataset (train.h) */
    /* Sets the augmentation of training images (data.h) for --augment strong: bytes: they are 8-bit images; classes:
     * their targets are classes, which a loss can share. */
    fr_status (*augment)(bool bytes, bool classes, struct fr_loader_opts *loader);
    const struct fr_view *const *views; /* of runs, NULL ends them (train.h) */
    const struct fr_rank_calls *ranks;  /* one training by several processes (extend.h) */
    int (*local_rank)(void);            /* number of the process among the launcher's processes on the machine */
} fr_addon;

/* The add-ons of the build; NULL ends the list. */
FR_API const fr_addon *const *fr_addons(void);
/* Finds an add-on by name; NULL: the add-on was not built. */
FR_API const fr_addon *fr_addon_find(const char *name);
/* FR_EUNSUPPORTED, "WHAT needs the add-on NAME: build with -DNAME=enabled". */
FR_API fr_status fr_addon_missing(const char *what, const char *name);

/* Loads a shared library at the first use, so that programs need not link it: function[i] becomes the address of
 * name[i], for n names. Later calls return at once, and any thread may call. function: zeroed static storage of the
 * library. FR_EUNSUPPORTED names the Debian package of the file. */
FR_API fr_status fr_library_load(const char *file, const char *package, const char *const *name, void **function,
                                 int n);

#ifdef __cplusplus
}
#endif
#endif
