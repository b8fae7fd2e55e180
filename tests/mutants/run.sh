#!/bin/sh
# Plants each fault of tests/mutants/*.mutants and tests/addons/*/*.mutants in a copy of the tree and expects the test
# it names to fail. A fault that
# passes, and one whose old text is not in its file exactly once, are failures: the list ages with the code or says so.
#
#   sh tests/mutants/run.sh               all, in build-mutants/ (kept: the next run builds what changed)
#   sh tests/mutants/run.sh mirror pool   those whose claim, file or test holds one of these words
#
# Where CUDA's compiler is missing those of cuda.mutants are left out.
#
# A mutant is an entry of a .mutants file:
#
#   == what is wrong, in words
#   src/data/transform.c            the file
#   test_loader loader/shifts*      the test program that must fail, and which of its tests (all if left out)
#   -old text, exactly, once in the file; lines of a longer one each begin with a minus
#   +new text (no line: the old text goes)
set -u
cd "$(dirname "$0")/../.." || exit 1
place=build-mutants
python3 tests/mutants/plant.py --copy $place/tree || exit 1
[ -f $place/build/build.ninja ] ||
    meson setup $place/build $place/tree --buildtype=debug -Doptimization=1 -Ddebug=false -Dgpu_arch=90 \
        -Dfolder_units=false -Dbenchmarks=disabled || exit 1
exec nice python3 tests/mutants/plant.py $place "$@"
