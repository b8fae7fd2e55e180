/* fuzz_safetensors.c - random bytes as a safetensors file: refused with a sentence, or every tensor lies inside the
 * bytes and survives writing and reading. */
#include "fuzz.h"

#include "io/safetensors.h"
#include "io/weights_info.h"
#include "zip_sums.h"

#include <stdlib.h>
#include <string.h>

/* Facts about the network are refused with a sentence, or survive writing and reading. */
static void check_info(const char *text) {
    fr_weights_info info = {0}, again = {0};
    char *written = NULL;
    if (text == NULL) return;
    if (fri_weights_info_parse("fuzz", text, &info) < 0) {
        FUZZ_CHECK(fr_last_error()[0] != '\0' && info.class_name == NULL);
        return;
    }
    FUZZ_CHECK(fr_weights_info_text(&info, &written) == FR_OK);
    FUZZ_CHECK(fri_weights_info_parse("fuzz", written, &again) == FR_OK);
    FUZZ_CHECK(info.classes == again.classes && info.channels == again.channels && info.height == again.height);
    FUZZ_CHECK(memcmp(info.mean, again.mean, sizeof info.mean) == 0 &&
               memcmp(info.std, again.std, sizeof info.std) == 0);
    free(written);
    fr_weights_info_clear(&info);
    fr_weights_info_clear(&again);
}

static int try_file(const uint8_t *data, size_t n) {
    fri_safetensors *f = NULL;
    unsigned sum = 0;
    fr_status s = fri_safetensors_open_memory("fuzz", data, n, false, &f);
    FUZZ_CHECK((s == FR_OK) == (f != NULL) && s <= 0);
    if (s < 0) {
        FUZZ_CHECK(fr_last_error()[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < f->n_entries; i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        const uint8_t *bytes = e->data;
        FUZZ_CHECK(bytes >= data && e->bytes <= (size_t)(data + n - bytes));
        FUZZ_CHECK(e->bytes == (size_t)fri_shape_numel(&e->shape) * fr_dtype_size(e->dtype));
        FUZZ_CHECK(fri_safetensors_find(f, e->name) == e);
        for (size_t k = 0; k < e->bytes; k++) sum += bytes[k];
    }
    for (size_t i = 0; i < f->n_metadata; i++)
        FUZZ_CHECK(fri_safetensors_metadata(f, f->metadata[i].key) == f->metadata[i].value);
    check_info(fri_safetensors_metadata(f, FR_WEIGHTS_INFO_KEY));
    fri_safetensors_close(&f);
    return sum == 1u << 31 ? -1 : 0;
}

/* A zip archive is tried unchanged, and with right checksums. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const int kept = try_file(data, n);
    if (n < 4 || memcmp(data, "PK\3\4", 4) != 0) return kept;
    uint8_t *copy = malloc(n);
    if (copy == NULL) return kept;
    memcpy(copy, data, n);
    zip_sums(copy, n);
    try_file(copy, n);
    free(copy);
    return kept;
}
