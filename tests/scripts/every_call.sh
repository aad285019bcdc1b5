#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every function that these headers declare is called in tests/unit/errors_calls.c.
set -eu
cd "$(dirname "$0")/../.."

missing=0 count=0
for name in $(cat include/cohort/{api,error,context,device,value,dlpack,gradient,ops,variable}.h | tr '\n' ' ' |
    grep -o 'CO_API [^;(]*(' | grep -o 'co_[a-z0-9_]*(' | tr -d '(' | sort -u); do
    count=$((count + 1))
    if ! grep -q "[^a-z_]$name(" tests/unit/errors_calls.c; then
        echo "$name is not called in tests/unit/errors_calls.c"
        missing=$((missing + 1))
    fi
done
[ "$count" -gt 100 ] || { echo "only $count declarations were found"; exit 1; }
[ $missing -eq 0 ]
