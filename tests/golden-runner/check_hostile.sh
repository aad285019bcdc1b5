#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that are no golden data, or only look like it: a clear message, a failure, never a crash.
#
#     check_hostile.sh PATH-OF-GOLDEN
set -u
golden=$1
data=$(dirname "$0")/hostile
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0

complain() {
    echo "FAILED: $*"
    sed 's/^/    /' "$scratch/out" "$scratch/err" | head -n 20
    status=1
}

# expect WHAT MESSAGE ARGUMENT...: ends with status 1 or 2, says MESSAGE, and passes nothing.
expect() {
    local what=$1 message=$2 code=0
    shift 2
    "$golden" "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
    if [ "$code" -ne 1 ] && [ "$code" -ne 2 ]; then
        complain "$what: status $code instead of 1 or 2"
    elif ! grep -qF -- "$message" "$scratch/out" "$scratch/err"; then
        complain "$what: no '$message'"
    elif grep -q 'crashed' "$scratch/out"; then
        complain "$what: a case crashed"
    elif grep -q '^total: ' "$scratch/out" && ! tail -n 1 "$scratch/out" | grep -q '^total: 0 passed, '; then
        complain "$what: $(tail -n 1 "$scratch/out")"
    fi
}

mkdir "$scratch/empty" "$scratch/folder"
mkdir "$scratch/folder/ops.json"

expect 'a folder that does not exist' 'does not exist' "$scratch/nowhere"
expect 'a family that does not exist' 'No such file' "$data/not_an_object" nothing
expect 'an empty folder' 'holds no *.json file' "$scratch/empty"
expect 'a folder in place of a file' 'is not a file' "$scratch/folder" ops
expect 'an unknown option' 'try --help' --nonsense
expect 'a cut-off file' 'is not JSON' "$data/truncated"
expect 'bytes' 'is not JSON' "$data/binary"
expect 'a list' 'is not golden data' "$data/not_an_object"
expect 'no list of cases' 'is not golden data' "$data/no_cases"
expect 'no family' 'is not golden data' "$data/no_family"
expect 'an unknown family' "family 'alchemy' is not known" "$data/unknown_family"
expect 'a filter that selects nothing' 'no case was run' --filter selects-nothing "$data/wrong_types"
for family in ops context reduce variables datasets distribute_input seeds; do
    expect "wrong types in $family" 'total: 0 passed' "$data/wrong_types" $family
done

# Every case of the hostile files is judged: none is lost.
"$golden" "$data/wrong_types" >"$scratch/out" 2>"$scratch/err"
judged=$(sed -n 's/^total: 0 passed, \([0-9]*\) failed$/\1/p' "$scratch/out")
written=$(cat "$data"/wrong_types/*.json | grep -cv -e '^{"family"' -e '^]}$')
[ "$judged" = "$written" ] || complain "$written cases were written, '$judged' judged"

[ $status -ne 0 ] || echo "passed"
exit $status
