#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo learns on devices whose memory the host cannot touch: check_demo.sh PATH-OF-DEMO
set -u
result=$(mktemp)
trap 'rm -f "$result"' EXIT
COHORT_DEVICES=TEST:2 "$1" devices --data examples/demo/digits.csv --result "$result" --progress lines || exit 1
read -r mode accuracy rest <"$result"
if [ "$mode" != devices ] || ! awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.94) }'; then
    echo "FAILED: the demo on TEST:2 reads ${accuracy:-none} of the digits right, 0.94 are expected"
    exit 1
fi
