/* addon.h - an add-on gives the library and its programs tables; they know the tables and no add-on.
 *
 * An add-on NAME is the folder src/addons/NAME. It defines `const fr_addon fr_addon_NAME`, has the public header
 * <frugal/NAME.h> and the build option -DNAME, and includes public headers only. src/addons/meson.build lists the
 * add-ons, a line each: without the folder and the line the rest builds. */
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
    const char *name;                        /* that of its folder and of its build option */
    const struct fr_model_family *models;    /* networks that fr_model makes (models.h) */
    const struct fr_network_file *files;     /* formats of files with a network (io.h) */
    fr_status (*fold)(struct fr_module **m); /* makes a network faster that only infers (fold.h); NULL: cannot */
    const struct fr_flag *flags;             /* of the trainers, with fields in fr_train_opts (train.h) */
    const struct fr_train_source *sources;   /* of images, for --dataset (train.h) */
    /* Sets the augmentation of training images (data.h) as the flags say; FR_EINVAL: a flag. */
    fr_status (*augment)(const struct fr_train_opts *o, struct fr_loader_opts *loader);
    const struct fr_view *const *views; /* of runs, NULL ends them (train.h) */
    const struct fr_rank_calls *ranks;  /* one training by several processes (extend.h) */
    int (*local_rank)(void);            /* of this process among those that a launcher started on its machine */
} fr_addon;

/* The add-ons of this build; NULL ends them. */
FR_API const fr_addon *const *fr_addons(void);
/* The add-on of this name; NULL: it was not built. */
FR_API const fr_addon *fr_addon_find(const char *name);
/* FR_EUNSUPPORTED, "WHAT needs the add-on NAME: build with -DNAME=enabled". */
FR_API fr_status fr_addon_missing(const char *what, const char *name);

/* Loads a shared library that no program is linked with, at its first use: function[i] becomes the address of name[i],
 * n of them. Later calls return at once, and any thread may call. function: zeroed static storage that belongs to this
 * library. FR_EUNSUPPORTED names the Debian package that has the file. */
FR_API fr_status fr_library_load(const char *file, const char *package, const char *const *name, void **function,
                                 int n);

#ifdef __cplusplus
}
#endif
#endif
