/* test_offload.c - offloaded tensors leave the process's resident set and come back unchanged; their file lies on
 * disk where there is a disk. test_switch_bytes.c counts the moved bytes. */
#include "autograd/run.h"
#include <frugal/autograd.h>
#include <frugal/memory.h>
#include <frugal/ops.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s", fr_last_error());
}

static size_t resident(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*u %llu", &pages) != 1) cr_skip("the system does not tell the resident set");
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

enum { ROWS = 1024, COLUMNS = 2048, LINKS = 10 };
#define MAP_BYTES ((size_t)ROWS * COLUMNS * sizeof(float))

/* x^(2^LINKS) by squaring: each link saves its input, of MAP_BYTES. *grown: growth of the resident set from the
 * beginning to backward. */
static float *gradient(bool offload, size_t *grown) {
    fr_tensor *x = NULL, *y = NULL;
    fr_switches s = fr_switches_all_off(), was = fr_switches_get();
    s.offload = offload;
    fr_switches_set(s);
    must(fr_tensor_full(2, (int64_t[]){ROWS, COLUMNS}, 0.999, FR_F32, FR_CPU, &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 1, &y));
    size_t before = resident();
    for (int i = 0; i < LINKS; i++) must(fr_mul(y, y, &y));
    size_t after = resident();
    *grown = after > before ? after - before : 0;
    must(fr_mean(y, &y));
    must(fr_backward(y, NULL));
    float *out = malloc(MAP_BYTES);
    must(fr_tensor_to_host(fr_tensor_get_grad(x), out));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_switches_set(was);
    must(fr_memory_empty_cache(FR_CPU));
    return out;
}

Test(offload, pages_that_are_out_leave_the_resident_set) {
    size_t kept = 0, out = 0;
    if (getenv("FRUGAL_NO_POOL") != NULL) cr_skip("FRUGAL_NO_POOL is set, as for sanitizers, which hold freed memory");
    float *a = gradient(true, &out), *b = gradient(false, &kept);
    cr_expect_eq(memcmp(a, b, MAP_BYTES), 0, "other gradients");
    cr_expect_gt(kept, (LINKS - 2) * MAP_BYTES, "without offload %zu bytes stay", kept);
    cr_expect_lt(out, 4 * MAP_BYTES, "%zu bytes stay in memory, %zu without offload", out, kept);
    free(a);
    free(b);
    fr_offload_close();
}

Test(offload, a_file_in_memory_is_avoided_or_said) {
    struct statfs fs;
    char path[100];
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != 0x01021994 || access("/dev/shm", W_OK) != 0)
        cr_skip("/dev/shm is no tmpfs that this user can write");
    setenv("TMPDIR", "/dev/shm", 1);
    must(fr_offload_open(NULL));
    cr_expect_not_null(strstr(fri_offload_warning(), "/dev/shm"), "%s", fri_offload_warning());
    fr_offload_close();
    snprintf(path, sizeof path, "/dev/shm/frugal-test-%ld", (long)getpid());
    must(fr_offload_open(path));
    cr_expect_not_null(strstr(fri_offload_warning(), "is in memory"), "%s", fri_offload_warning());
    cr_expect_neq(access(path, F_OK), 0, "the file has a name");
    fr_offload_close();
    unsetenv("TMPDIR");
    must(fr_offload_open(NULL));
    bool disk = statfs("/var/tmp", &fs) == 0 && fs.f_type != 0x01021994 && access("/var/tmp", W_OK) == 0;
    if (disk) cr_expect_str_eq(fri_offload_warning(), "");
    fr_offload_close();
    setenv("TMPDIR", "/nowhere", 1);
    cr_expect_eq(fr_offload_open(NULL), FR_EIO);
    cr_expect_not_null(strstr(fr_last_error(), "/nowhere: No such file"), "%s", fr_last_error());
}
