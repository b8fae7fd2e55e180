/* index.h - where the images of one tar shard lie, and the file beside it that remembers. */
#ifndef FRI_TAR_INDEX_H
#define FRI_TAR_INDEX_H

#include <frugal/data.h>

#include <stddef.h>
#include <stdint.h>

enum { FRI_TAR_BLOCK = 512, FRI_TAR_PATH = 4096, FRI_TAR_NO_LABEL = -1, FRI_TAR_LABEL_MAX = (1 << 20) - 1 };

typedef struct fri_tar_image {
    char *name;            /* its path inside of the shard */
    int64_t offset, bytes; /* of its data in the shard */
    int64_t label;         /* its .cls file's number, or FRI_TAR_NO_LABEL */
} fri_tar_image;

typedef struct fri_tar_index {
    uint64_t shard_bytes;
    fri_tar_image *image; /* in the order of the shard */
    int64_t count;
} fri_tar_index;

/* The state of a shard that an index was made from. tar fills shards up with zeros, so corrected labels leave the size
 * as it was: the time tells. */
typedef struct fri_tar_stamp {
    uint64_t bytes;
    char changed[48]; /* "seconds.nanoseconds" of the file's last change */
} fri_tar_stamp;

/* Reads <path>.index if the shard still has the size and time that the index names; else reads the shard once, and
 * writes the index where the folder permits. FR_EIO, FR_EFORMAT name the file; FR_EUNSUPPORTED: libarchive is not
 * there. */
fr_status fri_tar_index_open(const char *path, fri_tar_index *out);
/* The text of an index. *other: it is one of a shard in another state. */
fr_status fri_tar_index_parse(const char *name, const char *text, size_t bytes, const fri_tar_stamp *shard,
                              fri_tar_index *out, bool *other);
void fri_tar_index_free(fri_tar_index *x);

#endif
