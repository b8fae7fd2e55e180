#!/bin/sh
# A trainer needs no CUDA library to start, built with the CUDA backend or without it; asked for a device that is not
# there, it says why in one line and ends with status 1.
#
#   sh tests/cuda/starts.sh build/examples/train_densenet with|without
set -u
trainer=${1:?the trainer}
built=${2:?with or without the CUDA backend}
small="--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 1 --eval-every 0 --quiet"

fail() {
    echo "starts: $*" >&2
    exit 1
}

needed=$(ldd "$trainer") || fail "ldd $trainer failed"
echo "$needed" | grep -q 'libcjson' || fail "ldd does not list cJSON: is this the trainer?"
if echo "$needed" | grep -Ei 'libcu|cudnn|cublas|nvidia|nvrtc|nccl'; then fail "$trainer needs a CUDA library"; fi

# shellcheck disable=SC2086
"$trainer" --device cpu $small >/dev/null || fail "a step on the CPU ended with status $?"

# shellcheck disable=SC2086
said=$("$trainer" --device cuda $small 2>&1)
status=$?
if [ "$status" -eq 0 ] && [ "$built" = with ]; then
    echo "starts: there is a device: what is said without one is not shown"
    exit 77
fi
[ "$status" -eq 1 ] || fail "without a device the exit status is $status, not 1"
[ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] || fail "more than one line: $said"
case $built in
with) expected='--device cuda: *' ;;
without) expected='--device cuda: this build has no CUDA backend' ;;
*) fail "'$built' is neither with nor without" ;;
esac
name=${trainer##*/}
# What lacks (a driver, a device, cuDNN) depends on the machine; without a driver it is this very line.
[ -e /proc/driver/nvidia/version ] || PATH=$PATH:/sbin ldconfig -p | grep -q 'libcuda\.so' || [ "$built" = without ] ||
    expected='--device cuda: no CUDA device: this machine has no NVIDIA driver'
# shellcheck disable=SC2254
case $said in
"$name: "$expected) ;;
*) fail "said '$said', not '$name: $expected'" ;;
esac

# Unasked it takes the CPU, and its first line says why, where there is a question.
# shellcheck disable=SC2086
first=$("$trainer" ${small%--quiet} | head -n 1)
case $built:$first in
with:*' on cpu ('*'); no CUDA device: '* | without:*' on cpu ('*')') ;;
*) fail "the first line is '$first'" ;;
esac
