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

# Programs: values, captures, notes and errors, with the alternatives that entries have.
code=0
"$golden" --verbose "$data" functions >"$out" 2>&1 || code=$?
if [ "$code" -ne 1 ]; then
    echo "FAILED: status $code instead of 1"
    status=1
fi
while IFS= read -r line; do
    grep -qF -- "$line" "$out" && continue
    echo "FAILED: no line with '$line'"
    status=1
done <<'LINES'
functions/tracing_tensor/0: passed
functions/tracing_tensor/1: results[2][1] is -4.0, expected -4.5 (float32, tolerance
functions/tracing_tensor/2: results[1]: 'f' was captured 1 times, expected at most 0
functions/tracing_tensor/3: passed
functions/tracing_tensor/4: results[1]: of 0 notes 0 are missing, and these are not expected: [{"dtype":"float32"
functions/tracing_tensor/5: results[2]: of 1 notes 1 are missing
functions/tracing_tensor/6: results[2] succeeded, expected an error of kind E_VALUE
functions/tracing_tensor/7: passed
functions/tracing_tensor/8: results[2] failed with E_TYPE
functions/tracing_tensor/9: results[2] failed with E_TYPE (no value for the parameter 'x'), expected kind E_VALUE
functions/tracing_tensor/10: passed
functions/tracing_tensor/11: passed
functions/tracing_tensor/12: passed
functions/tracing_tensor/13: results has 3 entries, expected 2
functions/tracing_tensor/14: action 'no_such_action' is not known to the runner
functions/tracing_tensor/15: results[2] is {"dtype":"float32"
functions: 6 passed, 10 failed
LINES

# In captured functions the same cases are wrong, and other bits than without capturing are found.
code=0
"$golden" --function "$data" ops >"$out" 2>&1 || code=$?
if [ "$code" -ne 1 ] || [ "$(grep -c 'without capturing: ' "$out")" -ne 12 ] ||
    [ "$(tail -n 1 "$out")" != 'total: 3 passed, 12 failed' ]; then
    echo "FAILED: --function"
    status=1
fi
code=0
"$golden" --function --fault lies "$data" ops >"$out" 2>&1 || code=$?
if [ "$code" -ne 1 ] || [ "$(grep -c 'have other bits' "$out")" -ne 3 ] ||
    [ "$(tail -n 1 "$out")" != 'total: 0 passed, 15 failed' ]; then
    echo "FAILED: --function --fault lies"
    status=1
fi

[ $status -eq 0 ] && echo "passed" || sed 's/^/    /' "$out"
exit $status
