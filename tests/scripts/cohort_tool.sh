#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program `cohort`: what it prints, and what it refuses.
set -u
source=${COHORT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cohort=${COHORT_BUILD_DIR:-$source/build/release}/tools/cohort
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect STATUS PATTERN COMMAND...: the exit status, and a line of output or error that matches.
expect() {
    local status=$1 pattern=$2
    shift 2
    "$@" >"$scratch/out" 2>&1
    local got=$?
    if [ $got -ne "$status" ] || ! grep -qE -- "$pattern" "$scratch/out"; then
        echo "FAILED: $* gives $got (expected $status with '$pattern') and prints:"
        cat "$scratch/out"
        failed=1
    fi
}

expect 0 '^cohort [0-9]+\.[0-9]+\.[0-9]+$' "$cohort" info
expect 0 '^  compiler ' "$cohort" info
expect 0 '^  oneDNN ' "$cohort" info
expect 0 'device:CPU:0  cpu, ' "$cohort" info
expect 0 '^  cpus +1 +default ' "$cohort" info
expect 0 '^  cpus +2 +environment ' env COHORT_CPUS=2 "$cohort" info
expect 0 'device:GPU:1 .*host-backed' env COHORT_DEVICES=GPU:2 "$cohort" info
expect 0 '"cpus": \{"value": "2", "from": "environment"' env COHORT_CPUS=2 "$cohort" info --json
expect 1 "cpus='many'.*COHORT_CPUS" env COHORT_CPUS=many "$cohort" info
expect 0 '^  matmul ' "$cohort" ops
expect 0 '^  inputs +a, b$' "$cohort" ops matmul
expect 1 "no operator 'matmull'" "$cohort" ops matmull
expect 0 '^usage: ' "$cohort" help
expect 0 '^usage: ' "$cohort" --help
expect 2 "no command 'inform'" "$cohort" inform
expect 2 '^usage: ' "$cohort"
expect 2 "argument '--yaml' is unknown" "$cohort" info --yaml
expect 1 'writing' bash -c '"$1" info >/dev/full' bash "$cohort"
if command -v python3 >/dev/null; then
    "$cohort" info --json | python3 -m json.tool >/dev/null || { echo "FAILED: info --json is no JSON"; failed=1; }
fi
exit $failed
