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

fr_status fr_onnx_load(const char *path, const fr_onnx_opts *opts, fr_module **m) {
    FRI_NOT_NULL(path, m);
    (void)opts;
    return absent("loading ONNX");
}
