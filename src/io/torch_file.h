/* torch_file.h - the tensors in files of torch.save: plain state dicts, without Python.
 *
 * A file is a zip archive of stored records: a pickle with names, types and shapes, and a record of bytes per storage.
 * The pickle is read as data: values foreign to a state dict are refused by name, and no Python runs. */
#ifndef FRI_IO_TORCH_FILE_H
#define FRI_IO_TORCH_FILE_H

#include "io/safetensors.h"

/* Reads n bytes of the file at a place into `to`. */
typedef fr_status fri_torch_read_fn(void *ctx, void *to, size_t n, size_t at);

/* Tensors of a file. `at` of an entry counts from the file's first byte; names lie in `pickle`. Free both with free. */
typedef struct fri_torch_tensors {
    fri_safetensors_entry *entry;
    size_t n;
    unsigned char *pickle;
} fri_torch_tensors;

/* FR_EFORMAT: damaged; FR_EUNSUPPORTED: no plain state dict of contiguous tensors, with a line of Python for the
 * conversion; FR_ENOMEM, and failures of read. *out is empty after a failure. */
fr_status fri_torch_parse(fri_torch_read_fn *read, void *ctx, size_t bytes, fri_torch_tensors *out);

#endif
