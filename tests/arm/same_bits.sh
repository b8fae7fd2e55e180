#!/bin/sh
# Two training steps and an inference have equal bits for each width of vectors with fused
# multiply-additions and each number of threads; .ci/aarch64 compares them with Arm.
#
#     same_bits.sh STEPS        STEPS: the program of steps.c
set -eu
for model in resnet18 mobilenet_v2 densenet121 vgg16_bn efficientnet_b0 convnext_tiny; do
    expected=$(FRUGAL_THREADS=1 "$1" $model 32 4)
    for run in "avx2 1" "avx2 3" "avx512 2" "avx512 4"; do
        got=$(FRUGAL_ISA=${run% *} FRUGAL_THREADS=${run#* } "$1" $model 32 4)
        [ "$got" = "$expected" ] || {
            echo "same_bits: $model, instructions and threads $run: $got, expected $expected"
            exit 1
        }
    done
done
