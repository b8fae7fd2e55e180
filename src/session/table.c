/* table.c - every flag of the trainers. */
#include "session/flags.h"

#include <frugal/plan.h>

static const fr_flag_choice devices[] = {{"auto", FR_TRAIN_AUTO},
                                         {"cpu", FR_CPU},
                                         {"cuda", FR_CUDA},
                                         {"meta", FR_META},
                                         {0}};
static const fr_flag_choice augments[] = {{"none", FR_TRAIN_AUGMENT_NONE},
                                          {"light", FR_TRAIN_AUGMENT_LIGHT},
                                          {"strong", FR_TRAIN_AUGMENT_STRONG},
                                          {0}};
static const fr_flag_choice datasets[] = {{"digits", FR_TRAIN_DIGITS},
                                          {"mnist", FR_TRAIN_MNIST},
                                          {"fashion-mnist", FR_TRAIN_FASHION_MNIST},
                                          {"cifar10", FR_TRAIN_CIFAR10},
                                          {"cifar100", FR_TRAIN_CIFAR100},
                                          {"folder", FR_TRAIN_FOLDER},
                                          {"masks", FR_TRAIN_MASKS},
                                          {"tar", FR_TRAIN_TAR},
                                          {"synthetic", FR_TRAIN_SYNTHETIC},
                                          {0}};
static const fr_flag_choice optimizers[] = {{"sgd", FR_TRAIN_SGD},         {"adam", FR_TRAIN_ADAM},
                                            {"adamw", FR_TRAIN_ADAMW},     {"adam8", FR_TRAIN_ADAM8},
                                            {"rmsprop", FR_TRAIN_RMSPROP}, {0}};
static const fr_flag_choice losses[] = {{"cross-entropy", FR_TRAIN_CROSS_ENTROPY},
                                        {"bce", FR_TRAIN_BCE},
                                        {"focal", FR_TRAIN_FOCAL},
                                        {"dice", FR_TRAIN_DICE},
                                        {0}};
static const fr_flag_choice schedules[] = {{"constant", FR_SCHEDULE_CONSTANT},
                                           {"step", FR_SCHEDULE_STEP},
                                           {"cosine", FR_SCHEDULE_COSINE},
                                           {0}};
static const fr_flag_choice pool_indices[] = {{"i64", FR_I64}, {"i32", FR_I32}, {"u8", FR_U8}, {0}};

static const fr_flag_choice amps[] = {{"fp16", FR_TRAIN_AMP_FP16},
                                      {"bf16", FR_TRAIN_AMP_BF16},
                                      {"off", FR_TRAIN_AMP_OFF},
                                      {0}};
static const fr_flag_choice fusings[] = {{"auto", FR_TRAIN_AUTO},
                                         {"on", FR_TRAIN_FUSED_ON},
                                         {"two-pass", FR_TRAIN_FUSED_TWO_PASS},
                                         {"off", FR_TRAIN_FUSED_OFF},
                                         {0}};
static const fr_flag_choice prefix_parts[] = {{"auto", FR_TRAIN_PARTS_AUTO}, {0}};
static const fr_flag_choice segmentations[] = {{"sqrt", FR_TRAIN_SQRT},
                                               {"log", FR_TRAIN_LOG},
                                               {"each", FR_TRAIN_EACH},
                                               {0}};
static const fr_flag_choice plans[] = {{"on", FR_TRAIN_PLAN_PEAK},     {"all", FR_TRAIN_PLAN_ALL},
                                       {"every", FR_TRAIN_PLAN_EVERY}, {"switches", FR_TRAIN_PLAN_SWITCHES},
                                       {"off", FR_TRAIN_PLAN_OFF},     {0}};
static const fr_flag_choice batches[] = {{"fit", FR_TRAIN_AUTO}, {0}};
static const fr_flag_choice scales[] = {{"dynamic", FR_TRAIN_AUTO}, {0}};

