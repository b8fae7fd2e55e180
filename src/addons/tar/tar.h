/* tar.h - images in tar shards (add-on tar). */
#ifndef FRUGAL_TAR_H
#define FRUGAL_TAR_H

#include <frugal/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* JPEG and PNG images in tar shards, as WebDataset writes them: plain tar, not compressed. `pattern` is a path, one
 * with a range in braces ("train-{000000..001281}.tar"), or one with * and ?. "key.cls" beside "key.jpg" holds the
 * class's number; where no image has one, an image's folder names its class, numbered as fr_dataset_image_folder does
 * it. Images are numbered in the byte order of their names over all shards: shards made from a folder give its batches.
 * A shard's headers are read once and kept in <shard>.index, where the folder can be written; an image is then one read
 * at its offset. FR_EIO, FR_EFORMAT name shard and image; FR_EUNSUPPORTED: a shard without an index, and libarchive
 * (package libarchive13) is not there. */
FR_API fr_status fr_dataset_tar(const char *pattern, fr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
