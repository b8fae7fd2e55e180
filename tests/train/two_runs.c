/* two_runs.c - two budgeted trainings at once in a process: each must equal the run alone, its weights bit for bit,
 * and its memory byte for byte the planned bytes. A plain program, for the thread sanitizer (.ci/run tsan).
 *
 *   two_runs [ROUNDS]     1 if not given */
#include <cjson/cJSON.h>
#include <frugal/train.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 128, WORDS = 64, RUNS = 2, TEXT = 1 << 16 };

static char folder[] = "/tmp/frugal-two-runs-XXXXXX";

typedef struct job {
    const char *name, *flags;
    const char *as; /* part of the names of written files */
    const char *more;
    int status;
} job;

static const job jobs[RUNS] = {
    {.name = "wide", .flags = "--depth 10 --batch-size 8 --memory-budget 6MiB --optimizer adam"},
    {.name = "deep", .flags = "--depth 22 --batch-size 4 --memory-budget 1520KiB --amp=bf16"},
};

static fr_status images(fr_split split, fr_dataset **out) {
    bool train = split == FR_SPLIT_TRAIN;
    return fr_dataset_synthetic(train ? 32 : 12, 10, 32, 32, 3, train ? 0 : 1, out);
}

static fr_status densenet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "densenet%d", (int)o->model.depth);
    return fr_densenet((int)o->model.depth,
                       FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                     .growth = o->model.depth == 10 ? 12 : 4, .device = o->device),
                       out);
}

static void *run(void *ctx) {
    static const char *const none[] = {NULL};
    job *j = ctx;
    fr_train_program program = {.name = j->name,
                                .summary = "",
                                .description = "",
                                .examples = none,
                                .defaults = fr_train_opts_default(),
                                .sgd_lr = 0.05,
                                .depths = "6 n + 4",
                                .digits = images,
                                .model = densenet};
    char all[1024], *words[WORDS] = {0}, *rest = NULL;
    int n = 0;
    program.defaults.model.depth = 10;
    snprintf(all, sizeof all, "%s --image-size 32 --epochs 2 --quiet --threads 1 --report %s/%s.json %s %s", j->name,
             folder, j->as, j->flags, j->more);
    for (char *word = strtok_r(all, " ", &rest); word != NULL && n < WORDS - 1; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    j->status = fr_train_main(&program, n, words);
    return NULL;
}

/* ---- written results ----------------------------------------------------------------------------------------- */

static FILE *open_result(const char *as, const char *ending) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.%s", folder, as, ending);
    return fopen(path, "rb");
}

/* The report's numbers of memory as text; "" without numbers. The caller frees the text. */
static char *memory_of(const char *as) {
    static char text[TEXT];
    FILE *f = open_result(as, "json");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = '\0';
    cJSON *report = cJSON_Parse(text);
    char *memory = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(report, "memory"));
    cJSON_Delete(report);
    return memory != NULL ? memory : strdup("");
}

static bool same_weights(const char *a, const char *b) {
    FILE *x = open_result(a, "safetensors"), *y = open_result(b, "safetensors");
    bool same = x != NULL && y != NULL;
    int c = 0, n = 0;
    for (; same && (c = getc(x)) != EOF; n++) same = c == getc(y);
    same = same && n > 0 && getc(y) == EOF;
    if (x != NULL) fclose(x);
    if (y != NULL) fclose(y);
    return same;
}

/* Runs the job under its own name, and has its weights written to `weights`. */
static job begin(int i, const char *as, const char *weights) {
    job j = jobs[i];
    j.as = as;
    j.more = weights;
    return j;
}

static int check(const char *what, const char *as, const char *alone, const char *planned) {
    char *memory = memory_of(as), *plan = memory_of(planned);
    int bad = 0;
    if (memory[0] == '\0' || strcmp(memory, plan) != 0) {
        fprintf(stderr, "two_runs: %s %s: the plan says %s, measured was %s\n", what, as, plan, memory);
        bad = 1;
    }
    if (alone != NULL && !same_weights(as, alone)) {
        fprintf(stderr, "two_runs: %s %s: other weights than alone\n", what, as);
        bad = 1;
    }
    free(memory);
    free(plan);
    return bad;
}

static int together(void) {
    static const char *const as[RUNS] = {"wide-both", "deep-both"}, *const alone[RUNS] = {"wide", "deep"},
                             *const planned[RUNS] = {"wide-plan", "deep-plan"};
    pthread_t threads[RUNS];
    job both[RUNS];
    int bad = 0;
    for (int i = 0; i < RUNS; i++) {
        char *weights = NULL;
        if (asprintf(&weights, "--export %s/%s.safetensors", folder, as[i]) < 0) return 1;
        both[i] = begin(i, as[i], weights);
    }
    for (int i = 0; i < RUNS; i++)
        if (pthread_create(&threads[i], NULL, run, &both[i]) != 0) return 1;
    for (int i = 0; i < RUNS; i++) {
        pthread_join(threads[i], NULL);
        bad |= both[i].status != 0 || check("at once:", as[i], alone[i], planned[i]);
        free((void *)both[i].more);
    }
    return bad;
}

static int alone(void) {
    static const char *const as[RUNS] = {"wide", "deep"}, *const planned[RUNS] = {"wide-plan", "deep-plan"};
    int bad = 0;
    for (int i = 0; i < RUNS; i++) {
        char weights[PATH];
        job plan = begin(i, planned[i], "--plan"), j;
        (void)run(&plan);
        snprintf(weights, sizeof weights, "--export %s/%s.safetensors", folder, as[i]);
        j = begin(i, as[i], weights);
        (void)run(&j);
        bad |= plan.status != 0 || j.status != 0 || check("alone:", as[i], NULL, planned[i]);
    }
    return bad;
}

static void clean(void) {
    char command[PATH];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) fprintf(stderr, "two_runs: %s stays\n", folder);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1, bad = 0;
    if (mkdtemp(folder) == NULL) return 1;
    bad = alone();
    for (int i = 0; i < rounds && !bad; i++) bad = together();
    if (bad == 0) printf("two_runs: %d times two budgeted runs at once, each as planned and as alone\n", rounds);
    clean();
    return bad;
}
