/* onnx.c - the tables of the add-on onnx. */
#include <frugal/addon.h>
#include <frugal/io.h>
#include <frugal/onnx.h>

static fr_status save(fr_module *m, const char *path) {
    return fr_onnx_save(m, path, NULL);
}

static const fr_network_file files[] = {{".onnx", save}, {0}};

const fr_addon fr_addon_onnx = {.name = "onnx", .files = files};
