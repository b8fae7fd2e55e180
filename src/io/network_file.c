/* network_file.c - formats of add-ons, by the ending of a path. */
#include "base/status.h"
#include "io/session_files.h"

#include <frugal/addon.h>
#include <frugal/weights.h>

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *path, const char *ending) {
    const size_t n = strlen(path), k = strlen(ending);
    return n >= k && strcmp(path + n - k, ending) == 0;
}

fr_status fri_weights_ending(const char *path) {
    static const char *const torch[] = {".pth", ".pt", ".bin"};
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
        if (ends_with(path, torch[i]))
            return fr_fail(FR_EINVAL,
                           "'%.300s': %s is the ending of torch.save's files, which PyTorch alone writes; name it "
                           ".safetensors, which safetensors.torch.load_file reads",
                           path, torch[i]);
    return FR_OK;
}

fr_status fr_network_file_of(const char *path, const fr_network_file **out) {
    static const struct { const char *ending, *addon; } elsewhere[] = {{".onnx", "onnx"}};
    char what[32];
    FRI_NOT_NULL(path, out);
    *out = NULL;
    for (const fr_addon *const *a = fr_addons(); *a != NULL; a++)
        for (const fr_network_file *f = (*a)->files; f != NULL && f->ending != NULL; f++)
            if (ends_with(path, f->ending)) {
                *out = f;
                return FR_OK;
            }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (ends_with(path, elsewhere[i].ending)) {
            snprintf(what, sizeof what, "a file %s", elsewhere[i].ending);
            return fr_addon_missing(what, elsewhere[i].addon);
        }
    return FR_OK;
}
