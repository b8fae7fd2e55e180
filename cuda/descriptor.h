/* descriptor.h - cuDNN's descriptors: made, filled, finalized, each step checked. */
#ifndef FRI_CUDA_DESCRIPTOR_H
#define FRI_CUDA_DESCRIPTOR_H

#include "base/status.h"

#include "cudnn.h"

/* Call that the descriptors belong to. */
typedef struct fri_cudnn_call {
    const fri_cudnn *dnn;
    const char *name; /* for messages */
} fri_cudnn_call;

static inline fr_status fri_descriptor_make(fri_cudnn_call c, cudnnBackendDescriptorType_t type,
                                            cudnnBackendDescriptor_t *out) {
    return fri_cudnn_check(c.dnn, c.dnn->BackendCreateDescriptor(type, out), c.name);
}

static inline fr_status fri_descriptor_set(fri_cudnn_call c, cudnnBackendDescriptor_t d,
                                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                           int64_t n, const void *values) {
    return fri_cudnn_check(c.dnn, c.dnn->BackendSetAttribute(d, name, type, n, values), c.name);
}

static inline fr_status fri_descriptor_set_child(fri_cudnn_call c, cudnnBackendDescriptor_t d,
                                                 cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t child) {
    return fri_descriptor_set(c, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

/* *n: values written; may be fewer than asked for. */
static inline fr_status fri_descriptor_get(fri_cudnn_call c, cudnnBackendDescriptor_t d,
                                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                           int64_t most, int64_t *n, void *values) {
    return fri_cudnn_check(c.dnn, c.dnn->BackendGetAttribute(d, name, type, most, n, values), c.name);
}

static inline fr_status fri_descriptor_finalize(fri_cudnn_call c, cudnnBackendDescriptor_t d) {
    return fri_cudnn_check(c.dnn, c.dnn->BackendFinalize(d), c.name);
}

static inline void fri_descriptor_destroy(const fri_cudnn *dnn, cudnnBackendDescriptor_t *d) {
    if (*d != NULL) dnn->BackendDestroyDescriptor(*d);
    *d = NULL;
}

#endif
