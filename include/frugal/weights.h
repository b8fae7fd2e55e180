/* weights.h - a module's tensors as a file sees them: names, order, and where PyTorch's layout differs; element types
 * and layouts on the host. */
#ifndef FRUGAL_WEIGHTS_H
#define FRUGAL_WEIGHTS_H

#include <frugal/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Entry of a weights file. Memory has the elements as [outer, spatial, channels], PyTorch as [outer, channels,
 * spatial]: a convolution's weight [K, R*S, C], or a Linear's after a Flatten [out, H*W, C]. spatial 1: the two are
 * the same. */
typedef struct fr_entry {
    char *name;
    fr_tensor *tensor; /* borrowed from the module */
    bool is_parameter;
    int64_t outer, spatial, channels;
} fr_entry;

typedef struct fr_entries {
    fr_entry *entry;
    size_t n;
} fr_entries;

/* All tensors of m in the order of the module. fr_entries_free at any stage. */
FR_API fr_status fr_entries_collect(fr_module *m, fr_entries *out);
FR_API void fr_entries_free(fr_entries *e);

/* Fills outer, spatial, channels for PyTorch's layout. FR_EINVAL names a Linear after a Flatten of unknown size. */
FR_API fr_status fr_entries_torch_layout(fr_module *m, const fr_weights_opts *opts, fr_entries *e);

/* The shape in PyTorch's layout. */
FR_API fr_shape fr_entry_torch_shape(const fr_entry *e);

#define FR_WEIGHTS_INFO_KEY "frugal.network"
/* The description as a JSON object, freed by the caller, for metadata of that name. FR_EINVAL: info cannot be read
 * back. */
FR_API fr_status fr_weights_info_text(const fr_weights_info *info, char **out);

/* *out = the format by a path's ending; NULL: none. FR_EUNSUPPORTED: the format's add-on was not built. */
FR_API fr_status fr_network_file_of(const char *path, const fr_network_file **out);

/* Bytes of the tensor to the tensor, and the version with it. Nothing on meta. */
FR_API fr_status fr_tensor_upload(const void *bytes, fr_tensor *t);

/* Addresses below may be unaligned: files promise no alignment. */

/* to[i] = from[i] for n elements. Both types float, or both equal. f64 to a half type rounds to f32 first, as
 * PyTorch. */
FR_API void fr_host_convert(const void *from, fr_dtype from_type, void *to, fr_dtype to_type, int64_t n);

/* [outer, a, b] to [outer, b, a], elements of `size` bytes. */
FR_API void fr_host_transpose(const void *from, void *to, size_t size, int64_t outer, int64_t a, int64_t b);

#ifdef __cplusplus
}
#endif
#endif