static void all_off(fr_train_opts *o) {
    o->memory.switches = fr_switches_all_off();
    o->memory.switches.workspace_limit = SIZE_MAX;
    o->memory.checkpoint_segments = FR_TRAIN_AUTO;
    o->memory.prefix_parts = FR_TRAIN_AUTO;
    o->memory.fit_switches = false;
    o->memory.fused_step = FR_TRAIN_FUSED_OFF;
    o->memory.offload = NULL;
    o->memory.grad_zero = false;
    o->memory.split_batch = 1;
    o->model.inplace_abn = false;
}

static void fit_switches(fr_train_opts *o) {
    o->memory.fit_switches = true;
}

#define ROW(kind_, group_, field_) \
    .field = #field_, .kind = FR_FLAG_##kind_, .group = FR_GROUP_##group_, .offset = offsetof(fr_train_opts, field_)
#define RANGE(a, b) .least = a, .most = b
#define BELOW(a, b) .real_least = a, .below = b
#define WRITTEN     .unset = "none", .file = FR_FILE_WRITTEN
#define READ        .unset = "none", .file = FR_FILE_READ
#define COUNT       RANGE(1, 1000000000)

const fr_flag fri_flags[] = {
    /* ---- model ---- */
    {"depth", ROW(INT, MODEL, model.depth), "N", "Depth of the network: which member of the family.", COUNT,
     .brief = ""},
    {"batch-norm", ROW(BOOL, MODEL, model.batch_norm), NULL, "Batch normalization after convolutions."},
    {"width", ROW(REAL, MODEL, model.width), "X",
     "All channels times X, each to a multiple of 8: the width multiplier of MobileNetV2's paper.",
     BELOW(0.01, 16.0000001)},

    /* ---- data ---- */
    {"dataset", ROW(CHOICE, DATA, data.dataset), "NAME",
     "What to train on. 'folder' is <PATH>/<train|test>/<class>/*.jpg or .png; 'masks' is <PATH>/<train|test>/images/"
     "*.jpg or .png, and masks/*.png of the same names with a class per pixel (255: none); 'tar' is WebDataset's "
     "shards <PATH>/<train|test>*.tar. 'synthetic' is noise, for measuring. 'digits' are 1,500 + 297 handwritten ones "
     "inside some programs, enlarged to the image size.",
     .unset = "none; NAME is needed", .choices = datasets, .brief = "mnist, cifar10, folder, masks, ..."},
    {"data", ROW(TEXT, DATA, data.path), "PATH", "The folder with the dataset's files.",
     .unset = "none; all datasets but digits and synthetic need it", .file = FR_FILE_READ,
     .brief = "The dataset's folder"},
    {"image-size", ROW(SIDES, DATA, data.image_size), "N",
     "Side in pixels of the image that the network sees, or HEIGHTxWIDTH.", .unset = "224 for 'folder', else 32",
     RANGE(1, 4096), .brief = "Side of the image in pixels, or 480x640"},
    {"classes", ROW(INT, DATA, data.classes), "N",
     "Number of classes of synthetic data, of masks, and of a folder on '--device meta' without --data.",
     .unset = "10, of masks none", RANGE(1, 1000000)},
    {"augment", ROW(CHOICE, DATA, data.augment), "HOW",
     "Random changes of training images. 'light': digits and MNIST are shifted by up to 2 pixels, digits turned, "
     "scaled and sheared by up to 10 degrees and 10 %; Fashion-MNIST and CIFAR are shifted by up to 4 and mirrored; a "
     "folder's images are cropped (shifted below 64 pixels) and mirrored. 'strong' adds, by the add-on augment, "
     "torchvision's recipe: RandAugment (2 ops of magnitude 9), random erasing (0.1), mixup (0.2) and cutmix (1); "
     "with masks, ColorJitter (0.4) instead.",
     .choices = augments},
    {"workers", ROW(INT, DATA, data.workers), "N", "Threads that decode images; 0: the training thread does it.",
     RANGE(0, 256)},
    {"exif", ROW(BOOL, DATA, data.exif), NULL,
     "Turn photos upright as the EXIF orientation of their JPEG files says, and masks with them. A resumed run does as "
     "before.",
     .per_run = true, .if_missing = "off"},
    {"pin-memory", ROW(BOOL, DATA, data.pin_memory), NULL,
     "Batches go to a GPU through pinned host memory, so that the copy does not wait."},
    {"device-prefetch", ROW(BOOL, DATA, data.device_prefetch), NULL,
     "On a GPU, copy the next batch while a step runs, which takes the memory of one more batch. No effect on the "
     "CPU."},

    /* ---- training ---- */
    {"epochs", ROW(INT, TRAINING, optim.epochs), "N", "Passes over the training images.", COUNT, .per_run = true,
     .brief = "Passes over the training images"},
    {"steps", ROW(INT, TRAINING, optim.steps), "N",
     "End after N optimizer steps. Without --epochs the epochs go on until then.", .unset = "no limit", COUNT,
     .per_run = true},
    {"batch-size", ROW(INT, TRAINING, optim.batch_size), "N",
     "Images per step; 'fit': the largest batch that fits into --memory-budget.", RANGE(1, 1 << 20), .choices = batches,
     .brief = "Images per step; 'fit': the most possible"},
    {"optimizer", ROW(CHOICE, TRAINING, optim.optimizer), "NAME", "As in PyTorch; adam8 is AdamW with 8-bit moments.",
     .choices = optimizers},
    {"lr", ROW(REAL, TRAINING, optim.lr), "X", "Learning rate at its highest.", BELOW(0, 1e6), .per_run = true,
     .brief = "Learning rate at its highest"},
    {"momentum", ROW(REAL, TRAINING, optim.momentum), "X", "Momentum of SGD and RMSprop.", BELOW(0, 1),
     .per_run = true},
    {"weight-decay", ROW(REAL, TRAINING, optim.weight_decay), "X",
     "L2 penalty (SGD, RMSprop, Adam) or decoupled decay (AdamW, adam8).", BELOW(0, 1e6), .per_run = true},
    {"schedule", ROW(CHOICE, TRAINING, optim.schedule), "NAME",
     "Learning rate over the run: constant, a tenth after each third ('step'), or half a cosine down to 0.",
     .choices = schedules, .per_run = true},
    {"warmup", ROW(REAL, TRAINING, optim.warmup), "X",
     "Epochs in which the learning rate rises linearly from 0, before the schedule.", BELOW(0, 1e6), .per_run = true},
    {"loss", ROW(CHOICE, TRAINING, optim.loss), "NAME",
     "The loss for classes: softmax cross entropy; binary cross entropy of a sigmoid per class; focal loss of such "
     "sigmoids (gamma 2, alpha 0.25); Dice over all images and pixels of a batch.",
     .choices = losses, .per_run = true},
    {"eval-every", ROW(INT, TRAINING, optim.eval_every), "N",
     "Evaluate on the test images after each N epochs, and at the end; 0: at the end only.", RANGE(0, 1000000000)},
    {"seed", ROW(INT, TRAINING, optim.seed), "N", "Same seed, same run, bit for bit, at a fixed number of threads.",
     RANGE(0, INT64_MAX)},

    {"freeze", ROW(LIST, TRAINING, model.freeze), "PREFIX...",
     "Do not train the layers and parameters of these names, nor those below them: 'layer1', 'layer1.0.bn1', "
     "'fc.bias'. Frozen batch norms use their running values; frozen layers keep nothing for backward.",
     .unset = "none", .per_run = true},
    {"train-only", ROW(LIST, TRAINING, model.train_only), "PREFIX...",
     "Freeze all but these; 'head' is the last layer with parameters, 'bias' all biases, 'norm' all norms, 'all' the "
     "whole network; 'last=4', 'norm=4', 'bias=4' are those of the last 4 layers with parameters; 'auto': as many of "
     "them as fit into --memory-budget.",
     .unset = "everything trains", .per_run = true, .brief = "Freeze all but 'head', 'bias', 'norm' or these"},
    {"accumulate", ROW(INT, TRAINING, memory.accumulate), "K",
     "Batches per optimizer step; their losses are averaged. Batches left over at the end of an epoch are dropped. On "
     "several ranks K counts the batches of all ranks.",
     .unset = "1; on several ranks one for each; resumed: as it was", COUNT,
     .brief = "Batches per optimizer step: --accumulate 4"},
    {"clip", ROW(REAL, TRAINING, optim.clip), "X",
     "Scale the gradients down when their common norm is above X (clip_grad_norm_).", .unset = "no limit",
     BELOW(1e-30, 1e30), .per_run = true},
    {"amp", ROW(CHOICE, TRAINING, precision.amp), "TYPE",
     "Mixed precision: ops on PyTorch's autocast lists run in this type, parameters stay f32. '--amp' alone is fp16.",
     .implied = "fp16", .choices = amps, .brief = "Mixed precision, fp16 or bf16: --amp=bf16"},
    {"loss-scale", ROW(REAL, TRAINING, precision.loss_scale), "X",
     "Scale of the loss under --amp: 'dynamic' (65536, doubled after 2,000 good steps, halved and the step skipped on "
     "inf or NaN; the default of fp16), or a fixed number.",
     BELOW(1e-30, 1e30), .choices = scales, .per_run = true},
    {"half", ROW(CHOICE, TRAINING, precision.half), "TYPE",
     "Pure half precision: parameters themselves in this type, batch norm in f32. '--half' alone is fp16.",
     .implied = "fp16", .choices = amps},
    {"master-weights", ROW(SET, TRAINING, precision.master_weights), NULL,
     "With --half: the optimizer updates f32 copies of the parameters (APEX's O2), and fp16 scales its loss.",
     .per_run = true},

    /* ---- device ---- */
    {"device", ROW(CHOICE, DEVICE, device), "NAME",
     "Where to train; 'auto' is the GPU where there is one, else the CPU, and the first line says why. 'meta' has "
     "shapes and sizes but no data: it shows what a run needs without running it, and prints '-' for losses.",
     .choices = devices},
    {"threads", ROW(INT, DEVICE, threads), "N", "Threads of the CPU's kernels.",
     .unset = "FRUGAL_THREADS, OMP_NUM_THREADS, else the processors that the process may use", RANGE(1, 4096)},
    {"deterministic", ROW(BOOL, DEVICE, precision.deterministic), NULL,
     "On a GPU, convolutions run on engines that give the same bits each time, and on no others. The CPU's always do."},
    {"cudnn-benchmark", ROW(BOOL, DEVICE, precision.cudnn_benchmark), NULL,
     "On a GPU, time the engines of each convolution whose scratch is within --workspace-limit, before the first "
     "step, and keep the fastest. No effect on the CPU."},
    {"exact-convolutions", ROW(SET, DEVICE, precision.exact_convolutions), NULL,
     "f32 convolutions without Winograd's algorithm on the CPU and without TF32 on a GPU: slower, with smaller "
     "rounding errors.",
     .per_run = true},

    /* ---- memory ---- */
    {"memory-limit", ROW(SIZE, MEMORY, memory.limit), "BYTES",
     "Reserve at most this from the device ('512MiB', '2GiB'); a run that needs more ends with a report of what is "
     "live. --memory-budget chooses what fits.",
     .unset = "none"},
    {"inplace", ROW(BOOL, MEMORY, memory.switches.inplace), NULL,
     "Activations overwrite their input if no other op needs it.",
     .brief = "Activations keep their input: --no-inplace"},
    {"inplace-abn", ROW(BOOL, MEMORY, model.inplace_abn), NULL,
     "Batch norm and the relu after it become one op with a leaky relu of slope 0.01 and weights |gamma|. The op "
     "overwrites its input, and backward recomputes the input from the output (InPlace-ABN)."},
    {"encode", ROW(BOOL, MEMORY, memory.switches.encode), NULL,
     "For backward, relu keeps 1 bit per element, max pooling 1 byte per output, dropout nothing."},
    {"rebuild", ROW(BOOL, MEMORY, memory.switches.rebuild), NULL,
     "Outputs of batch norm, relu, add, concat and upsampling are recomputed in backward. Unset on a GPU: only where "
     "the "
     "run does not fit without, or as --memory-budget chooses."},
    {"early-release", ROW(BOOL, MEMORY, memory.switches.early_release), NULL,
     "A saved tensor is freed as soon as backward has used it."},
    {"half-gradients", ROW(BOOL, MEMORY, memory.switches.half_gradients), NULL,
     "Under --amp a weight's gradient stays in the compute type until another one is added (--accumulate, "
     "--split-batch, --grad-zero, ranks), --clip changes it, or the optimizer reads it."},
    {"split-batch", ROW(INT, MEMORY, memory.split_batch), "K",
     "Train on a batch in K parts, one after the other; losses are averaged. Batch norm sees each part alone, so its "
     "statistics are those of the smaller batch.",
     COUNT},
    {"grad-zero", ROW(SET, MEMORY, memory.grad_zero), NULL,
     "Keep gradients between steps and clear them (zero_grad(set_to_none=False)), instead of releasing them."},
    {"fused-step", ROW(CHOICE, MEMORY, memory.fused_step), "HOW",
     "Update a parameter as soon as its gradient is complete, and release the gradient; --no-fused-step keeps all "
     "gradients until the step. 'auto': on, except on a GPU and where --accumulate, --split-batch, --clip, --grad-zero "
     "or a loss scale needs all gradients. 'two-pass' is for a loss scale: each batch runs forward and backward twice, "
     "first only to look for inf and NaN.",
     .implied = "on", .choices = fusings},
    {"offload", ROW(TEXT, MEMORY, memory.offload), "FILE",
     "Large saved activations wait in this file until backward needs them. '--offload' alone uses a temporary file, "
     "which is unlinked at once.",
     .unset = "off", .implied = "", .file = FR_FILE_WRITTEN},
    {"all-off", FR_FLAG_ACT, FR_GROUP_MEMORY,
     .help = "All memory switches off: what PyTorch keeps. Flags after this one switch single ones on again.",
     .act = all_off},
    {"pool-index", ROW(CHOICE, MEMORY, memory.switches.pool_index), "TYPE",
     "Type of max pooling's indices with --no-encode.", .choices = pool_indices},
    {"workspace-limit", ROW(SIZE, MEMORY, memory.switches.workspace_limit), "BYTES",
     "Prefer kernels whose scratch memory stays under this. Unset: 64 MiB, on a GPU as much as does not raise the "
     "run's planned peak.",
     .unset = "auto"},
    {"checkpoint-segments", ROW(INT, MEMORY, memory.checkpoint_segments), "N",
     "Cut the network into N segments; backward recomputes all but the last. 'sqrt': as many as the square root of "
     "the number of units, 'each': every unit, 'log': halves of halves.",
     .unset = "none", RANGE(1, 1000000000), .choices = segmentations,
     .brief = "Recompute inside N parts: --checkpoint-segments sqrt"},

    {"prefix-parts", ROW(INT, MEMORY, memory.prefix_parts), "N",
     "Run the frozen layers before the first trained one (--train-only, --freeze) on N images at a time: equal bits "
     "in less memory; 'auto': the plan chooses N.",
     .unset = "all at once", RANGE(1, 1 << 20), .choices = prefix_parts},

    {"arena", ROW(BOOL, MEMORY, memory.arena), NULL,
     "Plan the run, reserve exactly what it needs, and give each allocation a fixed place in it."},
    {"memory-budget", ROW(SIZE, MEMORY, memory.budget), "BYTES",
     "Reserve at most this: choose for each unit of the network what is kept, encoded, rebuilt or recomputed, the "
     "fastest way that fits, and train so. This replaces the other switches and --checkpoint-segments, unless "
     "--all-off follows this flag. If nothing fits, the error names the smallest budget.",
     .unset = "none", .brief = "Train within this: --memory-budget 2GiB", .act = fit_switches},
    {"calibrate", ROW(SET, MEMORY, memory.calibrate), NULL,
     "Measure how long each kernel takes in the second step and keep the times for --memory-budget and --plan=all."},
    {"plan", ROW(CHOICE, MEMORY, plan), "LINES",
     "Do not train: print the exact memory that this command would need, found by a dry run without data, and end. "
     "'all': peak and predicted relative time of combinations of switches and segments, and of fitted budgets, "
     "without those that another beats in both; 'every': all of them, with a star at the former. 'switches': the peak "
     "under each memory switch alone, and with --memory-plot its picture.",
     .implied = "on", .choices = plans, .brief = "The exact memory, before a run: --plan --amp"},

    /* ---- files ---- */
    {"weights", ROW(TEXT, FILES, files.weights), "FILE",
     "Start from these weights: safetensors, or torch.save's state dict (.pth); torchvision's names and layouts. "
     "FILE.onnx: the file's network is trained, too.",
     READ, .brief = "Start from these weights (safetensors or .pth)"},
    {"export", ROW(TEXT, FILES, files.export_weights), "FILE",
     "Write the weights at the end; torchvision loads them. FILE.onnx: the network with them, for programs that infer.",
     WRITTEN},
    {"keep-best", ROW(SET, FILES, files.keep_best), NULL,
     "With --export: write the weights of the best evaluation (by accuracy, or else by loss) instead of the last "
     "ones."},
    {"save", ROW(TEXT, FILES, files.save), "DIR",
     "Save the state of the training here: after each epoch or --save-every steps, at the end, and before a signal "
     "ends the run.",
     .unset = "none", .brief = "Save the training here, each epoch and on Ctrl-C"},
    {"save-every", ROW(INT, FILES, files.save_every), "N", "Steps from one save to the next.", .unset = "an epoch",
     COUNT},
    {"keep", ROW(INT, FILES, files.keep), "N", "States that stay in the folder, the newest; 0: all.",
     RANGE(0, 1000000000)},
    {"resume", ROW(TEXT, FILES, files.resume), "DIR",
     "Continue from the newest good state of this folder; 'latest': of the --save folder, or from the start if it "
     "holds none. --epochs and --steps count from the start of the training.",
     READ, .brief = "Continue from there; 'latest': from the --save folder"},
    {"predict", ROW(LIST, FILES, files.predict), "IMAGE...",
     "Do not train: print the five likeliest classes of each image file (JPEG, PNG), or the share of each class if the "
     "network classifies pixels. Needs --weights or --resume.",
     .unset = "none"},
    {"masks", ROW(TEXT, FILES, files.masks), "DIR",
     "With --predict: write the class of each pixel of NAME.jpg to DIR/NAME.png, a palette.", WRITTEN},

    /* ---- output ---- */
    {"summary", ROW(SET, OUTPUT, summary), NULL,
     "Do not train: print a line per layer, from a dry run of one step: shape, parameters, bytes that it keeps for "
     "backward under these flags, operations, bytes read and written, predicted time; and end."},
    {"detect-anomaly", ROW(SET, OUTPUT, precision.detect_anomaly), NULL,
     "Check the result of each op, and name the first with inf or NaN when a step is skipped or the loss is not a "
     "number. Without this flag only the step after an overflow is checked."},
    {"quiet", ROW(SET, OUTPUT, quiet), NULL, "Print the last line only."},
    {"report", ROW(TEXT, OUTPUT, files.report), "FILE",
     "Write memory, time, loss and accuracy as JSON. Sizes are in bytes.", WRITTEN,
     .brief = "Write memory, time, loss and accuracy as JSON"},
    {"log", ROW(TEXT, OUTPUT, files.log), "FILE", "Write one JSON object per step and line.", WRITTEN},

    /* ---- fields without a flag ---- */
    {"keep-last", ROW(SET, DATA, data.keep_last)},
    {"shuffle-window", ROW(INT, DATA, data.shuffle_window), RANGE(0, INT64_C(1) << 40), .per_run = true},
    {"prefetch", ROW(INT, DATA, data.prefetch), RANGE(1, 64)},
    {"nesterov", ROW(SET, TRAINING, optim.nesterov), .per_run = true},
    {"patience", ROW(INT, TRAINING, optim.patience), COUNT, .per_run = true},
    {"balanced-sampling", ROW(SET, TRAINING, data.balanced_sampling), .per_run = true},
    {"label-smoothing", ROW(REAL, TRAINING, optim.label_smoothing), BELOW(0, 1), .per_run = true},
    {"per-class", ROW(SET, TRAINING, optim.per_class)},
    {"ema", ROW(REAL, TRAINING, optim.ema), BELOW(0, 1), .per_run = true},
    {"cache-casts", ROW(BOOL, MEMORY, memory.switches.cache_casts)},
    {"fit-switches", ROW(BOOL, MEMORY, memory.fit_switches)},
    {"head-lr-scale", ROW(REAL, TRAINING, optim.head_lr_scale), BELOW(0, 1e6), .per_run = true},
    {"no-norm-decay", ROW(SET, TRAINING, optim.no_norm_decay), .per_run = true},
    {"balanced-weights", ROW(SET, TRAINING, optim.balanced_weights), .per_run = true},
    {"check-replicas", ROW(SET, DEVICE, check_replicas)},
};
const int fri_flags_count = (int)(sizeof fri_flags / sizeof *fri_flags);
_Static_assert(sizeof fri_flags / sizeof *fri_flags <= FRI_FLAGS_MOST, "states hold a setting per flag");

