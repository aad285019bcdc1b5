#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/compare-bench: its verdicts, on programs that print the figures they are told to. No speed is tested here.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
compare=$source/scripts/compare-bench
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# program NAME: a cohort-bench whose benchmark `speed` prints the lines "figure value better" of NAME.figures, and whose
# first run prints those of NAME.first where that file is.
program() {
    cat >"$scratch/$1" <<'END'
#!/usr/bin/env bash
[ "$1" != --help ] || { echo "  speed  what it is told to"; echo "  $(basename "$0")_only  nothing"; exit 0; }
figures=$0.figures
[ ! -e "$0.first" ] || { cat "$0.first" >"$0.now"; rm "$0.first"; figures=$0.now; }
echo run >>"$0.runs"
while read -r name value better; do
    key=", \"better\": \"$better\""
    [ -n "$better" ] || key=
    echo "{\"name\": \"$name\", \"value\": $value, \"median\": 99, \"unit\": \"u\"$key, \"limit\": null, \"ratio\": null}"
done <"$figures"
exit $(cat "$0.status" 2>/dev/null || echo 0)
END
    chmod +x "$scratch/$1"
}
program old
program new

# expect STATUS ARGUMENTS...: leaves what it printed in $output.
expect() {
    local status=$1
    shift
    rm -f "$scratch"/*.runs
    output=$("$compare" --programs "$scratch/old" "$scratch/new" "$@" 2>&1)
    [ $? -eq "$status" ] || fail "status $status was expected of compare-bench $*: $output"
}
row() { grep -qE "^$1 .*$2" <<<"$output" || fail "no row '$1 ... $2': $output"; }

# The old one, as commits before this script, does not say which way is better.
printf '%s\n' 'dispatch_ns 20' 'time_us 100' 'rate 100' 'steady_allocations 0' 'gone_us 1' >"$scratch/old.figures"
printf '%s\n' 'dispatch_ns 21.9 less' 'time_us 102.9 less' 'rate 97.1 more' 'steady_allocations 0 less' 'added_us 1 less' \
    >"$scratch/new.figures"
expect 0 speed
row dispatch_ns '\+1\.9 +\+1\.9  ok'
row time_us '\+2\.9 % +\+2\.9 %  ok'
row rate '\+2\.9 % +\+2\.9 %  ok'
row gone_us 'only in old'
row added_us 'only here'
grep -qx '4 figures judged, 0 over the limit' <<<"$output" || fail "the last line: $output"
[ "$(wc -l <"$scratch/old.runs")" -eq 5 ] || fail "five rounds were expected"
expect 0
grep -qx 'benchmark new_only: only here' <<<"$output" || fail "new_only is not listed: $output"
grep -qx 'benchmark old_only: only in old' <<<"$output" || fail "old_only is not listed: $output"

# Each of the limits, and less of what should be more.
for line in 'dispatch_ns 22.1 less' 'time_us 103.1 less' 'rate 96.9 more' 'steady_allocations 1 less'; do
    echo "$line" >"$scratch/new.figures"
    expect 1 --rounds 2 --repeats 1
    row "${line%% *}" 'OVER, limit .*\(4 rounds\)'
done
echo 'rate 200 more' >"$scratch/new.figures"
expect 0 --rounds 1
echo 'time_us 50 less' >"$scratch/new.figures"
expect 0 --rounds 1

# A round that was disturbed is repeated; the repeat clears it.
echo 'time_us 120 less' >"$scratch/new.first"
echo 'time_us 100 less' >"$scratch/new.figures"
expect 0 --rounds 1
row time_us 'ok \(2 rounds\)'

# Only some figures; a figure nobody has; a benchmark that fails.
printf '%s\n' 'dispatch_ns 50 less' 'time_us 100 less' >"$scratch/new.figures"
expect 0 --rounds 1 --figures '^time_'
grep -q dispatch_ns <<<"$output" && fail "dispatch_ns was not asked for: $output"
expect 2 --rounds 1 --figures no_such_figure
echo 1 >"$scratch/new.status"
expect 1 --rounds 1 --figures '^time_'
grep -q 'FAILED: benchmark speed of here' <<<"$output" || fail "a failed benchmark is not named: $output"
rm "$scratch/new.status"

# What the two were built with: not known of programs alone, said where they lie in build trees, and the same for both.
grep -q '^old: what it was built with is not known' <<<"$output" || fail "programs without a tree: $output"
# tree NAME ONEDNN: a build tree with such a program.
tree() {
    mkdir -p "$scratch/$1/bench" "$scratch/$1/generated"
    cp "$scratch/old" "$scratch/$1/bench/cohort-bench"
    cp "$scratch/old.figures" "$scratch/$1/bench/cohort-bench.figures"
    cat >"$scratch/$1/generated/config.h" <<END
#define COI_HAVE_ONEDNN    $2
#define COI_ONEDNN_VERSION "2.6.3"
#define COI_HAVE_ISA_V3 1
#define COI_HAVE_ISA_V4 0
#define COI_BUILD_TYPE     "Release"
#define COI_BUILD_COMPILER "GNU 12.2.0"
END
}
tree with 1
tree with_too 1
tree without 0
output=$("$compare" --rounds 1 --programs "$scratch/with/bench/cohort-bench" "$scratch/with_too/bench/cohort-bench" speed 2>&1) ||
    fail "equal builds are refused: $output"
[ "$(grep -c ': GNU 12.2.0, Release, instruction sets base v3, oneDNN 2.6.3$' <<<"$output")" -eq 2 ] ||
    fail "the builds are not described: $output"
output=$("$compare" --rounds 1 --programs "$scratch/with/bench/cohort-bench" "$scratch/without/bench/cohort-bench" speed 2>&1)
[ $? -eq 2 ] || fail "builds with and without oneDNN are compared: $output"
grep -q '^here: .*oneDNN: no$' <<<"$output" || fail "the build without oneDNN is not described: $output"
grep -q 'the two builds differ' <<<"$output" || fail "the reason is missing: $output"

expect 2 no_such_benchmark
expect 2 --rounds 0
expect 2 --rounds
expect 2 --figures '('
expect 2 --no-such-option
"$compare" >/dev/null 2>&1
[ $? -eq 2 ] || fail "no revision is accepted"
"$compare" --programs "$scratch/old" >/dev/null 2>&1
[ $? -eq 2 ] || fail "one program is accepted"
"$compare" no-such-revision >/dev/null 2>&1
[ $? -eq 2 ] || fail "a revision that is not there is accepted"
"$compare" --help | grep -q -- '--rounds N' || fail "--help does not show the options"
exit $failed
