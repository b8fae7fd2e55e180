/* check.h - from CUDA's error codes to a status and a sentence. Seen by C and by nvcc. */
#ifndef FRI_CUDA_CHECK_H
#define FRI_CUDA_CHECK_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FR_OK for cudaSuccess, else FR_ENOMEM or FR_ELIBRARY with the call's name and CUDA's message, and, where an earlier
 * kernel may be at fault (700 to 719), how to find it. Clears the sticky error, so the next call does not report the
 * error again. `code` is a cudaError_t. */
fr_status fri_cuda_check(int code, const char *call);

/* Error of the launch; with FRUGAL_SYNC=1 the call waits for the kernel and returns the kernel's error. */
fr_status fri_cuda_launched(const char *kernel);

/* True if too little device memory is free for a library's kernel. */
bool fri_cuda_memory_is_short(void);

/* FR_ENOMEM: the library lacks device memory beside the engine's; with the free bytes. */
fr_status fri_cuda_library_no_memory(const char *call, const char *library, int code);

/* The kernel has no instance for the element type. */
fr_status fri_cuda_no_type(const char *kernel, fr_dtype t);

/* FR_OK if e's workspace has the bytes of the op's *_workspace function. */
fr_status fri_cuda_workspace(const fri_exec *e, const char *kernel, size_t need);

/* `bytes` bytes at p become `value`, in stream order. */
struct fri_exec;
fr_status fri_cuda_set_bytes(const struct fri_exec *e, const char *kernel, void *p, int value, size_t bytes);

/* The device's compute stream (a cudaStream_t); NULL, CUDA's default stream, before the first use of the device. */
void *fri_cuda_stream(void);

/* Multiprocessors of the device, 1 or more. */
int fri_cuda_processors(void);

#ifdef __cplusplus
}
#endif

/* FRI_CUDART(s, StreamSynchronize, (stream)): calls through the table, checks, goes to `done` on failure. */
#define FRI_CUDART(s_, name_, args_) FR_TRY(s_, fri_cuda_check((int)fri_cudart_table->name_ args_, "cuda" #name_))

#endif
