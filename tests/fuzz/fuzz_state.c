/* fuzz_state.c - random bytes as a training state: the checksum is corrected first, so that the code after the check
 * is reached. A refused state changes nothing. */
#include "net/layers.h"
#include "fuzz.h"

#include "base/rng.h"
#include "io/safetensors.h"
#include "io/state.h"
#include "optim/scaler.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static fr_module *model;
static fr_optimizer *optimizer;
static fr_grad_scaler *scaler;
static fr_loader *loader;
static fr_dataset *dataset;
static double number;

static void prepare(void) {
    fr_status s = FR_OK;
    FR_TRY(s, fri_nn_linear(3, 2, true, FR_CPU, &model));
    FR_TRY(s, fr_sgd(model, FR_SGD_OPTS(.momentum = 0.9), &optimizer));
    FR_TRY(s, fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(), FR_CPU, &scaler));
    FR_TRY(s, fr_dataset_synthetic(10, 2, 2, 2, 1, 1, &dataset));
    FR_TRY(s, fr_loader_create(dataset, FR_LOADER_OPTS(.batch_size = 5, .workers = 0), &loader));
done:
    FUZZ_CHECK(s == FR_OK);
}

/* Data that a failed load must not change. */
typedef struct content {
    float weight[6], bias[2];
    fr_rng random;
    int64_t epoch, batch, steps, tracker;
    double scale, number;
} content;

static content look(void) {
    content c;
    memset(&c, 0, sizeof c);
    FUZZ_CHECK(fr_tensor_to_host(fr_module_tensor(model, "weight"), c.weight) == FR_OK);
    FUZZ_CHECK(fr_tensor_to_host(fr_module_tensor(model, "bias"), c.bias) == FR_OK);
    c.random = fr_rng_get();
    FUZZ_CHECK(fr_loader_position_get(loader, &c.epoch, &c.batch) == FR_OK);
    c.steps = fr_optimizer_steps(optimizer);
    c.tracker = fri_grad_scaler_growth_tracker(scaler);
    c.scale = fr_grad_scaler_value(scaler);
    c.number = number;
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const fr_state_number numbers[] = {{"sum", &number}};
    if (model == NULL) prepare();
    fr_state state = {.model = model,
                      .optimizer = optimizer,
                      .scaler = scaler,
                      .loader = loader,
                      .numbers = numbers,
                      .n_numbers = 1};
    fri_safetensors *f = NULL;
    uint8_t *copy = malloc(n + 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, n);
    if (n >= FRI_SAFETENSORS_CHECKSUM_BYTES) {
        size_t at = n - FRI_SAFETENSORS_CHECKSUM_BYTES;
        uint32_t crc = (uint32_t)crc32_z(0, copy, at);
        for (int i = 0; i < FRI_SAFETENSORS_CHECKSUM_BYTES; i++) copy[at + (size_t)i] = (uint8_t)(crc >> 8 * i);
    }
    fr_status s = fri_safetensors_open_memory("fuzz", copy, n, true, &f);
    if (s == FR_OK) {
        content before = look();
        s = fri_state_restore(f, &state);
        content after = look();
        FUZZ_CHECK(s == FR_OK || memcmp(&before, &after, sizeof before) == 0);
        FUZZ_CHECK(s != FR_OK || (state.step >= 0 && state.epoch >= 0));
    }
    FUZZ_CHECK(s == FR_OK || fr_last_error()[0] != '\0');
    fri_safetensors_close(&f);
    free(copy);
    return 0;
}
