#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every function that these headers declare is called on a NULL context and on one that has an error: in
# tests/unit/errors_calls.c with op_calls.h, those of v1.h and tpu.h in tests of their own. And every call has a macro that notes its line.
set -eu
cd "$(dirname "$0")/../.."

missing=0 count=0
# called_in FILES HEADER...
called_in() {
    local files=$1 name
    shift
    for name in $(cat "$@" | tr '\n' ' ' | grep -o 'CO_API [^;(]*(' | grep -o 'co_[a-z0-9_]*(' | tr -d '(' | sort -u); do
        count=$((count + 1))
        # shellcheck disable=SC2086
        if ! grep -q "[^a-z_]$name(" $files; then
            echo "$name is not called in $files"
            missing=$((missing + 1))
        fi
    done
}
called_in "tests/unit/errors_calls.c tests/unit/op_calls.h" include/cohort/{api,error,context,device,value,dlpack,gradient,ops,variable}.h
called_in "tests/unit/v1_iterators.c tests/unit/extended_corners.c" include/cohort/v1.h
called_in "tests/unit/tpu_topologies.c tests/unit/extended_corners.c" include/cohort/tpu.h
# Every call that takes a context notes its line (sites.h), however its declaration is laid out.
for name in $(cat include/cohort/*.h | tr -s '\n ' ' ' | grep -oE 'CO_API [^;(]*\( ?co_context ?\*' | grep -oE 'co_[a-z0-9_]* ?\(' | tr -d ' (' | sort -u); do
    [ "$name" = co_open_beside ] || grep -q "^#define $name(ctx" include/cohort/*sites.h ||
        { echo "$name has no call site in include/cohort/sites.h"; missing=$((missing + 1)); }
done
[ "$count" -gt 100 ] || { echo "only $count declarations were found"; exit 1; }
[ $missing -eq 0 ]
