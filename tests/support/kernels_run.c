/* kernels_run.c - see kernels_run.h. */
#include "support/kernels_run.h"

#include <criterion/criterion.h>
#include <string.h>

#include "backend/backend.h"
#include "support/golden.h"

enum { NAMES = 128 };

static struct {
    const char *name;
    int runs;
} seen[NAMES];
static int n_seen;

static void begins(void *ctx, const char *kernel) {
    int i = 0;
    (void)ctx;
    while (i < n_seen && strcmp(seen[i].name, kernel) != 0) i++;
    cr_assert_lt(i, NAMES);
    if (i == n_seen) seen[n_seen++].name = kernel;
    seen[i].runs++;
}

static void ends(void *ctx, const char *kernel, const fri_backend *b) {
    (void)ctx;
    (void)kernel;
    (void)b;
}

static const fri_kernel_watch watch = {begins, ends, NULL};

void kernels_watch(void) {
    (void)test_device();
    if (fri_here.kernel_watch != NULL && fri_here.kernel_watch != &watch)
        cr_skip_test("the stand-in device watches the kernels itself");
    memset(seen, 0, sizeof seen);
    n_seen = 0;
    fri_here.kernel_watch = &watch;
}

void kernels_unwatch(void) {
    if (fri_here.kernel_watch == &watch) fri_here.kernel_watch = NULL;
}

int kernels_run(const char *name) {
    for (int i = 0; i < n_seen; i++)
        if (strcmp(seen[i].name, name) == 0) return seen[i].runs;
    return 0;
}
