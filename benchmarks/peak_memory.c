/* peak_memory.c - memory of a training step under each switch.
 *
 *     build/benchmarks/peak_memory [--model NAME|all] [--batch-size N] [--image-size N] [--device cpu|meta] [--amp]
 *                                  [--adam] [--rounds N] [--csv FILE] [--svg FILE] [--only ROW] [--architecture]
 *     build/benchmarks/peak_memory --readme                 the table of README.md: VGG-16 and ResNet-50
 *
 * Each network (VGG-16 without --model) runs two steps under each set of switches, from the same seed; the second step
 * is measured. On meta (the default) no kernel runs and library scratch is not included: the bytes are exact and equal
 * on every machine. On the CPU the parameters after the second step are compared bit for bit with the baseline's, and
 * step times are measured in pairs, baseline and case in turn; --only measures one row. --amp: every row in f16 with a
 * loss scale, compared with PyTorch's autocast and its cached casts. --svg draws one network. --architecture compares
 * heads, image sizes and strides instead of switches. */
#include "architecture.h"
#include "peak_fit.h"
#include "peak_write.h"

#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *csv, *svg, *only;
    int64_t batch, image_size;
    int rounds;
    fr_device device;
    bool amp, adam, architecture, readme;
} options;

static int usage(const char *why, const char *what) {
    fprintf(stderr,
            "peak_memory: %s%s\n"
            "usage: peak_memory [--model vgg16|resnet50|densenet121|densenet_bc100|unet|all] [--batch-size N]\n"
            "                   [--image-size N] [--device cpu|meta] [--amp] [--adam] [--rounds N] [--csv FILE]\n"
            "                   [--svg FILE] [--only ROW] [--architecture] [--readme]\n",
            why, what);
    return 2;
}

static bool number(const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end = NULL;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end != 0 || n < least || n > most) return false;
    *out = n;
    return true;
}

static const peak_net *find(const char *name) {
    for (int i = 0; i < peak_nets_count; i++)
        if (strcmp(peak_nets[i].name, name) == 0) return &peak_nets[i];
    return NULL;
}

/* 0, or the exit status. */
static int parse(int argc, char **argv, options *o) {
    int64_t n = 0;
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool *set = strcmp(flag, "--amp") == 0            ? &o->amp
                    : strcmp(flag, "--adam") == 0         ? &o->adam
                    : strcmp(flag, "--architecture") == 0 ? &o->architecture
                    : strcmp(flag, "--readme") == 0       ? &o->readme
                                                          : NULL;
        if (set != NULL) {
            *set = true;
            continue;
        }
        if (value == NULL) return usage("unknown flag, or one without its value: ", flag);
        i++;
        if (strcmp(flag, "--model") == 0) {
            if (strcmp(value, "all") != 0 && find(value) == NULL) return usage("unknown model ", value);
            o->model = value;
        } else if (strcmp(flag, "--only") == 0) {
            o->only = value;
        } else if (strcmp(flag, "--csv") == 0) {
            o->csv = value;
        } else if (strcmp(flag, "--svg") == 0) {
            o->svg = value;
        } else if (strcmp(flag, "--device") == 0) {
            if (strcmp(value, "cpu") != 0 && strcmp(value, "meta") != 0)
                return usage("--device is cpu or meta, not ", value);
            o->device = value[0] == 'c' ? FR_CPU : FR_META;
        } else if (strcmp(flag, "--batch-size") == 0) {
            if (!number(value, 2, 1 << 20, &o->batch)) return usage("--batch-size is a number >= 2, not ", value);
        } else if (strcmp(flag, "--image-size") == 0) {
            if (!number(value, 32, 4096, &o->image_size)) return usage("--image-size is 32..4096, not ", value);
        } else if (strcmp(flag, "--rounds") == 0) {
            if (!number(value, 0, 99, &n)) return usage("--rounds is 0..99, not ", value);
            o->rounds = (int)n;
        } else {
            return usage("unknown flag ", flag);
        }
    }
    return 0;
}

/* ---- the rows -------------------------------------------------------------------------------------------------- */

