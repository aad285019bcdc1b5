#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Expectations that are wrong on purpose are reported as failed, with the reason; right ones beside them pass.
#
#     check_wrong.sh PATH-OF-GOLDEN
set -u
golden=$1
data=$(dirname "$0")/wrong
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0

code=0
"$golden" --verbose "$data" ops >"$out" 2>&1 || code=$?
if [ "$code" -ne 1 ]; then
    echo "FAILED: status $code instead of 1"
    status=1
fi
while IFS= read -r line; do
    grep -qF -- "$line" "$out" && continue
    echo "FAILED: no line with '$line'"
    status=1
done <<'LINES'
ops/neg/0: passed
ops/neg/1: out[1] is -2.0, expected -2.5 (float32, tolerance
ops/neg/2: out is {"dtype":"float32"
ops/neg/3: out is {"dtype":"float32"
ops/neg/4: succeeded, expected an error of kind E_VALUE
ops/neg/5: grads.x[1] is -1.0, expected 1 (float32, tolerance
ops/neg/6: grads.x is {"dtype":"float32"
ops/error.add/0: failed with CO_INVALID_ARGUMENT
ops/neg/7: out[0] is -1.0, expected 1 (float32, tolerance
ops/neg/8: passed
ops/neg/9: passed
ops/neg/10: out[0] is -9007199254740993, expected -9007199254740992 (int64, exact)
ops/neg/11: out[0] is "nan", expected 0 (float32, tolerance
ops/neg/12: nothing is compared
ops/neg/13: nothing is compared
ops: 3 passed, 12 failed
total: 3 passed, 12 failed
LINES

# Captured functions do not exist: everything fails, and says why.
code=0
"$golden" --function "$data" ops >"$out" 2>&1 || code=$?
if [ "$code" -ne 1 ] || [ "$(grep -c 'captured functions' "$out")" -ne 15 ] ||
    [ "$(tail -n 1 "$out")" != 'total: 0 passed, 15 failed' ]; then
    echo "FAILED: --function"
    status=1
fi

[ $status -eq 0 ] && echo "passed" || sed 's/^/    /' "$out"
exit $status
