/* safetensors.h - safetensors files at the host level: names, element types, shapes and bytes; no tensors.
 *
 *   u64 n, little-endian | n bytes of JSON, padded with spaces | data
 *   {"__metadata__": {key: text, ...}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *
 * A file that opens is sound: the header is at most 100 MB (the limit of the reference implementation), names are
 * valid UTF-8 and unique, every shape times its element size is its byte range, and the ranges cover the data from
 * first to last byte without hole or overlap. Anything else is FR_EFORMAT with a sentence that names the file, the
 * tensor, what was expected and what was found. Shapes and types are stored as they are given: which layout a
 * program keeps in a file is the business of the floor above. Hosts are little-endian. */
#ifndef FRI_IO_SAFETENSORS_H
#define FRI_IO_SAFETENSORS_H

#include "base/shape.h"

typedef struct fri_safetensors_entry {
    const char *name;
    fr_dtype dtype;
    fr_shape shape;
    const void *data; /* aligned to the element in files written here and by the reference implementation; the format
                       * promises no alignment, so copy with memcpy where the writer is unknown */
    size_t bytes;     /* of data. fri_safetensors_write computes it from dtype and shape and ignores this */
    size_t at;        /* where data begin, from the first byte of all data; the writer ignores this too */
} fri_safetensors_entry;

typedef struct fri_safetensors_text {
    const char *key, *value;
} fri_safetensors_text;

/* An open file: read-only, mapped, everything borrowed until close. Writers that replace the file by rename do not
 * disturb it; a writer that truncates it in place does (SIGBUS), as with every mapped file. */
typedef struct fri_safetensors {
    const fri_safetensors_entry *entries; /* in the order of their data in the file */
    size_t n_entries;
    const fri_safetensors_text *metadata; /* in the order of the header */
    size_t n_metadata;
    struct fri_safetensors_private *private;
} fri_safetensors;

/* *out (NULL or an open file) is closed and replaced; on error it is untouched.
 * errors: FR_EIO, FR_EFORMAT, FR_ENOMEM; FR_EDTYPE for an element type and FR_ESHAPE for a rank (above FR_MAX_RANK)
 * that the format has and frugal has not; FR_EINVAL. */
fr_status fri_safetensors_open(const char *path, fri_safetensors **out);
void fri_safetensors_close(fri_safetensors **file);

/* COPIED: the header alone is read and checked against the file's size; entries have no data until fri_safetensors_read
 * has copied them to host memory by ordinary reads. So a caller can compare names and shapes with what it has before
 * anything of the file's size is allocated; what happens to the file later does not matter, and one that shrinks
 * meanwhile is FR_EIO. CHECKED is COPIED, and FR_EFORMAT unless the file ends with the checksum that
 * fri_safetensors_write_checked puts there; open and read both look. */
typedef enum fri_safetensors_how {
    FRI_SAFETENSORS_MAPPED,
    FRI_SAFETENSORS_COPIED,
    FRI_SAFETENSORS_CHECKED,
} fri_safetensors_how;
fr_status fri_safetensors_open_as(const char *path, fri_safetensors_how how, fri_safetensors **out);
/* Nothing to do where the data are there. FR_EIO, FR_EFORMAT, FR_ENOMEM. */
fr_status fri_safetensors_read(fri_safetensors *file);

/* A file's content in memory, which stays the caller's and in place until close. `name` stands in messages. */
fr_status fri_safetensors_open_memory(const char *name, const void *content, size_t bytes, bool checked,
                                      fri_safetensors **out);

/* Borrowed, or NULL where the file has no such tensor or key. */
const fri_safetensors_entry *fri_safetensors_find(const fri_safetensors *file, const char *name);
const char *fri_safetensors_metadata(const fri_safetensors *file, const char *key);

/* Hands out the data of entries[index] when its turn comes, so that a writer never holds more than one tensor on the
 * host. *data is borrowed until the next call. */
typedef fr_status fri_safetensors_source_fn(void *context, size_t index, const void **data);

/* Writes all entries, larger elements first (that keeps every tensor aligned), in the given order otherwise. `source`
 * is asked for entries whose data is NULL; it may be NULL if there are none with elements. The file appears at `path`
 * complete or not at all: it is written under a temporary name in the same folder, synced and renamed, and on error
 * an older file stays as it was. errors: FR_EIO, FR_EINVAL, FR_EDTYPE, FR_ESHAPE, FR_ENOMEM, and those of source. */
fr_status fri_safetensors_write(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                const fri_safetensors_text *metadata, size_t n_metadata,
                                fri_safetensors_source_fn *source, void *context);

/* The same with one more tensor, "checksum" u8 [4], whose data end the file: the CRC-32 (zlib's), little-endian, of
 * every byte before them. So a file is checked in one pass, and it stays an ordinary safetensors file. */
#define FRI_SAFETENSORS_CHECKSUM "checksum"
enum { FRI_SAFETENSORS_CHECKSUM_BYTES = 4 };
fr_status fri_safetensors_write_checked(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                        const fri_safetensors_text *metadata, size_t n_metadata,
                                        fri_safetensors_source_fn *source, void *context);

#endif