static peak_case *append(peak_table *t, const options *o, const char *label, const char *flag, fr_switches s) {
    peak_case *c = &t->c[t->n++];
    *c = (peak_case){.label = label, .flag = flag, .switches = s, .how = PEAK_PLAIN, .amp = o->amp, .adam = o->adam};
    return c;
}

static peak_case *checkpoint(peak_case *c, int how, int segments) {
    c->how = how;
    c->segments = segments;
    return c;
}

static void alone(peak_table *t, const options *o) {
    fr_switches off = fr_switches_all_off(), s;
    append(t, o, "everything off, as PyTorch", "--all-off", off)->call = "fr_switches_all_off";
    s = off, s.inplace = true;
    append(t, o, "in-place ops", "--inplace", s);
    s = off, s.encode = true;
    append(t, o, "encodings: 1 bit per relu", "--encode", s)->call = ".encode";
    s = off, s.rebuild = true;
    append(t, o, "rebuild of norms and relus", "--rebuild", s)->call = ".rebuild";
    s = off, s.early_release = true;
    append(t, o, "early release", "--early-release", s);
    s = off, s.inplace = true;
    if (t->at.net->norms) append(t, o, "in-place ABN", "--inplace-abn", s)->abn = true;
    s = off, s.cache_casts = false;
    peak_case *c = append(t, o, o->amp ? "no cached casts" : "mixed precision, loss scaling", "--amp", s);
    c->amp = true;
    c->call = "fr_autocast_begin";
    c = append(t, o, "accumulation, 4 x 1/4 batch", "--accumulate 4", off);
    c->parts = 4;
    c->call = "fr_backward";
    c = append(t, o, "one batch in 4 parts", "--split-batch 4", off);
    c->parts = 4;
    c->whole = true;
    c = append(t, o, "fused optimizer step", "--fused-step", off);
    c->fused = true;
    c->call = "fr_optimizer_fuse";
    s = off, s.offload = true;
    append(t, o, "offload to a file", "--offload", s)->call = ".offload";
}

static void checkpoints(peak_table *t, const options *o) {
    const fr_switches off = fr_switches_all_off();
    const char *const call = "fr_checkpoint_segments";
    checkpoint(append(t, o, "checkpointing, 2 segments", "--checkpoint-segments 2", off), FR_SEGMENTS_COUNT, 2);
    checkpoint(append(t, o, "checkpointing, 4 segments", "--checkpoint-segments 4", off), FR_SEGMENTS_COUNT, 4)->call =
        call;
    checkpoint(append(t, o, "checkpointing, sqrt", "--checkpoint-segments sqrt", off), FR_SEGMENTS_SQRT, 0)->call =
        call;
    checkpoint(append(t, o, "checkpointing, log", "--checkpoint-segments log", off), FR_SEGMENTS_LOG, 0);
    checkpoint(append(t, o, "checkpointing, each unit", "--checkpoint-segments each", off), FR_SEGMENTS_EACH, 0);
}

static void together(peak_table *t, const options *o) {
    const fr_switches defaults = fr_switches_default();
    append(t, o, "defaults", "(none)", defaults)->call = "fr_switches_default";
    append(t, o, "+ fused step", "--fused-step", defaults)->fused = true;
    peak_case *c = append(t, o, "+ checkpointing, log", "... --checkpoint-segments log", defaults);
    c->fused = true;
    checkpoint(c, FR_SEGMENTS_LOG, 0);
    c = append(t, o, "the smallest budget", "--memory-budget", defaults);
    c->fused = true;
    c->how = PEAK_PLAN;
    c->call = "fr_fit_find";
}

static void evaluations(peak_table *t, const options *o) {
    fr_switches s = fr_switches_all_off();
    peak_case *c = append(t, o, "evaluation with a graph", "", s);
    c->work = PEAK_EVALUATE_GRAPH;
    c->call = "fr_module_forward";
    c = append(t, o, "evaluation, no_grad", "(always)", s);
    c->work = PEAK_EVALUATE;
    c->call = "fr_no_grad_begin";
    s.inplace = true;
    c = append(t, o, "evaluation, no_grad, in-place", "--inplace", s);
    c->work = PEAK_EVALUATE;
    c->call = "fr_relu_inplace";
}

