#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No case that passed may fail again: every family passes at least as many cases as at_least.txt says.
#
#     check_counts.sh PATH-OF-GOLDEN
set -u
golden=$1
here=$(dirname "$0")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0

"$golden" "$here/../golden" >"$out" 2>&1
while read -r family least; do
    case $family in '#'* | '') continue ;; esac
    passed=$(sed -n "s/^$family: \([0-9]*\) passed, [0-9]* failed\$/\1/p" "$out")
    if [ -z "$passed" ] || [ "$passed" -lt "$least" ]; then
        echo "FAILED: $family: ${passed:-no} cases pass, at least $least must"
        status=1
    elif [ "$passed" -gt "$least" ]; then
        echo "$family: $passed pass; raise the $least in at_least.txt"
    fi
done <"$here/at_least.txt"
if grep -E 'crashed|no result after|after the last case|ended the process' "$out"; then
    echo "FAILED: a case ended its process"
    status=1
fi

# The rules that the whole of the data proves, in the form of the unit tests' log.
if [ -n "${COHORT_RULES_LOG:-}" ]; then
    [ $status -eq 0 ] && verdict=pass || verdict=fail
    for rule in $(sed -n 's/^#> rules //p' "$here/at_least.txt"); do
        printf '%s\tgolden/at_least\t%s\n' "$rule" $verdict >>"$COHORT_RULES_LOG"
    done
fi

tail -n 1 "$out"
exit $status
