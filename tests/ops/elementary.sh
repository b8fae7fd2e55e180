#!/bin/sh
# The functions of backend/elementary.h have equal bits with each compiler, instruction set and C library that is here.
#
#     elementary.sh SOURCE_ROOT STEP [COMPILER...]       STEP as of elementary.c; a compiler for Arm, run by qemu
#
# musl, whose functions differ from those of glibc, is Debian's musl-tools.
set -eu
root=$1 step=$2
shift 2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
compared=0 expected=

# compared_with NAME RUN COMPILER...: builds with the compiler and compares the hashes with the first build's.
compared_with() {
    name=$1 run=$2
    shift 2
    command -v "$1" >/dev/null 2>&1 || {
        echo "elementary: no $1"
        return 0
    }
    "$@" -std=gnu17 -ffp-contract=off -I"$root/src" -I"$root/include" "$root/tests/ops/elementary.c" \
        -o "$place/program" -lm
    got=$($run "$place/program" "$step" --hashes)
    expected=${expected:-$got}
    [ "$got" = "$expected" ] || {
        echo "elementary: with $name (>) other bits than with the first compiler (<)"
        echo "$expected" >"$place/first"
        echo "$got" | diff "$place/first" - || exit 1
    }
    compared=$((compared + 1))
}

case $(uname -m) in
x86_64) narrow=-march=x86-64 avx2=-march=x86-64-v3 avx512=-march=x86-64-v4 ;;
*) narrow=-O3 avx2=-O3 avx512=-O3 ;;
esac
has() { [ "$narrow" = -O3 ] || grep -qw "$1" /proc/cpuinfo; }
[ "$step" -eq 1 ] || compared_with "no optimization" "" cc -O0 $narrow # all floats would take an hour
compared_with "a narrow build" "" cc -O3 $narrow
compared_with "a narrow build of clang" "" clang -O3 $narrow
if has fma && has avx2; then
    compared_with "AVX2" "" cc -O3 -fno-math-errno $avx2
    compared_with "AVX2 by clang" "" clang -O3 -fno-math-errno $avx2
    compared_with "musl" "" musl-gcc -O3 -static -mfma
fi
if has avx512f && has avx512vl; then
    compared_with "AVX-512" "" cc -O3 -fno-math-errno $avx512
    compared_with "AVX-512 by clang" "" clang -O3 -fno-math-errno $avx512
fi
[ $# -eq 0 ] || compared_with Arm qemu-aarch64-static "$@" -O3 -static
[ $compared -gt 1 ] || { echo "elementary: one build is none to compare" && exit 1; }
echo "elementary: $compared builds have equal bits"
