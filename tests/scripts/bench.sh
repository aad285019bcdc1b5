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

number='-?[0-9.e+-]+'
form="^\{\"name\": \"[a-z0-9_]+\", \"value\": $number, \"median\": $number, \"unit\": \"[^\"]+\", \"better\": \"(less|more)\", \
\"limit\": ($number|null), \"ratio\": ($number|null)\}\$"
lines=$("$bench" --json dispatch startup) || fail "cohort-bench --json dispatch startup fails"
[ "$(wc -l <<<"$lines")" -eq 5 ] || fail "5 figures were expected: $lines"
grep -vqE "$form" <<<"$lines" && fail "not in the form: $lines"
for name in dispatch_ns dispatch_tape_ns startup_ms startup_rss_mib text_mib; do
    grep -q "\"name\": \"$name\"" <<<"$lines" || fail "$name is missing"
done
exit $failed