fr_train_opts fr_train_opts_default(void) {
    fr_switches switches = fr_switches_default();
    switches.workspace_limit = SIZE_MAX;
    switches.half_gradients = true;
    return (fr_train_opts){
        .model.depth = FR_TRAIN_AUTO,
        .model.batch_norm = true,
        .model.width = 1,
        .data.image_size = FR_TRAIN_AUTO,
        .data.image_width = FR_TRAIN_AUTO,
        .data.classes = FR_TRAIN_AUTO,
        .data.augment = FR_TRAIN_AUGMENT_LIGHT,
        .data.workers = 1,
        .data.prefetch = 1,
        .data.exif = true,
        .data.pin_memory = true,
        .optim.epochs = 15,
        .optim.steps = FR_TRAIN_AUTO,
        .optim.batch_size = 64,
        .optim.lr = FR_TRAIN_AUTO,
        .optim.momentum = 0.9,
        .optim.weight_decay = 5e-4,
        .optim.schedule = FR_SCHEDULE_COSINE,
        .optim.warmup = 1,
        .optim.eval_every = 1,
        .optim.seed = 1,
        .device = (fr_device)FR_TRAIN_AUTO,
        .threads = FR_TRAIN_AUTO,
        .precision.deterministic = true,
        .memory.limit = SIZE_MAX,
        .memory.switches = switches,
        .precision.loss_scale = FR_TRAIN_AUTO,
        .memory.accumulate = FR_TRAIN_AUTO,
        .ranks = FR_TRAIN_AUTO,
        .memory.split_batch = 1,
        .optim.clip = FR_TRAIN_AUTO,
        .memory.arena = true,
        .files.save_every = FR_TRAIN_AUTO,
        .files.keep = 3,
        .memory.checkpoint_segments = FR_TRAIN_AUTO,
        .memory.prefix_parts = FR_TRAIN_AUTO,
        .optim.patience = FR_TRAIN_AUTO,
        .optim.head_lr_scale = 1,
        .memory.budget = SIZE_MAX,
        .memory.fit_switches = true,
        .memory.fused_step = (fr_train_fused)FR_TRAIN_AUTO,
    };
}
