#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rules of operators over types with unknowns hold for every case of ops, and a fault in what they say is found: in every
# case where it shows. (A result without dimensions has none to forget; results without unknowns leave nothing to invent.)
#
#     check_types.sh PATH-OF-GOLDEN
set -u
golden=$1
data=$(dirname "$0")/../golden
status=0

out=$("$golden" --types "$data" ops)
if [ $? -ne 0 ]; then
    status=1
fi
echo "$out"
# Operators that TensorFlow has not, or has not recorded: gradients, layers of our own.
"$golden" --types "$(dirname "$0")/own-operators" ops || status=1
errors=$(sed -n 's/^types: \([0-9]*\) cases expect an error.*/\1/p' <<<"$out")
programs=$(sed -n 's/.*error, \([0-9]*\) are programs.*/\1/p' <<<"$out")
passed=$(sed -n 's/^ops: \([0-9]*\) passed.*/\1/p' <<<"$out")
all=$((passed - errors - programs))

while read -r fault least; do
    [ "$least" = all ] && least=$all
    found=$("$golden" --types --fault "$fault" "$data" ops | sed -n 's/^ops: [0-9]* passed, \([0-9]*\) failed$/\1/p')
    echo "fault '$fault': found in ${found:-no} of $all cases"
    if [ -z "$found" ] || [ "$found" -lt "$least" ]; then
        echo "FAILED: it must be found in at least $least"
        status=1
    fi
done <<'END'
forgets 1024
forgets-rank all
invents 957
lies 1024
lies-dtype all
refuses all
END
exit $status
