#!/bin/bash
# Everything that needs a GPU, in one command: builds, runs the tests on the device, sanitizes, measures.
#
#   bash benchmarks/gpu_check.sh            all parts, within nine minutes
#   bash benchmarks/gpu_check.sh --first    build and first only: two minutes
#   bash benchmarks/gpu_check.sh first tests
#   OUT=folder BUILD=build-gpu bash benchmarks/gpu_check.sh
#
# The toolkit is found as docs/cuda.md says: an installed one, or nvcc, cudart, cuBLAS and cuDNN from pip. Parts:
#   build      the library, the tests, the trainers
#   first      device description; three convolutions in three types and three directions,
#              and relu, against the CPU
#   bandwidth  each own kernel's GB/s beside a copy's, f16 and f32
#   train      images/s and peak of ResNet-50 and VGG-16, AMP and f32 (TF32 in convolutions); PyTorch beside them where
#              it is installed, in the same precision: its batch lies on the device, ours is prefetched by 8 workers
#   sanitizer  memcheck, racecheck, initcheck of the own kernels and of `first`
#   plan       planned == measured: VGG-16, ResNet, and 200 random commands
#   resume     a training killed at random moments ends with the parameters of one that was not
#   tests      tests that take the device as a parameter, and the own kernels against their CPU twins
# The order is that of what is learnt first. Logs go to $OUT. Two tables end the output: each claim of the performance
# model beside what was measured, and what became of each part. Exit status: 1 if a part failed, 77 if there is no
# device (said once; nothing after that is tried), 2 for an unknown part.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-$BUILD/gpu-check}
LIMIT=${LIMIT:-540} # seconds for all parts; what is cut off counts as failed
FRUGAL_SOURCE_ROOT=$(pwd)
export FRUGAL_SOURCE_ROOT BUILD

parts=()
for argument in "$@"; do
    case $argument in
    --first) parts=(build first) ;;
    build | first | bandwidth | train | sanitizer | plan | resume | tests) parts+=("$argument") ;;
    *)
        echo "gpu_check: no part '$argument' (--first, build, first, bandwidth, train, sanitizer, plan, resume," \
            "tests)" >&2
        exit 2
        ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(build first bandwidth train sanitizer plan resume tests)
mkdir -p "$OUT" || exit 1

# limited SECONDS COMMAND...: within that time, and within what is left of LIMIT.
limited() {
    local most=$1 left=$((LIMIT - SECONDS))
    shift
    if ((left <= 0)); then
        echo "no time left (LIMIT is $LIMIT s): $*"
        return 124
    fi
    timeout -k 10 "$((left < most ? left : most))" "$@"
}

part_build() {
    if [ ! -f "$BUILD/build.ninja" ]; then
        meson setup "$BUILD" --buildtype=release -Dcuda=enabled || return 1
    fi
    limited 540 ninja -C "$BUILD"
}

part_first() { limited 120 "$BUILD/benchmarks/gpu_first" "$OUT/device.json"; }

# The same command planned and run: every number of the two memory reports must be equal.
part_plan() {
    local network failed=0
    for network in vgg resnet; do
        limited 60 "$BUILD/examples/train_$network" --device cuda --steps 3 --plan --quiet \
            --report "$OUT/$network-plan.json" &&
            limited 60 "$BUILD/examples/train_$network" --device cuda --steps 3 --quiet \
                --report "$OUT/$network-run.json" &&
            .ci/check-plan "$OUT/$network-plan.json" "$OUT/$network-run.json" || failed=1
    done
    FRUGAL_TEST_DEVICE=cuda limited 120 sh tests/run.sh test_planned || failed=1
    return $failed
}

# Criterion programs that take the device as a parameter; what a device cannot do is skipped with a reason and counted.
# Each test is a process with a CUDA context of its own, so few run at a time.
part_tests() {
    FRUGAL_TEST_DEVICE=cuda limited 240 sh tests/run.sh --num-processes 4 --suite ops --suite autograd --suite nn \
        --suite optim --suite models --suite plan --suite cuda
}

part_bandwidth() {
    local type failed=0
    for type in f16 f32; do
        limited 60 "$BUILD/benchmarks/op_bandwidth" "$type" 9 --device cuda || failed=1
    done
    return $failed
}

# In some containers the tool refuses the device: that says nothing about the kernels.
part_sanitizer() {
    local tool program failed=0 log=$OUT/sanitizer-last.log
    if ! command -v compute-sanitizer >/dev/null; then
        echo "compute-sanitizer is not installed"
        return 77
    fi
    for tool in memcheck racecheck initcheck; do
        for program in tests/test_twins tests/test_twins_images benchmarks/gpu_first; do
            echo "--- $tool $program"
            FRUGAL_TEST_DEVICE=cuda CRITERION_JOBS=1 limited 60 compute-sanitizer --tool "$tool" \
                --target-processes all --error-exitcode 1 "$BUILD/$program" 2>&1 | tee "$log"
            [ "${PIPESTATUS[0]}" -eq 0 ] && continue
            failed=$((failed + 1))
            if [ "$failed" -eq 1 ] && grep -q 'Device not supported' "$log"; then
                echo "compute-sanitizer: $(grep -m 1 -o 'Device not supported.*' "$log")"
                return 77
            fi
        done
    done
    [ "$failed" -eq 0 ]
}

part_resume() { limited 60 sh tests/io/kill_resume.sh "$BUILD/examples/train_densenet" 5; }

part_train() {
    local failed=0 network flags
    local common=(--device cuda --dataset synthetic --classes 1000 --image-size 224 --steps 30 --eval-every 0
        --cudnn-benchmark --no-deterministic --workers 8 --device-prefetch)
    limited 60 "$BUILD/benchmarks/gpu_model" 256 | tee "$OUT/model.log"
    for network in "resnet --depth 50 --batch-size 256" "vgg --depth 16 --no-batch-norm --batch-size 64"; do
        # shellcheck disable=SC2086
        set -- $network
        for flags in --amp ""; do
            echo "--- train_$network $flags"
            # shellcheck disable=SC2086
            limited 60 "$BUILD/examples/train_$1" "${@:2}" "${common[@]}" $flags \
                --report "$OUT/$1${flags// /}-train.json" || failed=1
        done
        if python3 -c 'import torch, torchvision, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
            limited 90 python3 benchmarks/gpu_torch.py "$1" || failed=1
        else
            echo "PyTorch with CUDA is not installed: nothing beside $1"
        fi
    done
    return $failed
}

names=()
results=()
absent=0
for part in "${parts[@]}"; do
    echo "=== $part"
    began=$SECONDS
    case $part in
    build) part_build ;;
    first) part_first ;;
    plan) part_plan ;;
    tests) part_tests ;;
    bandwidth) part_bandwidth ;;
    sanitizer) part_sanitizer ;;
    resume) part_resume ;;
    train) part_train ;;
    esac 2>&1 | tee "$OUT/$part.log"
    status=${PIPESTATUS[0]}
    names+=("$part")
    case $status in
    0) results+=("ok in $((SECONDS - began)) s") ;;
    77) results+=("skipped: $(tail -n 1 "$OUT/$part.log")") ;;
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
    tests) grep -h '^[0-9]* skipped$\|Synthesis' "$OUT/tests.log" | tail -n 2 ;;
    train) grep -h 'images/s' "$OUT/train.log" | tail -n 12 ;;
    esac
done
failed=0
for i in "${!names[@]}"; do
    printf '%-10s %s\n' "${names[$i]}" "${results[$i]}"
    case ${results[$i]} in FAILED*) failed=1 ;; esac
done
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 77
