/* test_folders.c - trainers on image files: folders, tar shards, and fine-tuning. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <frugal/addon.h>
#include <frugal/models.h>
#include <frugal/session.h>
#include <unistd.h>

/* A network so small that a run takes a moment: three dense blocks of one layer on 8 pixels. */
#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 "

TestSuite(folders, .init = files_begin, .fini = files_end);

/* <root>/set: six training and six test images of two classes. Returns the flags to train on the set. */
static const char *write_folder_set(void) {
    static char flags[1024];
    uint8_t rgb[16 * 16 * 3], *bytes = NULL;
    files_make_folder("set");
    static const char *const folders[] = {"set/train",   "set/test",   "set/train/a",
                                          "set/train/b", "set/test/a", "set/test/b"};
    for (int i = 0; i < 6; i++) files_make_folder(folders[i]);
    for (int i = 0; i < 12; i++) {
        char name[64];
        picture_fill(rgb, 16, 16);
        size_t n = jpeg_bytes(JPEG_RGB, rgb, 16, 16, &bytes);
        snprintf(name, sizeof name, "%s/%d.jpg", folders[2 + i % 4], i);
        files_write(name, bytes, n);
        free(bytes);
    }
    snprintf(flags, sizeof flags,
             "--depth 10 --growth 4 --image-size 8 --batch-size 4 --dataset folder --data %s --epochs 1",
             files_path("set"));
    return flags;
}

Test(folders, other_datasets) {
    outcome o = program_run("train_densenet", write_folder_set());
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "folder: 6 training and 6 test images, 2 classes, 8 px; batches of 4, 1 steps per epoch");
    o = program_run("train_densenet",
                    TINY "--dataset synthetic --classes 3 --steps 2 --optimizer adamw --schedule step");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "synthetic: .* 3 classes");
}

/* Writes a training image that lies on a side: EXIF orientation 6. */
static void write_lying(const char *name) {
    uint8_t segment[EXIF_BYTES_MAX];
    size_t bytes = 0;
    uint8_t *file = jpeg_with_segment(segment, exif_bytes(false, 6, segment), 16, 16, &bytes);
    files_write(name, file, bytes);
    free(file);
}

/* A resumed run sees the training's pixels, whatever the default. */
Test(folders, photos_are_turned_and_a_resumed_run_does_as_before) {
    char flags[2048];
    const char *set = write_folder_set();
    write_lying("set/train/a/lying.jpg");
    outcome o = program_run("train_densenet", set);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "note: 1 of 7 images looked at are not upright, by EXIF; --exif is on: they are turned");
    snprintf(flags, sizeof flags, "%s --no-exif --steps 1 --save %s", set, files_path("states"));
    o = program_run("train_densenet", flags);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "--exif is off: they stay so");
    snprintf(flags, sizeof flags, "%s --epochs 2 --resume latest --save %s", set, files_path("states"));
    o = program_run("train_densenet", flags);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "--exif is off: they stay so");
}

static fr_status small_network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    return fr_model("mobilenet_v2_w0.35", FR_MODEL_OPTS(.classes = classes, .image_size = 32, .device = device), out);
}

static fr_status unet(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    return fr_model("unet2", FR_MODEL_OPTS(.classes = classes, .image_size = 16, .device = device), out);
}

/* One image of 16 x 16 and its mask. */
static void write_mask_set(int orientation) {
    static const char *const folders[] = {"masks", "masks/train", "masks/train/images", "masks/train/masks"};
    uint8_t segment[EXIF_BYTES_MAX], rgb[3 * 16 * 16] = {0}, *png = NULL;
    size_t bytes = 0;
    for (int i = 0; i < 4; i++) files_make_folder(folders[i]);
    uint8_t *file = jpeg_with_segment(segment, exif_bytes(false, orientation, segment), 16, 16, &bytes);
    files_write("masks/train/images/a.jpg", file, bytes);
    bytes = png_bytes(PNG_KIND_GRAY, rgb, 16, 16, &png);
    files_write("masks/train/masks/a.png", png, bytes);
    free(file);
    free(png);
}

