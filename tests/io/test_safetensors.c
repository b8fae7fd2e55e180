/* test_safetensors.c - written files are read back; unsound files are refused with a sentence; nothing leaks.
 *
 * Files are in a temporary folder under $TMPDIR. Hostile headers are written byte by byte, never by the library. */
#include "io/safetensors.h"

#include "base/status.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static char folder[512];
static char path[600];

static void make_folder(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/frugal-safetensors-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
}

static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}

/* The writer's temporary names are gone, also after a failure. */
static void expect_files(int expected) {
    DIR *d = opendir(folder);
    int n = 0;
    cr_assert(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    cr_expect_eq(n, expected, "%d files in '%s', expected %d: a temporary one was left behind", n, folder, expected);
}

TestSuite(safetensors, .init = make_folder, .fini = remove_folder);

static void write_bytes(const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL);
    cr_assert_eq(fwrite(data, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}

/* Writes a file with this header (n bytes, may contain a NUL) and `data_bytes` zero bytes of data. */
static void write_header(const char *header, size_t n, size_t data_bytes) {
    unsigned char *file = calloc(1, 8 + n + data_bytes);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(file + 8, header, n);
    write_bytes(file, 8 + n + data_bytes);
    free(file);
}

static void expect_refused(fr_status expected, const char *sentence_part) {
    fri_safetensors *f = NULL;
    fr_status s = fri_safetensors_open(path, &f);
    cr_expect_eq(s, expected, "%s, expected %s; the sentence: %s", fr_status_name(s), fr_status_name(expected),
                 fr_last_error());
    cr_expect(f == NULL);
    cr_expect(strstr(fr_last_error(), path) != NULL, "no file name in: %s", fr_last_error());
    cr_expect(strstr(fr_last_error(), sentence_part) != NULL, "no \"%s\" in: %s", sentence_part, fr_last_error());
    fri_safetensors_close(&f);
}

static const float three[3] = {1.5f, -2.0f, 0x1p-149f};
static const double numbers[6] = {0, 1, -1, 1e300, -1e-300, 0.1};
static const uint16_t halves[4] = {0x3c00, 0x7bff, 0x0001, 0xfc00};
static const int64_t longs[2] = {INT64_MIN, INT64_MAX};
static const int32_t ints[2] = {INT32_MIN, INT32_MAX};
static const int16_t shorts[3] = {-32768, 0, 32767};
static const int8_t chars[3] = {-128, 0, 127};
static const uint8_t bytes[5] = {0, 1, 2, 254, 255};
static const uint8_t bools[2] = {1, 0};

/* A tensor of every type, a scalar, an empty tensor, all ranks, and names with JSON escapes. */
static const fri_safetensors_entry sample[] = {
    {.name = "u8", .dtype = FR_U8, .shape = {1, {5}}, .data = bytes},
    {.name = "features.0.weight", .dtype = FR_F32, .shape = {2, {3, 1}}, .data = three},
    {.name = "bool", .dtype = FR_BOOL, .shape = {3, {1, 2, 1}}, .data = bools},
    {.name = "f64", .dtype = FR_F64, .shape = {2, {2, 3}}, .data = numbers},
    {.name = "f16", .dtype = FR_F16, .shape = {4, {1, 2, 2, 1}}, .data = halves},
    {.name = "bf16", .dtype = FR_BF16, .shape = {1, {4}}, .data = halves},
    {.name = "i64", .dtype = FR_I64, .shape = {1, {2}}, .data = longs},
    {.name = "scalar", .dtype = FR_I32, .shape = {.rank = 0}, .data = ints},
    {.name = "i32", .dtype = FR_I32, .shape = {6, {1, 1, 2, 1, 1, 1}}, .data = ints},
    {.name = "i16", .dtype = FR_I16, .shape = {1, {3}}, .data = shorts},
    {.name = "i8", .dtype = FR_I8, .shape = {1, {3}}, .data = chars},
    {.name = "empty", .dtype = FR_F32, .shape = {3, {4, 0, 2}}, .data = NULL},
    {.name = "", .dtype = FR_I8, .shape = {1, {1}}, .data = chars},
    {.name = "a \"quoted\"\\\n\tna\x01me \xc3\xa9\xf0\x9f\x8c\xb1", .dtype = FR_U8, .shape = {1, {1}}, .data = bytes},
};
static const fri_safetensors_text sample_metadata[] = {
    {"format", "pt"},
    {"", "an empty key"},
    {"note", "line one\nline \"two\" \xc3\xbc"},
    {"empty", ""},
};

static void write_sample(void) {
    fr_status s =
        fri_safetensors_write(path, sample, COUNT(sample), sample_metadata, COUNT(sample_metadata), NULL, NULL);
    cr_assert_eq(s, FR_OK, "%s", fr_last_error());
}

static void expect_sample(const fri_safetensors *f) {
    cr_expect_eq(f->n_entries, COUNT(sample));
    for (size_t i = 0; i < COUNT(sample); i++) {
        const fri_safetensors_entry *want = &sample[i], *got = fri_safetensors_find(f, want->name);
        size_t size = (size_t)fri_shape_numel(&want->shape) * fr_dtype_size(want->dtype);
        cr_assert(got != NULL, "no tensor '%s'", want->name);
        cr_expect_str_eq(got->name, want->name);
        cr_expect_eq(got->dtype, want->dtype, "'%s' is %s", want->name, fr_dtype_name(got->dtype));
        cr_expect(fri_shape_equal(&got->shape, &want->shape), "'%s' has another shape", want->name);
        cr_expect_eq(got->bytes, size, "'%s' has %zu bytes, expected %zu", want->name, got->bytes, size);
        cr_expect_eq((uintptr_t)got->data % fr_dtype_size(want->dtype), 0, "'%s' is not aligned", want->name);
        cr_expect(size == 0 || memcmp(got->data, want->data, size) == 0, "'%s' has other data", want->name);
    }
    cr_expect_eq(f->n_metadata, COUNT(sample_metadata));
    for (size_t i = 0; i < COUNT(sample_metadata); i++) {
        const char *got = fri_safetensors_metadata(f, sample_metadata[i].key);
        cr_assert(got != NULL, "no metadata '%s'", sample_metadata[i].key);
        cr_expect_str_eq(got, sample_metadata[i].value);
    }
    cr_expect(fri_safetensors_find(f, "no such tensor") == NULL);
    cr_expect(fri_safetensors_metadata(f, "no such key") == NULL);
}

Test(safetensors, reads_back_what_it_wrote) {
    fri_safetensors *f = NULL;
    write_sample();
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    expect_sample(f);
    expect_files(1);
    for (size_t i = 1; i < f->n_entries; i++)
        cr_expect(f->entries[i - 1].data <= f->entries[i].data, "entries are in the order of their data");
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    cr_expect_eq(st.st_mode & 0777, 0666 & ~mask, "mode is %o", (unsigned)st.st_mode & 0777);
    fri_safetensors_close(&f);
    cr_expect(f == NULL);
}

Test(safetensors, holds_nothing) {
    fri_safetensors *f = NULL;
    cr_assert_eq(fri_safetensors_write(path, NULL, 0, NULL, 0, NULL, NULL), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    cr_expect_eq(f->n_entries, 0);
    cr_expect_eq(f->n_metadata, 0);
    cr_expect(fri_safetensors_find(f, "x") == NULL);
    fri_safetensors_close(&f);
}

Test(safetensors, open_file_survives_a_new_one_at_its_name) {
    fri_safetensors *f = NULL;
    write_sample();
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fri_safetensors_write(path, NULL, 0, NULL, 0, NULL, NULL), FR_OK, "%s", fr_last_error());
    expect_sample(f);
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    cr_expect_eq(f->n_entries, 0, "the slot holds the new file");
    fri_safetensors_close(&f);
}

/* Uses one buffer for all tensors: the value of every element is the tensor's index. */
typedef struct source_state {
    float buffer[4];
    int calls, fail_at;
} source_state;

static fr_status indices(void *context, size_t index, const void **data) {
    source_state *state = context;
    if (state->calls++ == state->fail_at) return fr_fail(FR_ELIBRARY, "the source gave up");
    for (int i = 0; i < 4; i++) state->buffer[i] = (float)index;
    *data = state->buffer;
    return FR_OK;
}

static const fri_safetensors_entry without_data[] = {
    {.name = "a", .dtype = FR_F32, .shape = {1, {4}}},
    {.name = "b", .dtype = FR_F32, .shape = {1, {0}}},
    {.name = "c", .dtype = FR_F32, .shape = {2, {2, 2}}},
};

Test(safetensors, source_gives_one_tensor_at_a_time) {
    source_state state = {.fail_at = -1};
    fri_safetensors *f = NULL;
    cr_assert_eq(fri_safetensors_write(path, without_data, 3, NULL, 0, indices, &state), FR_OK, "%s", fr_last_error());
    cr_expect_eq(state.calls, 2, "an empty tensor is not asked for");
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(((const float *)fri_safetensors_find(f, "a")->data)[i], 0.0f);
        cr_expect_eq(((const float *)fri_safetensors_find(f, "c")->data)[i], 2.0f);
    }
    fri_safetensors_close(&f);
}

static void expect_old_file(void) {
    fri_safetensors *f = NULL;
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    expect_sample(f);
    fri_safetensors_close(&f);
    expect_files(1);
}

Test(safetensors, failed_source_leaves_the_old_file) {
    source_state state = {.fail_at = 1};
    write_sample();
    cr_expect_eq(fri_safetensors_write(path, without_data, 3, NULL, 0, indices, &state), FR_ELIBRARY);
    cr_expect(strstr(fr_last_error(), "the source gave up") != NULL, "%s", fr_last_error());
    expect_old_file();
}

Test(safetensors, full_disk_leaves_the_old_file) {
    static const char big[100000];
    const fri_safetensors_entry e = {.name = "big", .dtype = FR_U8, .shape = {1, {sizeof big}}, .data = big};
    struct rlimit limit;
    write_sample();
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = {.rlim_cur = 50000, .rlim_max = limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    fr_status s = fri_safetensors_write(path, &e, 1, NULL, 0, NULL, NULL);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(s, FR_EIO);
    cr_expect(strstr(fr_last_error(), "cannot be written") != NULL, "%s", fr_last_error());
    expect_old_file();
}

Test(safetensors, writer_refuses) {
    const fri_safetensors_entry good = {.name = "x", .dtype = FR_U8, .shape = {1, {1}}, .data = bytes};
    fri_safetensors_entry two[2] = {good, good};
    const fri_safetensors_text keys[2] = {{"k", "1"}, {"k", "2"}}, no_value = {"k", NULL}, bad_text = {"k", "\xff"};
    cr_expect_eq(fri_safetensors_write(path, two, 2, NULL, 0, NULL, NULL), FR_EINVAL, "a name twice");
    cr_expect_eq(fri_safetensors_write(path, two, 1, keys, 2, NULL, NULL), FR_EINVAL, "a key twice");
    cr_expect_eq(fri_safetensors_write(path, two, 1, &no_value, 1, NULL, NULL), FR_EINVAL, "a NULL value");
    cr_expect_eq(fri_safetensors_write(path, two, 1, &bad_text, 1, NULL, NULL), FR_EINVAL, "bad UTF-8");
    two[0].name = "__metadata__";
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_EINVAL, "the reserved name");
    two[0].name = NULL;
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_EINVAL, "a NULL name");
    two[0].name = "\xed\xa0\x80";
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_EINVAL, "a surrogate in UTF-8");
    two[0] = good;
    two[0].data = NULL;
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_EINVAL, "no data and no source");
    two[0] = good;
    two[0].dtype = (fr_dtype)99;
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_EDTYPE);
    two[0] = good;
    two[0].shape.dim[0] = -1;
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_ESHAPE, "a negative dimension");
    two[0].shape = (fr_shape){2, {INT64_MAX / 2, 3}};
    cr_expect_eq(fri_safetensors_write(path, two, 1, NULL, 0, NULL, NULL), FR_ESHAPE, "a product that overflows");
    two[0].shape = two[1].shape = (fr_shape){1, {INT64_MAX / 2 + 1}};
    two[1].name = "y";
    cr_expect_eq(fri_safetensors_write(path, two, 2, NULL, 0, NULL, NULL), FR_ESHAPE, "a sum that overflows");
    cr_expect_eq(fri_safetensors_write(NULL, &good, 1, NULL, 0, NULL, NULL), FR_EINVAL);
    cr_expect_eq(fri_safetensors_write(path, NULL, 1, NULL, 0, NULL, NULL), FR_EINVAL);
    cr_expect_eq(fri_safetensors_write(path, NULL, 0, NULL, 1, NULL, NULL), FR_EINVAL);
    cr_expect_eq(fri_safetensors_write("/no/such/folder/x", &good, 1, NULL, 0, NULL, NULL), FR_EIO);
    cr_expect(strstr(fr_last_error(), "/no/such/folder/x") != NULL, "%s", fr_last_error());
    cr_expect_eq(fri_safetensors_write(folder, &good, 1, NULL, 0, NULL, NULL), FR_EIO, "a folder has that name");
    expect_files(0);
}

