/* source.h - the source line that a return address belongs to, by elfutils' libdw, which is loaded then: file and line
 * where the program was compiled with -g, else the function's name. */
#ifndef FRI_VIEWS_SOURCE_H
#define FRI_VIEWS_SOURCE_H

#include <frugal/base.h>

typedef struct fri_sources fri_sources;

typedef struct fri_source_line {
    const char *file; /* NULL: not known; else of the sources, as `name` is */
    int line;
    const char *folder; /* that a relative file starts from; NULL: not known */
    const char *name;   /* of the function, or of the object that holds the address; NULL: not known */
    bool library;       /* one of frugal's own files; without a file: in the same object as frugal */
    bool memory;        /* of those: the floors that every allocation passes through */
} fri_source_line;

/* FR_ENOMEM; FR_EUNSUPPORTED: no libdw. */
fr_status fri_sources_open(fri_sources **out);
void fri_sources_close(fri_sources **s);
/* Source line of the call that returns to `address`. */
fri_source_line fri_sources_find(fri_sources *s, const void *address);

#endif
