/* fuzz_safetensors.c - any bytes as a safetensors file: refused with a sentence, or every tensor lies inside the bytes
 * and what is written from them reads back the same. */
#include "fuzz.h"

#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
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
    fri_safetensors_close(&f);
    return sum == 1u << 31 ? -1 : 0;
}
