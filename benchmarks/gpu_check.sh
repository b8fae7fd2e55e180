#!/bin/bash
# Everything that needs a GPU, in one command: builds, runs the tests on the device, measures, sanitizes.
#
#   bash benchmarks/gpu_check.sh                        all parts: the build, then eleven minutes
#   bash benchmarks/gpu_check.sh --first                build and first only
#   bash benchmarks/gpu_check.sh first tests
#   OUT=folder BUILD=build-gpu bash benchmarks/gpu_check.sh
#   RUN=frugal/run bash benchmarks/gpu_check.sh         with the programs of an unpacked bundle (.ci/bundle): no build
#   LIMIT=60 bash benchmarks/gpu_check.sh               60 seconds for each part
#
# The toolkit is found as docs/cuda.md says: an installed one, or nvcc, cudart, cuBLAS and cuDNN from pip. Parts, with
# the seconds that each may take:
#   build      900  the library, the tests, the trainers
#   first       60  device description; three convolutions in three types and three directions, in f32 with TF32 and
#                   exact, and relu, against the CPU
#   tests      240  tests that take the device as a parameter, and the own kernels against their CPU twins
#   plan        60  planned == measured: VGG-16, ResNet
#   bandwidth   60  each own kernel's GB/s beside a copy's, f16 and f32
#   train      200  images/s and peak of ResNet-50, VGG-16, MobileNetV2 in f32 (TF32 in convolutions), AMP f16 and AMP
#                   bf16; PyTorch eager and torch.compile beside them where PyTorch is installed. PyTorch's batch lies
#                   on the device; ours is prefetched. The batch fits the free memory, on both sides the same
#   resume      30  a training killed at random moments ends with the parameters of one that was not
#   sanitizer  180  memcheck, racecheck, initcheck of the own kernels and of `first`
# The order is that of what is learnt first. Logs go to $OUT. Two tables end the output: each claim of the performance
# model beside what was measured, and what became of each part: ok, FAILED, or cut off when its seconds were over. Exit
# status: 1 if a part failed, 3 if none failed and one was cut off, 77 if there is no device (said once; nothing after
# that is tried), 2 for an unknown part.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-$BUILD/gpu-check}
RUN=${RUN:-}
FRUGAL_SOURCE_ROOT=$(pwd)
export FRUGAL_SOURCE_ROOT BUILD

declare -A seconds=([build]=900 [first]=60 [tests]=240 [plan]=60 [bandwidth]=60 [train]=200 [resume]=30 [sanitizer]=180)
[ -z "${LIMIT:-}" ] || for part in "${!seconds[@]}"; do seconds[$part]=$LIMIT; done
all=(build first tests plan bandwidth train resume sanitizer)
[ -z "$RUN" ] || all=("${all[@]:1}")
parts=()
for argument in "$@"; do
    if [ "$argument" = --first ]; then
        parts=(build first)
    elif [ -n "${seconds[$argument]:-}" ]; then
        parts+=("$argument")
    else
        echo "gpu_check: no part '$argument' (--first, ${all[*]})" >&2
        exit 2
    fi
done
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
mkdir -p "$OUT" || exit 1

# limited SECONDS COMMAND...: within that time, and within what is left of the part's. 124: cut off.
limited() {
    local most=$1 left=$((seconds[$part] - (SECONDS - began)))
    shift
    if ((left <= 0)); then
        echo "no time left for: $*"
        return 124
    fi
    timeout -k 10 "$((left < most ? left : most))" "$@"
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

# Criterion programs that take the device as a parameter; what a device cannot do is skipped with a reason and counted.
# Each test is a process with a CUDA context of its own, so few run at a time.
part_tests() {
    local name worst=0
    export FRUGAL_TEST_DEVICE=cuda CRITERION_JOBS=8 CRITERION_VERBOSITY_LEVEL=1 OMP_WAIT_POLICY=passive
    for name in cuda_twins ops autograd net optim models plan; do
        echo "--- test_$name"
        program 120 tests "test_$name"
        after $?
    done
    return $worst
}

# The same command planned and run: every number of the two memory reports must be equal.
part_plan() {
    local network worst=0
    for network in vgg resnet; do
        set -- "train_$network" --device cuda --steps 3 --quiet --report
        program 60 examples "$@" "$OUT/$network-plan.json" --plan &&
            program 60 examples "$@" "$OUT/$network-run.json" &&
            .ci/check-plan "$OUT/$network-plan.json" "$OUT/$network-run.json"
        after $?
    done
    return $worst
}

part_bandwidth() {
    local type worst=0
    for type in f16 f32; do
        program 60 benchmarks op_bandwidth "$type" 9 --device cuda
        after $?
    done
    return $worst
}

# Images of a batch of ResNet-50, by the MiB that are free: PyTorch in f32 needs 110 MiB an image.
batch_of() {
    local free
    free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | head -n 1)
    free=${free%%[!0-9]*}
    if [ "${free:-0}" -ge 32000 ]; then echo 256; elif [ "${free:-0}" -ge 16000 ]; then echo 128; else echo 64; fi
}

