/* peak_memory.c - what each memory switch does to the peak of a training step.
 *
 *     build/benchmarks/peak_memory [--model NAME|all] [--batch-size N] [--image-size N] [--device cpu|meta] [--amp]
 *                                  [--adam] [--rounds N] [--csv FILE] [--svg FILE] [--only ROW] [--architecture]
 *
 * Each network is trained for two steps under each set of switches, from the same seed, and the second step is looked
 * at. On meta (the default) no kernel runs and library scratch is not included: the bytes are exact and the same on
 * every machine. On the CPU the parameters after the second step are compared bit for bit with those of the baseline,
 * and step times are measured in pairs, baseline and case in turn; --only measures one row. --amp: every row in f16,
 * against PyTorch's autocast with its cached casts. --architecture: what head, image size and strides cost instead.
 * Loss scaling is left out: its bytes are a few scalars. */
#include "architecture.h"
#include "peak_write.h"

#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *csv, *svg, *only;
    int64_t batch, image_size;
    int rounds;
    fr_device device;
    bool amp, adam, architecture;
} options;

static int usage(const char *why, const char *what) {
    fprintf(stderr,
            "peak_memory: %s%s\nusage: peak_memory [--model vgg16|resnet50|densenet121|densenet_bc100|unet|all] "
            "[--batch-size N] [--image-size N] [--device cpu|meta] [--amp] [--adam] [--rounds N] [--csv FILE] "
            "[--svg FILE] [--only ROW] [--architecture]\n",
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
                                                          : NULL;
        if (set != NULL) {
            *set = true;
            continue;
        }
        if (value == NULL) return usage("unknown flag, or one without its value: ", flag);
        i++;
        if (strcmp(flag, "--model") == 0) {
            if (strcmp(value, "all") != 0 && find(value) == NULL) return usage("there is no model ", value);
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

/* ---- the matrix ------------------------------------------------------------------------------------------------ */

static peak_case *append(peak_table *t, const options *o, const char *label, fr_switches s) {
    peak_case *c = &t->c[t->n++];
    *c = (peak_case){.label = label, .switches = s, .how = PEAK_PLAIN, .amp = o->amp, .adam = o->adam};
    return c;
}

static void segments(peak_case *c, int how, int n) {
    c->how = how;
    c->segments = n;
}

static void matrix(peak_table *t, const options *o) {
    fr_switches off = fr_switches_all_off(), s = off, lossless = fr_switches_default();
    lossless.rebuild = true;
    append(t, o, "all off", off);
    s.inplace = true, append(t, o, "inplace", s), s = off;
    s.encode = true, append(t, o, "encode", s), s = off;
    s.rebuild = true, append(t, o, "rebuild", s), s = off;
    s.early_release = true, append(t, o, "early release", s);
    s = off, s.inplace = true;
    if (t->at.net->norms) append(t, o, "inplace abn", s)->abn = true;
    segments(append(t, o, "checkpoint 2", off), FR_SEGMENTS_COUNT, 2);
    segments(append(t, o, "checkpoint 4", off), FR_SEGMENTS_COUNT, 4);
    segments(append(t, o, "checkpoint sqrt", off), FR_SEGMENTS_SQRT, 0);
    segments(append(t, o, "checkpoint log", off), FR_SEGMENTS_LOG, 0);
    segments(append(t, o, "checkpoint each", off), FR_SEGMENTS_EACH, 0);
    s = off;
    s.cache_casts = false;
    append(t, o, o->amp ? "no cached casts" : "amp", s)->amp = true;
    append(t, o, "fused step", off)->fused = true;
    s = off, s.offload = true;
    append(t, o, "offload", s);
    append(t, o, "defaults", fr_switches_default());
    append(t, o, "defaults, rebuild, fused step", lossless)->fused = true;
    peak_case *c = append(t, o, "all lossless, checkpoint 4", lossless);
    c->fused = true;
    segments(c, FR_SEGMENTS_COUNT, 4);
    c = append(t, o, "all lossless, checkpoint sqrt", lossless);
    c->fused = true;
    segments(c, FR_SEGMENTS_SQRT, 0);
    c = append(t, o, "all lossless, checkpoint log", lossless);
    c->fused = true;
    segments(c, FR_SEGMENTS_LOG, 0);
    c = append(t, o, "all lossless, chosen cuts", lossless);
    c->fused = true;
    segments(c, PEAK_PLAN, 0);
}

/* The baseline and the row of that label; false if there is none. */
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

/* Are the results of case i those of the baseline, where they must be? */
static bool same(const peak_table *t, int i) {
    const peak_result *r = &t->r[i];
    if (!r->possible || t->c[i].abn || t->c[i].amp != t->c[0].amp || r->fingerprint == t->r[0].fingerprint) return true;
    fprintf(stderr, "peak_memory: %s with %s: the parameters differ from those of the baseline\n", t->at.net->title,
            t->c[i].label);
    return false;
}

static bool run(peak_table *t, const options *o) {
    matrix(t, o);
    if (o->only != NULL && !keep_only(t, o->only)) return false;
    for (int i = 0; i < t->n; i++) {
        if (t->c[i].how == PEAK_PLAN) {
            if (!peak_cuts_find(&t->at, &t->c[i], &t->cuts)) continue;
            t->c[i].plan = &t->cuts.plan;
        }
        peak_measure(&t->at, &t->c[i], &t->r[i]);
        if (!same(t, i)) return false;
        if (t->at.device == FR_CPU && i > 0 && t->r[i].possible && o->rounds > 0)
            t->r[i].time_ratio = peak_time_ratio(&t->at, &t->c[0], &t->c[i], o->rounds);
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

int main(int argc, char **argv) {
    static peak_table tables[8];
    options o = {.model = "all", .batch = 64, .rounds = 3, .device = FR_META};
    int n = 0, status = parse(argc, argv, &o);
    if (status != 0) return status;
    if (o.architecture) return architecture_run(o.batch);
    for (int i = 0; i < peak_nets_count; i++) {
        const peak_net *net = &peak_nets[i];
        if (strcmp(o.model, "all") != 0 && strcmp(o.model, net->name) != 0) continue;
        peak_table *t = &tables[n++];
        t->at = (peak_setting){.net = net,
                               .device = o.device,
                               .batch = o.batch,
                               .image_size = o.image_size > 0 ? o.image_size : net->image_size,
                               .low = FR_F16};
        if (!run(t, &o)) return 1;
    }
    peak_write_markdown(stdout, tables, n);
    if (o.csv != NULL) {
        FILE *f = open_for(o.csv);
        for (int i = 0; i < n; i++) peak_write_csv(f, &tables[i], i == 0);
        close_file(f, o.csv);
    }
    if (o.svg != NULL) {
        FILE *f = open_for(o.svg);
        peak_write_svg(f, tables, n);
        close_file(f, o.svg);
    }
    return 0;
}
