#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cohort-bench: its names, its refusals, and the form of what it prints. No speed is tested here.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
bench=${COHORT_BUILD_DIR:-$source/build/release}/bench/cohort-bench
failed=0
fail() { echo "FAILED: $*"; failed=1; }

"$bench" --help | grep -q '^  dispatch ' || fail "help does not list dispatch"
"$bench" no-such-name >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown name is accepted"

"$bench" startup | head -n 1 | grep -qE '^build: version .*, oneDNN [^,]+, MPI [^,]+, zlib ' ||
    fail "the first line does not say what it was built with"

# A library to compare with that does not load is named, as soon as the benchmark begins.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "This is no library." >"$scratch/libopenblas.so.0"
LD_LIBRARY_PATH=$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$bench" --json matmul >/dev/null 2>"$scratch/said" &
for _ in $(seq 300); do
    [ ! -s "$scratch/said" ] || break
    sleep 0.1
done
kill $! 2>/dev/null
wait $! 2>/dev/null
grep -qxE 'cohort-bench: (OpenBLAS is|oneDNN and OpenBLAS are) not there to compare with; .* installs both' "$scratch/said" ||
    fail "OpenBLAS is missing, and this was said: $(cat "$scratch/said")"

number='-?[0-9.e+-]+'
form="^\{\"name\": \"[a-z0-9_]+\", \"value\": $number, \"median\": $number, \"unit\": \"[^\"]+\", \"better\": \"(less|more)\", \
\"limit\": ($number|null), \"ratio\": ($number|null)\}\$"
lines=$("$bench" --json dispatch startup) || fail "cohort-bench --json dispatch startup fails"
[ "$(wc -l <<<"$lines")" -eq 5 ] || fail "5 figures were expected: $lines"
grep -vqE "$form" <<<"$lines" && fail "not in the form: $lines"
for name in dispatch_ns dispatch_tape_ns startup_ms startup_rss_mib text_mib; do
    grep -q "\"name\": \"$name\"" <<<"$lines" || fail "$name is missing"
done
"$bench" state --seconds 0 2>&1 >/dev/null | grep -qF -- "--seconds needs a number from 1 to 600" || fail "state --seconds 0 is accepted"
"$bench" dispatch --seconds 5 2>&1 >/dev/null | grep -qF -- "--seconds belongs to the benchmark state" || fail "--seconds is accepted without state"
exit $failed
