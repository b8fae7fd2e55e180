/* tfevents.h - TensorBoard's event files: scalars only.
 *
 *   record   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data     (TFRecord)
 *   data     an Event (tensorflow/core/util/event.proto): wall_time = 1, step = 2, file_version = 3, summary = 5,
 *            session_log = 7; a Summary's value = 1 with tag = 1, simple_value = 2
 *
 * A record is written by one call, and a failed one is cut off again. */
#ifndef FRI_IO_TFEVENTS_H
#define FRI_IO_TFEVENTS_H

#include <frugal/base.h>

typedef struct fri_tfevents {
    int fd;
    char *path;
    int64_t bytes; /* complete so far */
} fri_tfevents;

/* A new file in `folder`, which is made if its parent exists. purge_from >= 0: TensorBoard forgets what earlier files
 * of the folder say about this step and later ones. FR_EIO names the file. */
fr_status fri_tfevents_open(const char *folder, int64_t purge_from, fri_tfevents *out);
void fri_tfevents_close(fri_tfevents *t);

typedef struct fri_scalar {
    const char *tag;
    double value; /* kept as f32 */
} fri_scalar;

fr_status fri_tfevents_write(fri_tfevents *t, int64_t step, const fri_scalar *scalars, size_t n);

/* CRC-32C (Castagnoli): 0xe3069283 for "123456789". */
uint32_t fri_crc32c(const void *data, size_t n);

#endif
