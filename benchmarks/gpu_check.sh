#!/bin/bash
# Everything that needs a GPU, in two commands: runs the tests on the device and measures.
#
#   bash benchmarks/gpu_check.sh                the build, then the parts of the first command: ends at 560 s
#   bash benchmarks/gpu_check.sh second         the second command: ends at 400 s
#   bash benchmarks/gpu_check.sh --first        build and first only
#   bash benchmarks/gpu_check.sh bandwidth      parts by name
#   OUT=folder BUILD=build-gpu bash benchmarks/gpu_check.sh
#   bash frugal/tree/benchmarks/gpu_check.sh    of an unpacked bundle (.ci/bundle), with its programs: no build
#   RUN=frugal/run bash benchmarks/gpu_check.sh the same from a tree; RUN is absolute, or relative to the tree
#   TOTAL=300 bash benchmarks/gpu_check.sh      300 seconds, of which each part has its share
#
# On a lent machine: timeout -k 20 575 bash frugal/tree/benchmarks/gpu_check.sh
#
# The toolkit is found as docs/cuda.md says: an installed one, or nvcc, cudart, cuBLAS and cuDNN from pip. No part needs
# a network. Parts in the order of what is learnt first, with their seconds:
#   build      900  the library, the tests, the trainers; the clock starts after it
#   first       20  device description; three convolutions in three types and three directions, in f32 with TF32 and
#                   exact, and relu, against the CPU
#   tests      100  own kernels against their CPU twins, then tests that take the device as a parameter
#   bandwidth   45  each own kernel's GB/s beside a copy's, once; then nine times those whose share is estimated
#   train      130  images/s and peak under AMP f16 of five networks as they come, by cuDNN's heuristics; then ResNet-50
#                   with --cudnn-benchmark
#   torch       60  PyTorch eager beside them; its batch lies on the device, ours is prefetched
#   patterns    30  cuDNN's fused patterns beside the plain calls, on ResNet-50's convolutions
#   counters    40  bank conflicts, instructions, bytes, sectors, registers and blocks of four kernels (ncu)
#   memory      60  ResNet-50 in two budgets, rebuilt, in bf16 and f32 (TF32 in convolutions)
#   plan        60  planned == measured: VGG-16, ResNet, in f32 and under AMP
# and in the second command:
#   compiled   140  torch.compile of ResNet-50 and MobileNetV2
#   small       60  batches of 1, 8 and 32 of ResNet-50 and DenseNet-121
#   suites     120  models, plan, ops
#   sanitizer   80  memcheck and racecheck of the own kernels
#   budgets         by name only: the other four networks in two budgets
# A part ends by the sum of the seconds up to it: time that a part leaves is the next one's, and a cut takes the last
# rows. $OUT holds at most four files: rows.csv, a row written the moment it is known; results.md, the tables of
# docs/results.md (gpu_table.py) and a line for each part (ok, FAILED, or cut off), and all.tar.gz, logs and reports,
# both made anew after each part and when the command is ended; device.json. Exit status: 1 if a part failed, 3 if none
# failed and one was cut off or the command was ended, 77 if there is no device (said once; nothing after that is
# tried), 2 for an unknown part.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-$BUILD/gpu-check}
RUN=${RUN:-$([ ! -x ../run ] || echo ../run)}
FRUGAL_SOURCE_ROOT=$(pwd)
export FRUGAL_SOURCE_ROOT BUILD

declare -A seconds=([build]=900 [first]=20 [tests]=100 [bandwidth]=45 [train]=130 [torch]=60 [patterns]=30
    [counters]=40 [memory]=60 [plan]=60 [compiled]=140 [small]=60 [suites]=120 [sanitizer]=80 [budgets]=60)
all=(first tests bandwidth train torch patterns counters memory plan)
second=(compiled small suites sanitizer)
[ -n "$RUN" ] || all=(build "${all[@]}")
parts=()
for argument in "$@"; do
    if [ "$argument" = --first ]; then
        parts=(build first)
        [ -z "$RUN" ] || parts=(first)
    elif [ "$argument" = second ]; then
        parts+=("${second[@]}")
    elif [ -n "${seconds[$argument]:-}" ]; then
        parts+=("$argument")
    else
        echo "gpu_check: no part '$argument' (--first, second, ${all[*]}, ${second[*]}, budgets)" >&2
        exit 2
    fi
