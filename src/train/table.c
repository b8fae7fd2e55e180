/* table.c - every flag of the trainers. */
#include "train/flags.h"

static const fri_choice devices[] = {{"auto", FR_TRAIN_AUTO},
                                     {"cpu", FR_CPU},
                                     {"cuda", FR_CUDA},
                                     {"meta", FR_META},
                                     {0}};
static const fri_choice heads[] = {{"auto", FR_HEAD_AUTO},
                                   {"global", FR_HEAD_GLOBAL},
                                   {"torchvision", FR_HEAD_TORCHVISION},
                                   {0}};
static const fri_choice datasets[] = {{"digits", FR_TRAIN_DIGITS},
                                      {"mnist", FR_TRAIN_MNIST},
                                      {"fashion-mnist", FR_TRAIN_FASHION_MNIST},
                                      {"cifar10", FR_TRAIN_CIFAR10},
                                      {"cifar100", FR_TRAIN_CIFAR100},
                                      {"folder", FR_TRAIN_FOLDER},
                                      {"synthetic", FR_TRAIN_SYNTHETIC},
                                      {0}};
static const fri_choice optimizers[] = {{"sgd", FR_TRAIN_SGD},
                                        {"adam", FR_TRAIN_ADAM},
                                        {"adamw", FR_TRAIN_ADAMW},
                                        {"adam8", FR_TRAIN_ADAM8},
                                        {0}};
static const fri_choice schedules[] = {{"constant", FR_SCHEDULE_CONSTANT},
                                       {"step", FR_SCHEDULE_STEP},
                                       {"cosine", FR_SCHEDULE_COSINE},
                                       {0}};
static const fri_choice pool_indices[] = {{"i64", FR_I64}, {"i32", FR_I32}, {"u8", FR_U8}, {0}};

static const fri_choice amps[] = {{"fp16", FR_TRAIN_AMP_FP16},
                                  {"bf16", FR_TRAIN_AMP_BF16},
                                  {"off", FR_TRAIN_AMP_OFF},
                                  {0}};
static const fri_choice fusings[] = {{"on", FR_TRAIN_FUSED_ON},
                                     {"two-pass", FR_TRAIN_FUSED_TWO_PASS},
                                     {"off", FR_TRAIN_FUSED_OFF},
                                     {0}};
static const fri_choice segmentations[] = {{"sqrt", FR_TRAIN_SQRT},
                                           {"log", FR_TRAIN_LOG},
                                           {"each", FR_TRAIN_EACH},
                                           {0}};
static const fri_choice balances[] = {{"bytes", FR_TRAIN_BALANCE_BYTES}, {"count", FR_TRAIN_BALANCE_COUNT}, {0}};
static const fri_choice scales[] = {{"dynamic", FR_TRAIN_AUTO}, {0}};

static void all_off(fr_train_opts *o) {
    o->switches = fr_switches_all_off();
    o->checkpoint_segments = FR_TRAIN_AUTO;
    o->fit_switches = false;
    o->fused_step = FR_TRAIN_FUSED_OFF;
    o->offload = NULL;
    o->grad_zero = false;
    o->split_batch = 1;
    o->inplace_abn = false;
    o->empty_cache_every = 0;
}

const char *const fri_flag_group_names[FRI_GROUP_COUNT] = {"Model",           "Data",  "Training", "Device and threads",
                                                           "Memory switches", "Files", "Output"};

#define AT(field) .offset = offsetof(fr_train_opts, field)
#define COUNT     .least = 1, .most = 1000000000