Test(safetensors, reader_refuses_what_is_no_file) {
    fri_safetensors *f = NULL;
    cr_expect_eq(fri_safetensors_open(NULL, &f), FR_EINVAL);
    cr_expect_eq(fri_safetensors_open(path, NULL), FR_EINVAL);
    expect_refused(FR_EIO, "No such file");
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_refused(FR_EIO, "not a regular file");
    cr_expect_eq(fri_safetensors_open(folder, &f), FR_EIO);
    cr_expect(f == NULL);
}

/* Typical files wrongly used as weights, with their real first bytes. */
Test(safetensors, reader_says_what_other_files_are) {
    static const struct {
        const char *bytes, *says;
        size_t n;
    } files[] = {
        {"PK\3\4\0\0\x8\x8\0\0\0\0archive/data.pkl", "a zip archive without its end: the file is damaged", 28},
        {"\x80\2}q\0(X\1\0\0\0wq\1", "is no safetensors file but a Python pickle", 14},
        {"\x80\5\x95\x0d\0\0\0\0\0\0\0]q", "is no safetensors file but a Python pickle", 13},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "is no safetensors file but a git-lfs pointer",
         57},
        {"\xff\xd8\xff\xe0\0\x10JFIF", "is no safetensors file but a JPEG image", 10},
        {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no safetensors file but a PNG image", 16},
        {"<!DOCTYPE html><html>", "is no safetensors file but a page of HTML or XML", 21},
        {"\x1f\x8b\x8\0\0\0\0\0\0\3", "is no safetensors file but compressed by gzip", 10},
        {"\x89HDF\r\n\x1a\n\0", "is no safetensors file but an HDF5 file", 9},
        {"\x93NUMPY\1\0v\0", "is no safetensors file but a NumPy array", 10},
        {"GGUF\3\0\0\0\xc1\0\0\0", "is no safetensors file but a GGUF file", 12},
        {"epoch 1: loss 2.3\n",
         "is no safetensors file: its first 8 bytes claim a header of 4193168360775577701 bytes; "
         "at most 100000000 are allowed",
         18},
    };
    for (size_t i = 0; i < COUNT(files); i++) {
        write_bytes(files[i].bytes, files[i].n);
        expect_refused(FR_EFORMAT, files[i].says);
    }
}