static void append(void *ctx, const char *sentence) {
    strncat(ctx, sentence, 255);
}

static void remember(void *ctx, const char *sentence) {
    snprintf(ctx, 256, "%s", sentence);
}

/* A session's own folder, too. */
Test(folders, a_session_says_how_many_photos_are_turned) {
    char note[256] = "";
    fr_dataset *photos = NULL;
    fr_session *s = NULL;
    fr_session_opts o = fr_session_opts_default();
    (void)write_folder_set();
    write_lying("set/train/a/lying.jpg");
    o.model = small_network;
    o.ctx = note;
    o.on_note = remember;
    o.train.data.image_size = 32;
    o.train.optim.batch_size = 4;
    MUST(fr_dataset_image_folder(files_path("set"), FR_SPLIT_TRAIN, &photos));
    MUST(fr_session_create(&o, photos, NULL, &s));
    cr_expect_str_eq(note, "1 of 7 images looked at are not upright, by EXIF; train.data.exif is on: they are turned");
    fr_session_release(&s);
    fr_dataset_release(&photos);
}

/* A note, where nothing tells how masks lie, names the field for each way. */
Test(folders, a_session_says_how_masks_that_nothing_tells_of_lie) {
    write_mask_set(3);
    for (int upright = 0; upright < 2; upright++) {
        char notes[512] = "";
        fr_dataset *masks = NULL;
        fr_session *s = NULL;
        fr_session_opts o = fr_session_opts_default();
        o.model = unet;
        o.ctx = notes;
        o.on_note = append;
        o.train.data.image_size = 16;
        o.train.optim.batch_size = 1;
        o.train.data.exif = upright;
        MUST(fr_dataset_mask_folder(files_path("masks"), FR_SPLIT_TRAIN, 7, &masks));
        MUST(fr_session_create(&o, masks, NULL, &s));
        const bool told =
            strstr(notes, "no shape tells how their masks lie: with train.data.exif masks count as "
                          "upright, drawn on what one sees; train.data.exif = false if masks lie") != NULL;
        cr_expect_eq(told, upright, "%s", notes);
        fr_session_release(&s);
        fr_dataset_release(&masks);
    }
}

/* The network of a file of weights, and the file's description. */
static fr_module *network_of(const char *path, int64_t classes, fr_weights_info *info) {
    fr_module *m = NULL;
    cr_assert_eq(fr_model("mobilenet_v2_w0.35", FR_MODEL_OPTS(.classes = classes, .image_size = 32), &m), FR_OK);
    cr_assert_eq(fr_weights_load(m, path, NULL), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fr_weights_info_read(path, info), FR_OK, "%s", fr_last_error());
    return m;
}

static fr_status expect_equal(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    char layer[256];
    (void)is_parameter;
    snprintf(layer, sizeof layer, "%s", path);
    *strrchr(layer, '.') = '\0';
    fr_tensor *other = fr_module_tensor(fr_module_find(ctx, layer), strrchr(path, '.') + 1);
    const bool same = fr_tensor_nbytes(t) == fr_tensor_nbytes(other) &&
                      memcmp(fr_tensor_data(t), fr_tensor_data(other), fr_tensor_nbytes(t)) == 0;
    cr_expect_eq(same, strncmp(path, "classifier.1.", 13) != 0, "%s", path);
    return FR_OK;
}

