/* test_classes.c - where a network meets data: for each source of a network, way to train, relation of its classes to
 * the data's, and kind of targets, the training ends in a file that predicts, with the rows of equal names, or is
 * refused before the first step by a sentence with both numbers. */
#define _GNU_SOURCE
#include "../data/files.h"
#include "io/safetensors.h"

#include <frugal/addon.h>
#include <frugal/frugal.h>
#include <frugal/onnx.h>
#include <frugal/session.h>
#include <frugal/train.h>

#include <math.h>
#include <zlib.h>

TestSuite(classes, .init = files_begin, .fini = files_end, .timeout = 300);

enum { SIDE = 8, IMAGES = 2, IN_FILE = 3 };
typedef enum source { BUILT_IN, OWN, ONNX, SAFETENSORS, PTH, SOURCES } source;
typedef enum relation { FEWER, EQUAL, OTHER, MORE, RELATIONS } relation;
static const char *const source_names[] = {"built-in", "own", "onnx", "safetensors", "pth"};
static const char *const relation_names[] = {"fewer", "equal", "other", "more"};
static const char *const data_names[RELATIONS][5] = {{"a", "c"},
                                                     {"a", "b", "c"},
                                                     {"a", "c", "d"},
                                                     {"0", "a", "b", "c"}};
static const int64_t counts[RELATIONS] = {2, 3, 3, 4};

typedef struct cell {
    source from;
    bool session, masks;
    relation to;
} cell;
static cell now;
static double width = 1;

/* ---- data -------------------------------------------------------------------------------------------------------- */

static void write_images(const char *folder, int seed, int classes) {
    uint8_t rgb[3 * SIDE * SIDE], *bytes = NULL;
    char name[128];
    files_make_folder(folder);
    for (int i = 0; i < IMAGES; i++) {
        for (int p = 0; p < 3 * SIDE * SIDE; p++)
            rgb[p] = classes > 0 ? (uint8_t)(p / 3 % classes) : (uint8_t)(p * 7 + seed * 50 + i);
        const size_t n = png_bytes(classes > 0 ? PNG_KIND_GRAY : PNG_KIND_RGB, rgb, SIDE, SIDE, &bytes);
        snprintf(name, sizeof name, "%s/%d.png", folder, i);
        files_write(name, bytes, n);
        free(bytes);
    }
}

static void write_data(const char *root, relation to, bool masks) {
    char name[64];
    files_make_folder(root);
    for (int split = 0; split < 2; split++) {
        snprintf(name, sizeof name, "%s/%s", root, split == 0 ? "train" : "test");
        files_make_folder(name);
        const size_t at = strlen(name);
        for (int k = 0; k < (masks ? 2 : counts[to]); k++) {
            snprintf(name + at, sizeof name - at, "/%s", !masks ? data_names[to][k] : k == 0 ? "images" : "masks");
            write_images(name, k, masks && k == 1 ? (int)counts[to] : 0);
        }
    }
}

static fr_status no_image(void *ctx, int64_t index, void *pixels, void *target) {
    (void)ctx;
    memset(pixels, (int)index, 3 * SIDE * SIDE);
    *(int64_t *)target = index % 2;
    return FR_OK;
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

static fr_status own_network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    const char *const name = now.masks ? "unet1_w0.1" : "resnet18_small_w0.1";
    if (now.from == BUILT_IN)
        return fr_model(name, FR_MODEL_OPTS(.classes = classes, .image_size = SIDE, .device = device), out);
    if (now.from == OWN) classes = IN_FILE; /* ignores the data */
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 3});
    x = fr_net_relu(n, "relu", fr_net_conv2d(n, "conv", x, 5, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    if (now.masks) {
        x = fr_net_conv2d(n, "fc", x, classes, 1, NULL, FR_BIAS);
        x = fr_net_identity(n, "end", x);
    } else {
        x = fr_net_flatten(n, "rows", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1);
        x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    }
    return fr_net_end(&n, &x, 1, out);
}

static const char *model_name(void) {
    return now.from != BUILT_IN ? "tiny" : now.masks ? "unet1_w0.1" : "resnet18_small_w0.1";
}

static fr_status trainers_network(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES],
                                  fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "%s", model_name());
    return own_network(NULL, o->device, classes, out);
}

