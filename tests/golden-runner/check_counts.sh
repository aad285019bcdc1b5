#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No case that passed may fail again: every family passes at least as many cases as at_least.txt says.
#
#     check_counts.sh PATH-OF-GOLDEN [--function]
#
# With --function: in captured functions, with at_least_function.txt, whose last column is the number of cases that may have
# no meaning there at most; cases that fail are none.
set -u
golden=$1
mode=${2:-}
here=$(dirname "$0")
list=$here/at_least${mode:+_function}.txt
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0

if [ -n "$mode" ]; then
    mapfile -t families < <(sed -n 's/^\([a-z_]*\) [0-9].*/\1/p' "$list")
    "$golden" "$mode" "$here/../golden" "${families[@]}" >"$out" 2>&1 || status=1
    [ $status -eq 0 ] || grep -v -E 'passed, |apart:' "$out" | head -n 20
else
    "$golden" "$here/../golden" >"$out" 2>&1
fi
while read -r family least most; do
    case $family in '#'* | '') continue ;; esac
    passed=$(sed -n "s/^$family: \([0-9]*\) passed, [0-9]* failed\$/\1/p" "$out")
    if [ -z "$passed" ] || [ "$passed" -lt "$least" ]; then
        echo "FAILED: $family: ${passed:-no} cases pass, at least $least must"
        status=1
    elif [ "$passed" -gt "$least" ]; then
        echo "$family: $passed pass; raise the $least in ${list##*/}"
    fi
    apart=$(sed -n "s/^$family: \([0-9]*\) apart: .*/\1/p" "$out" | awk '{ n += $1 } END { print n + 0 }')
    if [ -n "${most:-}" ] && [ "${apart:-0}" -gt "$most" ]; then
        echo "FAILED: $family: ${apart:-0} cases are counted apart, at most $most may be"
        status=1
    fi
done <"$list"
if grep -E 'crashed|no result after|after the last case|ended the process' "$out"; then
    echo "FAILED: a case ended its process"
    status=1
fi

# The rules that the whole of the data proves, in the form of the unit tests' log.
if [ -n "${COHORT_RULES_LOG:-}" ] && [ -z "$mode" ]; then
    [ $status -eq 0 ] && verdict=pass || verdict=fail
    for rule in $(sed -n 's/^#> rules //p' "$here/at_least.txt"); do
        printf '%s\tgolden/at_least\t%s\n' "$rule" $verdict >>"$COHORT_RULES_LOG"
    done
fi

tail -n 1 "$out"
exit $status
