/* peak_memory.c - memory of a network's training step under each switch (fr_plan_switches), and of evaluations.
 *
 * On meta (the default) no kernel runs and library scratch is not included: the bytes are exact, and equal to the
 * bytes of `train_vgg --no-batch-norm --device meta --plan=switches`. On the CPU steps are timed, too. */
#include "architecture.h"
#include "peak_run.h"

#include <frugal/session.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: peak_memory [--model vgg16|resnet50|densenet121|densenet_bc100|unet|all] [--batch-size N]\n"
    "                   [--image-size N] [--device cpu|meta] [--amp] [--adam] [--rounds N] [--only ROW]\n"
    "       peak_memory --readme         the table of README.md: VGG-16 and ResNet-50\n"
    "       peak_memory --architecture   heads, image sizes and strides instead of switches\n"
    "--rounds N: steps that measure the time of a row, on the CPU (3). --only ROW: the first row and this one; an\n"
    "unknown ROW lists all.\n";

typedef struct options {
    const char *model;
    peak_setting at;
    fr_plan_switches_opts how;
    bool amp, adam, architecture, readme;
} options;

enum { EVALUATIONS = 3 };

typedef struct table {
    peak_setting at;
    int64_t n;
    fr_plan_switch_row row[FR_PLAN_SWITCH_ROWS];
    size_t evaluation[EVALUATIONS];
} table;

static const struct {
    const char *name, *flag, *call;
    peak_work work;
    bool inplace;
} evaluations[EVALUATIONS] = {
    {"evaluation with a graph", "", "fr_module_forward", PEAK_EVALUATE_GRAPH, false},
    {"evaluation, no_grad", "(always)", "fr_no_grad_begin", PEAK_EVALUATE, false},
    {"evaluation, no_grad, in-place", "`--inplace`", "fr_relu_inplace", PEAK_EVALUATE, true},
};

/* Rows of README.md with the library's call, or the field of fr_switches. */
static const struct {
    const char *row, *call;
} readme[] = {
    {"everything off, as PyTorch", "fr_switches_all_off"},
    {"encodings: 1 bit per relu", "fr_switches.encode"},
    {"rebuild of norms and relus", "fr_switches.rebuild"},
    {"mixed precision, loss scaling", "fr_autocast_begin"},
    {"accumulation, 4 x 1/4 batch", "fr_backward"},
    {"fused optimizer step", "fr_optimizer_fuse"},
    {"offload to a file", "fr_switches.offload"},
    {"checkpointing, 4 segments", "fr_checkpoint_segments"},
    {"checkpointing, log", "fr_checkpoint_segments"},
    {"4 segments, AMP", "fr_checkpoint_segments"},
    {"defaults", "fr_switches_default"},
    {"defaults, mixed precision", "fr_switches.half_gradients"},
    {"defaults, 4 segments, AMP", "fr_checkpoint_segments"},
    {"the smallest budget", "fr_fit_find"},
};

/* ---- the command line -------------------------------------------------------------------------------------------- */

static int usage(const char *why, const char *what) {
    fprintf(stderr, "peak_memory: %s%s\n%s", why, what, help);
    return 2;
}

static bool number(const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end = NULL;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end != 0 || n < least || n > most) return false;
    *out = n;
    return true;
}

static bool wanted(const options *o, const char *name) {
    if (o->readme) return strcmp(name, "vgg16") == 0 || strcmp(name, "resnet50") == 0;
    return strcmp(o->model, "all") == 0 || strcmp(o->model, name) == 0;
}

