#!/bin/sh
# Trainings of two steps, continued to four, plain, under every switch, and in fp16: prints a checksum of each state.
# Processors with fused multiply-adds print equal lines.
#
#     states.sh FOLDER FROM EXAMPLES [RUNNER...]
#
# FOLDER receives the states; a training continues from the state of two steps in FROM, another processor's FOLDER or
# the same one. EXAMPLES: folder of the trainers; RUNNER: a command that runs them, such as an emulator.
set -eu
folder=$1 from=$2 examples=$3
shift 3
densenet="train_densenet --depth 10 --growth 4 --image-size 8 --batch-size 8"
mobilenet="train_mobilenet --image-size 32 --batch-size 4 --width 0.35"
unet="train_unet --depth 2 --image-size 16 --batch-size 4"

# one NAME WORDS RUNNER...: a case.
one() {
    name=$1 words=$2
    shift 2
    all="$words --device cpu --eval-every 0 --seed 3 --quiet"
    rm -rf "$folder/$name"
    mkdir -p "$folder/$name"
    # shellcheck disable=SC2086 # words of a command
    "$@" "$examples/"$all --steps 2 --save "$folder/$name/two" >"$folder/said" 2>&1 &&
        "$@" "$examples/"$all --steps 4 --resume "$from/$name/two" --save "$folder/$name/four" \
            >>"$folder/said" 2>&1 || {
        echo "states: $all:"
        cat "$folder/said"
        exit 1
    }
    for state in "$folder/$name"/*/*.safetensors; do
        echo "$words: ${state##*/} $(cksum <"$state")"
    done
    rm -rf "$folder/$name/four"
}

i=0
while read -r words; do
    i=$((i + 1))
    one $i "$words" "$@" </dev/null
done <<END
$densenet
$densenet --all-off
$densenet --all-off --inplace
$densenet --no-rebuild
$densenet --checkpoint-segments sqrt --no-arena
$densenet --checkpoint-segments 1 --no-rebuild
$densenet --fused-step --optimizer adam
$densenet --optimizer adam8 --clip 1
$densenet --offload --no-arena
$densenet --accumulate 2 --split-batch 2 --clip 1
$densenet --inplace-abn --optimizer adamw
$densenet --exact-convolutions
$densenet --amp
$densenet --amp --checkpoint-segments sqrt
$densenet --half --master-weights
$mobilenet
$mobilenet --amp
$unet
END
