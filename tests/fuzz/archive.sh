#!/bin/sh
# Compiles C files into an archive, two at a time: for a compiler that is not the build's.
#
#   archive.sh OUTPUT SCRATCH COMPILER FLAG... -- FILE...
set -eu
output=$1
scratch=$2
shift 2
command=""
while [ "$1" != -- ]; do
    command="$command '$1'"
    shift
done
shift
rm -rf "$scratch"
mkdir -p "$scratch"
# Names of objects: the path with its slashes replaced, since two folders may have a file of the same name.
for file in "$@"; do
    printf '%s\n%s\n' "$file" "$scratch/$(printf %s "$file" | tr '/.' '__').o"
done | xargs -n 2 -P 2 sh -c "$command"' -c "$0" -o "$1" || exit 255'
rm -f "$output"
ar rcs "$output" "$scratch"/*.o
