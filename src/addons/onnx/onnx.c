/* onnx.c - the tables of the add-on onnx. */
#include "addons/onnx/reader.h"

#include <frugal/addon.h>

static fr_status save(fr_module *m, const char *path, const fr_weights_info *info) {
    return fr_onnx_save(m, path, FR_ONNX_SAVE_OPTS(.info = info));
}

static fr_status load(const char *path, fr_device device, int64_t height, int64_t width, fr_module **out) {
    return fr_onnx_load(path, FR_ONNX_OPTS(.device = device, .height = height, .width = width, .drop_softmax = true),
                        out);
}

static const fr_network_file files[] = {{".onnx", save, load, fri_onnx_info_text}, {0}};

const fr_addon fr_addon_onnx = {.name = "onnx", .files = files};
