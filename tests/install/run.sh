#!/bin/sh
# Builds programs outside the tree against an installed frugal, as docs/install.md says, and runs them.
#
#   sh tests/install/run.sh PREFIX     where `meson install` put a CPU build; works in PREFIX/outside
set -eu
prefix=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
libdir=$(dirname "$(dirname "$(find "$prefix" -name frugal.pc)")")
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir" OMP_NUM_THREADS=2
rm -rf "$prefix/outside"
mkdir "$prefix/outside"
cd "$prefix/outside"
cp "$here"/app.c "$here"/app.cpp "$here"/trainer.c "$here"/CMakeLists.txt .
warn="-Wall -Wextra -Werror"

fail() {
    echo "install: $*" >&2
    exit 1
}

# needs PROGRAM yes|no: does it ask for the shared library, by the name with the minor version?
needs() {
    found=no
    if readelf -d "$1" | grep -q 'NEEDED.*\[libfrugal\.so\.0\.4\]'; then found=yes; fi
    [ "$found" = "$2" ] || fail "$1 needs libfrugal.so.0.4: $found, not $2"
}

# What pkg-config says of the package, with the archive in place of the shared library.
archive() { pkg-config --cflags --libs --static "$1" | sed 's/-lfrugal /-l:libfrugal.a /'; }

cc $warn app.c $(pkg-config --cflags --libs frugal) -o shared
cc $warn app.c $(archive frugal) -o static
cc $warn trainer.c $(pkg-config --cflags --libs frugal-cli) -o trainer
for name in 07_own_network 08_own_loop train_own; do
    cp "$here/../../examples/$name.c" .
    cc $warn $name.c $(pkg-config --cflags --libs frugal-cli) -o $name
done
for program in ./07_own_network ./08_own_loop "./train_own --dataset synthetic --steps 2"; do
    $program >own.log 2>&1 || fail "$program: $(cat own.log)"
done
! ./train_own --steps 2 2>own.log || fail "train_own has digits outside of the tree"
grep -q "train_own has no digits; --dataset NAME is needed" own.log || fail "train_own says $(cat own.log)"
cmake -G Ninja -S . -B cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="$warn" >cmake.log ||
    fail "$(cat cmake.log)"
cmake --build cmake >cmake.log || fail "$(cat cmake.log)"

needs shared yes
needs static no
needs cmake/app yes
needs cmake/app_static no
needs trainer no
needs cmake/trainer no
expected=$(./shared)
for program in ./static cmake/app cmake/app_static; do
    said=$($program)
    [ "$said" = "$expected" ] || fail "$program says '$said', ./shared '$expected'"
done
case $expected in
"frugal $(pkg-config --modversion frugal), loss "*) ;;
*) fail "./shared says '$expected', the package is $(pkg-config --modversion frugal)" ;;
esac
for program in ./trainer cmake/trainer; do
    $program --steps 2 --batch-size 4 >trainer.log || fail "$program: $(cat trainer.log)"
    $program plan --batch-size 4 | grep -q floor || fail "$program has no plan"
done
"$prefix"/bin/train_vgg --version | grep -q "$(pkg-config --modversion frugal)" || fail "train_vgg is not installed"

for header in $(cd "$here/../../include" && find frugal -name '*.h*'); do
    [ -s "$prefix/include/$header" ] || fail "no $header"
done
cat >fits.cmake <<END
set(PACKAGE_FIND_VERSION \${MAJOR}.\${MINOR}.\${PATCH})
set(PACKAGE_FIND_VERSION_MAJOR \${MAJOR})
set(PACKAGE_FIND_VERSION_MINOR \${MINOR})
include($libdir/cmake/frugal/frugal-config-version.cmake)
if(NOT "\${FITS}" STREQUAL "\${PACKAGE_VERSION_COMPATIBLE}")
  message(FATAL_ERROR "\${PACKAGE_VERSION} for \${PACKAGE_FIND_VERSION}: '\${PACKAGE_VERSION_COMPATIBLE}'")
endif()
END
cmake -DMAJOR=0 -DMINOR=4 -DPATCH=0 -DFITS=TRUE -P fits.cmake
cmake -DMAJOR=0 -DMINOR=4 -DPATCH=9 -DFITS= -P fits.cmake
cmake -DMAJOR=0 -DMINOR=3 -DPATCH=9 -DFITS= -P fits.cmake
cmake -DMAJOR=0 -DMINOR=5 -DPATCH=0 -DFITS= -P fits.cmake

for page in man1/train_vgg.1 man3/frugal-ops.3 man3/fr_conv2d.3; do
    [ -s "$prefix/share/man/$page" ] || fail "no manual page $page"
done
if command -v man >/dev/null; then
    MANPATH="$prefix/share/man" man fr_conv2d | grep -q '^ *fr_status fr_conv2d(' || fail "man fr_conv2d does not open"
    MANPATH="$prefix/share/man" man train_vgg | grep -q memory-budget || fail "man train_vgg does not open"
fi
[ -s "$prefix/share/doc/frugal/LICENSE" ] || fail "no licence"

# A build without CUDA names no place of it.
if grep -rl '/cuda\|nvidia' "$libdir"/*.so* "$libdir"/*.a "$libdir"/pkgconfig "$prefix/bin"; then
    fail "these name CUDA's folders"
fi
echo "install: $expected; $(find "$prefix/share/man" -name '*.[13]' | wc -l) manual pages"
