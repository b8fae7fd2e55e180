/* entries.h - a module's tensors as a file sees them: names, order, and where PyTorch's layout differs. */
#ifndef FRI_IO_ENTRIES_H
#define FRI_IO_ENTRIES_H

#include "tensor/tensor.h"

#include <frugal/io.h>

/* In memory the elements are [outer, spatial, channels], in PyTorch [outer, channels, spatial]: a convolution's weight
 * [K, R*S, C], or a Linear's behind a Flatten [out, H*W, C]. spatial 1: the two are the same. */
typedef struct fri_entry {
    char *name;
    fr_tensor *tensor; /* borrowed from the module */
    bool is_parameter;
    int64_t outer, spatial, channels;
} fri_entry;

typedef struct fri_entries {
    fri_entry *entry;
    size_t n;
} fri_entries;

/* All tensors of m in the order of the module. fri_entries_free at any stage. */
fr_status fri_entries_collect(fr_module *m, fri_entries *out);
void fri_entries_free(fri_entries *e);

/* Fills outer, spatial, channels for PyTorch's layout. FR_EINVAL names a Linear behind a Flatten of unknown size. */
fr_status fri_entries_torch_layout(fr_module *m, const fr_weights_opts *opts, fri_entries *e);

/* The shape in PyTorch's layout. */
fr_shape fri_entry_torch_shape(const fri_entry *e);

/* Bytes of the tensor to the tensor, and the version with it. Nothing on meta. */
fr_status fri_upload(const void *bytes, fr_tensor *t);

/* *buffer holds at least `bytes`; what it held is lost. */
fr_status fri_scratch(void **buffer, size_t *capacity, size_t bytes);

#endif
