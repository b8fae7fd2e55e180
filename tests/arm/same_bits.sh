#!/bin/sh
# Two training steps and an inference without oneDNN have equal bits for each width of vectors with fused
# multiply-additions and each number of threads; .ci/aarch64 compares them with Arm.
#
#     same_bits.sh STEPS        STEPS: the program of steps.c
set -eu
export FRUGAL_ONEDNN=off
for model in resnet18 mobilenet_v2 densenet121 vgg16_bn efficientnet_b0 convnext_tiny; do
    expected=$(FRUGAL_THREADS=1 "$1" $model 32 4)
    for run in "AVX2 1" "AVX2 3" "DEFAULT 2" "DEFAULT 4"; do
        got=$(ONEDNN_MAX_CPU_ISA=${run% *} FRUGAL_THREADS=${run#* } "$1" $model 32 4)
        [ "$got" = "$expected" ] || {
            echo "same_bits: $model, instructions and threads $run: $got, expected $expected"
            exit 1
        }
    done
done
