/* absent.c - onnx.h in a build without ONNX. */
#include "base/status.h"

#include <frugal/onnx.h>

static fr_status absent(const char *what) {
    return fr_fail(
        FR_EUNSUPPORTED,
        "%s: this build of frugal has no ONNX; install libprotobuf-c-dev, protobuf-c-compiler and libonnx-dev "
        "and build with -Donnx=enabled",
        what);
}

fr_status fr_onnx_save(fr_module *m, const char *path, const fr_onnx_save_opts *opts) {
    FRI_NOT_NULL(m);
    (void)path;
    (void)opts;
    return absent("saving ONNX");
}

fr_status fr_onnx_load(const char *path, const fr_onnx_opts *opts, fr_module **m) {
    FRI_NOT_NULL(path, m);
    (void)opts;
    return absent("loading ONNX");
}
