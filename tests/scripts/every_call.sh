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
called_in "tests/unit/v1_iterators.c tests/unit/graph.c tests/unit/extended_corners.c" include/cohort/v1.h
called_in "tests/unit/tpu_topologies.c tests/unit/extended_corners.c" include/cohort/tpu.h
# Every call that takes a context notes its line (sites.h), however its declaration is laid out.
for name in $(cat include/cohort/*.h | tr -s '\n ' ' ' | grep -oE 'CO_API [^;(]*\( ?co_context ?\*' | grep -oE 'co_[a-z0-9_]* ?\(' | tr -d ' (' | sort -u); do
    [ "$name" = co_open_beside ] || grep -q "^#define $name(ctx" include/cohort/*sites.h ||
        { echo "$name has no call site in include/cohort/sites.h"; missing=$((missing + 1)); }
done
# Errors name a call as it is declared. Statements of macros have the name of what they begin, and calls with options that of
# the call without.
wrong=$(perl -ne '$function = $1 if /^(co_\w+)\(/;
    $function = "" if /^}/;
    next unless $function && /COI_ENTER\w*\(\w+, "(\w+)"/;
    ++$count;
    print "$function names itself $1 in errors\n"
        unless $function =~ /^co_statement_/ || "co_$1" eq $function || "co_$1_with" eq $function;
    END { print "only $count calls with a name were found\n" if $count < 150 }' src/*/*.c src/*/*/*.c)
[ -z "$wrong" ] || { echo "$wrong"; missing=$((missing + 1)); }
# Nothing calls them as they were called before docs/renamed.tsv; a name that was given to another call is one of today.
for name in $(awk -F'\t' '/^(co|CO)_/ { new[$2] = 1; old[$1] = 1 } END { for (n in old) if (!(n in new)) print n }' docs/renamed.tsv); do
    if grep -rnw --exclude=renamed.tsv -e "$name" src tools examples bench include docs README.md; then
        echo "$name has another name today, see docs/renamed.tsv"
        missing=$((missing + 1))
    fi
done
[ "$count" -gt 100 ] || { echo "only $count declarations were found"; exit 1; }
[ $missing -eq 0 ]