/* ---- a file of torch.save, made of one of safetensors ------------------------------------------------------------ */

typedef struct buffer {
    unsigned char bytes[1 << 16];
    size_t n;
} buffer;

static void put(buffer *b, const void *bytes, size_t n) {
    cr_assert(b->n + n <= sizeof b->bytes);
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

#define PUT(b, literal) put(b, literal, sizeof(literal) - 1)

static void put_number(buffer *b, uint32_t x, int bytes) {
    for (int i = 0; i < bytes; i++) put(b, &(unsigned char){(unsigned char)(x >> 8 * i)}, 1);
}

static void put_text(buffer *b, const char *text) { /* BINUNICODE */
    PUT(b, "X");
    put_number(b, (uint32_t)strlen(text), 4);
    put(b, text, strlen(text));
}

static void put_ints(buffer *b, const int64_t *x, int n) {
    PUT(b, "(");
    for (int i = 0; i < n; i++) {
        PUT(b, "J");
        put_number(b, (uint32_t)x[i], 4);
    }
    PUT(b, "t");
}

/* A member without compression; `head` repeats it in the archive's list. */
static void put_member(buffer *zip, buffer *list, const char *name, const void *data, size_t n) {
    const uint32_t at = (uint32_t)zip->n, sum = (uint32_t)crc32(0, data, (unsigned)n), length = (uint32_t)strlen(name);
    for (int i = 0; i < 2; i++) {
        buffer *b = i == 0 ? zip : list;
        put(b, i == 0 ? "PK\3\4" : "PK\1\2", 4);
        if (i == 1) put_number(b, 20, 2);
        put_number(b, 20, 2);
        for (int k = 0; k < 4; k++) put_number(b, 0, 2); /* flags, method, time, date */
        put_number(b, sum, 4);
        put_number(b, (uint32_t)n, 4);
        put_number(b, (uint32_t)n, 4);
        put_number(b, length, 2);
        put_number(b, 0, 2);
        if (i == 1) {
            for (int k = 0; k < 5; k++) put_number(b, 0, 2); /* comment, disk, attributes */
            put_number(b, at, 4);
        }
        put(b, name, length);
    }
    put(zip, data, n);
}

static void write_pth(const char *from, const char *to) {
    static buffer pickle, zip, list;
    char name[64];
    fri_safetensors *f = NULL;
    pickle.n = zip.n = list.n = 0;
    MUST(fri_safetensors_open(from, &f));
    PUT(&pickle, "\x80\2}(");
    for (size_t i = 0; i < f->n_entries; i++) {
        const fri_safetensors_entry *e = &f->entries[i];
        const int rank = e->shape.rank;
        int64_t stride[FR_MAX_RANK], n = 1;
        for (int k = rank - 1; k >= 0; k--) stride[k] = n, n *= e->shape.dim[k];
        put_text(&pickle, e->name);
        PUT(&pickle, "ctorch._utils\n_rebuild_tensor_v2\n((");
        put_text(&pickle, "storage");
        PUT(&pickle, "ctorch\nFloatStorage\n");
        snprintf(name, sizeof name, "%zu", i);
        put_text(&pickle, name);
        put_text(&pickle, "cpu");
        PUT(&pickle, "J");
        put_number(&pickle, (uint32_t)n, 4);
        PUT(&pickle, "tQK\0");
        put_ints(&pickle, e->shape.dim, rank);
        put_ints(&pickle, stride, rank);
        PUT(&pickle, "\x89"
                     "ccollections\nOrderedDict\n)RtR");
        snprintf(name, sizeof name, "archive/data/%zu", i);
        put_member(&zip, &list, name, e->data, e->bytes);
    }
    PUT(&pickle, "u.");
    put_member(&zip, &list, "archive/data.pkl", pickle.bytes, pickle.n);
    put_member(&zip, &list, "archive/version", "3\n", 2);
    const uint32_t at = (uint32_t)zip.n, members = (uint32_t)f->n_entries + 2;
    put(&zip, list.bytes, list.n);
    PUT(&zip, "PK\5\6\0\0\0\0");
    put_number(&zip, members, 2);
    put_number(&zip, members, 2);
    put_number(&zip, (uint32_t)list.n, 4);
    put_number(&zip, at, 4);
    put_number(&zip, 0, 2);
    FILE *out = fopen(to, "wb");
    cr_assert(out != NULL && fwrite(zip.bytes, 1, zip.n, out) == zip.n && fclose(out) == 0);
    fri_safetensors_close(&f);
}

/* The file that a training starts from: IN_FILE results, for a, b, c where the format and the data have names. */
static void write_source(const char *path) {
    fr_module *m = NULL;
    char *names[] = {"a", "b", "c"};
    fr_weights_info info = {.classes = IN_FILE, .channels = 3, .height = SIDE, .width = SIDE, .std = {1, 1, 1}};
    char plain[600];
    strcpy(info.model, "tiny");
    if (!now.masks) info.class_name = names;
    fr_seed(77);
    MUST(own_network(NULL, FR_CPU, IN_FILE, &m));
    snprintf(plain, sizeof plain, "%s", files_path("plain.safetensors"));
    if (now.from == ONNX) MUST(fr_onnx_save(m, path, FR_ONNX_SAVE_OPTS(.info = &info)));
    if (now.from == SAFETENSORS) MUST(fr_weights_save(m, path, FR_WEIGHTS_OPTS(.info = &info)));
    if (now.from == PTH) MUST(fr_weights_save(m, plain, NULL));
    if (now.from == PTH) write_pth(plain, path);
    fr_module_release(&m);
}

/* ---- the two ways ------------------------------------------------------------------------------------------------ */

typedef struct told {
    int status; /* of the program, or 0, 2 for a session */
    char text[8192];
} told;

static void set_options(fr_train_opts *o, const char *weights, const char *export, bool plan) {
    o->device = FR_CPU;
    o->data.image_size = o->data.image_width = SIDE;
    o->data.augment = FR_TRAIN_AUGMENT_NONE;
    o->data.workers = 0;
    o->model.width = width;
    o->optim.batch_size = 2;
    o->optim.steps = 1;
    o->optim.lr = 1e-30; /* the values stay, to the last bit */
    o->optim.weight_decay = 0;
    o->files.weights = weights;
    o->files.export_weights = plan ? NULL : export;
}

typedef struct asked {
    const char *root, *weights, *export;
    const char *const *predict;
    bool plan;
} asked;

static fr_status read_options(void *ctx, fr_train_opts *o) {
    const asked *a = ctx;
    set_options(o, a->weights, a->export, a->plan);
    o->plan = a->plan ? FR_TRAIN_PLAN_PEAK : o->plan;
    o->data.dataset = now.masks ? FR_TRAIN_MASKS : FR_TRAIN_FOLDER;
    o->data.path = a->root;
    if (now.masks) o->data.classes = counts[now.to];
    o->files.predict = a->predict;
    o->files.n_predict = a->predict != NULL;
    return FR_OK;
}

static told run_trainer(asked a) {
    told t = {0};
    FILE *out = fmemopen(t.text, sizeof t.text - 1, "w");
    fr_train_program p = {.name = "tester",
                          .summary = "s",
                          .description = "d",
                          .defaults = fr_train_opts_default(),
                          .sgd_lr = 0.1,
                          .model = trainers_network};
    char *words[] = {"tester", NULL};
    t.status = fr_train_run(&p, 1, words, &(fr_train_shell){.out = out, .err = out, .read = read_options, .ctx = &a});
    fputs(fr_last_error(), out);
    fclose(out);
    return t;
}

static void take_note(void *ctx, const char *text) {
    told *t = ctx;
    snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text), "note: %s\n", text);
}

