/* load.c - fr_onnx_load, and the description in a file. */
#include "addons/onnx/reader.h"

#include <frugal/weights.h>

#include <string.h>

fr_status fri_onnx_info_text(const char *path, char **text) {
    Onnx__ModelProto *m = NULL;
    fr_status s = fri_onnx_protobuf_load();
    if (s == FR_OK) s = fri_onnx_message_read(path, &m);
    for (size_t i = 0; s == FR_OK && i < m->n_metadata_props && *text == NULL; i++) {
        const Onnx__StringStringEntryProto *e = m->metadata_props[i];
        if (e->key == NULL || e->value == NULL || strcmp(e->key, FR_WEIGHTS_INFO_KEY) != 0) continue;
        if ((*text = strdup(e->value)) == NULL) s = fr_fail(FR_ENOMEM, "no host memory for its description");
    }
    if (m != NULL) onnx__model_proto__free_unpacked(m, NULL);
    return s < 0 ? fr_fail_prefix(s, "loading ONNX: file '%.300s': ", path) : s;
}

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
