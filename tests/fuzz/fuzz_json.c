/* fuzz_json.c - any text as the record of a training state. */
#include "fuzz.h"

#include "io/state_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fri_state_record r;
    double number = 0;
    char *text = malloc(n + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, n);
    text[n] = '\0';
    fr_status s = fri_state_record_parse(text, &r);
    if (s == FR_OK) {
        FUZZ_CHECK(r.step >= 0 && r.epoch >= 0 && (!r.has_scaler || r.scale >= 0));
        FUZZ_CHECK(r.schedule.kind >= FR_SCHEDULE_CONSTANT && r.schedule.kind <= FR_SCHEDULE_COSINE);
        const char *setting = fri_state_record_setting(&r, "seed");
        FUZZ_CHECK(setting == NULL || strlen(setting) <= n);
        (void)fri_state_record_number(&r, "sum", &number);
        /* A parsed record prints and parses again to an equal record. */
        char *printed = NULL;
        const fr_state state = {.step = r.step};
        fri_state_record again;
        FUZZ_CHECK(fri_state_record_print(&r, &state, &printed) == FR_OK);
        FUZZ_CHECK(fri_state_record_parse(printed, &again) == FR_OK);
        FUZZ_CHECK(again.step == r.step && again.random.seed == r.random.seed && again.has_loader == r.has_loader);
        FUZZ_CHECK(!(again.schedule.lr == again.schedule.lr) || again.schedule.lr == r.schedule.lr);
        fri_state_record_free(&again);
        fri_state_record_text_free(printed);
        fri_state_record_free(&r);
    } else {
        FUZZ_CHECK(s == FR_EFORMAT || s == FR_ENOMEM);
    }
    free(text);
    return 0;
}
