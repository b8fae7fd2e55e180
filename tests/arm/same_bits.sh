#!/bin/sh
# AVX2 and AVX-512 give equal bits, with any number of threads: two training steps and an inference of seven networks,
# and states of trainings under every switch and in fp16, continued on the other. .ci/aarch64 compares with Arm.
#
#     same_bits.sh STEPS EXAMPLES        STEPS: the program of steps.c; EXAMPLES: folder of the trainers
set -eu
here=$(dirname "$0")
for model in resnet18 mobilenet_v2 densenet121 vgg16_bn efficientnet_b0 convnext_tiny mixed; do
    expected=$(FRUGAL_THREADS=1 "$1" $model 32 4)
    for run in "avx2 1" "avx2 13" "avx512 2" "avx512 16" "avx512 64"; do
        got=$(FRUGAL_ISA=${run% *} FRUGAL_THREADS=${run#* } "$1" $model 32 4)
        [ "$got" = "$expected" ] || {
            echo "same_bits: $model, instructions and threads $run: $got, expected $expected"
            exit 1
        }
    done
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/wide" "$place/narrow"
FRUGAL_ISA=avx512 FRUGAL_THREADS=2 sh "$here/states.sh" "$place/wide" "$place/wide" "$2" >"$place/wide.txt"
FRUGAL_ISA=avx2 FRUGAL_THREADS=3 sh "$here/states.sh" "$place/narrow" "$place/wide" "$2" >"$place/narrow.txt"
[ -s "$place/wide.txt" ] && diff "$place/wide.txt" "$place/narrow.txt" || {
    echo "same_bits: states with AVX-512 (<) and with AVX2 (>), continued from those with AVX-512"
    exit 1
}