const fri_flag fri_flags[] = {
    /* ---- model ---- */
    {"depth", FRI_FLAG_INT, FRI_GROUP_MODEL, AT(depth), "N", "Which member of the family.", COUNT},
    {"batch-norm", FRI_FLAG_BOOL, FRI_GROUP_MODEL, AT(batch_norm), NULL, "Batch normalization after convolutions."},
    {"head", FRI_FLAG_CHOICE, FRI_GROUP_MODEL, AT(head), "NAME",
     "The classifier: global average pool and one linear layer, torchvision's, or by image size: below 64 pixels "
     "pooled, else torchvision's.",
     .choices = heads},
    {"dropout", FRI_FLAG_REAL, FRI_GROUP_MODEL, AT(dropout), "X", "Dropout in torchvision's VGG classifier.",
     .real_least = 0, .below = 1},
    {"growth", FRI_FLAG_INT, FRI_GROUP_MODEL, AT(growth), "N", "Growth rate of DenseNet-BC for small images.",
     .least = 1, .most = 4096},

    /* ---- data ---- */
    {"dataset", FRI_FLAG_CHOICE, FRI_GROUP_DATA, AT(dataset), "NAME",
     "What to train on. 'digits' is inside the program: 1,500 + 297 handwritten digits, enlarged to the image size. "
     "'folder' is <PATH>/<train|test>/<class>/*.jpg or .png. 'synthetic' is noise, for measuring.",
     .choices = datasets},
    {"data", FRI_FLAG_TEXT, FRI_GROUP_DATA, AT(data), "PATH", "The folder with the dataset's files.",
     .unset = "none; all datasets but digits and synthetic need it"},
    {"image-size", FRI_FLAG_INT, FRI_GROUP_DATA, AT(image_size), "N",
     "Side in pixels of the square image that the "
     "network sees.",
     .unset = "224 for 'folder', else 32", .least = 1, .most = 4096},
    {"classes", FRI_FLAG_INT, FRI_GROUP_DATA, AT(classes), "N",
     "Number of classes of synthetic data, and of a folder on '--device meta' without --data.", .unset = "10",
     .least = 1, .most = 1000000},
    {"augment", FRI_FLAG_BOOL, FRI_GROUP_DATA, AT(augment), NULL,
     "Vary training images: digits and MNIST are shifted by up to 2 pixels, digits turned, "
     "scaled and sheared by up to 10 degrees and 10 %; Fashion-MNIST and CIFAR by up to 4 and "
     "mirrored; a folder's are cropped (shifted below 64 pixels) and mirrored."},
    {"keep-last", FRI_FLAG_SET, FRI_GROUP_DATA, AT(keep_last), NULL,
     "Train on the last, smaller batch of an epoch too, instead of dropping it."},
    {"workers", FRI_FLAG_INT, FRI_GROUP_DATA, AT(workers), "N",
     "Threads that decode images; 0: the training thread does it.", .least = 0, .most = 256},
    {"prefetch", FRI_FLAG_INT, FRI_GROUP_DATA, AT(prefetch), "N",
     "Batches that workers decode ahead. Each takes its place in memory.", .least = 1, .most = 64},
    {"pin-memory", FRI_FLAG_BOOL, FRI_GROUP_DATA, AT(pin_memory), NULL,
     "Batches go to a GPU through pinned host memory, so that the copy does not wait."},
    {"device-prefetch", FRI_FLAG_BOOL, FRI_GROUP_DATA, AT(device_prefetch), NULL,
     "On a GPU, copy the next batch there while a step runs; takes the memory of one more batch. Without effect on the "
     "CPU."},

    /* ---- training ---- */
    {"epochs", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(epochs), "N", "Passes over the training images.", COUNT},
    {"steps", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(steps), "N",
     "End after N optimizer steps. Without --epochs the epochs go on until then.", .unset = "no limit", COUNT},
    {"batch-size", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(batch_size), "N", "Images per step.", .least = 1,
     .most = 1 << 20},
    {"optimizer", FRI_FLAG_CHOICE, FRI_GROUP_TRAINING, AT(optimizer), "NAME",
     "As in PyTorch; adam8 is AdamW with 8-bit moments.", .choices = optimizers},
    {"lr", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(lr), "X", "Learning rate at its highest.", .real_least = 0,
     .below = 1e6},
    {"momentum", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(momentum), "X", "Momentum of SGD.", .real_least = 0, .below = 1},
    {"nesterov", FRI_FLAG_SET, FRI_GROUP_TRAINING, AT(nesterov), NULL, "Nesterov's momentum in SGD."},
    {"weight-decay", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(weight_decay), "X",
     "L2 penalty (SGD, Adam) or decoupled decay (AdamW, adam8).", .real_least = 0, .below = 1e6},
    {"schedule", FRI_FLAG_CHOICE, FRI_GROUP_TRAINING, AT(schedule), "NAME",
     "Learning rate over the run: constant, a tenth after each third ('step'), or half a cosine down to 0.",
     .choices = schedules},
    {"warmup", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(warmup), "X",
     "Epochs in which the learning rate rises linearly from 0, before the schedule.", .real_least = 0, .below = 1e6},
    {"label-smoothing", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(label_smoothing), "X",
     "Share of the target spread evenly over all classes.", .real_least = 0, .below = 1},
    {"eval-every", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(eval_every), "N",
     "Evaluate on the test images after each N epochs, and at the end; 0: at the end only.", .least = 0,
     .most = 1000000000},
    {"seed", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(seed), "N",
     "Same seed, same run, bit for bit, at a fixed number of threads.", .least = 0, .most = INT64_MAX},

    {"accumulate", FRI_FLAG_INT, FRI_GROUP_TRAINING, AT(accumulate), "K",
     "Batches per optimizer step; their losses are averaged. Batches left over at the end of an epoch are dropped.",
     COUNT},
    {"clip", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(clip), "X",
     "Scale the gradients down when their common norm is above X (clip_grad_norm_).", .unset = "no limit",
     .real_least = 1e-30, .below = 1e30},
    {"amp", FRI_FLAG_CHOICE, FRI_GROUP_TRAINING, AT(amp), "TYPE",
     "Mixed precision: ops on PyTorch's autocast lists run in this type, parameters stay f32. '--amp' alone is fp16.",
     .implied = "fp16", .choices = amps},
    {"loss-scale", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(loss_scale), "X",
     "Scale of the loss under --amp: 'dynamic' (65536, doubled after 2,000 good steps, halved and the step skipped on "
     "inf or NaN; what fp16 does by itself), or a fixed number.",
     .real_least = 1e-30, .below = 1e30, .choices = scales},
    {"loss-scale-floor", FRI_FLAG_REAL, FRI_GROUP_TRAINING, AT(loss_scale_floor), "X",
     "A dynamic loss scale does not fall below this; 0: no floor, as in PyTorch.", .real_least = 0, .below = 65537},
    {"half", FRI_FLAG_CHOICE, FRI_GROUP_TRAINING, AT(half), "TYPE",
     "Pure half precision: parameters themselves in this type, batch norm in f32. '--half' alone is fp16.",
     .implied = "fp16", .choices = amps},

    /* ---- device ---- */
    {"device", FRI_FLAG_CHOICE, FRI_GROUP_DEVICE, AT(device), "NAME",
     "Where to train; 'auto' is the GPU where there is one, else the CPU, and the first line says why. 'meta' has "
     "shapes and sizes but no data: it shows what a run needs without running it, and prints '-' for losses.",
     .choices = devices},
    {"threads", FRI_FLAG_INT, FRI_GROUP_DEVICE, AT(threads), "N", "Threads of the CPU's kernels.",
     .unset = "OMP_NUM_THREADS, else all cores", .least = 1, .most = 4096},
    {"deterministic", FRI_FLAG_BOOL, FRI_GROUP_DEVICE, AT(deterministic), NULL,
     "On a GPU, convolutions run on engines that give the same bits each time, and on no others. The CPU's always do."},
    {"cudnn-benchmark", FRI_FLAG_BOOL, FRI_GROUP_DEVICE, AT(cudnn_benchmark), NULL,
     "On a GPU, time the engines of each convolution whose scratch is within --workspace-limit, before the first step, "
     "and keep the fastest, also for later runs. Without effect on the CPU."},
    {"cuda-graph", FRI_FLAG_BOOL, FRI_GROUP_DEVICE, AT(cuda_graph), NULL,
     "On a GPU, record a training step once its places in memory are fixed, and run the record from then on: the host "
     "no longer launches each kernel. Needs the arena."},
    {"cudnn-fuse-rebuild", FRI_FLAG_BOOL, FRI_GROUP_DEVICE, AT(cudnn_fuse_rebuild), NULL,
     "On a GPU, with --rebuild and fp16 data: instead of normalizing again what a convolution's weight gradient reads, "
     "let the convolution do it, where cuDNN has a kernel for both. Differs in the last bits. Without effect on the "
     "CPU."},
    {"cudnn-fuse-statistics", FRI_FLAG_BOOL, FRI_GROUP_DEVICE, AT(cudnn_fuse_statistics), NULL,
     "On a GPU, a convolution of fp16 data (--amp, --half=fp16) without a bias also makes the sums that the batch norm "
     "behind it needs, where cuDNN has a kernel for both. Differs in the last bits. Without effect on the CPU."},

    /* ---- memory ---- */
    {"memory-limit", FRI_FLAG_SIZE, FRI_GROUP_MEMORY, AT(memory_limit), "BYTES",
     "No more than this is reserved from the device ('512MiB', '2GiB'); what does not fit ends the run with a report "
     "of who holds what.",
     .unset = "none"},
    {"inplace", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(switches.inplace), NULL,
     "Activations overwrite their input where nobody else needs it."},
    {"inplace-abn", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(inplace_abn), NULL,
     "Batch norm and the relu behind it become one op with a leaky relu of slope 0.01 and weights |gamma|; it "
     "overwrites its input and backward computes that from the output (InPlace-ABN)."},
    {"encode", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(switches.encode), NULL,
     "For backward, relu keeps 1 bit per element, max pooling 1 byte per output, dropout nothing."},
    {"rebuild", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(switches.rebuild), NULL,
     "Outputs of batch norm, relu, add and concat are made again in backward."},
    {"early-release", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(switches.early_release), NULL,
     "A saved tensor goes at its last use inside an op's backward."},
    {"split-batch", FRI_FLAG_INT, FRI_GROUP_MEMORY, AT(split_batch), "K",
     "Train on a batch in K parts, one after the other; losses are averaged. Batch norm sees each part alone, so its "
     "statistics are those of the smaller batch.",
     COUNT},
    {"grad-zero", FRI_FLAG_SET, FRI_GROUP_MEMORY, AT(grad_zero), NULL,
     "Keep gradients between steps and clear them (zero_grad(set_to_none=False)), instead of releasing them."},
    {"fused-step", FRI_FLAG_CHOICE, FRI_GROUP_MEMORY, AT(fused_step), "HOW",
     "Update a parameter as soon as its gradient is complete; the gradient goes at once. 'two-pass' is for a loss "
     "scale: each batch runs forward and backward twice, first only to look for inf and NaN.",
     .implied = "on", .choices = fusings},
    {"offload", FRI_FLAG_TEXT, FRI_GROUP_MEMORY, AT(offload), "FILE",
     "Large saved activations wait in this file until backward needs them. '--offload' alone takes a temporary one. It "
     "is "
     "unlinked at once, so nothing is left behind.",
     .unset = "off", .implied = ""},
    {"cache-casts", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(switches.cache_casts), NULL,
     "Under --amp, low-precision copies of parameters live from forward to backward, as PyTorch's do, instead of while "
     "an op runs."},
    {"empty-cache-every", FRI_FLAG_INT, FRI_GROUP_MEMORY, AT(empty_cache_every), "N",
     "Give cached memory back to the device after each N steps; 0: never. Turns the arena off.", .least = 0,
     .most = 1000000000},
    {"all-off", FRI_FLAG_ACT, FRI_GROUP_MEMORY,
     .help = "All memory switches off: what PyTorch keeps. Flags after "
             "this one switch single ones on again.",
     .act = all_off},
    {"pool-index", FRI_FLAG_CHOICE, FRI_GROUP_MEMORY, AT(switches.pool_index), "TYPE",
     "Type of max pooling's indices with --no-encode.", .choices = pool_indices},
    {"workspace-limit", FRI_FLAG_SIZE, FRI_GROUP_MEMORY, AT(switches.workspace_limit), "BYTES",
     "Prefer kernels whose scratch memory stays under this."},
    {"checkpoint-segments", FRI_FLAG_INT, FRI_GROUP_MEMORY, AT(checkpoint_segments), "N",
     "Cut the network into N segments and compute the inside of all but the last again in backward; 'sqrt': as many as "
     "the root of its units, 'each': every unit, 'log': halves of halves.",
     .unset = "none", .least = 1, .most = 1000000000, .choices = segmentations},
    {"balance", FRI_FLAG_CHOICE, FRI_GROUP_MEMORY, AT(balance), "WHAT",
     "What segments have the same amount of: bytes saved for backward, or units (as PyTorch cuts).",
     .choices = balances},

    {"arena", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(arena), NULL,
     "Plan the run, reserve exactly what it needs, and give each allocation a fixed place in it."},
    {"memory-budget", FRI_FLAG_SIZE, FRI_GROUP_MEMORY, AT(memory_budget), "BYTES",
     "Reserve no more than this: choose, unit by unit, what is kept, encoded, rebuilt or recomputed, the fastest way "
     "that fits; then train so. Other switches and --checkpoint-segments give way. If nothing fits, say what the "
     "smallest budget is.",
     .unset = "none"},
    {"fit-switches", FRI_FLAG_BOOL, FRI_GROUP_MEMORY, AT(fit_switches), NULL,
     "With --memory-budget, choose; --no-fit-switches takes the other flags as they are, and --all-off implies that."},
    {"fit-batch", FRI_FLAG_SET, FRI_GROUP_MEMORY, AT(fit_batch), NULL,
     "Train with the largest batch that fits into --memory-budget, instead of --batch-size."},
    {"calibrate", FRI_FLAG_SET, FRI_GROUP_MEMORY, AT(calibrate), NULL,
     "Measure how long each kernel takes in the second step and keep the times for --memory-budget and --plan --all."},
    {"all", FRI_FLAG_SET, FRI_GROUP_MEMORY, AT(plan_all), NULL,
     "With --plan: peak and predicted relative time of every combination of switches and segments, and of fitted "
     "budgets. A star marks what nothing beats in both."},
    {"plan", FRI_FLAG_SET, FRI_GROUP_MEMORY, AT(plan), NULL,
     "Do not train: print the exact memory that this command would need, found by a dry run without data, and end."},

    /* ---- files ---- */
    {"weights", FRI_FLAG_TEXT, FRI_GROUP_FILES, AT(weights), "FILE",
     "Start from these weights: safetensors, torchvision's names and layouts.", .unset = "none"},
    {"export", FRI_FLAG_TEXT, FRI_GROUP_FILES, AT(export_weights), "FILE",
     "Write the weights at the end; torchvision loads them.", .unset = "none"},
    {"save", FRI_FLAG_TEXT, FRI_GROUP_FILES, AT(save), "DIR",
     "Save the state of the training here: after each epoch or --save-every steps, at the end, and before a signal "
     "ends "
     "the run.",
     .unset = "none"},
    {"save-every", FRI_FLAG_INT, FRI_GROUP_FILES, AT(save_every), "N", "Steps from one save to the next.",
     .unset = "an epoch", COUNT},
    {"keep", FRI_FLAG_INT, FRI_GROUP_FILES, AT(keep), "N", "States that stay in the folder, the newest; 0: all.",
     .least = 0, .most = 1000000000},
    {"resume", FRI_FLAG_TEXT, FRI_GROUP_FILES, AT(resume), "DIR",
     "Continue from the newest good state of this folder; 'latest': of the --save folder, or from the start if it "
     "holds none. --epochs and --steps count from the start of the training.",
     .unset = "none"},
    {"predict", FRI_FLAG_LIST, FRI_GROUP_FILES, AT(predict), "IMAGE...",
     "Do not train: print the five likeliest classes of each image file (JPEG, PNG). Wants --weights or --resume.",
     .unset = "none"},

    /* ---- output ---- */
    {"summary", FRI_FLAG_SET, FRI_GROUP_OUTPUT, AT(summary), NULL,
     "Do not train: print a line per layer, from a dry run of one step: shape, parameters, bytes that it keeps for "
     "backward under these flags, operations; and end."},
    {"detect-anomaly", FRI_FLAG_SET, FRI_GROUP_OUTPUT, AT(detect_anomaly), NULL,
     "Look at what each op makes, and name the first with inf or NaN when a step is skipped or the loss is no number. "
     "Without this flag, the step after one whose loss overflowed is looked at."},
    {"quiet", FRI_FLAG_SET, FRI_GROUP_OUTPUT, AT(quiet), NULL, "Print the last line only."},
    {"report", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(report), "FILE",
     "Write memory, time, loss and accuracy as JSON. Sizes are in bytes.", .unset = "none"},
    {"track", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(track), "FILE",
     "Write what each phase of the first step adds and frees, a line per kind of tensor.", .unset = "none"},
    {"memory-plot", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(memory_plot), "FILE",
     "Draw the step that needs most memory, bytes by category over time, as SVG; with --plan too.", .unset = "none"},
    {"trace", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(trace), "FILE",
     "Write the first three steps for Perfetto (ui.perfetto.dev): ops as slices, bytes by category as counters.",
     .unset = "none"},
    {"log", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(log), "FILE", "Write one JSON object per step and line.",
     .unset = "none"},
    {"csv", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(csv), "FILE", "The same as comma-separated values.", .unset = "none"},
    {"tensorboard", FRI_FLAG_TEXT, FRI_GROUP_OUTPUT, AT(tensorboard), "DIR", "The same as TensorBoard events.",
     .unset = "none"},
};
const int fri_flags_count = (int)(sizeof fri_flags / sizeof *fri_flags);

