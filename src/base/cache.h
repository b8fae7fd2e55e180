/* cache.h - the folder of measurements: $XDG_CACHE_HOME/frugal, else ~/.cache/frugal. All files may be deleted at any
 * time. */
#ifndef FRI_BASE_CACHE_H
#define FRI_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FNV-1a over bytes; `from` is FRI_HASH or an earlier result. */
#define FRI_HASH UINT64_C(14695981039346656037)
uint64_t fri_hash(uint64_t from, const void *bytes, size_t n);

/* "<folder>/<stem>-<hash of what>.txt"; `what` says for which library, device and settings the file holds. False:
 * neither variable is an absolute path. */
bool fri_cache_path(const char *stem, const char *what, char *path, size_t bytes);
/* Makes the folders above path, for the user only. Errors show at the open of the file. */
void fri_cache_make_folders(const char *path);

#endif
