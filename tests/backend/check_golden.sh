#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On devices whose memory the host cannot touch, as many recorded cases pass as on CPUs, whatever the delays of the queues; and
# on devices with host memory and kernels of their own.
#
#     check_golden.sh PATH-OF-GOLDEN
set -u
golden=$1
here=$(dirname "$0")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0

# check_families TYPE SEED [FAMILY...]: without families, all.
check_families() {
    local type=$1 seed=$2 family least passed
    shift 2
    TEST_BACKEND_SEED=$seed "$golden" --device "$type:0" "$here/../golden" "$@" >"$out" 2>&1
    while read -r family least; do
        case $family in '#'* | '') continue ;; esac
        [ $# -gt 0 ] && [[ " $* " != *" $family "* ]] && continue
        passed=$(sed -n "s/^$family: \([0-9]*\) passed, [0-9]* failed\$/\1/p" "$out")
        if [ -z "$passed" ] || [ "$passed" -lt "$least" ]; then
            echo "FAILED: seed $seed: $family: ${passed:-no} cases pass on $type, at least $least must"
            grep -E "^$family/|TEST backend" "$out" | head -n 10
            status=1
        fi
    done <"$here/../golden-runner/at_least.txt"
    tail -n 1 "$out"
}

check_families TEST 1
check_families TEST 2 ops reduce variables
check_families UNIFIED 1
exit $status