/* A new head on a network of 10 classes; all else stays, statistics too, and images are prepared as before. */
Test(folders, finetune_trains_the_head_alone) {
    static const char *const flags = "--model mobilenet_v2_w0.35 --image-size 32 --batch-size 4 --steps 2 --quiet";
    static const double imagenet[3] = {0.485, 0.456, 0.406};
    char arguments[2048], first[512], second[512], set[512];
    fr_weights_info was = {0}, now = {0};
    (void)write_folder_set();
    snprintf(first, sizeof first, "%s", files_path("first.safetensors"));
    snprintf(second, sizeof second, "%s", files_path("second.safetensors"));
    snprintf(set, sizeof set, "%s", files_path("set"));
    snprintf(arguments, sizeof arguments, "%s --dataset digits --train-only all --export %s", flags, first);
    outcome o = program_run("finetune", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    snprintf(arguments, sizeof arguments, "%s --data %s --weights %s --export %s", flags, set, first, second);
    o = program_run("finetune", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    char predict[2048];
    snprintf(predict, sizeof predict, "--weights %s --predict %s/train/a/0.jpg", second, set); /* without --data */
    o = program_run("finetune", predict);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "a/0.jpg.* %  [01]  [ab]");
    fr_module *before = network_of(first, 10, &was), *after = network_of(second, 2, &now);
    cr_expect_eq(fr_module_each_tensor(before, expect_equal, after), FR_OK);
    cr_expect_eq(memcmp(was.mean, now.mean, sizeof was.mean), 0, "normalized with %g, before %g", now.mean[0],
                 was.mean[0]);
    cr_expect_eq(fr_weights_save(before, first, NULL), FR_OK); /* as other programs write: no word of its images */
    o = program_run("finetune", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cr_assert_eq(fr_weights_info_read(second, &now), FR_OK);
    for (int i = 0; i < 3; i++) cr_expect_eq(now.mean[i], imagenet[i]);
    fr_weights_info_clear(&was);
    fr_weights_info_clear(&now);
    fr_module_release(&before);
    fr_module_release(&after);
}

/* Images of 8 x 12 train, are saved, resumed, planned to the byte, exported and predicted. */
Test(folders, images_may_be_rectangles) {
    char flags[2048], more[4096];
    (void)write_folder_set();
    snprintf(flags, sizeof flags,
             "--depth 10 --growth 4 --batch-size 4 --dataset folder --data %s --save %s --report %s", files_path("set"),
             files_path("states"), files_path("r.json"));
    snprintf(more, sizeof more, "%s --image-size 8x12 --steps 2 --export %s", flags, files_path("w.safetensors"));
    outcome o = program_run("train_densenet", more);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "folder: 6 training and 6 test images, 2 classes, 8x12 px");
    cJSON *report = report_read(files_path("r.json"));
    const double peak = report_number(report, "memory", "peak_requested");
    cr_expect_eq(report_number(report, "image_width", NULL), 12);
    cJSON_Delete(report);
    fr_weights_info info = {0};
    cr_assert_eq(fr_weights_info_read(files_path("w.safetensors"), &info), FR_OK, "%s", fr_last_error());
    cr_expect(info.height == 8 && info.width == 12);
    fr_weights_info_clear(&info);
    snprintf(more, sizeof more, "plan %s --image-size 8x12 --steps 2", flags);
    o = program_run("train_densenet", more);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, ", 8x12 px, batches of 4");
    report = report_read(files_path("r.json"));
    cr_expect_eq(report_number(report, "memory", "peak_requested"), peak);
    cJSON_Delete(report);
    snprintf(more, sizeof more, "%s --image-size 8x12 --steps 3 --resume latest", flags);
    o = program_run("train_densenet", more);
    cr_expect_eq(o.status, 0, "%s", o.err);
    snprintf(more, sizeof more, "%s --image-size 12x8 --steps 3 --resume latest", flags);
    o = program_run("train_densenet", more);
    cr_expect_neq(o.status, 0);
    EXPECT_MATCH(o.err, "image-size.*8x12");
    snprintf(more, sizeof more, "predict %s --weights %s", files_path("set/test/a/2.jpg"), files_path("w.safetensors"));
    o = program_run("train_densenet", more);
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "2.jpg.* %  [01]  [ab]");
}

