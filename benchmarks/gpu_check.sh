#!/bin/bash
# Everything that needs a GPU, in one command: builds, runs the tests on the device, sanitizes, measures.
#
#   bash benchmarks/gpu_check.sh            all parts, within nine minutes
#   bash benchmarks/gpu_check.sh --first    build and first only: two minutes
#   bash benchmarks/gpu_check.sh first tests
#   OUT=folder BUILD=build-gpu bash benchmarks/gpu_check.sh
#
# Parts: build, first (device description, three convolutions, relu), plan (planned == measured), tests (the op tests
# and the twins on the device), sanitizer (memcheck, racecheck, initcheck), train (images/s of VGG-16 and ResNet-50;
# PyTorch beside them where it is installed). Logs go to $OUT. A short table ends the output; the exit status is 1 if a
# part failed. Where there is no device that is said once and the rest is skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-$BUILD/gpu-check}
mkdir -p "$OUT"
FRUGAL_SOURCE_ROOT=$(pwd)
export FRUGAL_SOURCE_ROOT BUILD

parts=()
for argument in "$@"; do
    case $argument in
    --first) parts=(build first) ;;
    build | first | plan | tests | sanitizer | train) parts+=("$argument") ;;
    *)
        echo "gpu_check: no part '$argument' (--first, build, first, plan, tests, sanitizer, train)" >&2
        exit 2
        ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(build first plan tests sanitizer train)

part_build() {
    if [ ! -f "$BUILD/build.ninja" ]; then
        meson setup "$BUILD" --buildtype=release -Dcuda=enabled || return 1
    fi
    ninja -C "$BUILD"
}

part_first() { "$BUILD/benchmarks/gpu_first" "$OUT/device.json"; }

# The same command planned and run: every number of the two memory reports must be equal.
part_plan() {
    local network failed=0
    for network in vgg resnet; do
        "$BUILD/examples/train_$network" --device cuda --steps 3 --plan --quiet --report "$OUT/$network-plan.json" &&
            "$BUILD/examples/train_$network" --device cuda --steps 3 --quiet --report "$OUT/$network-run.json" &&
            .ci/check-plan "$OUT/$network-plan.json" "$OUT/$network-run.json" || failed=1
    done
    return $failed
}

# Criterion programs that take the device as a parameter; what a device cannot do is skipped with a reason and counted.
part_tests() { FRUGAL_TEST_DEVICE=cuda sh tests/run.sh --suite ops --suite cuda; }

part_sanitizer() {
    local tool failed=0
    if ! command -v compute-sanitizer >/dev/null; then
        echo "compute-sanitizer is not installed"
        return 77
    fi
    for tool in memcheck racecheck initcheck; do
        echo "--- $tool"
        timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 1 "$BUILD/benchmarks/gpu_first" || failed=1
    done
    return $failed
}

part_train() {
    local arguments="--device cuda --dataset synthetic --image-size 224 --steps 30" failed=0 network
    # shellcheck disable=SC2086
    for network in "vgg --depth 16 --no-batch-norm --batch-size 64" "resnet --depth 50 --batch-size 128"; do
        set -- $network
        timeout 120 "$BUILD/examples/train_$1" "${@:2}" $arguments --report "$OUT/$1-train.json" || failed=1
        if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
            timeout 120 python3 benchmarks/gpu_torch.py "$1" || failed=1
        else
            echo "PyTorch with CUDA is not installed: nothing beside $1"
        fi
    done
    return $failed
}

names=()
results=()
for part in "${parts[@]}"; do
    echo "=== $part"
    began=$SECONDS
    "part_$part" 2>&1 | tee "$OUT/$part.log"
    status=${PIPESTATUS[0]}
    names+=("$part")
    case $status in
    0) results+=("ok in $((SECONDS - began)) s") ;;
    77) results+=("skipped: $(tail -1 "$OUT/$part.log")") ;;
    *) results+=("FAILED ($status), see $OUT/$part.log") ;;
    esac
    # Without a device the rest would only say the same.
    if [ "$part" = first ] && [ "$status" -eq 77 ]; then break; fi
done
printf '\n'
failed=0
for i in "${!names[@]}"; do
    printf '%-10s %s\n' "${names[$i]}" "${results[$i]}"
    case ${results[$i]} in FAILED*) failed=1 ;; esac
done
exit $failed
