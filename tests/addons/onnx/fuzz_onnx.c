/* fuzz_onnx.c - loads random bytes as an ONNX file and runs the network on meta. */
#include "tests/fuzz/fuzz.h"

#include "addons/onnx/reader.h"

#include <frugal/ops.h>
#include <frugal/tensor.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fri_onnx_reader r = {.path = "fuzz", .opts = *FR_ONNX_OPTS(.device = FR_META, .height = 8, .width = 8)};
    fr_module *m = NULL;
    fr_status s = fri_onnx_protobuf_load();
    FUZZ_CHECK(s == FR_OK);
    s = fri_onnx_message_parse(data, n, &r.model);
    if (s == FR_OK) s = fri_onnx_build(&r, &m);
    FUZZ_CHECK((s == FR_OK) == (m != NULL));
    if (s < 0) FUZZ_CHECK(fr_last_error()[0] != '\0');
    FUZZ_CHECK(m == NULL || fr_module_layers(m) > 0);
    fri_onnx_reader_free(&r);
    fr_module_release(&m);
    return 0;
}