part_train() {
    local worst=0 network batch type flags images
    images=$(batch_of)
    local common=(--device cuda --dataset synthetic --classes 1000 --image-size 224 --steps 30 --eval-every 0
        --cudnn-benchmark --no-deterministic --workers 8 --device-prefetch --quiet)
    if [ "$images" -eq 256 ]; then program 60 benchmarks gpu_model 256 | tee "$OUT/model.log"; fi
    for network in "resnet --depth 50" "mobilenet" "vgg --depth 16 --no-batch-norm"; do
        # shellcheck disable=SC2086
        set -- $network
        batch=$images
        [ "$1" != vgg ] || batch=$((images / 4))
        for type in f16 bf16 f32; do
            flags=--amp
            [ $type != bf16 ] || flags=--amp=bf16
            [ $type != f32 ] || flags=
            # shellcheck disable=SC2086
            program 60 examples "train_$1" "${@:2}" --batch-size "$batch" "${common[@]}" $flags \
                --report "$OUT/$1-$type-train.json"
            after $?
            python3 benchmarks/gpu_table.py --row "$OUT/$1-$type-train.json" "$1 $type batch $batch"
        done
    done
    if ! python3 -c 'import torch, torchvision, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        echo "PyTorch with CUDA is not installed: nothing beside ours"
        return $worst
    fi
    for network in resnet mobilenet vgg; do
        batch=$images
        [ "$network" != vgg ] || batch=$((images / 4))
        limited 60 python3 benchmarks/gpu_torch.py "$network" "$batch"
        after $?
    done
    return $worst
}

part_resume() {
    if [ -n "$RUN" ]; then
        echo "a bundle's programs are started by a script, which cannot be killed in their place"
        return 77
    fi
    limited 30 sh tests/io/kill_resume.sh "$BUILD/examples/train_densenet" 5
}

# In some containers the tool refuses the device: that says nothing about the kernels.
part_sanitizer() {
    local tool words worst=0 log=$OUT/sanitizer-last.log
    if ! command -v compute-sanitizer >/dev/null; then
        echo "compute-sanitizer is not installed"
        return 77
    fi
    export FRUGAL_TEST_DEVICE=cuda CRITERION_JOBS=1
    for tool in memcheck racecheck initcheck; do
        for words in "tests/test_cuda_twins --filter twins/*" "tests/test_cuda_twins --filter twins_images/*" \
            benchmarks/gpu_first; do
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

names=()
results=()
absent=0
for part in "${parts[@]}"; do
    echo "=== $part"
    began=$SECONDS
    "part_$part" 2>&1 | tee "$OUT/$part.log"
    status=${PIPESTATUS[0]}
    names+=("$part")
    case $status in
    0) results+=("ok in $((SECONDS - began)) s") ;;
    77) results+=("skipped: $(tail -n 1 "$OUT/$part.log")") ;;
    124 | 137) results+=("cut off after $((SECONDS - began)) s, see $OUT/$part.log") ;;
    *) results+=("FAILED ($status), see $OUT/$part.log") ;;
    esac
    # What cannot be built cannot run; without a device the rest would only say the same.
    if [ "$part" = build ] && [ "$status" -ne 0 ]; then break; fi
    if [ "$part" = first ] && [ "$status" -eq 77 ]; then
        absent=1
        break
    fi
done

printf '\n'
case " ${names[*]} " in *" train "* | *" bandwidth "*) python3 benchmarks/gpu_table.py "$OUT" ;; esac
printf '\n'
for part in "${names[@]}"; do
    case $part in
    first) grep -h 'in use before the first tensor\|GB/s\| wrong$' "$OUT/first.log" ;;
    tests) grep -h 'Synthesis' "$OUT/tests.log" ;;
    train) grep -h 'images/s, peak' "$OUT/train.log" ;;
    esac
done
failed=0
cut=0
for i in "${!names[@]}"; do
    printf '%-10s %s\n' "${names[$i]}" "${results[$i]}"
    case ${results[$i]} in FAILED*) failed=1 ;; "cut off"*) cut=3 ;; esac
done
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 77
exit $cut
