/* load.c - fr_onnx_load. */
#include "addons/onnx/reader.h"

fr_status fr_onnx_load(const char *path, const fr_onnx_opts *opts, fr_module **m) {
    FRI_NOT_NULL(path, m);
    fri_onnx_reader r = {.path = path, .opts = opts != NULL ? *opts : *FR_ONNX_OPTS()};
    const fr_rng before = fr_rng_get();
    fr_status s = FR_OK;
    FR_TRY(s, fri_onnx_protobuf_load());
    FR_TRY(s, fri_onnx_message_read(path, &r.model));
    FR_TRY(s, fri_onnx_build(&r, m));
done:
    fr_rng_set(before); /* layers began with random values */
    if (s < 0) s = fr_fail_prefix(s, "loading ONNX: file '%.300s': ", path);
    fr_net_try(r.net, s); /* ending the unfinished definition keeps the sentence */
    fri_onnx_reader_free(&r);
    return s;
}
