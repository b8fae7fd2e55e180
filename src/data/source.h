/* source.h - bytes from a file or from memory, plain or gzip, read up to an amount known beforehand.
 *
 * A reader takes the header, computes the promised bytes, asks fri_source_expect whether the stored data can hold them,
 * and only then allocates. So a small hostile file never makes a large allocation, and a gzip bomb is never
 * inflated past the promise. */
#ifndef FRI_DATA_SOURCE_H
#define FRI_DATA_SOURCE_H

#include <frugal/base.h>

#include <stdint.h>
#include <zlib.h>

typedef struct fri_source {
    const char *name;   /* borrowed; stands in messages */
    int fd;             /* of a file; -1: memory */
    uint64_t stored;    /* bytes of the file or the memory */
    uint64_t delivered; /* bytes handed out so far */
    bool gzip, inflating, at_end;
    z_stream z; /* next_in, avail_in also serve plain sources */
    uint8_t chunk[16384];
} fri_source;

/* FR_EIO: cannot be opened, or no regular file. No close is needed after a failure. */
fr_status fri_source_open_file(fri_source *s, const char *path);
fr_status fri_source_open_memory(fri_source *s, const char *name, const void *bytes, size_t n);
void fri_source_close(fri_source *s);

/* FR_EFORMAT if the stored data cannot hold `bytes` more: `what` ("60000 images of 28 x 28") names the promise. */
fr_status fri_source_expect(const fri_source *s, uint64_t bytes, const char *what);

/* Exactly n bytes; FR_EFORMAT, naming both numbers, when the source ends before. */
fr_status fri_source_read(fri_source *s, void *to, size_t n);

/* FR_EFORMAT if data are left; checks a gzip stream's checksum. */
fr_status fri_source_end(fri_source *s);

#endif
