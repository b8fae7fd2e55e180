#!/bin/sh
# Runs the tests and ends with the skipped tests, their reasons and their number, and one line of sums.
#
#   sh tests/run.sh                 everything, in build/
#   sh tests/run.sh --suite small   what follows goes to `meson test`: suites, test names, --timeout-multiplier, ...
#   BUILD=build-asan sh tests/run.sh
#
# `meson test` keeps what the test programs print in its log. Every test program is a Criterion program and closes
# with a line of numbers; the last line here has the same form and holds the sums, with skipped tests in none of them.
# A test program under a sanitizer may pass with a finding (Criterion ignores the exit status that a leak leaves), so
# the log is searched for findings as well. The exit status is 0 only if nothing failed and something ran.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}

if [ ! -f "$build/build.ninja" ]; then
    .ci/setup && meson setup "$build" --buildtype=release || exit 1
fi

# Meson runs one program per core; within a program one test at a time, on at most two threads that sleep when idle.
export CRITERION_JOBS=1
export CRITERION_VERBOSITY_LEVEL=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"

log=$build/meson-logs/testlog.txt
rm -f "$log"
meson test -C "$build" --print-errorlogs "$@"
status=$?
if [ ! -f "$log" ]; then
    echo "run.sh: no test ran: $log was not written (meson test: exit status $status)" >&2
    [ "$status" -ne 0 ] || status=1
    exit "$status"
fi

# The log may hold terminal colours, other bytes and several programs. Exit status 3 stands for "there are findings".
LC_ALL=C awk -v meson_status="$status" '
    { gsub(/\033\[[0-9;]*m/, "") }
    /^\[SKIP\] .*: Test is disabled$/ { next } # left out by the filter of the test
    /^\[SKIP\] / { skips[++skipped] = substr($0, 8) }
    /^\[SKIP\]$/ { skips[++skipped] = "(no name)" }
    /ERROR: (AddressSanitizer|LeakSanitizer)|runtime error: / { findings[++found] = $0 }
    /^\[====\] Running / { started++ }
    /^\[====\] Synthesis: / {
        programs++
        n = split($0, field, "|")
        for (i = 1; i <= n; i++) {
            value = field[i]
            sub(/.*: */, "", value)
            sum[i] += value
        }
    }
    END {
        if (skipped > 0) {
            printf "\nSkipped, with the reason:\n"
            for (i = 1; i <= skipped; i++) print "  " skips[i]
        }
        printf "\n%d skipped\n", skipped
        if (found > 0) {
            printf "Sanitizer findings: %d\n", found
            for (i = 1; i <= found && i <= 20; i++) print "  " findings[i]
        }
        if (meson_status != 0) printf "meson test: exit status %d\n", meson_status
        if (programs == 0) print "no Criterion program finished"
        printf "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d\n", \
            sum[1], sum[2], sum[3], sum[4]
        exit (found > 0 || programs == 0 || sum[1] == 0 || sum[3] > 0 || sum[4] > 0) ? 3 : 0
    }' "$log"
sums=$?
[ "$status" -ne 0 ] || status=$sums
exit "$status"
