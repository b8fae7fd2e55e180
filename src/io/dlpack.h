/* dlpack.h - the binary interface of DLPack 1, with the names and layouts of the published specification.
 *
 * Private: a program that looks inside includes the header of the DLPack project. */
#ifndef FRI_IO_DLPACK_H
#define FRI_IO_DLPACK_H

#include <frugal/dlpack.h>

enum { FRI_DL_MAJOR = 1, FRI_DL_MINOR = 0 };

enum { FRI_DL_CPU = 1 };                                                                        /* device types */
enum { FRI_DL_INT = 0, FRI_DL_UINT = 1, FRI_DL_FLOAT = 2, FRI_DL_BFLOAT = 4, FRI_DL_BOOL = 6 }; /* type codes */
#define FRI_DL_READ_ONLY UINT64_C(1)                                                            /* flag */

typedef struct fri_dl_tensor {
    void *data; /* NULL for an empty tensor */
    int32_t device_type, device_id;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes; /* elements of a vector type; 1 here */
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL (before version 1.2): compact */
    uint64_t byte_offset;
} fri_dl_tensor;

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self); /* may be NULL */
    uint64_t flags;
    fri_dl_tensor dl_tensor;
};

#endif
