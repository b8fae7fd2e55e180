/* support.h - shared by the tests of src/io: a temporary folder, files as bytes, and a small network. */
#ifndef TESTS_IO_SUPPORT_H
#define TESTS_IO_SUPPORT_H

#include <frugal/nn.h>

#include <criterion/criterion.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OK(e)        cr_assert_eq((e), FR_OK, #e ": %s", fr_last_error())
#define EXPECT_SENTENCE(part) \
    cr_expect(strstr(fr_last_error(), (part)) != NULL, "no \"%s\" in: %s", (part), fr_last_error())

/* Creates a folder under $TMPDIR, which is removed with all its content. */
extern char folder[512];
void make_folder(void);
void remove_folder(void);
/* <folder>/<name> in a rotating set of 8 buffers. */
const char *in_folder(const char *name);
/* Entries of a folder but . and .. */
int files_in(const char *path);

/* A whole file; freed by the caller. */
unsigned char *read_bytes(const char *path, size_t *n);
void write_bytes(const char *path, const void *bytes, size_t n);

/* Limits the size of files to `bytes`, as on a full disk, until the next call; RLIM_INFINITY removes the limit. */
void limit_files(size_t bytes);

/* Conv2d 3 -> 4 (3 x 3), BatchNorm2d, ReLU, Dropout 0.3, AdaptiveAvgPool2d 2 x 3, Flatten, Linear 24 -> 5: all
 * tensors with a special layout, with different height and width. */
fr_module *small_net(uint64_t seed, fr_device device);

/* Bytes of all tensors of a module; the caller frees them. */
unsigned char *module_bytes(fr_module *m, size_t *n);
bool module_equals(fr_module *m, const unsigned char *bytes, size_t n);

#endif