static told run_session(const asked *a) {
    told t = {0};
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *d[2] = {NULL};
    fr_session *s = NULL;
    o.model = own_network;
    o.name = model_name();
    o.ctx = &t;
    o.on_note = take_note;
    set_options(&o.train, a->weights, a->export, false);
    for (int i = 0; i < 2; i++)
        MUST(now.masks ? fr_dataset_mask_folder(a->root, (fr_split)i, counts[now.to], &d[i])
                       : fr_dataset_image_folder(a->root, (fr_split)i, &d[i]));
    fr_status status = fr_session_create(&o, d[0], d[1], &s);
    if (status == FR_OK) cr_expect_not_null(fr_session_module(s));
    t.status = status == FR_OK ? 0 : 2;
    if (status == FR_OK) status = fr_session_run(s);
    if (status < 0 && t.status == 0) t.status = 1;
    if (status < 0) take_note(&t, fr_last_error());
    fr_session_release(&s);
    for (int i = 0; i < 2; i++) fr_dataset_release(&d[i]);
    return t;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

static const float *rows_of(fr_module *m, const char *name, int64_t *rows, int64_t *columns) {
    fr_tensor *t = fr_module_tensor(fr_module_find(m, "fc"), name);
    cr_assert_not_null(t, "fc.%s", name);
    *rows = fr_tensor_dim(t, 0);
    *columns = fr_tensor_numel(t) / *rows;
    return fr_tensor_data(t);
}

static void load(const char *path, int64_t classes, fr_module **m) {
    const source was = now.from;
    if (now.from == ONNX) {
        MUST(fr_onnx_load(path, NULL, m));
        return;
    }
    now.from = SAFETENSORS;
    MUST(own_network(NULL, FR_CPU, classes, m));
    now.from = was;
    MUST(fr_weights_load(*m, path, NULL));
}

/* Row of the file for class i, -1: a fresh one. */
static int64_t row_expected(int64_t i) {
    const bool named = !now.masks && now.from != PTH;
    if (!named) return counts[now.to] == IN_FILE ? i : -1;
    const char *name = data_names[now.to][i];
    return name[1] == '\0' && name[0] >= 'a' && name[0] <= 'c' ? name[0] - 'a' : -1;
}

static void expect_rows(const char *from, const char *to, const char *what) {
    static const char *const name[] = {"weight", "bias"};
    fr_module *old = NULL, *new = NULL;
    int64_t rows, columns, n;
    load(from, IN_FILE, &old);
    load(to, counts[now.to], &new);
    for (int k = 0; k < 2; k++) {
        const float *a = rows_of(old, name[k], &rows, &columns), *b = rows_of(new, name[k], &n, &columns);
        cr_assert_eq(n, counts[now.to], "%s: %lld rows", what, (long long)n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = row_expected(i);
            for (int64_t r = 0; r < rows; r++)
                cr_expect_eq(memcmp(a + r * columns, b + i * columns, (size_t)columns * sizeof *a) == 0, r == row,
                             "%s: fc.%s, class %lld has row %lld", what, name[k], (long long)i, (long long)r);
        }
    }
    fr_module_release(&old);
    fr_module_release(&new);
}

static void expect_prediction(const char *root, const char *path, const char *what) {
    fr_classifier c = {0};
    fr_image image = {0};
    double p[8];
    uint8_t mask[SIDE * SIDE];
    char photo[700];
    const int64_t n = counts[now.to];
    snprintf(photo, sizeof photo, "%s/test/%s/0.png", root, now.masks ? "images" : "a");
    MUST(now.from == OWN || now.from == SAFETENSORS || now.from == PTH
             ? fr_classifier_load_own(path, own_network, NULL, FR_CPU, &c)
             : fr_classifier_load(path, FR_CPU, &c));
    cr_assert_eq(c.info.classes, n, "%s", what);
    cr_expect_eq(c.info.class_name != NULL, !now.masks, "%s", what);
    for (int64_t i = 0; c.info.class_name != NULL && i < n; i++)
        cr_expect_str_eq(c.info.class_name[i], data_names[now.to][i], "%s", what);
    MUST(fr_image_read(photo, &image));
    MUST(now.masks ? fr_predict_mask(c.model, &image, &c.input, n, mask) : fr_predict(c.model, &image, &c.input, p, n));
    fr_classifier_clear(&c);
    fr_image_clear(&image);
    const char *images[] = {photo};
    const told t = run_trainer((asked){root, path, NULL, images, false});
    cr_expect_eq(t.status, 0, "%s: %s", what, t.text);
}

static const char *missing(void) {
    if (now.from == BUILT_IN && now.to != EQUAL) return "a built-in network is made for the data's classes";
    if (now.from == OWN && now.to == OTHER) return "a network has no names of classes";
    if (now.masks && now.to == OTHER) return "masks have no names of classes";
    if (now.from == ONNX && fr_addon_find("onnx") == NULL) return "the add-on onnx is not built";
    return NULL;
}

/* True: the cell exists. */
static bool try_cell(void) {
    static const char *const endings[] = {"", "", ".onnx", ".safetensors", ".pth"};
    char what[96], root[600], weights[600], export[600], name[64];
    const bool file = now.from >= ONNX;
    snprintf(what, sizeof what, "%s, %s, %s, %s", source_names[now.from], now.session ? "session" : "trainer",
             relation_names[now.to], now.masks ? "masks" : "photos");
    if (missing() != NULL) return false;
    snprintf(name, sizeof name, "%s%d", relation_names[now.to], now.masks);
    snprintf(root, sizeof root, "%s", files_path(name));
    snprintf(name, sizeof name, "from%s", endings[now.from]);
    snprintf(weights, sizeof weights, "%s", files_path(name));
    snprintf(name, sizeof name, "to%s", now.from == ONNX ? ".onnx" : ".safetensors");
    snprintf(export, sizeof export, "%s", files_path(name));
    remove(export);
    if (file) write_source(weights);
    asked a = {root, file ? weights : NULL, export, NULL, false};
    const told t = now.session ? run_session(&a) : run_trainer(a);
    const bool fits = counts[now.to] == IN_FILE;
    if (now.from == OWN && !fits) {
        char numbers[64];
        cr_expect_eq(t.status, 2, "%s: %d %s", what, t.status, t.text);
        cr_expect_not_null(strstr(t.text, now.masks ? "results are [2, 8, 8, 3]" : "results are [2, 3]"), "%s: %s",
                           what, t.text);
        snprintf(numbers, sizeof numbers, "for %d classes", (int)counts[now.to]);
        cr_expect_not_null(strstr(t.text, numbers), "%s: %s", what, t.text);
        cr_expect_null(fopen(export, "rb"), "%s", what);
    } else {
        cr_assert_eq(t.status, 0, "%s: %s", what, t.text);
        const bool named = !now.masks && (now.from == ONNX || now.from == SAFETENSORS);
        const bool fresh = file && (!fits || (named && now.to != EQUAL));
        cr_expect_eq(strstr(t.text, "starts fresh") != NULL, fresh, "%s: %s", what, t.text);
        cr_expect_eq(strstr(t.text, "for the classes of both: a, ") != NULL, fresh && named, "%s: %s", what, t.text);
        if (file) expect_rows(weights, export, what);
        expect_prediction(root, export, what);
    }
    if (!now.session) { /* the plan says the same */
        a.plan = true;
        const told p = run_trainer(a);
        cr_expect_eq(p.status, t.status, "%s: the plan: %s", what, p.text);
        cr_expect_eq(strstr(p.text, "starts fresh") != NULL, strstr(t.text, "starts fresh") != NULL, "%s: the plan: %s",
                     what, p.text);
    }
    return true;
}

Test(classes, a_network_of_each_source_meets_data_of_each_kind) {
    int tried = 0, cannot_be = 0;
    for (int masks = 0; masks < 2; masks++)
        for (int to = 0; to < RELATIONS; to++) {
            char name[32];
            snprintf(name, sizeof name, "%s%d", relation_names[to], masks);
            write_data(name, (relation)to, masks != 0);
        }
    for (int i = 0; i < SOURCES * 2 * 2 * RELATIONS; i++) {
        now = (cell){(source)(i % SOURCES), i / SOURCES % 2 == 1, i / (2 * SOURCES) % 2 == 1,
                     (relation)(i / (4 * SOURCES))};
        *(try_cell() ? &tried : &cannot_be) += 1;
    }
    cr_expect_eq(tried + cannot_be, 80);
    cr_expect_eq(tried, fr_addon_find("onnx") != NULL ? 58 : 44, "%d cells", tried);
}

/* ---- names of classes -------------------------------------------------------------------------------------------- */

/* The rows that a file of the classes `in_file` hands to the data's classes. "caf\351" is no UTF-8. */
Test(classes, rows_follow_names) {
    static const struct {
        const char *in_file[5], *data[5];
        int64_t row[4];
        bool fresh;
    } cells[] = {
        {{"caf\351", "caf\350", "the"}, {"caf\351", "caf\350", "the"}, {0, 1, 2}, false}, /* both are "caf?" there */
        {{"a\351", "b", "c"}, {"b", "c", "a\351"}, {1, 2, 0}, true},
        {{"caf\351", "caf\350", "the"}, {"the", "caf\351"}, {2, -1}, true}, /* two rows of a name */
        {{"a", "b", "c"}, {"a\351", "a\350", "a"}, {-1, -1, 0}, true},
        {{"a?", "b", "c"}, {"a\351", "a\350", "b"}, {0, -1, 1}, true}, /* at its place; the other is no row */
        {{"a", "a", "b"}, {"a", "a", "b"}, {0, 1, 2}, false},
        {{"a", "a", "b"}, {"b", "a", "c"}, {2, 1, -1}, true},
        {{NULL}, {"x", "y", "z"}, {0, 1, 2}, false}, /* no names, equally many */
        {{NULL}, {"x", "y"}, {-1, -1}, true},
        {{"a", "b", "c"}, {NULL}, {0, 1, 2}, false},
    };
    now = (cell){SAFETENSORS, true, false, EQUAL};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const char *const *data = cells[i].data;
        char weights[600];
        fr_module *m = NULL, *made = NULL;
        fr_dataset *d = NULL;
        fr_session *s = NULL;
        told t = {0};
        fr_weights_info info = {.classes = IN_FILE,
                                .channels = 3,
                                .height = SIDE,
                                .width = SIDE,
                                .std = {1, 1, 1},
                                .class_name =
                                    cells[i].in_file[0] != NULL ? (char **)(uintptr_t)cells[i].in_file : NULL};
        int64_t n = 0, rows, columns;
        while (data[n] != NULL) n++;
        if (n == 0) n = IN_FILE;
        snprintf(weights, sizeof weights, "%s", files_path("w.safetensors"));
        MUST(own_network(NULL, FR_CPU, IN_FILE, &m));
        MUST(fr_weights_save(m, weights, FR_WEIGHTS_OPTS(.info = &info)));
        MUST(fr_dataset_create(&(fr_dataset_source){.count = 4,
                                                    .classes = n,
                                                    .height = SIDE,
                                                    .width = SIDE,
                                                    .channels = 3,
                                                    .class_names = data[0] != NULL ? data : NULL,
                                                    .read = no_image},
                               &d));
        fr_session_opts o = fr_session_opts_default();
        o.model = own_network;
        o.ctx = &t;
        o.on_note = take_note;
        set_options(&o.train, weights, NULL, false);
        MUST(fr_session_create(&o, d, NULL, &s));
        cr_expect_eq(strstr(t.text, "starts fresh") != NULL, cells[i].fresh, "cell %zu: %s", i, t.text);
        made = fr_session_module(s);
        const float *a = rows_of(m, "weight", &rows, &columns), *b = rows_of(made, "weight", &rows, &columns);
        for (int64_t k = 0; k < n; k++)
            for (int64_t r = 0; r < IN_FILE; r++)
                cr_expect_eq(memcmp(a + r * columns, b + k * columns, (size_t)columns * sizeof *a) == 0,
                             r == cells[i].row[k], "cell %zu: class %lld, row %lld", i, (long long)k, (long long)r);
        fr_session_release(&s);
        fr_dataset_release(&d);
        fr_module_release(&m);
    }
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

static void expect_told(told t, int status, const char *part) {
    cr_expect_eq(t.status, status, "%s: %d %s", part, t.status, t.text);
    cr_expect_not_null(strstr(t.text, part), "no '%s' in: %s", part, t.text);
}

Test(classes, descriptions_that_do_not_fit_are_named) {
    fr_module *m = NULL;
    char *names[] = {"a", "b", "c", "d", "e"};
    char root[600], path[600], photo[700];
    const char *images[] = {photo};
    const bool onnx = fr_addon_find("onnx") != NULL;
    now = (cell){ONNX, false, false, EQUAL};
    write_data("d", EQUAL, false);
    snprintf(root, sizeof root, "%s", files_path("d"));
    snprintf(path, sizeof path, "%s", files_path(onnx ? "n.onnx" : "n.safetensors"));
    snprintf(photo, sizeof photo, "%s/test/a/0.png", root);
    fr_weights_info info =
        {.classes = 5, .channels = 3, .height = SIDE, .width = SIDE, .std = {1, 1, 1}, .class_name = names};
    strcpy(info.model, "tiny");
    MUST(own_network(NULL, FR_CPU, IN_FILE, &m));
    if (onnx) {
        MUST(fr_onnx_save(m, path, FR_ONNX_SAVE_OPTS(.info = &info)));
        expect_told(run_trainer((asked){root, path, NULL, images, false}), 1,
                    "says 5 classes, but its network has 3 results");
        width = 0.5;
        expect_told(run_trainer((asked){root, path, NULL, NULL, false}), 2, "--width: --weights ");
        width = 1;
        const told t = run_trainer((asked){root, path, files_path("x.safetensors"), NULL, false});
        expect_told(t, 2, "x.safetensors: weights alone are not the network of ");
        cr_expect_not_null(strstr(t.text, "name a file .onnx"), "%s", t.text);
        cr_expect_null(strstr(t.text, "weights written"), "%s", t.text);
    }
    const fri_safetensors_text damaged[] = {{"frugal.network", "{"}};
    snprintf(path, sizeof path, "%s", files_path("damaged.safetensors"));
    MUST(fri_safetensors_write(path, NULL, 0, damaged, 1, NULL, NULL));
    expect_told(run_trainer((asked){root, path, NULL, images, false}), 1, "\"frugal.network\" is not a JSON object");
    expect_told(run_trainer((asked){root, path, NULL, NULL, true}), 1, "\"frugal.network\" is not a JSON object");
    expect_told(run_trainer((asked){"/nowhere", NULL, NULL, NULL, false}), 1, "--data: /nowhere");
    fr_module_release(&m);
}

static fr_status read_nothing(void *ctx, fr_train_opts *o) {
    (void)ctx;
    o->optim.steps = 1;
    return FR_OK;
}

Test(classes, a_program_without_digits_asks_for_a_dataset) {
    told t = {0};
    FILE *out = fmemopen(t.text, sizeof t.text - 1, "w");
    fr_train_program p = {.name = "tester",
                          .summary = "s",
                          .description = "d",
                          .defaults = fr_train_opts_default(),
                          .sgd_lr = 0.1,
                          .model = trainers_network};
    char *words[] = {"tester", NULL};
    now = (cell){SAFETENSORS, false, false, EQUAL};
    t.status = fr_train_run(&p, 1, words, &(fr_train_shell){.out = out, .err = out, .read = read_nothing});
    fclose(out);
    cr_expect_eq(t.status, 2, "%s", t.text);
    cr_expect_str_eq(fr_last_error(),
                     "tester has no digits; --dataset NAME is needed: folder, masks, mnist, cifar10 ...");
}

/* A resumed run gets all values from the state, without a note on the first weights. */
Test(classes, a_state_of_other_data_has_a_status) {
    fr_module *two = NULL;
    now = (cell){SAFETENSORS, true, false, EQUAL};
    MUST(own_network(NULL, FR_CPU, 2, &two));
    MUST(fr_weights_save(two, files_path("two.safetensors"), NULL));
    fr_module_release(&two);
    for (int i = 0; i < 4; i++) { /* first, equal, more images, another batch size */
        fr_session_opts o = fr_session_opts_default();
        fr_dataset *d = NULL;
        fr_session *s = NULL;
        told t = {0};
        o.model = own_network;
        o.ctx = &t;
        o.on_note = take_note;
        set_options(&o.train, NULL, NULL, false);
        o.train.files.weights = files_path("two.safetensors");
        o.train.files.save = files_path("states");
        o.train.files.resume = "latest";
        if (i == 3) o.train.optim.batch_size = 3;
        MUST(fr_dataset_create(&(fr_dataset_source){.count = i == 2 ? 6 : 5,
                                                    .classes = 3,
                                                    .height = SIDE,
                                                    .width = SIDE,
                                                    .channels = 3,
                                                    .read = no_image},
                               &d));
        const fr_status want = i < 2 ? FR_OK : i == 2 ? FR_EDATA : FR_EINVAL, got = fr_session_create(&o, d, NULL, &s);
        cr_expect_eq(got, want, "%d: %s", i, got < 0 ? fr_last_error() : "");
        if (i == 0) MUST(fr_session_run(s));
        cr_expect_eq(strstr(t.text, "starts fresh") != NULL, i == 0, "%d: %s", i, t.text);
        fr_session_release(&s);
        fr_dataset_release(&d);
    }
    cr_expect_str_eq(fr_status_name(FR_EDATA), "FR_EDATA");
}