Test(safetensors, reader_refuses_every_truncation) {
    unsigned char *whole = NULL;
    write_sample();
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    rewind(file);
    whole = malloc(size + 1);
    cr_assert_eq(fread(whole, 1, size, file), size);
    fclose(file);
    for (size_t n = 0; n < size; n++) {
        write_bytes(whole, n);
        expect_refused(FR_EFORMAT, n < 8 ? "8 bytes of the header's length" : "");
    }
    whole[size] = 0;
    write_bytes(whole, size + 1);
    expect_refused(FR_EFORMAT, "bytes of data"); /* an excess byte */
    free(whole);
}

Test(safetensors, reader_refuses_huge_lengths) {
    static const uint64_t lengths[] = {100000001, UINT32_MAX, (uint64_t)1 << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    unsigned char file[64] = "\2\0\0\0\0\0\0\0{}";
    for (size_t i = 0; i < COUNT(lengths); i++) {
        for (int j = 0; j < 8; j++) file[j] = (unsigned char)(lengths[i] >> 8 * j);
        write_bytes(file, sizeof file);
        expect_refused(FR_EFORMAT, "at most 100000000");
    }
    for (int j = 0; j < 8; j++) file[j] = (unsigned char)((uint64_t)57 >> 8 * j);
    write_bytes(file, sizeof file);
    expect_refused(FR_EFORMAT, "claims 57 bytes but only 56 follow");
}

#define X24                      "\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define X(dtype, shape, offsets) "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

typedef struct hostile {
    const char *header;
    size_t data_bytes;
    fr_status status;
    const char *sentence_part;
} hostile;

static const hostile headers[] = {
    /* not JSON, or not a single object */
    {"", 0, FR_EFORMAT, "does not begin with '{'"},
    {"[]", 0, FR_EFORMAT, "does not begin with '{'"},
    {"null", 0, FR_EFORMAT, "does not begin with '{'"},
    {" {}", 0, FR_EFORMAT, "does not begin with '{'"},
    {"\xef\xbb\xbf{}", 0, FR_EFORMAT, "does not begin with '{'"},
    {"{", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x\"", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x\\", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x\":1", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x\":}", 0, FR_EFORMAT, "not valid JSON"},
    {"{]", 0, FR_EFORMAT, "not valid JSON"},
    {"{" X24 ",}", 24, FR_EFORMAT, "not valid JSON"},
    {"{}{}", 0, FR_EFORMAT, "has text at byte 2"},
    {"{}}", 0, FR_EFORMAT, "has text at byte 2"},
    {"{\"\xff\":1}", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\xc0\x80\":1}", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\xe2\x82\":1}", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\xed\xa0\x80\":1}", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\xf4\x90\x80\x80\":1}", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\xf0\x9f\x8c", 0, FR_EFORMAT, "UTF-8"},
    {"{\"\\ud800\":1}", 0, FR_EFORMAT, "not valid JSON"},
    {"{\"x\\u0000y\":1}", 0, FR_EFORMAT, "escaped NUL"},
    {"{\"x\ny\":1}", 0, FR_EFORMAT, "control character 0x0a"},
    {"{\x01}", 0, FR_EFORMAT, "control character 0x01"},
    {"{\"x\":{\"y\":{\"z\":[0]}}}", 0, FR_EFORMAT, "deeper than 3"},
    /* malformed tensors */
    {"{\"x\":1}", 0, FR_EFORMAT, "described by 1, expected an object"},
    {"{\"x\":[]}", 0, FR_EFORMAT, "described by an array"},
    {"{\"x\":{}}", 0, FR_EFORMAT, "has no \"dtype\""},
    {"{\"x\":{\"dtype\":\"F32\"}}", 0, FR_EFORMAT, "has no \"shape\""},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, FR_EFORMAT, "has no \"data_offsets\""},
    {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, FR_EFORMAT,
     "\"dtype\" twice"},
    {"{" X24 "," X24 "}", 24, FR_EFORMAT, "'x' appears twice"},
    {X("1", "[]", "[0,4]"), 4, FR_EFORMAT, "\"dtype\" is 1"},
    {X("\"f32\"", "[]", "[0,4]"), 4, FR_EDTYPE, "\"dtype\" is 'f32', expected one of F32"},
    {X("\"U64\"", "[]", "[0,8]"), 8, FR_EDTYPE, "\"dtype\" is 'U64'"},
    /* shapes */
    {X("\"F32\"", "6", "[0,24]"), 24, FR_EFORMAT, "\"shape\" is 6"},
    {X("\"F32\"", "[-2,-3]", "[0,24]"), 24, FR_EFORMAT, "dimension 0 is -2"},
    {X("\"F32\"", "[2,1.5]", "[0,12]"), 12, FR_EFORMAT, "dimension 1 is 1.5"},
    {X("\"F32\"", "[2,\"3\"]", "[0,24]"), 24, FR_EFORMAT, "dimension 1 is '3'"},
    {X("\"F32\"", "[null]", "[0,0]"), 0, FR_EFORMAT, "dimension 0 is null"},
    {X("\"F32\"", "[1e999]", "[0,0]"), 0, FR_EFORMAT, "dimension 0 is inf"},
    {X("\"F32\"", "[9007199254740993]", "[0,0]"), 0, FR_EFORMAT, "dimension 0 is"},
    {X("\"F32\"", "[18446744073709551616]", "[0,0]"), 0, FR_EFORMAT, "dimension 0 is"},
    {X("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, FR_EFORMAT, "dimension 0 is"},
    {X("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, FR_EFORMAT, "does not fit into 63 bits"},
    {X("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]"), 4, FR_ESHAPE, "7 dimensions, expected at most 6"},
    {X("\"F32\"", "[2,2]", "[0,24]"), 24, FR_EFORMAT, "F32 [2, 2] needs 16 bytes but its data offsets [0, 24] hold 24"},
    {X("\"F16\"", "[2,3]", "[0,24]"), 24, FR_EFORMAT, "needs 12 bytes"},
    {X("\"F64\"", "[2,3]", "[0,24]"), 24, FR_EFORMAT, "needs 48 bytes"},
    {X("\"F32\"", "[0]", "[0,4]"), 4, FR_EFORMAT, "needs 0 bytes"},
    /* offsets */
    {X("\"F32\"", "[]", "4"), 4, FR_EFORMAT, "\"data_offsets\" is 4"},
    {X("\"F32\"", "[]", "[0]"), 4, FR_EFORMAT, "\"data_offsets\" has 1 numbers"},
    {X("\"F32\"", "[]", "[0,4,8]"), 8, FR_EFORMAT, "\"data_offsets\" has 3 numbers"},
    {X("\"F32\"", "[]", "[-4,0]"), 4, FR_EFORMAT, "data offset -4"},
    {X("\"F32\"", "[]", "[0,true]"), 4, FR_EFORMAT, "data offset true"},
    {X("\"F32\"", "[]", "[4,0]"), 4, FR_EFORMAT, "run backwards"},
    {X("\"F32\"", "[2,3]", "[0,24]"), 23, FR_EFORMAT, "reach beyond the 23 bytes"},
    {X("\"F32\"", "[]", "[9007199254740988,9007199254740991]"), 4, FR_EFORMAT, "reach beyond"},
    {X("\"F32\"", "[]", "[18446744073709551612,18446744073709551615]"), 4, FR_EFORMAT, "data offset"},
    {X("\"F32\"", "[]", "[4,8]"), 8, FR_EFORMAT, "a hole before it"},
    {"{" X24 "}", 25, FR_EFORMAT, "hold 24 bytes but the file has 25"},
    {"{}", 1, FR_EFORMAT, "hold 0 bytes but the file has 1"},
    {"{" X24 ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[20,24]}}", 24, FR_EFORMAT, "overlaps"},
    {"{" X24 ",\"y\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, FR_EFORMAT, "overlaps"},
    {"{" X24 ",\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", 24, FR_EFORMAT, "overlaps"},
    {"{" X24 ",\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[25,26]}}", 26, FR_EFORMAT, "a hole before it"},
    /* metadata */
    {"{\"__metadata__\":1}", 0, FR_EFORMAT, "\"__metadata__\" is 1"},
    {"{\"__metadata__\":{\"k\":1}}", 0, FR_EFORMAT, "metadata 'k' is 1"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, FR_EFORMAT, "appears twice"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, FR_EFORMAT, "'k' appears twice"},
};

Test(safetensors, reader_refuses_hostile_headers) {
    for (size_t i = 0; i < COUNT(headers); i++) {
        write_header(headers[i].header, strlen(headers[i].header), headers[i].data_bytes);
        expect_refused(headers[i].status, headers[i].sentence_part);
    }
    write_header("{\"x\0y\":1}", 9, 0);
    expect_refused(FR_EFORMAT, "control character 0x00");
}

Test(safetensors, reader_accepts_what_the_format_allows) {
    static const char header[] =
        "{\"late\":{\"data_offsets\":[1,5],\"other\":null,\"shape\":[ 1 ],\"dtype\":\"F32\"},\r\n"
        "\"none\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[1,1]},"
        "\"\\u00e9\\\"\\\\u0000\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"__metadata__\":{}}   \n";
    fri_safetensors *f = NULL;
    write_header(header, strlen(header), 5);
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    cr_expect_eq(f->n_entries, 3);
    cr_expect_eq(f->n_metadata, 0);
    cr_expect_str_eq(f->entries[0].name, "\xc3\xa9\"\\u0000", "an escaped backslash is no escaped NUL");
    cr_expect_str_eq(f->entries[1].name, "none");
    cr_expect_str_eq(f->entries[2].name, "late");
    fri_safetensors_close(&f);
}

Test(safetensors, reader_bounds_nesting_before_it_parses) {
    enum { DEPTH = 1000000 };
    char *deep = malloc(DEPTH + 1);
    memset(deep, '[', DEPTH);
    deep[0] = '{';
    write_header(deep, DEPTH, 0);
    expect_refused(FR_EFORMAT, "deeper than 3");
    for (int i = 0; i + 5 <= DEPTH; i += 5) memcpy(deep + i, "{\"\":[", 5);
    write_header(deep, DEPTH, 0);
    expect_refused(FR_EFORMAT, "deeper than 3");
    free(deep);
}

/* Changes every byte of the header to each of a few nasty values: accepted or refused, but never reading outside of
 * the file (checked by sanitizers). */
Test(safetensors, reader_survives_every_changed_byte) {
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"}," X24 ",\"y\":{\"dtype\":\"U8\",\"shape\":[1],"
                                 "\"data_offsets\":[24,25]}}";
    static const char nasty[] = {0,   '"', '\\', '{', '}', '[',    ']',    ',',
                                 ':', '9', '-',  'e', ' ', '\x7f', '\x80', '\xff'};
    size_t n = sizeof header - 1, accepted = 0, refused = 0;
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < COUNT(nasty); i++) {
            char changed[sizeof header];
            fri_safetensors *f = NULL;
            memcpy(changed, header, sizeof header);
            changed[at] = nasty[i];
            write_header(changed, n, 25);
            fr_status s = fri_safetensors_open(path, &f);
            accepted += s == FR_OK;
            refused += s != FR_OK;
            for (size_t j = 0; f != NULL && j < f->n_entries; j++) {
                const unsigned char *data = f->entries[j].data;
                for (size_t k = 0; k < f->entries[j].bytes; k++) cr_assert_eq(data[k], 0);
            }
            fri_safetensors_close(&f);
        }
    cr_expect_gt(accepted, 0);
    cr_expect_gt(refused, accepted);
}
