/* library.h - modules: parts of the library in separate files, opened at the first use. */
#ifndef FRI_BASE_LIBRARY_H
#define FRI_BASE_LIBRARY_H

enum { FRI_MODULE_PATH = 4200 };

/* Opens libfrugal-NAME.so with dlopen's flags and returns the handle; path receives the file's name. `given`, unless
 * NULL or empty, is the file. Otherwise the module is in the folder `frugal` beside the shared library, in lib/frugal
 * beside the folder of the program, in `built` of the build folder, in the folder of the installation, or in the
 * loader's path. NULL: dlerror has the reason. */
void *fri_module_open(const char *name, const char *built, const char *given, int flags, char path[FRI_MODULE_PATH]);

#endif