/* Keeps the baseline and the row with the label; false without such a row. */
static bool keep_only(peak_table *t, const char *label) {
    for (int i = 1; i < t->n; i++)
        if (strcmp(t->c[i].label, label) == 0) {
            t->c[1] = t->c[i];
            t->n = 2;
            return true;
        }
    fprintf(stderr, "peak_memory: there is no row '%s'\n", label);
    return false;
}

/* Compares the parameters that case i trained with the baseline's, unless the case has different results. */
static bool same(const peak_table *t, int i) {
    const peak_result *r = &t->r[i];
    const peak_case *c = &t->c[i];
    if (!r->possible || c->abn || c->amp != t->c[0].amp || c->parts > 0 || c->work != PEAK_TRAIN) return true;
    if (r->fingerprint == t->r[0].fingerprint) return true;
    fprintf(stderr, "peak_memory: %s with %s: the parameters differ from those of the baseline\n", t->at.net->title,
            t->c[i].label);
    return false;
}

static bool run(peak_table *t, const options *o) {
    alone(t, o);
    checkpoints(t, o);
    together(t, o);
    evaluations(t, o);
    if (o->only != NULL && !keep_only(t, o->only)) return false;
    for (int i = 0; i < t->n; i++) {
        fr_fit fit = {0};
        if (t->c[i].how == PEAK_PLAN && !peak_fit_smallest(&t->at, &t->c[i], &fit)) {
            fr_fit_release(&fit);
            continue;
        }
        peak_measure(&t->at, &t->c[i], &t->r[i]);
        if (t->at.device == FR_CPU && i > 0 && t->r[i].possible && o->rounds > 0 && t->c[i].work == PEAK_TRAIN)
            t->r[i].time_ratio = peak_time_ratio(&t->at, &t->c[0], &t->c[i], o->rounds);
        fr_fit_release(&fit);
        t->c[i].plan = NULL;
        if (!same(t, i)) return false;
    }
    return true;
}

static FILE *open_for(const char *path) {
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        fprintf(stderr, "peak_memory: cannot write %s\n", path);
        exit(1);
    }
    return f;
}

static void close_file(FILE *f, const char *path) {
    bool bad = ferror(f) != 0;
    if (fclose(f) == 0 && !bad) return;
    fprintf(stderr, "peak_memory: writing %s failed\n", path);
    exit(1);
}

static bool wanted(const options *o, const char *name) {
    if (o->readme) return strcmp(name, "vgg16") == 0 || strcmp(name, "resnet50") == 0;
    return strcmp(o->model, "all") == 0 || strcmp(o->model, name) == 0;
}

int main(int argc, char **argv) {
    static peak_table tables[8];
    options o = {.model = "vgg16", .batch = 64, .rounds = 3, .device = FR_META};
    int n = 0, status = parse(argc, argv, &o);
    if (status != 0) return status;
    if (o.architecture) return architecture_run(o.batch);
    if (o.svg != NULL && strcmp(o.model, "all") == 0) return usage("--svg draws one network, not ", o.model);
    for (int i = 0; i < peak_nets_count; i++) {
        const peak_net *net = &peak_nets[i];
        if (!wanted(&o, net->name)) continue;
        peak_table *t = &tables[n++];
        t->at = (peak_setting){.net = net,
                               .device = o.device,
                               .batch = o.batch,
                               .image_size = o.image_size > 0 ? o.image_size : net->image_size,
                               .low = FR_F16};
        if (!run(t, &o)) return 1;
        if (!o.readme) peak_write_text(stdout, t);
    }
    if (o.readme) peak_write_readme(stdout, tables, n);
    if (o.csv != NULL) {
        FILE *f = open_for(o.csv);
        for (int i = 0; i < n; i++) peak_write_csv(f, &tables[i], i == 0);
        close_file(f, o.csv);
    }
    if (o.svg != NULL) {
        FILE *f = open_for(o.svg);
        peak_write_svg(f, tables);
        close_file(f, o.svg);
    }
    return 0;
}
