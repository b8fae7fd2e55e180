/* session_alone.c - a program linked with libfrugal.so alone, without frugal-cli: a session writes report and log,
 * tells its notes, and prints nothing. */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGES = 16, SIZE = 8, CLASSES = 3, TEXT = 1 << 16 };

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    uint8_t *pixels = to;
    (void)ctx;
    for (int i = 0; i < SIZE * SIZE; i++) pixels[i] = (uint8_t)((index * 31 + i * 7) % 251);
    *(int64_t *)target = index % CLASSES;
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 1});
    x = fr_net_relu(n, "relu", fr_net_conv2d(n, "conv", x, 4, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_linear(n, "fc", fr_net_flatten(n, "flatten", x, 1), classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static void heard(void *ctx, const char *sentence) {
    snprintf(ctx, TEXT, "%s", sentence);
}

static fr_status train(const char *report, const char *log, char *note) {
    fr_dataset_source source =
        {.count = IMAGES, .classes = CLASSES, .height = SIZE, .width = SIZE, .channels = 1, .read = frame};
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *frames = NULL;
    fr_session *session = NULL;
    fr_status s = FR_OK;
    o.train.device = FR_CPU;
    o.train.optim.batch_size = 4;
    o.train.optim.epochs = 2;
    o.train.memory.budget = (size_t)64 << 20;
    o.train.memory.switches.encode = false;
    o.train.files.report = report;
    o.train.files.log = log;
    o.model = network;
    o.ctx = note;
    o.on_note = heard;
    FR_TRY(s, fr_dataset_create(&source, &frames));
    FR_TRY(s, fr_session_create(&o, frames, frames, &session));
    FR_TRY(s, fr_session_run(session));
done:
    fr_session_release(&session);
    fr_dataset_release(&frames);
    return s;
}

static bool has(const char *what, const char *text, const char *part) {
    if (strstr(text, part) == NULL) fprintf(stderr, "%s: no '%s' in: %.2000s\n", what, part, text);
    return strstr(text, part) != NULL;
}

static bool file_has(const char *path, const char *const *parts) {
    static char text[TEXT];
    FILE *file = fopen(path, "r");
    if (file == NULL) return has(path, "no file", parts[0]);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    bool all = true;
    for (; *parts != NULL; parts++) all &= has(path, text, *parts);
    return all;
}

int main(void) {
    static char note[TEXT];
    char folder[] = "/tmp/frugal-alone-XXXXXX", report[64], log[64], printed[64];
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(report, sizeof report, "%s/report.json", folder);
    snprintf(log, sizeof log, "%s/log.jsonl", folder);
    snprintf(printed, sizeof printed, "%s/printed", folder);
    const int out = dup(STDOUT_FILENO);
    if (freopen(printed, "w", stdout) == NULL) return 1;
    const fr_status s = train(report, log, note);
    fflush(stdout);
    const bool silent = ftell(stdout) == 0;
    dup2(out, STDOUT_FILENO);
    bool good = s == FR_OK && silent;
    if (!good) fprintf(stderr, "%s; the session printed: %s\n", fr_last_error(), silent ? "no" : "yes");
    good &= file_has(report, (const char *const[]){"\"steps\":\t8,", "\"fit\":", "\"loss\":", "\n}\n", NULL});
    good &=
        file_has(log, (const char *const[]){"{\"step\":8,\"epoch\":1,\"loss\":", "{\"step\":8,\"test/loss\":", NULL});
    good &= has("on_note", note, "train.memory.budget chooses by itself and replaces train.memory.switches.encode");
    unlink(report), unlink(log), unlink(printed), rmdir(folder);
    return good ? 0 : 1;
}
