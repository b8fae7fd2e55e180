/* source.h - the source line of a return address, by elfutils' libdw, loaded at the first use: file and line if
 * compiled with -g, else the function's name. */
#ifndef FRI_VIEWS_SOURCE_H
#define FRI_VIEWS_SOURCE_H

#include <frugal/base.h>

typedef struct fri_sources fri_sources;

typedef struct fri_source_line {
    const char *file; /* NULL: not known; else of the sources, as `name` is */
    int line;
    const char *folder; /* folder of relative files; NULL: unknown */
    const char *name;   /* of the function, or of the object; NULL: unknown */
    bool library;       /* a file of frugal; without a file: in frugal's object */
    bool memory;        /* of frugal's files: floors of every allocation */
} fri_source_line;

/* FR_ENOMEM; FR_EUNSUPPORTED: no libdw. */
fr_status fri_sources_open(fri_sources **out);
void fri_sources_close(fri_sources **s);
/* Source line of the call before the return `address`. */
fri_source_line fri_sources_find(fri_sources *s, const void *address);

#endif
