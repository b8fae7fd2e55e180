/* support.c - see support.h. */
#include "io/support.h"

#include <dirent.h>
#include <frugal/net.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

char folder[512];

void make_folder(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/frugal-io-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
}

static void remove_tree(const char *path) {
    char inner[1024];
    DIR *d = opendir(path);
    if (d == NULL) {
        unlink(path);
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        remove_tree(inner);
    }
    closedir(d);
    rmdir(path);
}

void remove_folder(void) {
    remove_tree(folder);
}

const char *in_folder(const char *name) {
    static char paths[8][1024];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

int files_in(const char *path) {
    int n = -2;
    DIR *d = opendir(path);
    cr_assert(d != NULL, "no folder %s", path);
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

unsigned char *read_bytes(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*n + 1);
    cr_assert_eq(fread(bytes, 1, *n, file), *n);
    bytes[*n] = '\0';
    fclose(file);
    return bytes;
}

void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL, "cannot write %s", path);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

void limit_files(size_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

fr_module *small_net(uint64_t seed, fr_device device) {
    fr_module *net = NULL;
    fr_seed(seed);
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 6, 6, 3});
    x = fr_net_conv2d(n, NULL, x, 4, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    x = fr_net_adaptive_avgpool2d(n, NULL, fr_net_dropout(n, NULL, x, 0.3), 2, 3);
    x = fr_net_linear(n, NULL, fr_net_flatten(n, NULL, x, 1), 5, FR_BIAS);
    OK(fr_net_end(&n, &x, 1, &net));
    return net;
}

typedef struct gathered {
    unsigned char *bytes;
    size_t n;
} gathered;

static fr_status gather(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    gathered *g = ctx;
    (void)path;
    (void)is_parameter;
    g->bytes = realloc(g->bytes, g->n + fr_tensor_nbytes(t));
    fr_status s = fr_tensor_to_host(t, g->bytes + g->n);
    g->n += fr_tensor_nbytes(t);
    return s;
}

unsigned char *module_bytes(fr_module *m, size_t *n) {
    gathered g = {NULL, 0};
    OK(fr_module_each_tensor(m, gather, &g));
    *n = g.n;
    return g.bytes;
}

bool module_equals(fr_module *m, const unsigned char *bytes, size_t n) {
    size_t now_n = 0;
    unsigned char *now = module_bytes(m, &now_n);
    bool equal = now_n == n && memcmp(now, bytes, n) == 0;
    free(now);
    return equal;
}
