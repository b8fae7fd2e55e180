/* onnx.c - the tables of the add-on onnx. */
#include <frugal/addon.h>
#include <frugal/io.h>
#include <frugal/onnx.h>

static fr_status save(fr_module *m, const char *path) {
    return fr_onnx_save(m, path, NULL);
}

static fr_status load(const char *path, fr_device device, int64_t height, int64_t width, fr_module **out) {
    return fr_onnx_load(path, FR_ONNX_OPTS(.device = device, .height = height, .width = width, .drop_softmax = true),
                        out);
}

static const fr_network_file files[] = {{".onnx", save, load}, {0}};

const fr_addon fr_addon_onnx = {.name = "onnx", .files = files};
