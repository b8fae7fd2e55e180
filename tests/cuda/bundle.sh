#!/bin/sh
# .ci/bundle: a program of the bundle runs in a root that holds the C library and nothing else, and `run` finds cuDNN
# and cuBLASLt in Python packages.
#
#   sh tests/cuda/bundle.sh build examples/train_densenet with|without
set -u
build=${1:?the build folder}
trainer=${2:?the trainer}
built=${3:?with or without the CUDA backend}
tree=$(cd "$(dirname "$0")/../.." && pwd)
small="--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 1 --eval-every 0 --threads 1"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
name=${trainer##*/}

fail() {
    echo "bundle: $*" >&2
    exit 1
}

"$tree/.ci/bundle" "$build" "$place/bundle.tar" "$trainer" || fail "packing ended with status $?"
mkdir "$place/root"
tar -C "$place/root" -xf "$place/bundle.tar" || fail "the archive cannot be read"
inside=$place/root/frugal
for part in "$inside"/lib/ld-* "$inside"/lib/lib[cm].*; do
    [ ! -e "$part" ] || fail "a part of the C library is packed: ${part##*/}"
done

mkdir "$place/broken"
LC_ALL=C sed 's/libz\.so\.1/libz.so.9/g' "$build/$trainer" >"$place/broken/program"
chmod +x "$place/broken/program"
if "$tree/.ci/bundle" "$place/broken" "$place/broken.tar" program 2>/dev/null; then fail "packs what cannot start"; fi

# ---- what `run` tells the program ----

packages=$place/packages/nvidia
mkdir -p "$packages/cudnn/lib" "$packages/cublas/lib"
blas=$(grep -aoh 'libcublasLt\.so\.[0-9]*' "$inside/bin/$name" | head -n 1)
blas=${blas:-libcublasLt.so}
touch "$packages/cudnn/lib/libcudnn.so.9" "$packages/cublas/lib/$blas"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$FRUGAL_CUDNN $FRUGAL_CUBLASLT $LD_LIBRARY_PATH $*"\n' >"$inside/bin/show"
chmod +x "$inside/bin/show"
alone() { env -u FRUGAL_CUDNN -u FRUGAL_CUBLASLT -u CUDA_HOME -u CUDA_PATH -u VIRTUAL_ENV -u LD_LIBRARY_PATH "$@"; }
expect() {
    [ "$2" = "$1" ] || fail "run said '$2', not '$1'"
}
expect "$packages/cudnn/lib/libcudnn.so.9 $packages/cublas/lib/$blas $inside/lib a b" \
    "$(alone PYTHONPATH="$place/packages" "$inside/run" show a b)"
expect "x y $inside/lib:z " \
    "$(FRUGAL_CUDNN=x FRUGAL_CUBLASLT=y LD_LIBRARY_PATH=z PYTHONPATH="$place/packages" "$inside/run" show)"
"$inside/run" no_such 2>/dev/null
[ $? -eq 2 ] || fail "run starts a program that is not there"
# shellcheck disable=SC2086
alone "$inside/run" "$name" --device cpu --quiet $small >/dev/null || fail "a step through run ended with status $?"

# ---- a root with the C library alone ----

if ! unshare -r true 2>/dev/null; then
    echo "bundle: unshare -r is not allowed: the empty root is not shown"
    exit 77
fi
parts='ld-linux[^ ]*|lib(c|m|mvec|dl|rt|pthread|resolv)\.so\.[0-9]+'
for library in $(ldd "$build/$trainer" | grep -oE "/[^ ]*/($parts)"); do
    mkdir -p "$place/root${library%/*}"
    cp -L "$library" "$place/root$library"
done
# shellcheck disable=SC2086
in_root() { LD_LIBRARY_PATH=/frugal/lib unshare -r chroot "$place/root" "/frugal/bin/$name" $small "$@" 2>&1; }

said=$(in_root --quiet --device cuda)
status=$?
expected="this build has no CUDA backend"
[ "$built" = without ] || expected="no CUDA device: this machine has no NVIDIA driver"
[ "$said" = "$name: --device cuda: $expected" ] || fail "in an empty root it said '$said'"
[ "$status" -eq 1 ] || fail "without a device the exit status is $status, not 1"
said=$(in_root --device cpu) || fail "in an empty root a step ended with status $?: $said"
