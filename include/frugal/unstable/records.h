/* records.h - an array of records of one size that is written once, in order, and then read by any thread: in memory,
 * or in a file that is mapped.
 *
 * Unstable: see frugal/unstable.h. The file is a header of 64 bytes (what made the records, how many, their size, their
 * checksum) and the records; it appears under its name complete, or not at all. Numbers are in the machine's order. */
#ifndef FRUGAL_UNSTABLE_RECORDS_H
#define FRUGAL_UNSTABLE_RECORDS_H

#include <frugal/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_records fr_records;

typedef struct fr_records_opts {
    const char *path; /* NULL: a tensor of the category input */
    fr_device device; /* of it: FR_CPU; FR_META: nothing is kept */
    int64_t count;    /* of records, at least 1 */
    size_t bytes;     /* of each, at least 1 */
    uint64_t made_by; /* what distinguishes those who make others (fr_records_hash) */
} fr_records_opts;

#define FR_RECORDS_HASH UINT64_C(14695981039346656037)
/* FNV-1a; `from` is FR_RECORDS_HASH or an earlier result. */
FR_API uint64_t fr_records_hash(uint64_t from, const void *bytes, size_t n);

/* Without records; or, where there is a file of this name, with all of its. FR_EFORMAT: it is damaged, or no file of
 * records; FR_EINVAL: others made it; FR_EIO. */
FR_API fr_status fr_records_create(const fr_records_opts *opts, fr_records **out);
/* Accepts a pointer to NULL. A file that is not complete goes. */
FR_API void fr_records_release(fr_records **records);

/* n more, behind those that there are. FR_EIO; FR_EUSAGE: that would be more than there is room for. */
FR_API fr_status fr_records_append(fr_records *records, const void *data, int64_t n);
/* All are there, and can be read from now on. FR_EIO; FR_EUSAGE: some are missing. */
FR_API fr_status fr_records_finish(fr_records *records);
/* Forgets those that were appended. FR_EIO. */
FR_API fr_status fr_records_restart(fr_records *records);
FR_API bool fr_records_complete(const fr_records *records);
/* Record i < count of complete ones. */
FR_API const void *fr_records_at(const fr_records *records, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
