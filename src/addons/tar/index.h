/* index.h - places of images in a tar shard, and the index file. */
#ifndef FRI_TAR_INDEX_H
#define FRI_TAR_INDEX_H

#include <frugal/data.h>

#include <stddef.h>
#include <stdint.h>

enum { FRI_TAR_BLOCK = 512, FRI_TAR_PATH = 4096, FRI_TAR_NO_LABEL = -1, FRI_TAR_LABEL_MAX = (1 << 20) - 1 };

typedef struct fri_tar_image {
    char *name;            /* path inside the shard */
    int64_t offset, bytes; /* offset of the data in the shard */
    int64_t label;         /* number of the .cls file, or FRI_TAR_NO_LABEL */
} fri_tar_image;

typedef struct fri_tar_index {
    uint64_t shard_bytes;
    fri_tar_image *image; /* in the order of the shard */
    int64_t count;
} fri_tar_index;

/* The state of an index's shard. tar fills shards up with zeros, so corrected labels may keep the size; the time
 * differs. */
typedef struct fri_tar_stamp {
    uint64_t bytes;
    char changed[48]; /* "seconds.nanoseconds" of the file's last change */
} fri_tar_stamp;

/* Reads <path>.index if the shard still has the index's size and time; else reads the shard once, and writes the index
 * if the folder permits. FR_EIO, FR_EFORMAT name the file; FR_EUNSUPPORTED: no libarchive. */
fr_status fri_tar_index_open(const char *path, fri_tar_index *out);
/* Reads the text of an index. *other: the index of a changed shard. */
fr_status fri_tar_index_parse(const char *name, const char *text, size_t bytes, const fri_tar_stamp *shard,
                              fri_tar_index *out, bool *other);
void fri_tar_index_free(fri_tar_index *x);

#endif