/* Reads a flag with a value. 0, or the exit status. */
static int parse_value(options *o, const char *flag, const char *value) {
    bool known = false;
    if (strcmp(flag, "--model") == 0) {
        o->model = value;
        for (int i = 0; i < peak_nets_count; i++) known = known || wanted(o, peak_nets[i].name);
        return known ? 0 : usage("unknown model ", value);
    }
    if (strcmp(flag, "--only") == 0) return o->how.only = value, 0;
    if (strcmp(flag, "--device") == 0) {
        o->at.device = strcmp(value, "cpu") == 0 ? FR_CPU : FR_META;
        return o->at.device == FR_CPU || strcmp(value, "meta") == 0 ? 0 : usage("--device is cpu or meta, not ", value);
    }
    if (strcmp(flag, "--batch-size") == 0)
        return number(value, 2, 1 << 20, &o->at.batch) ? 0 : usage("--batch-size is a number >= 2, not ", value);
    if (strcmp(flag, "--image-size") == 0)
        return number(value, 32, 4096, &o->at.image_size) ? 0 : usage("--image-size is 32..4096, not ", value);
    if (strcmp(flag, "--rounds") == 0)
        return number(value, 0, 99, &o->how.rounds) ? 0 : usage("--rounds is 0..99, not ", value);
    return usage("unknown flag ", flag);
}

static int parse(int argc, char **argv, options *o) {
    for (int i = 1, status = 0; i < argc; i++) {
        const char *flag = argv[i];
        bool *set = strcmp(flag, "--amp") == 0            ? &o->amp
                    : strcmp(flag, "--adam") == 0         ? &o->adam
                    : strcmp(flag, "--architecture") == 0 ? &o->architecture
                    : strcmp(flag, "--readme") == 0       ? &o->readme
                                                          : NULL;
        if (set != NULL) {
            *set = true;
            continue;
        }
        if (i + 1 == argc) return usage("unknown flag, or one without its value: ", flag);
        if ((status = parse_value(o, flag, argv[++i])) != 0) return status;
    }
    return 0;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    const peak_setting *at = ctx;
    return at->net->build(FR_MODEL_OPTS(.classes = classes, .image_size = at->image_size, .device = device), out);
}

/* Class 1: a number, or a byte for each pixel. */
static fr_status gray(void *ctx, int64_t index, void *pixels, void *target) {
    const peak_setting *at = ctx;
    const size_t area = (size_t)(at->image_size * at->image_size);
    (void)index;
    memset(pixels, 128, 3 * area);
    if (at->net->pixels)
        memset(target, 1, area);
    else
        *(int64_t *)target = 1;
    return FR_OK;
}

static void measure_evaluations(table *t) {
    for (int i = 0; i < EVALUATIONS; i++) {
        peak_case c = {.work = evaluations[i].work, .switches = fr_switches_all_off(), .how = PEAK_PLAIN};
        peak_result r;
        c.switches.inplace = evaluations[i].inplace;
        peak_measure(&t->at, &c, &r);
        t->evaluation[i] = r.peak;
    }
    fr_switches_set(fr_switches_default());
}

static fr_status measure(table *t, const options *o) {
    fr_session_opts s = fr_session_opts_default();
    const fr_dataset_source source = {.count = 50000,
                                      .classes = t->at.net->classes,
                                      .height = t->at.image_size,
                                      .width = t->at.image_size,
                                      .channels = 3,
                                      .read = gray,
                                      .target = t->at.net->pixels ? FR_TARGET_PIXELS : FR_TARGET_CLASS,
                                      .ctx = &t->at};
    fr_dataset *images = NULL;
    s.model = network;
    s.ctx = &t->at;
    s.name = t->at.net->name;
    for (int i = 0; i < 3; i++) s.mean[i] = s.std[i] = 0.5;
    s.train.device = t->at.device;
    s.train.optim.batch_size = t->at.batch;
    if (o->adam) s.train.optim.optimizer = FR_TRAIN_ADAM;
    if (o->amp) s.train.precision.amp = FR_TRAIN_AMP_FP16;
    fr_status status = fr_dataset_create(&source, &images);
    if (status == FR_OK) status = fr_plan_switches(&s, images, &o->how, t->row, FR_PLAN_SWITCH_ROWS, &t->n);
    fr_dataset_release(&images);
    if (status == FR_OK && o->how.only == NULL) measure_evaluations(t);
    return status;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* "1,234,567" */
static const char *grouped(size_t n, char text[32]) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%zu", n), k = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[k++] = ',';
        text[k++] = digits[i];
    }
    text[k] = 0;
    return text;
}