Test(folders, sides_of_images_are_two_numbers) {
    static const struct {
        const char *size, *says;
    } cases[] = {{"8x", "neither|not a whole number, or two as in 480x640"},
                 {"8x0", "must lie in 1..4096"},
                 {"8x-1", "must lie in 1..4096"},
                 {"x8", "not a whole number, or two as in 480x640"},
                 {"8x5000", "must lie in 1..4096"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, "--image-size %s --steps 1", cases[i].size);
        outcome o = program_run("train_densenet", arguments);
        cr_expect_eq(o.status, 2, "%s", cases[i].size);
        EXPECT_MATCH(o.err, cases[i].says);
    }
}

/* The head's row for a class in a file of weights of MobileNetV2. */
static void head_row(const char *path, int64_t class, float row[1280]) {
    fr_module *m = NULL;
    fr_weights_info info = {0};
    cr_assert_eq(fr_weights_info_read(path, &info), FR_OK, "%s", fr_last_error());
    const fr_model_opts *as = FR_MODEL_OPTS(.classes = info.classes, .image_size = info.height);
    cr_assert_eq(fr_model(info.model, as, &m), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fr_weights_load(m, path, NULL), FR_OK, "%s", fr_last_error());
    memcpy(row, (float *)fr_tensor_data(fr_module_tensor(fr_module_find(m, "classifier.1"), "weight")) + class * 1280,
           1280 * sizeof *row);
    fr_module_release(&m);
    fr_weights_info_clear(&info);
}

/* A head for other classes is no start, but for the rows of classes of both: of {a, b} the row of b goes on in {b, c},
 * where b is the first class, and in {b, c, d}; {c, d} has none. A rate of 0 leaves the weights as they begin. */
Test(folders, a_head_for_other_classes_keeps_the_rows_of_equal_names) {
    static const struct {
        const char *command, *says; /* in the folders train and test */
        int kept;                   /* the class that is b; -1: none */
    } days[] = {{":", NULL, -1},
                {":", NULL, 1},
                {"mv a c",
                 "--weights: classifier.1 is for other classes there and starts fresh, but for the classes of "
                 "both: b; everything else is the file's",
                 0},
                {"cp -r c d",
                 "--weights: classifier.1 is for other classes there and starts fresh, but for the classes of "
                 "both: b; everything else is the file's",
                 0},
                {"rm -r b",
                 "--weights: classifier.1 is for other classes there and starts fresh; everything else is the "
                 "file's",
                 -1}};
    char first[512], later[512], arguments[2048], command[2048];
    float want[1280], row[1280];
    (void)write_folder_set();
    const char *set = files_path("set");
    snprintf(first, sizeof first, "%s", files_path("weights.safetensors"));
    snprintf(later, sizeof later, "%s", files_path("later.safetensors"));
    for (size_t k = 0; k < sizeof days / sizeof *days; k++) {
        snprintf(command, sizeof command, "(cd %s/train && %s) && cd %s/test && %s", set, days[k].command, set,
                 days[k].command);
        cr_assert_eq(system(command), 0);
        snprintf(
            arguments, sizeof arguments,
            "--model mobilenet_v2_w0.35 --image-size 32 --batch-size 4 --steps 1 --data %s --lr 0 --export %s %s %s",
            set, k == 0 ? first : later, k == 0 ? "--train-only all --seed 2" : "--weights", k == 0 ? "" : first);
        outcome o = program_run("finetune", arguments);
        cr_assert_eq(o.status, 0, "%s", o.err);
        if (k == 0) head_row(first, 1, want);
        cr_expect_eq(strstr(o.out, "starts fresh") != NULL, days[k].says != NULL, "%zu: %s", k, o.out);
        if (days[k].says != NULL) cr_expect_not_null(strstr(o.out, days[k].says), "%zu: %s", k, o.out);
        for (int64_t c = 0; c < 2; c++) {
            head_row(k == 0 ? first : later, c, row);
            if (k > 0) cr_expect_eq(memcmp(row, want, sizeof row) == 0, c == days[k].kept, "%zu: class %d", k, (int)c);
        }
    }
}

