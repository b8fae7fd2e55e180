#!/bin/sh
# Kills a training at random moments (kill -9; it saves after every step, so some fall inside a save), resumes it, and
# compares the final parameters with those of a run that nobody disturbed. A moment after the end is drawn again.
#
#   sh tests/io/kill_resume.sh build/examples/train_densenet [trials, 50] [seed]
set -u
trainer=${1:?the trainer to kill}
trials=${2:-50}
seed=${3:-$(date +%s)}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
flags="--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 40 --eval-every 0 --amp --quiet"

milliseconds() { date +%s%3N; }

began=$(milliseconds)
"$trainer" $flags --save "$work/whole" --save-every 1 --keep 2 --export "$work/whole.safetensors" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
took=$(($(milliseconds) - began))
same=0 half=0 i=0 draw=0
while [ "$i" -lt "$trials" ]; do
    draw=$((draw + 1))
    rm -rf "$work/states" "$work/resumed.safetensors"
    moment=$(awk -v s="$seed" -v i="$draw" -v t="$took" \
        'BEGIN { srand(s + 7919 * i); printf "%.3f", 0.001 * t * rand() }')
    "$trainer" $flags --save "$work/states" --save-every 1 --keep 2 --resume latest >"$work/log" 2>&1 &
    process=$!
    sleep "$moment"
    kill -9 "$process" 2>/dev/null
    wait "$process" 2>/dev/null
    [ $? -eq 137 ] || continue
    i=$((i + 1))
    ls "$work/states" 2>/dev/null | grep -q '\.tmp$' && half=$((half + 1))
    "$trainer" $flags --save "$work/states" --save-every 1 --keep 2 --resume latest \
        --export "$work/resumed.safetensors" >"$work/log" 2>&1
    if cmp -s "$work/whole.safetensors" "$work/resumed.safetensors"; then
        same=$((same + 1))
    else
        echo "trial $i, killed after $moment s (seed $seed): other parameters"
        cat "$work/log"
    fi
done
echo "$same of $trials killed and resumed runs have identical parameters; $half were killed inside a save; seed $seed"
[ "$same" -eq "$trials" ]
