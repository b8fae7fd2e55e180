#!/bin/sh
# Runs every fuzz target for a while and prints what it did; exit status 1 if one found something.
#
#   sh tests/fuzz/run.sh                  20 seconds each
#   sh tests/fuzz/run.sh 3600             an hour each
#   sh tests/fuzz/run.sh 60 state json    only these
#   BUILD=build-fuzz CORPUS=dir           where the targets are; a folder that keeps what was found interesting
#   SEED=1                                the same inputs each time; without it others
#
# An input that is a finding stays in the folder of the build, under findings/; run the target with its name to see it
# again.
set -u
cd "$(dirname "$0")/../.." || exit 1
seconds=${1:-20}
[ $# -eq 0 ] || shift
build=${BUILD:-build-fuzz}

if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" -Dfuzz=enabled -Dcuda=disabled || exit 1
fi
ninja -C "$build" frugal_fuzz_targets || exit 1

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT INT TERM
export TMPDIR="$scratch" OMP_NUM_THREADS=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}"
findings=$build/findings
mkdir -p "$findings"
[ $# -gt 0 ] || set -- cifar idx image json onnx safetensors state tar torch

# fuzz TARGET: leaves its lines in $scratch/TARGET.said, and $scratch/TARGET.failed after a finding.
fuzz() {
    corpus=${CORPUS:-$scratch/corpus}/$1
    mkdir -p "$corpus"
    "$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=3000 \
        -print_final_stats=1 -seed="${SEED:-0}" -artifact_prefix="$findings/$1-" "$corpus" \
        "tests/fuzz/seeds/$1" >"$scratch/$1.log" 2>&1
    status=$?
    runs=$(awk '/^stat::number_of_executed_units/ { print $2 }' "$scratch/$1.log")
    edges=$(awk '{ for (i = 1; i < NF; i++) if ($i == "cov:") n = $(i + 1) } END { print n + 0 }' "$scratch/$1.log")
    printf '%-12s %9s executions, %5s edges covered, ' "$1" "${runs:-0}" "$edges"
    if [ "$status" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "0 findings"
    else
        touch "$scratch/$1.failed"
        echo "FINDING (exit status $status):"
        tail -n 60 "$scratch/$1.log"
    fi
}

# Two targets at a time.
for target in "$@"; do
    fuzz "$target" >"$scratch/$target.said" &
    if [ -z "${first-}" ]; then
        first=$target
        continue
    fi
    wait
    first=
done
wait
failed=0
for target in "$@"; do
    cat "$scratch/$target.said"
    [ ! -e "$scratch/$target.failed" ] || failed=$((failed + 1))
done
echo "$# targets, $failed with findings"
[ "$failed" -eq 0 ]