Test(folders, finetune_names_what_is_not_there) {
    outcome o = program_run("finetune", "--data nowhere --steps 1");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "finetune: .*nowhere: No such file or directory");
    o = program_run("finetune", "--model mobilnet_v2 --dataset synthetic --steps 1");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "^finetune: model 'mobilnet_v2' is not known; did you mean 'mobilenet_v2'.");
    o = program_run("finetune", "--model resnet-18 --dataset synthetic --steps 1");
    EXPECT_MATCH(o.err, "^finetune: model 'resnet-18' is not known; did you mean 'resnet18'.");
    o = program_run("finetune", "--dataset digits --image-size 32 --steps 1");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--weights FILE is missing, .* random features .* --train-only all");
    o = program_run("finetune", "--model mobilenet_v4 --dataset synthetic --steps 1");
    EXPECT_MATCH(o.err, "^finetune: model 'mobilenet_v4': MobileNet: version is 4; .*; did you mean 'mobilenet_v2'");
    o = program_run("finetune", "--model vgg11 --dataset synthetic --image-size 8 --steps 1");
    EXPECT_MATCH(o.err, "^finetune: --image-size 8: VGG: images of 8 pixels");
    o = program_run("finetune", "--depth 18 --dataset synthetic --steps 1");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--depth belongs to the other trainers");
}

static void shell(const char *in_the_folder) {
    char command[2048];
    snprintf(command, sizeof command, "cd %s && %s", files_path("set"), in_the_folder);
    cr_assert_eq(system(command), 0, "%s", command);
}

/* Pixels have classes in a folder's masks, and a program's own loss may learn from one class. */
Test(folders, a_single_class_is_refused) {
    char arguments[1200];
    const char *flags = write_folder_set();
    shell("rm -r train/b test/b");
    outcome o = program_run("train_densenet", flags);
    cr_expect_eq(o.status, 2, "%d: %s", o.status, o.out);
    EXPECT_MATCH(o.err, "set.* has a single class, so every answer is right .* images of a second one");
    snprintf(arguments, sizeof arguments, "%s --plan", flags);
    cr_expect_eq(program_run("train_densenet", arguments).status, 2);
    cr_expect_eq(program_run("train_densenet", TINY "--dataset synthetic --classes 1 --steps 1").status, 0);
}

/* A folder in shards trains to the losses of the folder. */
Test(folders, tar_shards_train_as_their_folder) {
    static const char *const sets[] = {"", "--dataset tar"};
    const char *flags = write_folder_set();
    char arguments[1200];
    cJSON *loss[2];
    shell("tar -cf train-0.tar -C train a && tar -cf train-1.tar -C train b && tar -cf val.tar -C test a b");
    if (fr_addon_find("tar") == NULL) {
        snprintf(arguments, sizeof arguments, "%s --dataset tar", flags);
        outcome o = program_run("train_densenet", arguments);
        cr_expect_neq(o.status, 0);
        EXPECT_MATCH(o.err, "--dataset tar needs the add-on tar: build with -Dtar=enabled");
        cr_skip("built without the add-on tar");
    }
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments, "%s %s --report %s", flags, sets[i], files_path("tar.json"));
        outcome o = program_run("train_densenet", arguments);
        cr_assert_eq(o.status, 0, "%s", o.err);
        if (i > 0) EXPECT_MATCH(o.out, "tar: 6 training and 6 test images, 2 classes");
        cJSON *r = report_read(files_path("tar.json"));
        loss[i] = cJSON_DetachItemFromObject(r, "loss");
        cJSON_Delete(r);
    }
    cr_expect(cJSON_Compare(loss[0], loss[1], true), "shards train to other losses than their folder");
    for (int i = 0; i < 2; i++) cJSON_Delete(loss[i]);
    shell("rm val.tar* && tar -cf val.tar --transform s/^b/c/ --transform s/^a/b/ -C test a b");
    snprintf(arguments, sizeof arguments, "%s --dataset tar", flags);
    outcome o = program_run("train_densenet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "class 0 is a in the training shards and b in the test");
    snprintf(arguments, sizeof arguments, TINY "--dataset tar --data %s", files_root);
    o = program_run("train_densenet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "holds no shard train\\*.tar");
}