done
if [ ${#parts[@]} -eq 0 ]; then
    parts=("${all[@]}")
    TOTAL=${TOTAL:-560}
fi
needed=0
for part in "${parts[@]}"; do [ "$part" = build ] || needed=$((needed + seconds[$part])); done
((needed > 0)) || needed=60
TOTAL=${TOTAL:-$needed}
mkdir -p "$OUT" || exit 1
work=$(mktemp -d) || exit 1 # logs and reports, of which $OUT gets an archive

# The card and the commit stand in each row.
FRUGAL_CARD=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
FRUGAL_COMMIT=$(cat "${RUN%run}commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null)
export FRUGAL_CARD FRUGAL_COMMIT PYTHONDONTWRITEBYTECODE=1

# limited SECONDS COMMAND...: within that time, and before the part ends. 124: cut off.
limited() {
    local most=$1 left=$((ends - SECONDS))
    shift
    if ((left <= 0)); then
        echo "no time left for: $*"
        return 124
    fi
    # In the background: a shell that waits is told of an end of the command at once.
    timeout -k 5 "$((left < most ? left : most))" "$@" &
    echo $! >"$work/running"
    wait $!
}

# program SECONDS FOLDER NAME ARGUMENT...: a program of the build, or of the bundle.
program() {
    local most=$1 folder=$2 name=$3
    shift 3
    if [ -n "$RUN" ]; then
        limited "$most" "$RUN" "$name" "$@"
    else
        limited "$most" "$BUILD/$folder/$name" "$@"
    fi
}

table=(python3 -IS benchmarks/gpu_table.py) # without packages: it starts some hundred times

# rows [NAME]: prints its input, and appends a row for each result in it.
rows() { "${table[@]}" --rows "$OUT" "$part" "$@"; }

# after STATUS: keeps the worst status of a part's commands in `worst`; a failure is worse than a cut.
after() {
    if [ "$1" -ne 0 ] && { [ "$worst" -eq 0 ] || [ "$worst" -eq 124 ]; }; then worst=$1; fi
}

part_build() {
    if [ ! -f "$BUILD/build.ninja" ]; then
        meson setup "$BUILD" --buildtype=release -Dcuda=enabled || return 1
    fi
    limited 900 ninja -C "$BUILD"
}

part_first() { program 60 benchmarks gpu_first "$OUT/device.json"; }

# Criterion programs; tests that a device cannot run are skipped with a reason and counted. Each test is a process with
# a CUDA context of its own, so few run at a time.
suites() {
    local name worst=0
    export FRUGAL_TEST_DEVICE=cuda CRITERION_JOBS=16 CRITERION_VERBOSITY_LEVEL=1 FRUGAL_THREADS=2
    for name in "$@"; do
        echo "--- test_$name"
        program 120 tests "test_$name" 2>&1 | rows "$name"
        after "${PIPESTATUS[0]}"
    done
    return $worst
}

part_tests() { suites cuda_twins net autograd optim; }
part_suites() { suites models plan ops; }

# The same command planned and run: every number of the two memory reports must be equal.
part_plan() {
    local network flag worst=0
    for network in vgg resnet; do
        for flag in "" --amp; do
            # shellcheck disable=SC2086
            set -- "train_$network" --device cuda --steps 3 --quiet $flag --report
            {
                program 60 examples "$@" "$work/$network$flag-plan.json" --plan &&
                    program 60 examples "$@" "$work/$network$flag-run.json" &&
                    .ci/check-plan "$work/$network$flag-plan.json" "$work/$network$flag-run.json"
            } | rows "$network $flag"
            after "${PIPESTATUS[0]}"
        done
    done
    return $worst
}

part_bandwidth() {
    local worst=0 kernel
    program 60 benchmarks op_bandwidth f16 1 --device cuda | rows
    after "${PIPESTATUS[0]}"
    for kernel in batchnorm2d relu depthwise maxpool2d cross_entropy; do
        program 20 benchmarks op_bandwidth f16 9 $kernel --device cuda | rows
        after "${PIPESTATUS[0]}"
    done
    return $worst
}

# In some containers the counters are refused: that says nothing about the kernels. The card's clocks stay as they are.
part_counters() {
    local kernel status worst=0
    local metrics=l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,smsp__inst_executed.sum,dram__bytes.sum
    metrics+=,l1tex__t_sectors.sum,launch__registers_per_thread,launch__occupancy_limit_registers
    if ! command -v ncu >/dev/null; then
        echo "ncu is not installed"
        return 77
    fi
    for kernel in batchnorm2d_stats batchnorm2d_backward "gradient over parts" "depthwise conv2d forward"; do
        set -- benchmarks op_bandwidth f16 1 "$kernel" --device cuda
        # DenseNet's norms read parts; the first gradients are those of the last, whole norms.
        [ "$kernel" != "gradient over parts" ] ||
            set -- examples train_densenet --depth 121 --classes 1000 --batch-size 64 --device cuda \
                --dataset synthetic --image-size 224 --steps 1 --eval-every 0 --quiet --amp
        if [ -n "$RUN" ]; then set -- "$RUN" "${@:2}"; else set -- "$BUILD/$1/$2" "${@:3}"; fi
        [ "$kernel" != "gradient over parts" ] || set -- --kernel-name regex:gradient --launch-skip 4 "$@"
        limited 20 ncu --clock-control none --target-processes all --csv --launch-count 6 --metrics $metrics "$@" 2>&1 |
            rows "$kernel" | tee "$work/counters-last.log"
        status=${PIPESTATUS[0]}
        if grep -q ERR_NVGPUCTRPERM "$work/counters-last.log"; then
            echo "ncu: $(grep -m 1 -o 'ERR_NVGPUCTRPERM.*' "$work/counters-last.log")"
            return 77
        fi
        after "$status"
    done
    return $worst
}

# ---- training ----

# Name, the trainer's arguments, images of a batch, and two budgets in MiB.
networks=("resnet;--depth 50;256;6144 3072" "mobilenet;;256;4096 2048" "densenet;--depth 121;64;2048 1024"
    "unet;--depth 4;64;3072 2048" "vgg;--depth 16 --no-batch-norm;64;2560 2432")
declare -A type_flag=([f16]=--amp [bf16]=--amp=bf16 [f32]="")

# The whole batch where 32,000 MiB are free, else a part: PyTorch in f32 needs 110 MiB an image of ResNet-50.
batch_of() {
    local free part=4
    free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | head -n 1)
    free=${free%%[!0-9]*}
    [ "${free:-0}" -lt 16000 ] || part=2
    [ "${free:-0}" -lt 32000 ] || part=1
    echo $(($1 / part))
}

# ours NAME ARGUMENTS BATCH TYPE FLAG...: a training and its row. The pixel classes of U-Net are 11, all others 1,000.
ours() {
    local name=$1 arguments=$2 batch=$3 type=$4 classes=1000 report status
    shift 4
    [ "$name" != unet ] || classes=10
    report="$work/$name-$batch-$type-$(echo "$*" | tr -cd 'a-z0-9').json"
    # shellcheck disable=SC2086
    program 40 examples "train_$name" $arguments --classes $classes --batch-size "$batch" --device cuda \
        --dataset synthetic --image-size 224 --steps 25 --eval-every 0 --no-deterministic \
        --workers 8 --device-prefetch --quiet ${type_flag[$type]} "$@" --report "$report"
    status=$?
    after $status
    [ $status -ne 0 ] || "${table[@]}" --train "$OUT" "$part" "$report" "$name" "$batch" "$type" "$*"
}

# in_budgets NAME...: the budgets are those of whole batches.
in_budgets() {
    local network name arguments batch budgets budget
    for network in "${networks[@]}"; do
        IFS=';' read -r name arguments batch budgets <<<"$network"
        [[ " $* " == *" $name "* ]] || continue
        if [ "$(batch_of "$batch")" -ne "$batch" ]; then
            echo "$name: no budgets for a part of the batch"
            continue
        fi
        for budget in $budgets; do ours "$name" "$arguments" "$batch" f16 --memory-budget "${budget}MiB"; done
    done
}

part_train() {
    local worst=0 network name arguments batch budgets
    for network in "${networks[@]}"; do
        IFS=';' read -r name arguments batch budgets <<<"$network"
        ours "$name" "$arguments" "$(batch_of "$batch")" f16
    done
    ours resnet "--depth 50" "$(batch_of 256)" f16 --cudnn-benchmark
    return $worst
}

part_memory() {
    local worst=0
    in_budgets resnet
    ours resnet "--depth 50" "$(batch_of 256)" f16 --rebuild
    ours resnet "--depth 50" "$(batch_of 256)" bf16 --no-rebuild
    ours resnet "--depth 50" "$(batch_of 256)" f32 --no-rebuild
    return $worst
}

part_budgets() {
    local worst=0
    in_budgets mobilenet densenet unet vgg
    return $worst
}

part_small() {
    local worst=0 batch
    for batch in 1 8 32; do
        ours resnet "--depth 50" $batch f16
        ours densenet "--depth 121" $batch f16
    done
    return $worst
}

# ---- PyTorch ----

# torch_rows MODE NETWORK:TYPE...: in one process.
torch_rows() {
    local mode=$1 words=() word name batch
    shift
    for word in "$@"; do
        name=${word%:*} batch=64
        case $name in resnet | mobilenet) batch=256 ;; esac
        words+=("$word:$(batch_of $batch)")
    done
    limited 100 python3 benchmarks/gpu_torch.py "$mode" "${words[@]}" 2>&1 | rows
    after "${PIPESTATUS[0]}"
}

has_torch() {
    limited 60 python3 -c 'import torch, torchvision as t; exit(not torch.cuda.is_available())' 2>/dev/null && return
    echo "PyTorch with CUDA is not installed: nothing beside ours"
    return 1
}

part_torch() {
    local worst=0
    has_torch || return 77
    torch_rows eager resnet:f16 mobilenet:f16 densenet:f16 unet:f16 vgg:f16
    return $worst
}

part_compiled() {
    local worst=0
    has_torch || return 77
    torch_rows compiled resnet:f16
    torch_rows compiled mobilenet:f16
    return $worst
}

part_patterns() {
    local worst=0
    program 60 benchmarks gpu_patterns "$(batch_of 256)" | rows
    after "${PIPESTATUS[0]}"
    return $worst
}

# In some containers the tool refuses the device: that says nothing about the kernels.
part_sanitizer() {
    local tool words worst=0 log=$work/sanitizer-last.log
    if ! command -v compute-sanitizer >/dev/null; then
        echo "compute-sanitizer is not installed"
        return 77
    fi
    export FRUGAL_TEST_DEVICE=cuda CRITERION_JOBS=1
    for tool in memcheck racecheck; do
        for words in "tests/test_cuda_twins --filter twins/*" "tests/test_cuda_twins --filter twins_images/*"; do
            echo "--- $tool $words"
            set -f
            # shellcheck disable=SC2086
            set -- $words
            set +f
            if [ -n "$RUN" ]; then set -- "$RUN" "${1#*/}" "${@:2}"; else set -- "$BUILD/$1" "${@:2}"; fi
            limited 60 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 1 "$@" 2>&1 | tee "$log"
            after "${PIPESTATUS[0]}"
            if [ "$worst" -eq 1 ] && grep -q 'Device not supported' "$log"; then
                echo "compute-sanitizer: $(grep -m 1 -o 'Device not supported.*' "$log")"
                return 77
            fi
        done
    done
    return $worst
}

# ---- the parts ----

# The tables, a line for each part, and the archive of logs and reports.
pack() {
    {
        [ ! -f "$OUT/rows.csv" ] || "${table[@]}" --results "$OUT"
        [ ! -f "$work/first.log" ] || grep -h 'in use before the first tensor\|GB/s\| wrong$' "$work/first.log"
        for i in "${!names[@]}"; do printf '%-10s %s\n' "${names[$i]}" "${results[$i]}"; done
    } >"$OUT/results.md"
    tar -C "$work" -czf "$OUT/all.tar.gz" .
}

# The command is ended: what is known goes to $OUT; the running part and its program end.
ended() {
    trap '' TERM INT
    for pid in subshell running; do [ ! -s "$work/$pid" ] || kill "$(cat "$work/$pid")" 2>/dev/null; done
    names+=("$part")
    results+=("ended after $((SECONDS - began)) s, with the command")
    pack
    cat "$OUT/results.md"
    exit 3
}

case " ${parts[*]} " in *" first "*) rm -f "$OUT/rows.csv" ;; esac
names=()
results=()
absent=0
sum=0
start=$SECONDS
part=none began=$SECONDS
trap ended TERM INT
trap 'rm -rf "$work"' EXIT
for part in "${parts[@]}"; do
    echo "=== $part"
    began=$SECONDS
    sum=$((sum + seconds[$part]))
    ends=$((start + sum * TOTAL / needed))
    if [ "$part" = build ]; then ends=$((SECONDS + 900)) sum=0; fi
    {
        echo "$BASHPID" >"$work/subshell"
        "part_$part" 2>&1
        echo $? >"$work/status"
    } | tee "$work/$part.log" &
    wait $!
    status=$(cat "$work/status")
    names+=("$part")
    case $status in
    0) results+=("ok in $((SECONDS - began)) s") ;;
    77) results+=("skipped: $(tail -n 1 "$work/$part.log")") ;;
    124 | 137) results+=("cut off after $((SECONDS - began)) s, see $part.log") ;;
    *) results+=("FAILED ($status), see $part.log") ;;
    esac
    pack
    [ "$part" != build ] || start=$SECONDS
    # What cannot be built cannot run; without a device the rest would only say the same.
    if [ "$part" = build ] && [ "$status" -ne 0 ]; then break; fi
    if [ "$part" = first ] && [ "$status" -eq 77 ]; then
        absent=1
        break
    fi
done

printf '\n'
cat "$OUT/results.md"
failed=0
cut=0
for i in "${!names[@]}"; do
    case ${results[$i]} in FAILED*) failed=1 ;; "cut off"*) cut=3 ;; esac
done
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 77
exit $cut
