/* onednn.c - opens the module with oneDNN at the first call, once per process, if the processor has AVX2: then oneDNN
 * is faster in many layers. */
#include "base/env.h"
#include "base/library.h"
#include "base/threads.h"
#include "cpu/cpu.h"
#include "cpu/dnnl_module.h"
#include "cpu/isa.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static fr_status no_conv2d(const fri_conv2d_desc *d, fri_pass pass, const fri_dnnl_op **op) {
    *op = NULL;
    return FR_OK;
}

static fr_status no_matmul(const fri_matmul_desc *d, const fri_dnnl_op **op) {
    *op = NULL;
    return FR_OK;
}

static char missing[64]; /* fault of the file in FRUGAL_ONEDNN, or "" */

static void own_version(char *buf, size_t n) {
    snprintf(buf, n, "own kernels, %s%s", fri_cpu_isa_name(), missing);
}

static bool no_tiles(void) {
    return false;
}

static const fri_dnnl_calls none = {no_conv2d, no_matmul, .version = own_version, .has_tiles = no_tiles};
static const fri_dnnl_calls *calls = &none;

static void open_module(void) {
    static const fri_dnnl_host host = {fr_fail, fr_threads_get, fri_threads_startable};
    const char *given = fri_env_get()->onednn;
    char path[FRI_MODULE_PATH];
    /* FRUGAL_ISA is for our loops: the library has a limit of its own. */
    if (fri_cpu_lanes() < FRI_LANES_AVX2 || fri_env_get()->isa != NULL || (given != NULL && strcmp(given, "off") == 0))
        return;
    void *module = fri_module_open("onednn", "src", given, RTLD_NOW | RTLD_LOCAL, path);
    fri_dnnl_open_fn *open = module != NULL ? (fri_dnnl_open_fn *)dlsym(module, "fri_dnnl_open") : NULL;
    const fri_dnnl_calls *found = open != NULL ? open(FRI_DNNL_ABI, &host) : NULL;
    if (found != NULL)
        calls = found;
    else if (given != NULL && given[0] != '\0')
        snprintf(missing, sizeof missing, "; FRUGAL_ONEDNN %s",
                 module == NULL ? "cannot be opened" : "has another version");
}

const fri_dnnl_calls *fri_dnnl(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return calls;
}