fr_train_opts fr_train_opts_default(void) {
    return (fr_train_opts){
        .depth = FR_TRAIN_AUTO,
        .batch_norm = true,
        .dropout = 0.5,
        .growth = 12,
        .image_size = FR_TRAIN_AUTO,
        .classes = FR_TRAIN_AUTO,
        .augment = true,
        .workers = 1,
        .prefetch = 1,
        .pin_memory = true,
        .epochs = 15,
        .steps = FR_TRAIN_AUTO,
        .batch_size = 64,
        .lr = FR_TRAIN_AUTO,
        .momentum = 0.9,
        .weight_decay = 5e-4,
        .schedule = FR_SCHEDULE_COSINE,
        .warmup = 1,
        .eval_every = 1,
        .seed = 1,
        .device = (fr_device)FR_TRAIN_AUTO,
        .threads = FR_TRAIN_AUTO,
        .deterministic = true,
        .memory_limit = SIZE_MAX,
        .switches = fr_switches_default(),
        .loss_scale = FR_TRAIN_AUTO,
        .accumulate = 1,
        .split_batch = 1,
        .clip = FR_TRAIN_AUTO,
        .arena = true,
        .save_every = FR_TRAIN_AUTO,
        .keep = 3,
        .checkpoint_segments = FR_TRAIN_AUTO,
        .memory_budget = SIZE_MAX,
        .fit_switches = true,
    };
}
