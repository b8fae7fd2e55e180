/* safetensors.h - safetensors files at the host level: names, element types, shapes and bytes; no tensors.
 *
 *   u64 n, little-endian | n bytes of JSON, padded with spaces | data
 *   {"__metadata__": {key: text, ...}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *
 * A successful open guarantees: the header is at most 100 MB (the limit of the reference implementation), names are
 * valid UTF-8 and unique, every shape times element size is the byte range, and the ranges cover the data from first to
 * last byte without hole or overlap. Violations are FR_EFORMAT with file, tensor, expected and found value. Shapes and
 * types are stored unchanged; the layout is up to the caller. Hosts are little-endian. */
#ifndef FRI_IO_SAFETENSORS_H
#define FRI_IO_SAFETENSORS_H

#include "base/shape.h"

typedef struct fri_safetensors_entry {
    const char *name;
    fr_dtype dtype;
    fr_shape shape;
    const void *data; /* aligned to the element in files of frugal and of the reference implementation; the format
                       * promises no alignment, so use memcpy for foreign files */
    size_t bytes;     /* of data; fri_safetensors_write computes the size and ignores the member */
    size_t at;        /* offset of data from the first byte of all data; the writer ignores the member */
} fri_safetensors_entry;

typedef struct fri_safetensors_text {
    const char *key, *value;
} fri_safetensors_text;

/* An open file: read-only, mapped, all pointers borrowed until close. Replacing the file by rename is safe; truncating
 * the file in place is not (SIGBUS), as with every mapped file. */
typedef struct fri_safetensors {
    const fri_safetensors_entry *entries; /* in the order of data in the file */
    size_t n_entries;
    const fri_safetensors_text *metadata; /* in the order of the header */
    size_t n_metadata;
    struct fri_safetensors_private *private;
} fri_safetensors;

/* *out (NULL or an open file) is closed and replaced; on error *out is untouched.
 * errors: FR_EIO, FR_EFORMAT, FR_ENOMEM; FR_EDTYPE for an element type and FR_ESHAPE for a rank (above FR_MAX_RANK)
 * unknown to frugal; FR_EINVAL. */
fr_status fri_safetensors_open(const char *path, fri_safetensors **out);
void fri_safetensors_close(fri_safetensors **file);

/* COPIED: reads only the header and checks the file's size; fri_safetensors_read later copies the data to host memory
 * by ordinary reads. So a caller can compare names and shapes before allocating memory of the file's size; later
 * changes of the file do not matter, and a shrinking file is FR_EIO. CHECKED: COPIED, and FR_EFORMAT unless the file
 * ends with the checksum of fri_safetensors_write_checked; open and read both check. */
typedef enum fri_safetensors_how {
    FRI_SAFETENSORS_MAPPED,
    FRI_SAFETENSORS_COPIED,
    FRI_SAFETENSORS_CHECKED,
} fri_safetensors_how;
fr_status fri_safetensors_open_as(const char *path, fri_safetensors_how how, fri_safetensors **out);
/* No-op if the data are available. FR_EIO, FR_EFORMAT, FR_ENOMEM. */
fr_status fri_safetensors_read(fri_safetensors *file);

/* Opens a file's content in the caller's memory, which must stay in place until close. Messages use `name`. */
fr_status fri_safetensors_open_memory(const char *name, const void *content, size_t bytes, bool checked,
                                      fri_safetensors **out);

/* Borrowed, or NULL if the file lacks the tensor or key. */
const fri_safetensors_entry *fri_safetensors_find(const fri_safetensors *file, const char *name);
const char *fri_safetensors_metadata(const fri_safetensors *file, const char *key);

/* Returns the data of entries[index] on demand, so a writer holds at most a single tensor on the host. *data is
 * borrowed until the next call. */
typedef fr_status fri_safetensors_source_fn(void *context, size_t index, const void **data);

/* Writes all entries, larger elements first (for alignment), otherwise in the given order. Entries with NULL data and
 * elements come from `source`. The file appears at `path` complete or not at all (base/atomic_file.h); on error an
 * older file stays unchanged. errors: FR_EIO, FR_EINVAL, FR_EDTYPE, FR_ESHAPE, FR_ENOMEM, and those of source. */
fr_status fri_safetensors_write(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                const fri_safetensors_text *metadata, size_t n_metadata,
                                fri_safetensors_source_fn *source, void *context);

/* Likewise with a further tensor, u8 [4], at the end of the file: the CRC-32 (zlib's), little-endian, of every byte
 * before. So a single pass checks a file, and the file is ordinary safetensors. */
#define FRI_SAFETENSORS_CHECKSUM "checksum"
enum { FRI_SAFETENSORS_CHECKSUM_BYTES = 4 };
fr_status fri_safetensors_write_checked(const char *path, const fri_safetensors_entry *entries, size_t n_entries,
                                        const fri_safetensors_text *metadata, size_t n_metadata,
                                        fri_safetensors_source_fn *source, void *context);

#endif
