#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/base-commit and scripts/changed-tests, in small repositories: a branch, the main branch, a shallow clone, no git. And in
# this tree: every folder of src/ has tests.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v git >/dev/null || { echo "skipped: this needs git"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
same() { [ "$2" = "$3" ] || fail "$1: '$2', expected '$3'"; }

for folder in "$source"/src/*/; do
    [ -n "$(find "$folder" -name '*.c')" ] || continue
    name=$(basename "$folder")
    tests=$("$source/scripts/changed-tests" "src/$name/some_file.c")
    [ "$tests" != "$("$source/scripts/changed-tests" README.md)" ] || fail "src/$name has no unit tests; list them in scripts/changed-tests"
    for test in $tests; do [ -e "$source/tests/unit/$test.c" ] || fail "src/$name: there is no test $test"; done
done
[ "$("$source/scripts/changed-tests" README.md | wc -l)" -ge 10 ] || fail "the fixed set has few tests: do their names still fit?"

unset COHORT_BASE GIT_DIR GIT_WORK_TREE
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
mkdir "$scratch/tree"
cd "$scratch/tree"
mkdir -p scripts src/ops src/data tests/unit
cp "$source"/scripts/{base-commit,changed-tests} scripts/
touch src/ops/a.c src/data/d.c tests/unit/{ops_a,data_d,other,contexts}.c
echo '#include "shared.h"' >tests/unit/other.c
echo '#include "ops/a.h"' >tests/unit/shared.h
scripts/base-commit >/dev/null && fail "there is a base without git"
same 'without git' "$(scripts/changed-tests)" contexts

commit() { git add -A && git -c user.name=n -c user.email=e commit -q --allow-empty -m "$1"; }
git init -q -b main .
commit first
first=$(git rev-parse HEAD)
scripts/base-commit --or 1 >/dev/null && fail "the first commit has a base"
git checkout -q -b topic
echo '/* */' >>src/data/d.c
commit second
same 'a branch' "$(scripts/base-commit)" "$first"
same 'the tests of a branch' "$(scripts/changed-tests)" data_d
touch src/ops/new.c
same 'with a new file' "$(scripts/changed-tests | tr '\n' ' ')" 'data_d ops_a other '
same 'a header of tests' "$(scripts/changed-tests tests/unit/shared.h)" other
same 'a test' "$(scripts/changed-tests tests/unit/other.c)" other
commit third
git checkout -q main
git merge -q topic
scripts/base-commit >/dev/null && fail "the main branch has a base of its own"
same 'two commits ago' "$(scripts/base-commit --or 2)" "$first"
COHORT_BASE=$first
export COHORT_BASE
same 'COHORT_BASE' "$(scripts/base-commit)" "$first"
unset COHORT_BASE
git clone -q --depth 1 "file://$PWD" "$scratch/shallow"
cd "$scratch/shallow"
same 'a shallow clone' "$(scripts/changed-tests)" contexts
scripts/base-commit --or x >/dev/null 2>&1
[ $? -eq 2 ] || fail "--or x is accepted"
exit $failed
