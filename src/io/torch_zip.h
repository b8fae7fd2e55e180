/* torch_zip.h - the zip archive of a file of torch.save: records without compression, with right checksums. */
#ifndef FRI_IO_TORCH_ZIP_H
#define FRI_IO_TORCH_ZIP_H

#include "io/torch_file.h"

/* The end of sentences about files for Python. */
#define FRI_CURE_OF(tensors)                                                                              \
    "; in Python, safetensors.torch.save_file({k: v.contiguous() for k, v in " tensors ".items()}, NEW) " \
    "makes safetensors of the tensors"
#define FRI_CURE FRI_CURE_OF("STATE_DICT")

typedef struct fri_zip_record {
    const char *name; /* without the archive's folder; not ended by a NUL */
    size_t name_bytes, at, bytes;
    uint32_t crc;
    bool packed; /* compressed */
} fri_zip_record;

typedef struct fri_zip {
    fri_torch_read_fn *read;
    void *ctx;
    size_t bytes;
    unsigned char *directory; /* released by the caller, like `record`, also after a failure */
    fri_zip_record *record;
    size_t records;
} fri_zip;

/* Reads the directory and compares each record with its checksum. z has read, ctx and bytes. */
fr_status fri_zip_open(fri_zip *z);
/* NULL: no record of the name. */
const fri_zip_record *fri_zip_find(const fri_zip *z, const char *name, size_t bytes);
/* Reads into a new block; the caller frees *out. */
fr_status fri_zip_read(const fri_zip *z, size_t at, size_t n, unsigned char **out);
/* Continues the CRC-32 *crc over n bytes of a file of any size, read in pieces. */
fr_status fri_crc_of(fri_torch_read_fn *read, void *ctx, size_t n, size_t at, uint32_t *crc);
uint64_t fri_little_endian(const unsigned char *at, int bytes);

#endif