static void print_table(const table *t, const options *o) {
    char peak[32], step[32], time[32] = "";
    const bool timed = !isnan(t->row[0].seconds);
    printf("%s, %lld images of %lld x %lld pixels, %s, %s, on %s\n\n%-30s %15s %15s %6s%s  flags\n", t->at.net->title,
           (long long)t->at.batch, (long long)t->at.image_size, (long long)t->at.image_size, o->amp ? "f16" : "f32",
           o->adam ? "Adam" : "SGD with momentum", fr_device_name(t->at.device), "switch", "planned peak",
           "step memory", "ratio", timed ? "   time" : "");
    for (int64_t i = 0; i < t->n; i++) {
        const fr_plan_switch_row *r = &t->row[i];
        if (timed) snprintf(time, sizeof time, " %6.2f", r->seconds / t->row[0].seconds);
        if (r->planned == 0)
            printf("%-30s cannot be: %s\n", r->name, r->reason);
        else
            printf("%-30s %15s %15s %6.3f%s  %s\n", r->name, grouped(r->planned, peak), grouped(r->step_memory, step),
                   r->ratio, time, r->flag[0] != '\0' ? r->flag : "(none)");
    }
    for (int i = 0; i < EVALUATIONS && o->how.only == NULL; i++)
        printf("%-30s %15s\n", evaluations[i].name, grouped(t->evaluation[i], peak));
    if (timed)
        printf("\nThe first row's step takes %.3f s; time: a row's step, divided by the first row's.",
               t->row[0].seconds);
    printf(
        "\nRequested bytes. The step memory is the peak without parameters and optimizer state. A switch alone can "
        "add\n"
        "bytes: in place, batch norm, sum and relu are one op, whose backward holds the maps of all three until early\n"
        "release, a default, lets them go.\n");
}

/* "4,539,740,672 (-28 %) |" */
static void print_cell(size_t n, size_t base) {
    char text[32];
    printf(" %s", grouped(n, text));
    if (base > 0) printf(" (%.0f %%)", 100 * ((double)n / (double)base - 1));
    printf(" |");
}

static void print_readme(const table *t, int tables) {
    printf("| switch | flags | call or field |");
    for (int k = 0; k < tables; k++) printf(" %s |", t[k].at.net->title);
    printf("\n|---|---|---|");
    for (int k = 0; k < tables; k++) printf("--:|");
    for (size_t r = 0; r < sizeof readme / sizeof *readme; r++)
        for (int64_t i = 0; i < t->n; i++) {
            const char *flag = t->row[i].flag;
            if (strcmp(t->row[i].name, readme[r].row) != 0) continue;
            const int words = strncmp(flag, "--memory-budget", 15) == 0 ? 15 : (int)strlen(flag);
            printf("\n| %s | %s%.*s%s | `%s` |", readme[r].row, words > 0 ? "`" : "(none)", words, flag,
                   words > 0 ? "`" : "", readme[r].call);
            for (int k = 0; k < tables; k++) print_cell(t[k].row[i].planned, i > 0 ? t[k].row[0].planned : 0);
        }
    for (int i = 0; i < EVALUATIONS; i++) {
        printf("\n| %s | %s | `%s` |", evaluations[i].name, evaluations[i].flag, evaluations[i].call);
        for (int k = 0; k < tables; k++) print_cell(t[k].evaluation[i], i > 0 ? t[k].evaluation[0] : 0);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    static table tables[8];
    options o = {.model = "vgg16", .at = {.device = FR_META, .batch = 64}, .how = {.rounds = 3}};
    int n = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) return fputs(help, stdout) < 0;
    const int status = parse(argc, argv, &o);
    if (status != 0) return status;
    if (o.architecture) return architecture_run(o.at.batch);
    for (int i = 0; i < peak_nets_count; i++) {
        if (!wanted(&o, peak_nets[i].name)) continue;
        table *t = &tables[n++];
        t->at = o.at;
        t->at.net = &peak_nets[i];
        if (t->at.image_size == 0) t->at.image_size = peak_nets[i].image_size;
        const fr_status s = measure(t, &o);
        if (s < 0) {
            fprintf(stderr, "peak_memory: %s\n", fr_last_error());
            return s == FR_EINVAL ? 2 : 1;
        }
        if (!o.readme) print_table(t, &o);
    }
    if (o.readme) print_readme(tables, n);
    return 0;
}
